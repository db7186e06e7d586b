package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape"
)

func newScrapeCmd(app *App) *cobra.Command {
	var every, span time.Duration
	cmd := &cobra.Command{
		Use:   "scrape URL... | BUNDLE",
		Short: "Show what running servers say of their caches, pools and queues",
		Long: `Scrape reads the metrics of any running server, with no load of its own, and shows a line a
period: prompt tokens per second by where they were found, generated tokens per second, how
full the pools are, what runs and waits. Name every worker: a router knows nothing of caches.

Columns: prompt is the prompt tokens that the servers took in a second; device, host and storage are those of
them that were found in that tier of their caches and computed those that were in none, and these add up to
prompt. generated is tokens of answers a second. The pools' columns are the share of each KV pool
in use, running and waiting are requests. Of several servers, rates and requests are sums and shares
means. What no server publishes is shown as -. The bar shows the four parts of prompt.

A server that has not answered for three periods is left out of all of it until it answers again; the line above the table says how many do.

With the folder of a bundle it prints the samples in it, whole, one JSON object a line.`,
		Example: `  weir scrape http://127.0.0.1:30000
  weir scrape --every 5s --for 1m http://127.0.0.1:30000 http://127.0.0.1:30001 --json`,
		Args: minArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error {
			if len(urls) == 1 {
				b, err := record.OpenBundle(urls[0])
				if err == nil {
					return app.printSamples(b)
				}
				if at, statErr := os.Stat(urls[0]); statErr == nil && at.IsDir() {
					return err
				}
			}
			if every < 100*time.Millisecond {
				return usagef("--every is %s: at least 100ms", every)
			}
			return watch(cmd.Context(), app, urls, every, span)
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "length of a period")
	cmd.Flags().DurationVar(&span, "for", 0, "end after this time; 0 goes on until interrupted")
	return cmd
}

// printSamples prints the samples of a bundle as lines.
func (a *App) printSamples(b *record.Bundle) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	for s, err := range b.Samples() {
		if err != nil {
			return err
		}
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// period is what the servers said over one period; nil is what they did not say.
type period struct {
	AtS float64 `json:"at_s"` // end of the period since the start
	// Simulated says that a simulated engine is among the servers.
	Simulated bool `json:"simulated,omitempty"`
	// Answering of Endpoints are in what follows: the others have not answered for some periods.
	Answering int      `json:"answering"`
	Endpoints int      `json:"endpoints"`
	Prompt    *float64 `json:"prompt_per_s"`
	Device    *float64 `json:"device_per_s"`
	Host      *float64 `json:"host_per_s"`
	Storage   *float64 `json:"storage_per_s"`
	Computed  *float64 `json:"computed_per_s"` // prompt that no tier had
	Output    *float64 `json:"output_per_s"`
	Evicted   *float64 `json:"evicted_per_s"`
	LoadBack  *float64 `json:"loaded_back_per_s"`
	DeviceKV  *float64 `json:"device_usage"`
	HostKV    *float64 `json:"host_usage"`
	Running   *float64 `json:"running"`
	Waiting   *float64 `json:"waiting"`
	Retracted *float64 `json:"retracted"`        // in the period
	Errors    []string `json:"errors,omitempty"` // new ones in the period
}

// patience is after how many periods without an answer an endpoint is left out.
const patience = 3

// watch scrapes and prints until the time is over or ctx ends; an interrupt is no failure.
func watch(ctx context.Context, app *App, urls []string, every, span time.Duration) error {
	begin := time.Now()
	now := func() int64 { return int64(time.Since(begin)) }
	var mu sync.Mutex
	whole := map[string]map[string]float64{}
	answered := map[string]int64{} // when each endpoint last did
	failing := map[string]bool{}   // its last scrape brought nothing
	limit := max(every, 5*time.Second)
	sc, err := scrape.New(scrape.Options{URLs: urls, Every: every / 2, Timeout: limit, Now: now, Write: func(s *record.Sample) error {
		mu.Lock()
		defer mu.Unlock()
		if failing[s.Source] = s.Error != ""; s.Error != "" {
			return nil
		}
		answered[s.Source] = s.At
		s.Spread()
		v := whole[s.Source]
		if v == nil || !s.Delta {
			v = map[string]float64{}
			whole[s.Source] = v
		}
		for k, x := range s.Values {
			v[k] = x
		}
		for _, k := range s.Gone {
			if sig := engine.Classify(k); sig == nil || !sig.Quantity.Counter() { // a counter that comes back goes on from where it was
				delete(v, k)
			}
		}
		return nil
	}})
	if err != nil {
		return usage(err)
	}
	if err := sc.Baseline(ctx); err != nil {
		return nil
	}
	known := false
	for _, r := range sc.Reports() {
		known = known || r.Series > 0
		if r.Error != "" {
			fmt.Fprintf(app.Err, "weir: %s: %s\n", r.URL, r.Error)
		} else if r.Series == 0 {
			fmt.Fprintf(app.Err, "weir: %s: the page has no series\n", r.URL)
		}
	}
	if !known {
		return fmt.Errorf("none of the endpoints has metrics")
	}
	take := func() []record.Sample {
		mu.Lock()
		defer mu.Unlock()
		var out []record.Sample
		for u, v := range whole {
			silent := time.Duration(now() - answered[u])
			if failing[u] && silent > patience*every || silent > patience*every+limit {
				continue
			}
			c := make(map[string]float64, len(v))
			for k, x := range v {
				c[k] = x
			}
			out = append(out, record.Sample{At: answered[u], Source: u, Values: c})
		}
		return out
	}
	last := take()
	failed := map[string]int64{}
	shown := -1 // of the endpoints that answer, in the last head
	sc.Start()
	var end <-chan time.Time
	if span > 0 {
		t := time.NewTimer(span)
		defer t.Stop()
		end = t.C
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for line, done := 0, false; !done; line++ {
		select {
		case <-ctx.Done():
			done = true
			continue
		case <-end:
			done = true
			if line > 0 {
				continue
			}
		case <-tick.C:
		}
		next, at := take(), now()
		p := between(last, next)
		p.Answering, p.Endpoints = len(next), len(sc.Reports())
		p.AtS = math.Round(float64(at)/1e6) / 1e3
		for _, r := range sc.Reports() {
			p.Simulated = p.Simulated || r.Simulated != ""
			if r.Error != "" && r.Failed > failed[r.URL] {
				failed[r.URL] = r.Failed
				p.Errors = append(p.Errors, r.URL+": "+r.Error)
			}
		}
		last = next
		if err := p.print(app, line%20 == 0 || p.Answering != shown); err != nil {
			return err
		}
		shown = p.Answering
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err = sc.Stop(stop)
	return err
}

// between says what happened from one set of samples to the next. Rates are over the time between the samples, which
// are as far apart as the periods only on average.
func between(last, next []record.Sample) period {
	c := scrape.NewCounters(0, "")
	before := map[string]int64{}
	for i := range last {
		before[last[i].Source] = last[i].At
		last[i].At = 0
		c.Add(&last[i])
	}
	seconds, newer := 0.0, 0.0
	for i := range next {
		if at, ok := before[next[i].Source]; ok { // of one that has come back nobody knows how much was in the period
			if next[i].At > at {
				seconds += float64(next[i].At-at) / 1e9
				newer++
			}
			at = next[i].At
			next[i].At = 1
			c.Add(&next[i])
			next[i].At = at
		}
	}
	if newer > 0 {
		seconds /= newer
	}
	rate := func(q engine.Quantity) *float64 {
		v, ok := c.Total(q)
		if !ok || seconds <= 0 {
			return nil
		}
		v /= seconds
		return &v
	}
	p := period{Prompt: rate(engine.PromptTokens), Output: rate(engine.OutputTokens), Evicted: rate(engine.EvictedTokens), LoadBack: rate(engine.LoadedBack)}
	for _, q := range []engine.Quantity{engine.Retracted, engine.Preempted} {
		if v, ok := c.Total(q); ok && p.Retracted == nil {
			p.Retracted = &v
		}
	}
	if h, ok := c.Hits(); ok && seconds > 0 {
		per := func(n int64) *float64 {
			if n < 0 {
				return nil
			}
			v := float64(n) / seconds
			return &v
		}
		p.Prompt, p.Device, p.Host, p.Storage, p.Computed = per(h.Prompt), per(h.Device), per(h.Host), per(h.Storage), per(max(h.Prompt-h.Hit, 0))
	}
	sum := func(q engine.Quantity) *float64 {
		total, n := 0.0, 0
		for i := range next {
			v := scrape.Read(&next[i])
			if x, ok := v.Get(q); ok {
				total += x
				n++
			}
		}
		switch {
		case n == 0:
			return nil
		case q.Averaged():
			total /= float64(n)
		}
		return &total
	}
	p.DeviceKV, p.HostKV, p.Running, p.Waiting = sum(engine.DeviceUsage), sum(engine.HostUsage), sum(engine.Running), sum(engine.Waiting)
	if used, size := sum(engine.HostUsed), sum(engine.HostTokens); used != nil && size != nil && *size > 0 {
		v := *used / *size
		p.HostKV = &v
	}
	return p
}

// scrapeRow is a line of the table.
const scrapeRow = "%8s  %9s %9s %9s %9s %9s  %9s  %7s %7s  %7s %7s  %s\n"

// barWidth is the number of signs that the largest part of the prompt rate takes.
const barWidth = 24

// print writes a line, with the head of the table above it where asked.
func (p *period) print(app *App, head bool) error {
	if app.JSON {
		return app.printJSON(p)
	}
	if head {
		if p.Simulated {
			if _, err := fmt.Fprintln(app.Out, "simulated: no engine ran behind these numbers"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(app.Out, "%d of %d endpoints answer\n%8s  %-49s  %9s  %-15s  %-15s\n"+scrapeRow,
			p.Answering, p.Endpoints, "", "prompt, tokens/s, by where it was found", "generated", "KV pool in use", "requests now",
			"time", "prompt", "device", "host", "storage", "computed", "tokens/s", "device", "host", "running", "waiting", "device = host + storage * computed ."); err != nil {
			return err
		}
	}
	n := func(v *float64, digits int) string {
		if v == nil {
			return "-"
		}
		return number(*v, digits)
	}
	share := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100**v)
	}
	_, err := fmt.Fprintf(app.Out, scrapeRow, fmt.Sprintf("%.1f s", p.AtS), n(p.Prompt, 0), n(p.Device, 0), n(p.Host, 0), n(p.Storage, 0), n(p.Computed, 0), n(p.Output, 0),
		share(p.DeviceKV), share(p.HostKV), n(p.Running, 0), n(p.Waiting, 0), p.bar())
	for _, e := range p.Errors {
		_, _ = io.WriteString(app.Err, "weir: "+e+"\n")
	}
	return err
}

// bar stacks where the prompt's tokens came from.
func (p *period) bar() string {
	if p.Prompt == nil || *p.Prompt <= 0 || p.Device == nil {
		return ""
	}
	var b strings.Builder
	for _, part := range []struct {
		v    *float64
		sign string
	}{{p.Device, "="}, {p.Host, "+"}, {p.Storage, "*"}, {p.Computed, "."}} {
		if part.v != nil {
			b.WriteString(strings.Repeat(part.sign, int(math.Round(min(1, *part.v / *p.Prompt)*barWidth))))
		}
	}
	return b.String()
}
