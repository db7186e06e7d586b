package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirbench/weir/internal/record"
)

// sharedStarts checks how the cache of one point of a sweep was emptied: shared-starts SWEEP
// conc=N [before=N] [clean=BOOL] [tries=N] [salt=point] [calls=TEXT] [restarted=TEXT].
func sharedStarts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: shared-starts SWEEP conc=N [FACT=VALUE...]")
	}
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*", record.PointFile))
	ts.Check(err)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		ts.Check(err)
		var m struct {
			record.Meta
			Point struct {
				Conc int `json:"conc"`
			} `json:"point"`
		}
		ts.Check(json.Unmarshal(raw, &m))
		if fmt.Sprintf("conc=%d", m.Point.Conc) != args[1] {
			continue
		}
		s := m.CacheStart
		if s == nil || s.Clean == nil {
			ts.Fatalf("%s %s: nobody looked at the cache", args[0], args[1])
		}
		most, calls := 0, ""
		for _, c := range s.Flushes {
			most = max(most, c.Tries)
			calls += fmt.Sprintf(" %s %d", c.URL, c.Status)
		}
		for _, want := range args[2:] {
			key, value, _ := strings.Cut(want, "=")
			ok := false
			switch key {
			case "before":
				ok = fmt.Sprint(s.PointsBefore) == value
			case "clean":
				ok = fmt.Sprint(*s.Clean) == value && *m.CacheClean == *s.Clean
			case "tries":
				ok = fmt.Sprint(most) == value
			case "salt":
				ok = s.Salt == filepath.Base(filepath.Dir(f))
			case "calls":
				ok = strings.Contains(calls, value) && !strings.Contains(calls, " 4") && !strings.Contains(calls, " 5")
			case "restarted":
				ok = strings.Contains(s.Restarted, value)
			}
			if !ok {
				ts.Fatalf("%s %s: not %s: %+v", args[0], args[1], want, s)
			}
		}
		// Whatever was clean showed it twice: by the answers and by the engine's counters.
		for _, p := range s.Probes {
			if *s.Clean && (p.Cold > 100 || p.ColdCounted > 100 || p.Warm < 300 || p.WarmCounted < 300) {
				ts.Fatalf("%s %s: called clean by %+v", args[0], args[1], p)
			}
		}
		return
	}
	ts.Fatalf("%s has no bundle with %s", args[0], args[1])
}
