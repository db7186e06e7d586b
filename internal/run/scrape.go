package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
)

// scraper takes the baseline of the metrics endpoints and begins to sample them; nil when none
// are to be scraped.
func (h *HTTP) scraper(ctx context.Context, clock replay.Clock, write func(*record.Sample) error) (*scrape.Scraper, error) {
	if h.Scrape == nil || len(h.Scrape.URLs) == 0 {
		return nil, nil
	}
	o := *h.Scrape
	o.Now, o.Write = clock.Now, write
	sc, err := scrape.New(o)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	if err := sc.Baseline(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var missing *scrape.MissingError
		if errors.As(err, &missing) {
			return nil, failf("config", "%v", err)
		}
		return nil, failf("start", "%v", err)
	}
	sc.Start()
	return sc, nil
}

// marking asks for a scrape when the first request of the profiling phase goes out, so that the
// counters have a reference there, and does not wait for it. A load of several passes has nothing
// in flight between them: there the first request of every pass is held until the scrape has
// come, so that no counter has grown by it. What was held so is handed over when it is let go.
type marking struct {
	*client.Target
	scraper *scrape.Scraper
	clock   replay.Clock
	marked  bool
	passes  bool // the load sends its list more than once
	pass    int
	let     int64 // when the first request of the pass was let go
}

// passScrape bounds the wait for the sample at the start of a pass.
const passScrape = 5 * time.Second

// Send implements replay.Target.
func (t *marking) Send(q replay.Request) {
	if t.scraper != nil && q.Phase == record.Profiling {
		switch {
		case !t.marked && !t.passes:
			t.marked = true
			t.scraper.Mark(record.Profiling)
		case !t.marked:
			t.marked = true
			t.hold(record.Profiling)
		case t.passes && q.Play > t.pass:
			t.pass = q.Play
			t.hold(record.NextPass)
		}
		q.Queued = max(q.Queued, t.let)
	}
	t.Target.Send(q)
}

func (t *marking) hold(mark record.Phase) {
	ctx, cancel := context.WithTimeout(context.Background(), passScrape)
	defer cancel()
	t.scraper.MarkAndWait(ctx, mark)
	t.let = t.clock.Now()
}

// finalScrape bounds the last sample after the drain.
const finalScrape = 15 * time.Second

// observe takes the final sample and writes into the meta what the metrics say of the engine.
func observe(ctx context.Context, sc *scrape.Scraper, m *record.Meta) error {
	if sc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalScrape)
	defer cancel()
	_, err := sc.Stop(ctx)
	var engines []string
	pools := record.UnknownPools
	for _, v := range sc.Views() {
		if v.Engine != "" && !strings.Contains(strings.Join(engines, ","), v.Engine) {
			engines = append(engines, v.Engine)
		}
		if _, decode := v.Get(engine.DecodePrealloc); decode {
			continue // the prefix cache is on the side that computes prefill
		}
		add := func(to *int64, q engine.Quantity) {
			if n, ok := v.Get(q); ok && n >= 0 && n < 1<<53 {
				*to = max(*to, 0) + int64(n)
			}
		}
		add(&pools.DeviceTokens, engine.DeviceTokens)
		add(&pools.HostTokens, engine.HostTokens)
	}
	if len(engines) > 0 {
		m.Engine.Facts["metrics"] = strings.Join(engines, ",")
	}
	m.ObservedPools = pools
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
