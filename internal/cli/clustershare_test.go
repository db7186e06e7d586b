package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/run"
)

// starts is how the caches of the points of a sweep were emptied, by concurrency.
func (s *sweep) starts() map[int]*record.CacheStart {
	s.c.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.out, "*", record.PointFile))
	if err != nil {
		s.c.t.Fatal(err)
	}
	out := map[int]*record.CacheStart{}
	for _, f := range files {
		var m struct {
			record.Meta
			Point struct {
				Conc int `json:"conc"`
			} `json:"point"`
		}
		raw, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil {
			s.c.t.Fatal(err)
		}
		out[m.Point.Conc] = m.CacheStart
	}
	return out
}

// jobs are the allocations of a sweep by the journal, with the number of points of each.
func (s *sweep) jobs() map[string]int {
	out := map[string]int{}
	for _, e := range s.journal() {
		if e.State == run.Submitted {
			out[e.Job]++
		}
	}
	return out
}

// TestClusterShared measures three concurrencies in one allocation, on one server. A controlling
// process that is killed on the way finds the points that are whole and the allocation again.
func TestClusterShared(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	s := c.sweep("shared", "", map[string]string{"glm": "@1, 2, 3"})
	cmd, _ := s.begin("--share-server", "--duration", "10s")
	c.until("journal", 4*time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(s.out, run.JournalFile))
		return err == nil
	})
	c.until("progress of a point", 4*time.Minute, func() bool {
		status := c.weirRun(0, "sweep", "status", s.out, "--json")
		return strings.Contains(status, `"hit"`) && strings.Contains(status, `"left"`) && strings.Contains(status, `"InputTokens"`)
	})
	c.until("whole point", 4*time.Minute, func() bool {
		done, _ := filepath.Glob(filepath.Join(s.out, "*", record.CompleteFile))
		return len(done) > 0
	})
	cmd.Process.Kill()
	cmd.Wait()
	out := s.run(0, "--duration", "10s") // without the flag: the points stay where they are
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE", "glm@3": "COMPLETE"})
	if n := strings.Count(out, "from before"); n < 1 {
		t.Errorf("nothing is from before:\n%s", out)
	}
	if jobs := s.jobs(); len(jobs) != 1 {
		t.Errorf("allocations %v for one server", jobs)
	}
	for conc, st := range s.starts() {
		if st == nil || st.Clean == nil || !*st.Clean || st.PointsBefore != conc-1 || st.Restarted != "" {
			t.Errorf("concurrency %d began so: %+v", conc, st)
		}
	}
	completed := map[string]int{}
	for _, e := range s.journal() {
		if e.State == run.Complete {
			completed[e.Point]++
		}
	}
	for p, n := range completed {
		if n > 1 {
			t.Errorf("%s was measured %d times", p, n)
		}
	}
	c.idle()

	// A point that hangs ends in its class; the others, on a new server of the same allocation, do not.
	s = c.sweep("sharedhung", "", map[string]string{"glm": "@1, 2, 3"})
	c.write("sharedhung/r-glm.yaml", "name: r-glm\nextends: sim-serve\nready: { start: 5m, drain: 2m, silent: 20s, stop: 1m }\nargs: { speed: 50, fault: \"no-headers,skip=20,once="+filepath.Join(c.dir, "hung")+"\" }\n")
	s.run(1, append(heldWarmup, "--share-server")...)
	ends := s.ends()
	stalled := 0
	for _, e := range ends {
		if e == "stall" {
			stalled++
		} else if e != "COMPLETE" {
			t.Errorf("a point ended as %s", e)
		}
	}
	if stalled != 1 || len(ends) != 3 {
		t.Errorf("the points ended as %v", ends)
		stalls, _ := filepath.Glob(filepath.Join(s.out, "*", record.LogsDir, "stall.txt"))
		for _, f := range stalls {
			raw, _ := os.ReadFile(f)
			t.Logf("%s:\n%.3000s", f, raw)
		}
	}
	if jobs := s.jobs(); len(jobs) != 1 {
		t.Errorf("allocations %v", jobs)
	}
	c.idle()
}
