package run

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

// files are all files under a folder with their content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		out[p] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// otherRuns are changes of a run that its points' ids do not hold, with what is said of each.
func otherRuns(t *testing.T) map[string]func(*Job) {
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 8, Traces: 5})
	if err != nil {
		t.Fatal(err)
	}
	wide := 0.5
	return map[string]func(*Job){
		"the corpus there is .*24 traces.* here it is .*5 traces": func(j *Job) { j.Corpus = c },
		"replay option max_out is none there and 10 here":         func(j *Job) { j.Replay.MaxOut = 10 },
		"replay option no_gaps is none there and true here":       func(j *Job) { j.Replay.NoGaps = true },
		"replay option pressure_requests is 10 there and 2 here":  func(j *Job) { j.Replay.PressureRequests = 2 },
		"recipe version is \"1\" there and \"2\" here": func(j *Job) {
			r := *j.Recipe
			r.Version = "2"
			j.Recipe = &r
		},
		"the facts .* the embedded ones there and [0-9a-f]{12} here": func(j *Job) { j.Facts = "gpus: []\n" },
		"the plan has [0-9]+ device tokens there and [0-9]+ here": func(j *Job) {
			v := *j.Verdict
			v.Roles = append(v.Roles[:0:0], v.Roles...)
			v.Roles[0].Device.UniqueTokens++
			j.Verdict = &v
		},
		"the client limit is the usual one there and 50 % here": func(j *Job) { j.ClientLimit = &wide },
		`switched off by hand are "" there and "x" here`:        func(j *Job) { j.Overrides = []string{"x"} },
	}
}

func sameJobs(t *testing.T) []*Job {
	jobs := quickstart(t, 1)
	for _, j := range jobs {
		j.Recipe = &engine.Recipe{Name: "r", Engine: "sim", Version: "1", Args: engine.Args{{Name: "a", Line: 3}}}
	}
	return jobs
}

// TestOtherRunsBundles runs a sweep and then other ones with the same points into its folder.
func TestOtherRunsBundles(t *testing.T) {
	dir := t.TempDir()
	if _, err := (&Sweep{Dir: dir, Jobs: sameJobs(t), Executor: Virtual{}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	for want, change := range otherRuns(t) {
		jobs := sameJobs(t)
		change(jobs[len(jobs)-1])
		_, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}}).Run(t.Context())
		if !errors.Is(err, ErrOtherRun) || !matches(want, err.Error()) || !strings.Contains(err.Error(), "-o") {
			t.Errorf("%s: %v", want, err)
		}
		if after := files(t, dir); !maps.Equal(before, after) {
			t.Fatalf("%s: the folder was touched", want)
		}
	}
	jobs := sameJobs(t)
	for _, j := range jobs {
		j.Recipe.Args[0].Line++ // a comment more in the recipe's file
	}
	sum, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}}).Run(t.Context())
	if err != nil || sum.Skipped != 2 || sum.Complete != 0 {
		t.Errorf("the same sweep again: %+v, %v", sum, err)
	}
}

// TestSameRunTwice refuses two jobs that would write one bundle.
func TestSameRunTwice(t *testing.T) {
	jobs := append(sameJobs(t), sameJobs(t)[0])
	p := *jobs[0].Point
	p.Origin.Line = 99
	jobs[2].Point = &p
	dir := t.TempDir()
	_, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}, Parallel: 3}).Run(t.Context())
	if err == nil || !matches(`master.yaml:[0-9]+ and .*master.yaml:99 make the same run`, err.Error()) {
		t.Error(err)
	}
}

// TestOtherSchema leaves a bundle of a later program alone.
func TestOtherSchema(t *testing.T) {
	dir := t.TempDir()
	jobs := sameJobs(t)
	if _, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(BundleDir(dir, jobs[0]), record.PointFile)
	raw := strings.Replace(string(read(t, file)), `"schema": 1`, `"schema": 99`, 1)
	if err := os.WriteFile(file, []byte(raw), 0o666); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	_, err := (&Sweep{Dir: dir, Jobs: sameJobs(t), Executor: Virtual{}}).Run(t.Context())
	if !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "99") {
		t.Error(err)
	}
	if !maps.Equal(before, files(t, dir)) {
		t.Error("the folder was touched")
	}
}

// TestOtherRunsAllocation does the same with what another run has under way on a cluster.
func TestOtherRunsAllocation(t *testing.T) {
	dir := t.TempDir()
	s := &Slurm{Dir: dir, Weir: "weir", Cluster: func(string) (*spec.Cluster, error) { return &spec.Cluster{}, nil }}
	job := func() *Job {
		j := sameJobs(t)[0]
		j.CorpusPath = "traces"
		return j
	}
	j := job()
	home := filepath.Join(dir, slurmDir, filepath.Base(BundleDir(dir, j)))
	if err := os.MkdirAll(filepath.Join(home, "token"), 0o777); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(s.spec(j))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"current": "token\n", "token/job.json": string(raw)} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Sweep{Dir: dir, Jobs: []*Job{job()}, Executor: s}).Check(); err != nil {
		t.Errorf("the same run: %v", err)
	}
	for want, change := range otherRuns(t) {
		if strings.HasPrefix(want, "the plan") || strings.HasPrefix(want, "switched") {
			continue // decided in the allocation
		}
		k := job()
		change(k)
		if err := (&Sweep{Dir: dir, Jobs: []*Job{k}, Executor: s}).Check(); !errors.Is(err, ErrOtherRun) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }
