package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

// quickstart are the jobs of the example on a small generated corpus.
func quickstart(t *testing.T, conc ...int) []*Job {
	t.Helper()
	set, err := spec.Load([]string{"../../examples/quickstart/master.yaml"}, "../../examples/quickstart/runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	points, err := set.Points(spec.Selection{Conc: conc})
	if err != nil {
		t.Fatal(err)
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 7, Traces: 24})
	if err != nil {
		t.Fatal(err)
	}
	var jobs []*Job
	for _, p := range points {
		p.DurationNs = int64(20 * time.Minute)
		v, err := plan.Compute(p, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, &Job{Point: p, Verdict: v, Corpus: c, Replay: ReplayOptions(p), Version: "test"})
	}
	return jobs
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSameSeedSameBytes(t *testing.T) {
	for _, j := range quickstart(t, 8) {
		var results, requests [][]byte
		for range 2 {
			dir := filepath.Join(t.TempDir(), "b")
			if _, err := Measure(t.Context(), Virtual{}, j, dir); err != nil {
				t.Fatal(err)
			}
			results = append(results, read(t, dir, record.ResultFile))
			requests = append(requests, read(t, dir, record.RequestsFile))
		}
		if !bytes.Equal(results[0], results[1]) || !bytes.Equal(requests[0], requests[1]) {
			t.Errorf("%s: two runs with one seed differ", j.Point.Name)
		}
		other := *j.Point
		other.Weir.Seed++
		k := *j
		k.Point = &other
		dir := filepath.Join(t.TempDir(), "b")
		r, err := Measure(t.Context(), Virtual{}, &k, dir)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(results[0], read(t, dir, record.ResultFile)) || bytes.Equal(requests[0], read(t, dir, record.RequestsFile)) {
			t.Errorf("%s: another seed gave the same bytes", j.Point.Name)
		}
		if !r.Simulated || !r.Virtual || r.MeasuredAt != "" {
			t.Errorf("%s: simulated %v, virtual %v, measured at %q", j.Point.Name, r.Simulated, r.Virtual, r.MeasuredAt)
		}
	}
}

// bundles maps the folders of a sweep to their result and requests.
func bundles(t *testing.T, dir string) map[string][2]string {
	t.Helper()
	out := map[string][2]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		b := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(b, record.CompleteFile)); err != nil {
			t.Errorf("%s is not whole: %v", e.Name(), err)
			continue
		}
		out[e.Name()] = [2]string{string(read(t, b, record.ResultFile)), string(read(t, b, record.RequestsFile))}
	}
	return out
}

// TestInterruptedSweep stops a sweep after every possible number of points while others
// run, and lets it go on: whole bundles only, nothing repeated, the same end.
func TestInterruptedSweep(t *testing.T) {
	conc := []int{1, 2, 4, 8}
	ref := t.TempDir()
	if _, err := (&Sweep{Dir: ref, Jobs: quickstart(t, conc...), Executor: Virtual{}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := bundles(t, ref)
	if len(want) != 2*len(conc) {
		t.Fatalf("%d bundles, want %d", len(want), 2*len(conc))
	}
	for stop := range len(want) - 1 {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		done := 0
		s := Sweep{Dir: dir, Jobs: quickstart(t, conc...), Executor: Virtual{}, Parallel: 2, Report: func(u Update) {
			if u.State == Complete {
				done++
			}
			if done >= stop && u.State == Started {
				cancel()
			}
		}}
		sum, err := s.Run(ctx)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped after %d: %v", stop, err)
		}
		before := bundles(t, dir)
		if len(before) != sum.Complete {
			t.Fatalf("stopped after %d: %d bundles, the summary says %d", stop, len(before), sum.Complete)
		}
		sum, err = (&Sweep{Dir: dir, Jobs: quickstart(t, conc...), Executor: Virtual{}, Parallel: 2}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if sum.Skipped != len(before) || sum.Complete != len(want)-len(before) {
			t.Errorf("stopped after %d: %d skipped, %d run; %d were whole", stop, sum.Skipped, sum.Complete, len(before))
		}
		after := bundles(t, dir)
		for id, b := range want {
			if after[id] != b {
				t.Errorf("stopped after %d: bundle %s differs from that of a sweep that was not stopped", stop, id)
			}
		}
		started := map[string]int{}
		entries, err := ReadJournal(filepath.Join(dir, JournalFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.State == Complete {
				started[e.Point]++
			}
		}
		for id, n := range started {
			if n != 1 {
				t.Errorf("stopped after %d: %s was completed %d times", stop, id, n)
			}
		}
	}
}

func TestSecondSweepInOneFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	jobs := quickstart(t, 1)
	ran := false
	s := Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}, Report: func(u Update) {
		if u.State != Started || ran {
			return
		}
		ran = true
		if _, err := (&Sweep{Dir: dir, Jobs: quickstart(t, 1), Executor: Virtual{}}).Run(t.Context()); !errors.Is(err, ErrLocked) {
			t.Errorf("a second sweep gave %v", err)
		}
	}}
	if _, err := s.Run(t.Context()); err != nil || !ran {
		t.Fatal(err, ran)
	}
}

func TestJournalSurvivesATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), JournalFile)
	whole := `{"at":"2026-01-02T03:04:05Z","point":"a","name":"n","state":"complete"}` + "\n"
	for cut := range len(whole) {
		if err := os.WriteFile(path, []byte(whole+whole[:cut]), 0o666); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(Entry{Point: "b", State: Started}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		got, err := ReadJournal(path)
		if err != nil || len(got) != 2 || got[0].Point != "a" || got[1].Point != "b" {
			t.Fatalf("cut at %d: %v %v", cut, got, err)
		}
	}
}

// TestJournalWithABadLine: the error names the line and says what to do.
func TestJournalWithABadLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), JournalFile)
	if err := os.WriteFile(path, []byte("{}\nnonsense\n{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJournal(path); err == nil || !strings.Contains(err.Error(), ":2: not a journal entry") || !strings.Contains(err.Error(), "delete that line, or move the file aside") {
		t.Errorf("%v", err)
	}
}

// TestDamagedBundlesRunAgain breaks whole bundles in every way that a disk or a person can; the
// sweep sets each aside, runs its point again and ends as if nothing had happened.
func TestDamagedBundlesRunAgain(t *testing.T) {
	dir := t.TempDir()
	sweep := func() (Summary, error) {
		return (&Sweep{Dir: dir, Jobs: quickstart(t, 1), Executor: Virtual{}}).Run(t.Context())
	}
	if _, err := sweep(); err != nil {
		t.Fatal(err)
	}
	want := bundles(t, dir)
	id := filepath.Base(BundleDir(dir, quickstart(t, 1)[0]))
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, id, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, harm := range map[string]func(){
		"point.json of nothing":    func() { write(record.PointFile, "{}") },
		"point.json that is gone":  func() { os.Remove(filepath.Join(dir, id, record.PointFile)) },
		"requests cut short":       func() { os.Truncate(filepath.Join(dir, id, record.RequestsFile), 1000) },
		"an empty COMPLETE":        func() { write(record.CompleteFile, "") },
		"sums of other files":      func() { write(record.CompleteFile, `{"files":[]}`) },
		"metrics with a byte more": func() { write(record.MetricsFile, string(read(t, dir, id, record.MetricsFile))+"x") },
		"a file in the folder's place": func() {
			os.RemoveAll(filepath.Join(dir, id))
			os.WriteFile(filepath.Join(dir, id), nil, 0o666)
		},
		"another point's bundle": func() {
			for other := range want {
				if other != id {
					os.RemoveAll(filepath.Join(dir, id))
					if err := os.CopyFS(filepath.Join(dir, id), os.DirFS(filepath.Join(dir, other))); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	} {
		harm()
		sum, err := sweep()
		if err != nil || sum.Complete != 1 || sum.Skipped != 1 {
			t.Errorf("%s: %+v, %v: want one point run again", name, sum, err)
		}
		os.RemoveAll(filepath.Join(dir, id+record.DamagedSuffix))
		if got := bundles(t, dir); got[id] != want[id] || len(got) != len(want) {
			t.Errorf("%s: the bundle is not what it was", name)
		}
	}
	write(record.ResultFile, "garbage") // derived again, no harm
	if sum, err := sweep(); err != nil || sum.Skipped != 2 {
		t.Errorf("a garbled result: %+v, %v", sum, err)
	}
	entries, err := ReadJournal(filepath.Join(dir, JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for _, e := range entries {
		if e.State == Damaged {
			damaged++
		}
	}
	if damaged != 8 {
		t.Errorf("the journal tells of %d damaged bundles, want 8", damaged)
	}
}
