package run

import "github.com/weirbench/weir/internal/spec"

// WithControls puts before every point with offload the same point without, where none of the
// points is that already; seeds and repeats are the point's own. of has, for what was added, the
// ids of the points that it is the control of.
func WithControls(points []*spec.Point) (all []*spec.Point, of map[string][]string) {
	have := map[string]bool{}
	for _, p := range points {
		if !p.Offloads() {
			have[controlKey(p)] = true
		}
	}
	of = map[string][]string{}
	added := map[string]string{} // id by key
	for _, p := range points {
		if k := controlKey(p); p.Offloads() && !have[k] {
			if added[k] == "" {
				c := p.WithoutOffload()
				all, added[k] = append(all, c), c.ID()
			}
			of[added[k]] = append(of[added[k]], p.ID())
		}
		all = append(all, p)
	}
	return all, of
}

// controlKey is what a point shares with its control: all but the offload.
func controlKey(p *spec.Point) string {
	q := *p.WithoutOffload()
	q.Name, q.Origin = "", spec.Origin{}
	return key(q)
}
