package result

import "fmt"

// Missed are the service levels of the point that the result does not keep, in words with the
// arithmetic. A level whose number was withheld counts as missed: nothing shows that it is kept.
func (r *Result) Missed() []string {
	s := r.Point.Weir.SLO
	if s == nil {
		return nil
	}
	var out []string
	most := func(name string, limitNs int64, v *float64) {
		limit := float64(limitNs) / ns
		switch {
		case limitNs == 0:
		case v == nil:
			out = append(out, fmt.Sprintf("%s is not known, limit %.3g s", name, limit))
		case *v > limit:
			out = append(out, fmt.Sprintf("%s is %.3g s, limit %.3g s", name, *v, limit))
		}
	}
	most("TTFT p90", s.TTFTP90Ns, r.Latency.TTFT.P90)
	most("ITL p90", s.ITLP90Ns, r.Latency.ITL.P90)
	if least := float64(s.InteractivityP90Milli) / 1000; least > 0 {
		switch v := r.Intvty.E2ENorm.P90; {
		case v == nil:
			out = append(out, fmt.Sprintf("e2e-normalised interactivity p90 is not known, least %.3g tok/s/user", least))
		case *v < least:
			out = append(out, fmt.Sprintf("e2e-normalised interactivity p90 is %.3g tok/s/user, least %.3g", *v, least))
		}
	}
	return out
}
