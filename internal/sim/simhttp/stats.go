package simhttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/sim"
)

// StatsPath answers with Stats; only simulated engines and the router before them have it.
const StatsPath = "/weir/stats"

// SimulatedHeader stands on every answer of a simulated engine: "speed=20; fitted to ...". So an
// answer tells what it is behind a proxy that does not forward StatsPath.
const SimulatedHeader = "Weir-Simulated"

// Stats is what a simulated engine, or a router before some, says of itself.
type Stats struct {
	Simulated bool `json:"simulated"`
	// Speed is engine time per time; of a router the one farthest from 1 among its workers.
	Speed float64 `json:"speed"`
	// Error is the stated error of the simulation, empty when none is known.
	Error   string        `json:"sim_error"`
	Ranks   []sim.Stats   `json:"ranks,omitempty"`
	Workers []WorkerStats `json:"workers,omitempty"` // of a router
}

// WorkerStats are the stats of one worker of a router.
type WorkerStats struct {
	URL string `json:"url"`
	Stats
}

// constantSpeed is the stated error of an engine that is told its times.
const constantSpeed = "constant times, which stand for no engine"

func (s *Server) stats() Stats {
	st := Stats{Simulated: true, Speed: s.o.Speed, Error: constantSpeed}
	if s.o.Fixed == nil {
		st.Error = s.c.StatedError()
	}
	return st
}

func (s Stats) mark() string {
	return strings.TrimSuffix("speed="+strconv.FormatFloat(s.Speed, 'g', -1, 64)+"; "+s.Error, "; ")
}

// ParseMark reads a SimulatedHeader.
func ParseMark(header string) Stats {
	speed, text, _ := strings.Cut(header, "; ")
	v, err := strconv.ParseFloat(strings.TrimPrefix(speed, "speed="), 64)
	if err != nil || !(v > 0) {
		v = 1
	}
	return Stats{Simulated: true, Speed: v, Error: text}
}

// ParseStats reads an answer of StatsPath; what is none is no simulated engine's.
func ParseStats(raw []byte) Stats {
	var s Stats
	if json.Unmarshal(raw, &s) != nil {
		return Stats{}
	}
	if !(s.Speed > 0) {
		s.Speed = 1
	}
	return s
}

// Join is what a whole says whose parts say s and t: simulated when one of them is.
func (s Stats) Join(t Stats) Stats {
	switch {
	case !t.Simulated:
		return s
	case !s.Simulated:
		return t
	}
	if farther(t.Speed, s.Speed) {
		s.Speed = t.Speed
	}
	if t.Error != "" && !strings.Contains(s.Error, t.Error) {
		s.Error = strings.TrimPrefix(s.Error+"; "+t.Error, "; ")
	}
	return s
}

// farther tells whether speed a is farther from 1 than b.
func farther(a, b float64) bool { return max(a, 1/a) > max(b, 1/b) }

// statsWait bounds one question of a router to a worker.
const statsWait = 5 * time.Second

// weirStats asks every worker. A worker that has no such answer is no simulated engine.
func (r *Router) weirStats(w http.ResponseWriter, q *http.Request) {
	urls := slices.Concat(r.workers, r.o.Decode)
	seen := make([]Stats, len(urls))
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() { seen[i] = r.statsOf(q.Context(), u) })
	}
	wg.Wait()
	all := Stats{Speed: 1}
	var workers []WorkerStats
	for i, st := range seen {
		workers = append(workers, WorkerStats{urls[i], st})
		st.Ranks = nil
		all = all.Join(st)
	}
	all.Workers = workers
	writeJSON(w, 200, all)
}

func (r *Router) statsOf(ctx context.Context, base string) Stats {
	ctx, stop := context.WithTimeout(ctx, statsWait)
	defer stop()
	out, err := http.NewRequestWithContext(ctx, "GET", base+StatsPath, nil)
	if err != nil {
		return Stats{}
	}
	res, err := r.o.Client.Do(out)
	if err != nil {
		return Stats{}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil || res.StatusCode != 200 {
		return Stats{}
	}
	return ParseStats(raw)
}
