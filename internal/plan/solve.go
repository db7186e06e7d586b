package plan

import "github.com/weirbench/weir/internal/spec"

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
	// DeviceConc and Conc are how many trees of WorkingSet tokens are held; 0 where no working
	// set was given.
	WorkingSet int64 `json:"working_set,omitempty"`
	DeviceHold int64 `json:"device_holds_trees,omitempty"`
	Hold       int64 `json:"holds_trees,omitempty"`
}

// Solve finds the largest host tier for a point, whatever size the point itself gives, and how
// many trees of workingSet tokens it then holds.
func Solve(p *spec.Point, opt Options, workingSet int64) (*Verdict, []Solution, error) {
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
		if workingSet > 0 {
			s.WorkingSet, s.DeviceHold, s.Hold = workingSet, s.DeviceTokens/workingSet, s.UniqueTokens/workingSet
		}
		out = append(out, s)
	}
	return v, out, nil
}
