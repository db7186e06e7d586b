package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/spec"
)

// A Solution is the largest host tier of one role that fits and is allowed.
type Solution struct {
	PointID string `json:"point_id"`
	Key     string `json:"key"`
	Conc    int    `json:"conc"`
	Role    string `json:"role"`
	Flag    string `json:"flag"` // ready to paste; empty where no host tier is asked for
	Fits    bool   `json:"fits"`
	Bound   string `json:"bound"` // "node memory", "configured share", or empty where nothing binds
	// HostBytes are pinned on one node; DeviceTokens and UniqueTokens are distinct tokens of all
	// workers of the role, on the device and over both tiers.
	HostBytes    int64 `json:"host_bytes"`
	DeviceTokens int64 `json:"device_tokens"`
	UniqueTokens int64 `json:"unique_tokens"`
	// HoldsDevice and Holds are the largest concurrency whose working set the device alone and
	// both tiers hold; nil where no working set was given, a lower bound with AtLeast.
	HoldsDevice *Holds `json:"device_holds_concurrency,omitempty"`
	Holds       *Holds `json:"holds_concurrency,omitempty"`
	// SkippedTraces are the broken ones of the corpus that HoldsDevice and Holds were found with.
	SkippedTraces int `json:"skipped_traces,omitempty"`
}

// Holds is a concurrency whose working set a pool holds.
type Holds struct {
	Conc    int64 `json:"concurrency"`
	AtLeast bool  `json:"at_least,omitempty"` // nothing above it was looked at
}

func (h *Holds) String() string {
	if h == nil {
		return "-"
	}
	if h.AtLeast {
		return fmt.Sprintf(">= %d", h.Conc)
	}
	return fmt.Sprint(h.Conc)
}

// Solve finds the largest host tier for a point, whatever size the point itself gives.
func Solve(p *spec.Point, opt Options) (*Verdict, []Solution, error) {
	q := *p
	q.Weir.HostBytesPerRank, q.Weir.HostRatioPPM = 0, 0
	opt.AsRecipe = false
	v, err := Compute(&q, opt)
	if err != nil {
		return nil, nil, err
	}
	var out []Solution
	for i := range v.Roles {
		r := &v.Roles[i]
		if r.Name == "decode" {
			continue // keeps no prefixes
		}
		n := int64(r.Workers)
		s := Solution{
			PointID: p.ID(), Key: v.Key, Conc: v.Conc, Role: r.Name, Fits: v.OK(),
			DeviceTokens: satMul(n, r.Device.UniqueTokens), UniqueTokens: satMul(n, r.UniqueTokens()),
		}
		if r.Host != nil {
			s.Flag, s.HostBytes = r.Host.Flag, r.Node.HostPoolBytes
			switch nd := &r.Node; {
			case nd.PolicyBytes.N > 0 && (nd.MemoryBytes.N == 0 || nd.PolicyMarginBytes <= nd.MarginBytes):
				s.Bound = "configured share"
			case nd.MemoryBytes.N > 0:
				s.Bound = "node memory"
			}
		}
		out = append(out, s)
	}
	return v, out, nil
}
