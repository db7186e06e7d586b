package cli

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/scrape"
)

// metricsFlags say which metrics of the server are sampled while a load runs.
type metricsFlags struct {
	urls, require []string
	every         time.Duration
	off           bool
	gpu           gpuFlags
}

func (f *metricsFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.urls, "metrics", nil, "`URL` of a metrics endpoint, of every worker and not only of the router before them; may be repeated (default URL/metrics of every --url)")
	fl.DurationVar(&f.every, "metrics-every", scrape.DefaultEvery, "time between two scrapes of an endpoint")
	fl.StringSliceVar(&f.require, "require-metric", nil, "metric that must be on one of the endpoints before the load begins; may be repeated")
	fl.BoolVar(&f.off, "no-metrics", false, "scrape nothing")
	f.gpu.add(fl)
}

// options are nil when nothing is to be scraped.
func (f *metricsFlags) options(c client.Config) (*scrape.Options, error) {
	if f.off {
		if len(f.urls)+len(f.require) > 0 {
			return nil, fmt.Errorf("--no-metrics stands beside --metrics or --require-metric: remove one")
		}
		if f.gpu.url() != "" {
			return nil, fmt.Errorf("--no-metrics stands beside --gpu %s: remove one", f.gpu.url())
		}
		return nil, nil
	}
	if f.every < 10*time.Millisecond {
		return nil, fmt.Errorf("--metrics-every is %s: at least 10ms", f.every)
	}
	urls, spoken := f.urls, (*http.Protocols)(nil)
	if len(urls) == 0 {
		urls, spoken = c.URLs, c.Protocols()
	}
	if u := f.gpu.url(); u != "" {
		urls = append(slices.Clone(urls), u)
	}
	for _, u := range urls {
		if _, err := scrape.Endpoint(u); err != nil {
			if len(f.urls) == 0 && u != f.gpu.url() {
				return nil, fmt.Errorf("--url is %q: write http://HOST:PORT", u)
			}
			return nil, fmt.Errorf("--metrics: %w", err)
		}
	}
	return &scrape.Options{URLs: urls, Every: f.every, Require: f.require, TLS: c.TLS, Protocols: spoken}, nil
}

// poolLine prints the size of the device pool, who told it and what was planned.
func (a *App) poolLine(r *result.Result, line func(name, format string, v ...any)) {
	p := r.Pools
	if p.DeviceTokens == nil || !p.Observed {
		return
	}
	text := fmt.Sprintf("device %s tokens by the engine's %s", count(*p.DeviceTokens), p.From)
	if l := p.Log; l != nil && l.DeviceTokens != nil && p.From != "log" {
		text += fmt.Sprintf(", %s by its log", count(*l.DeviceTokens))
	}
	if p.DeviceOff != nil {
		text += fmt.Sprintf(", planned %s (%+.2f %%)", count(*p.Planned.DeviceTokens), 100**p.DeviceOff)
	}
	if p.HostTokens != nil && *p.HostTokens > 0 {
		text += fmt.Sprintf("; host %s", count(*p.HostTokens))
	}
	line("pools", "%s", text)
}

// serverLines print what the server's own metrics said.
func (a *App) serverLines(r *result.Result, line func(name, format string, v ...any)) {
	s := r.Server
	if s.Samples == 0 {
		return
	}
	line("server", "KV held %s mean, %s max; running %s, queued %s mean, %s max", num(s.DeviceKVMean, 3), num(s.DeviceKVMax, 3),
		num(s.RunningMean, 1), num(s.QueuedMean, 1), num(s.QueuedMax, 0))
	if c := s.Counters; c != nil && c.HitPrompt != nil {
		line("counters", "of %s prompt tokens: device %s, host %s, storage %s, hit %s", count(*c.HitPrompt), counted(c.HitDevice), counted(c.HitHost), counted(c.HitStorage), counted(c.Hit))
	}
	roleLines(&s, line)
}
