package run

import "github.com/weirbench/weir/internal/scrape"

// metrics are the endpoints of a deployment that are sampled while its point runs: those of every
// worker, and of a router before them; nil where there are none.
func (l *life) metrics() *scrape.Options {
	o := &scrape.Options{}
	for _, p := range l.d.Processes {
		o.URLs = append(o.URLs, p.Metrics...)
	}
	if len(o.URLs) > 0 {
		o.Require = l.d.Require
	}
	if l.GPU != nil {
		o.URLs = append(o.URLs, l.GPU.Exporters...)
	}
	if len(o.URLs) == 0 {
		return nil
	}
	return o
}
