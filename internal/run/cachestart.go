package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape"
)

// canaryWords is how long the canary's prompt is: several pages of any engine's cache, and more
// than HiCache asks its storage for, so that the same prompt again shows whether a tier kept it.
const canaryWords = 600

const (
	// cleanTries is how often caches are flushed before they count as not to be emptied.
	cleanTries = 3
	// countersLate is how long an engine's counters may lag behind its answers.
	countersLate = 3 * time.Second
	// most is how many tokens of a canary may be cached after a flush: the chat template's own may.
	most = canaryWords / 2
)

// A reading is what one canary told.
type reading struct {
	prompt, cached int64 // tokens of the prompt and those from a cache; Unknown where it does not say
}

// canary asks for one token.
func (l *life) canary(ctx context.Context, url string) (reading, error) {
	r := reading{record.Unknown, record.Unknown}
	body, err := json.Marshal(map[string]any{
		"model": l.d.Model, "max_tokens": 1, "stream": false, "temperature": 0,
		"messages": []map[string]string{{"role": "user", "content": "weir canary" + strings.Repeat(" ready", canaryWords)}},
	})
	if err != nil {
		return r, err
	}
	// Behind a router that keeps sessions, all canaries are one session and meet one cache.
	header := http.Header{}
	for _, h := range l.d.SessionHeaders {
		header.Set(h, "weir-canary")
	}
	status, raw, err := send(ctx, http.MethodPost, url+"/v1/chat/completions", body, header)
	if err != nil {
		return r, err
	}
	if status != http.StatusOK {
		return r, fmt.Errorf("%s answers %d: %.200s", url, status, raw)
	}
	var v struct {
		Choices []struct{} `json:"choices"`
		Usage   struct {
			Prompt  *int64 `json:"prompt_tokens"`
			Details struct {
				Cached *int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(raw, &v); err != nil || len(v.Choices) == 0 {
		return r, fmt.Errorf("%s answers without a choice: %.200s", url, raw)
	}
	if v.Usage.Prompt != nil {
		r.prompt = *v.Usage.Prompt
	}
	if v.Usage.Details.Cached != nil {
		r.cached = *v.Usage.Details.Cached
	}
	return r, nil
}

// empty empties every cache and shows that it is empty. It waits until nothing is in flight,
// flushes every tier, retrying what is refused, and asks the canary twice at every cache: the
// first must find nothing, by the answer and by the engine's counters, and the second must find
// what the first left, or the first has shown nothing. Then it flushes again. What happened
// stands in l.start; only a server that does not answer any more is an error.
func (l *life) empty(ctx context.Context) error {
	var caches []engine.Process
	for _, p := range l.d.Processes {
		if len(p.Flush) > 0 {
			caches = append(caches, p)
		}
	}
	if len(caches) == 0 {
		return nil
	}
	s := &record.CacheStart{HeldTokens: record.Unknown, Salt: l.salt}
	l.start = s
	end, cancel := context.WithTimeout(ctx, l.recipe.Ready.Drain.Or(drainWait))
	defer cancel()
	begun := time.Now()
	if err := l.drained(end); err != nil {
		if ctx.Err() != nil || end.Err() == nil {
			return err
		}
		s.DrainNs, s.Why = int64(time.Since(begun)), err.Error()
		return failf("start", "%v", err)
	}
	s.DrainNs = int64(time.Since(begun))
	targets := l.probed(caches)
	for try := range cleanTries {
		if err := l.flushAll(end, caches, s); err != nil {
			return err
		}
		s.Probes, s.Clean, s.Why = nil, nil, ""
		for _, t := range targets {
			if err := l.probe(end, t, caches, s); err != nil {
				return failf("crash", "the server does not answer after a flush: %v", err)
			}
		}
		s.Tries = try + 1
		if s.Clean == nil || *s.Clean {
			break
		}
	}
	if err := l.flushAll(end, caches, s); err != nil {
		return err
	}
	switch {
	case s.Clean == nil:
		l.say("flushed; nobody can say whether the cache is empty: %s", s.Why)
	case *s.Clean:
		l.say("flushed; the cache is empty")
	default:
		l.say("flushed; the cache is not empty: %s", s.Why)
	}
	return nil
}

// probed are the URLs whose caches are asked for: every unified worker by itself, or what stands
// before workers that do not answer alone.
func (l *life) probed(caches []engine.Process) []string {
	var out []string
	for _, p := range caches {
		if p.Role == "unified" && p.URL != "" {
			out = append(out, p.URL)
		}
	}
	if len(out) == 0 {
		out = l.d.URLs[:1]
	}
	return out
}

// counts are what the engines' metrics say of their caches, Unknown where they say nothing.
type counts struct {
	prompt, hits int64 // since the engine began
	held         int64 // tokens that are cached now and that no request holds
	busy         int64 // requests that run or wait
}

// count reads the metrics of the processes that keep caches.
func (l *life) count(ctx context.Context, caches []engine.Process) counts {
	c := counts{record.Unknown, record.Unknown, record.Unknown, record.Unknown}
	var urls []string
	for _, p := range caches {
		urls = append(urls, p.Metrics...)
	}
	sc, err := scrape.New(scrape.Options{URLs: urls, Timeout: 5 * time.Second, Now: func() int64 { return 0 }, Write: func(*record.Sample) error { return nil }})
	if err != nil || len(urls) == 0 {
		return c
	}
	defer sc.Stop(ctx)
	if sc.Baseline(ctx) != nil {
		return c
	}
	views := sc.Views()
	total := func(q engine.Quantity, name string) (float64, bool) {
		sum, any := 0.0, false
		for _, v := range views {
			if name != "" && v.Engine != name {
				continue
			}
			if x, ok := v.Get(q); ok {
				sum, any = sum+x, true
			}
		}
		return sum, any
	}
	add := func(to *int64, q engine.Quantity) {
		if x, ok := total(q, ""); ok && x >= 0 && x < 1<<53 {
			*to = max(*to, 0) + int64(x)
		}
	}
	add(&c.held, engine.DeviceEvictable)
	add(&c.held, engine.HostUsed)
	add(&c.busy, engine.Running)
	add(&c.busy, engine.Waiting)
	if h, ok := engine.HitsOf(func(name string, q engine.Quantity) (float64, bool) { return total(q, name) }); ok {
		c.prompt, c.hits = h.Prompt, h.Hit
	}
	return c
}

// grown is what counters say of one canary, once they have seen it.
func (l *life) grown(ctx context.Context, caches []engine.Process, before counts) (hits int64, now counts) {
	for end := time.Now().Add(countersLate); ; {
		now = l.count(ctx, caches)
		if before.prompt < 0 && now.prompt < 0 {
			return record.Unknown, now
		}
		if now.prompt-max(before.prompt, 0) >= most {
			return now.hits - max(before.hits, 0), now
		}
		if time.Now().After(end) || !sleep(ctx, 20*time.Millisecond) {
			return record.Unknown, now
		}
	}
}

// probe asks one cache twice and takes down what it says.
func (l *life) probe(ctx context.Context, url string, caches []engine.Process, s *record.CacheStart) error {
	p := record.CacheProbe{URL: url}
	before := l.count(ctx, caches)
	first, err := l.canary(ctx, url)
	if err != nil {
		return err
	}
	var now counts
	p.PromptTokens, p.Cold = first.prompt, first.cached
	p.ColdCounted, now = l.grown(ctx, caches, before)
	// Gauges may be older than the flush; what they hold beside the canaries has to go away.
	room := int64(len(l.probed(caches))) * 4 * max(first.prompt, canaryWords)
	for end := time.Now().Add(countersLate); p.Cold < most && now.held > room && time.Now().Before(end) && sleep(ctx, 100*time.Millisecond); {
		now.held = l.count(ctx, caches).held
	}
	s.HeldTokens = now.held
	second, err := l.canary(ctx, url)
	if err != nil {
		return err
	}
	p.Warm = second.cached
	p.WarmCounted, _ = l.grown(ctx, caches, now)
	s.Probes = append(s.Probes, p)

	judge := func(clean bool, format string, a ...any) {
		if s.Clean == nil || *s.Clean && !clean {
			s.Clean, s.Why = &clean, fmt.Sprintf(format, a...)
		}
	}
	switch {
	case p.Cold >= most:
		judge(false, "after the flush %d of %d tokens of the first request to %s were cached", p.Cold, p.PromptTokens, url)
	case p.ColdCounted >= most:
		judge(false, "the engine counted %d hits of the first request to %s after the flush", p.ColdCounted, url)
	case now.held > room:
		judge(false, "after the flush the engines' gauges show %d cached tokens", now.held)
	case p.Warm >= most || p.WarmCounted >= most:
		judge(true, "")
	default:
		s.Why = fmt.Sprintf("the second request to %s found %d cached tokens by its answer and %d by the counters, so that the first shows nothing", url, p.Warm, p.WarmCounted)
	}
	return nil
}

// drained waits until the engines hold no request; it gives up when ctx ends.
func (l *life) drained(ctx context.Context) error {
	var engines []engine.Process
	for _, p := range l.d.Processes {
		if len(p.Metrics) > 0 && p.Role != "router" && p.Role != "infra" {
			engines = append(engines, p)
		}
	}
	for {
		n := l.count(ctx, engines).busy
		if n <= 0 {
			return nil
		}
		select {
		case <-l.g.died:
			x, how := l.g.dead()
			return failf(deathClass(x, "crash"), "%s", how)
		case <-ctx.Done():
			return fmt.Errorf("%d requests still run or wait on the server", n)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// flushAll empties every tier of every cache, asking again while a call is refused.
func (l *life) flushAll(ctx context.Context, caches []engine.Process, s *record.CacheStart) error {
	for _, p := range caches {
		for _, c := range p.Flush {
			url := c.Path
			if strings.HasPrefix(url, "/") {
				url = p.URL + url
			}
			f := record.CacheFlush{URL: url}
			begun := time.Now()
			err := l.until(ctx, "the flush of "+p.Name, func(ctx context.Context) error {
				status, raw, err := send(ctx, c.Method, url, nil, nil)
				f.Tries++
				f.Status = status
				switch {
				case err != nil:
					return err
				case c.Optional && status >= 400 && status < 500:
					return nil
				case status != http.StatusOK || !strings.Contains(string(raw), c.Contains):
					return fmt.Errorf("%s answers %d: %.100s", url, status, raw)
				}
				return nil
			})
			f.Ns = int64(time.Since(begun))
			s.Flushes = append(s.Flushes, f)
			if err != nil {
				var fail *Failure
				if errors.As(err, &fail) {
					return err
				}
				return failf("crash", "%v", err)
			}
		}
	}
	return nil
}
