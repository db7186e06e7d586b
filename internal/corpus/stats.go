package corpus

import (
	"cmp"
	"math"
	"slices"
)

// A Dist sums up a set of values. Percentiles interpolate linearly at q(n-1).
type Dist struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	P10  float64 `json:"p10"`
	P25  float64 `json:"p25"`
	P50  float64 `json:"p50"`
	P75  float64 `json:"p75"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// newDist sums values up and sorts them; nil when there are none.
func newDist(v []float64) *Dist {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return &Dist{N: len(v), Mean: sum / float64(len(v)), Min: v[0],
		P10: quantile(v, .10), P25: quantile(v, .25), P50: quantile(v, .50), P75: quantile(v, .75),
		P90: quantile(v, .90), P95: quantile(v, .95), P99: quantile(v, .99), Max: v[len(v)-1]}
}

// quantile of sorted values, interpolated linearly at q(n-1).
func quantile(v []float64, q float64) float64 {
	x := q * float64(len(v)-1)
	i := int(math.Floor(x))
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (v[i+1]-v[i])*(x-float64(i))
}

// Hits counts blocks that a prefix cache found.
type Hits struct {
	HitBlocks   int64   `json:"hit_blocks"`
	TotalBlocks int64   `json:"total_blocks"`
	Rate        float64 `json:"rate"`
}

// Stats describe a corpus. A pointer that is nil is a value that the corpus doesn't tell.
type Stats struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Skipped     int    `json:"skipped_traces"`
	LengthsOnly int    `json:"lengths_only_traces"`

	Traces       int            `json:"traces"`
	Streams      int            `json:"streams"`
	StreamsBy    map[string]int `json:"streams_by_kind"`
	Turns        int            `json:"turns"`
	DroppedTurns int            `json:"dropped_turns"`
	// SubAgentShare is the share of turns that are in recorded sub-agents, ChildShare in any
	// stream but a root.
	SubAgentShare float64 `json:"sub_agent_turn_share"`
	ChildShare    float64 `json:"child_turn_share"`
	Background    int     `json:"background_streams"`

	InTokens     int64 `json:"input_tokens"`
	OutTokens    int64 `json:"output_tokens"`
	UniqueBlocks int64 `json:"unique_blocks"` // over all traces, each its own namespace
	TotalBlocks  int64 `json:"total_blocks"`  // over all prompts

	TurnsPerTrace  *Dist `json:"turns_per_trace"`
	In             *Dist `json:"input_tokens_per_turn"`
	Out            *Dist `json:"output_tokens_per_turn"`
	New            *Dist `json:"new_tokens_per_turn"` // input less the prefix shared with the turn before
	Growth         *Dist `json:"context_growth_per_turn"`
	GapSeconds     *Dist `json:"gap_seconds"` // end of a turn to start of the next of its stream
	ThinkSeconds   *Dist `json:"think_seconds"`
	APISeconds     *Dist `json:"api_seconds"`
	TraceSeconds   *Dist `json:"trace_seconds"` // first start to last end
	PeakContext    *Dist `json:"peak_context_tokens"`
	UniqueTokens   *Dist `json:"unique_tokens_per_trace"`
	AgentsPerTrace *Dist `json:"sub_agents_per_trace"`

	// Compactions are turns whose prompt shrank or lost more than half of the shared prefix.
	Compactions int `json:"compactions"`

	// PrefixReuse is, a trace, the share of prompt tokens that a turn has in common with the
	// turn before it in its stream.
	PrefixReuse *Dist `json:"prefix_reuse_per_trace"`
	// Infinite is the hit rate of a cache that forgets nothing, over all traces and a trace.
	Infinite         *Hits `json:"infinite_cache"`
	InfinitePerTrace *Dist `json:"infinite_cache_rate_per_trace"`
	// Curve is HitCurve, for those who ask for it.
	Curve []CurvePoint `json:"hit_rate_by_capacity,omitempty"`
}

// Stats computes the statistics of c.
func (c *Corpus) Stats() *Stats {
	st := &Stats{Name: c.Name, Fingerprint: c.Fingerprint, Skipped: len(c.Skipped), Traces: len(c.Traces),
		StreamsBy: map[string]int{}}
	var turns, in, out, fresh, growth, gap, think, api, dur, peak, unique, agents, reuse, rate []float64
	var all Hits
	childTurns, agentTurns := 0, 0
	for _, t := range c.Traces {
		n, nAgents := 0, 0
		lo, hi := int64(math.MaxInt64), int64(0)
		var top, shared, total int64
		seen := newNumbering()
		for i := range t.Streams {
			s := &t.Streams[i]
			st.Streams++
			st.StreamsBy[s.Kind.String()]++
			if s.Kind != Root && s.Join == Unbound {
				st.Background++
			}
			n += len(s.Turns)
			if s.Kind != Root {
				childTurns += len(s.Turns)
			}
			if s.Kind == SubAgent {
				nAgents++
				agentTurns += len(s.Turns)
			}
			for k := range s.Turns {
				u := &s.Turns[k]
				st.InTokens += u.In
				st.OutTokens += u.Out
				lo, hi = min(lo, u.StartNs), max(hi, u.EndNs())
				top = max(top, u.In+u.Out)
				in = append(in, float64(u.In))
				out = append(out, float64(u.Out))
				if u.ThinkNs > 0 || k > 0 {
					think = append(think, float64(u.ThinkNs)/1e9)
				}
				if u.APINs > 0 {
					api = append(api, float64(u.APINs)/1e9)
				}
				st.TotalBlocks += int64(len(u.Blocks))
				if k == 0 {
					for _, b := range u.Blocks {
						seen.of(b)
					}
					continue
				}
				p := &s.Turns[k-1]
				gap = append(gap, float64(u.StartNs-p.EndNs())/1e9)
				growth = append(growth, float64(u.In-p.In))
				if t.LengthsOnly {
					continue
				}
				common := commonPrefix(p.Blocks, u.Blocks)
				for _, b := range u.Blocks[common:] {
					seen.of(b)
				}
				kept := min(int64(common)*t.BlockSize, u.In)
				fresh = append(fresh, float64(u.In-kept))
				shared += kept
				total += u.In
				if u.In < p.In || 2*common < len(p.Blocks) {
					st.Compactions++
				}
			}
		}
		st.Turns += n
		st.DroppedTurns += t.DroppedTurns
		turns = append(turns, float64(n))
		dur = append(dur, float64(hi-lo)/1e9)
		peak = append(peak, float64(top))
		agents = append(agents, float64(nAgents))
		if t.LengthsOnly {
			st.LengthsOnly++
			continue
		}
		st.UniqueBlocks += int64(seen.n)
		unique = append(unique, float64(int64(seen.n)*t.BlockSize))
		if total > 0 {
			reuse = append(reuse, float64(shared)/float64(total))
		}
		h := t.InfiniteHits()
		all.HitBlocks += h.HitBlocks
		all.TotalBlocks += h.TotalBlocks
		if h.TotalBlocks > 0 {
			rate = append(rate, h.Rate)
		}
	}
	st.TurnsPerTrace, st.In, st.Out, st.New, st.Growth = newDist(turns), newDist(in), newDist(out), newDist(fresh), newDist(growth)
	st.GapSeconds, st.ThinkSeconds, st.APISeconds, st.TraceSeconds = newDist(gap), newDist(think), newDist(api), newDist(dur)
	st.PeakContext, st.UniqueTokens, st.AgentsPerTrace = newDist(peak), newDist(unique), newDist(agents)
	st.PrefixReuse, st.InfinitePerTrace = newDist(reuse), newDist(rate)
	if st.Turns > 0 {
		st.SubAgentShare = float64(agentTurns) / float64(st.Turns)
		st.ChildShare = float64(childTurns) / float64(st.Turns)
	}
	if all.TotalBlocks > 0 {
		all.Rate = float64(all.HitBlocks) / float64(all.TotalBlocks)
		st.Infinite = &all
	}
	return st
}

// InTime lists the turns of a trace in order of their recorded starts; among equals the
// earlier stream, then the earlier turn.
func (t *Trace) InTime() []At {
	var out []At
	for i := range t.Streams {
		for k := range t.Streams[i].Turns {
			out = append(out, At{i, k})
		}
	}
	slices.SortStableFunc(out, func(a, b At) int {
		return cmp.Compare(t.Streams[a.Stream].Turns[a.Turn].StartNs, t.Streams[b.Stream].Turns[b.Turn].StartNs)
	})
	return out
}

// InfiniteHits is what a cache that forgets nothing finds of a trace's prompts when they come
// in order of their recorded starts: the leading blocks of each that any prompt before it had
// (AIPerf's theoretical_prefix_cache_hit). A block is in the cache when its prompt has been
// seen, whatever stood before it there.
func (t *Trace) InfiniteHits() Hits {
	var h Hits
	for _, n := range t.InfiniteHitBlocks() {
		for _, hit := range n {
			h.HitBlocks += int64(hit)
		}
	}
	for i := range t.Streams {
		for k := range t.Streams[i].Turns {
			h.TotalBlocks += int64(len(t.Streams[i].Turns[k].Blocks))
		}
	}
	if h.TotalBlocks > 0 {
		h.Rate = float64(h.HitBlocks) / float64(h.TotalBlocks)
	}
	return h
}

// InfiniteHitBlocks is InfiniteHits turn by turn: hits[stream][turn] leading blocks.
func (t *Trace) InfiniteHitBlocks() [][]int {
	hits := make([][]int, len(t.Streams))
	for i := range t.Streams {
		hits[i] = make([]int, len(t.Streams[i].Turns))
	}
	seen := newNumbering()
	done := make([]int, len(t.Streams)) // turns seen, a stream
	for _, at := range t.InTime() {
		turns := t.Streams[at.Stream].Turns
		u := &turns[at.Turn]
		// What is shared with the turn before it in the stream has been seen if that turn was.
		from := 0
		if at.Turn > 0 && done[at.Stream] == at.Turn {
			from = commonPrefix(turns[at.Turn-1].Blocks, u.Blocks)
		}
		done[at.Stream] = at.Turn + 1
		hit := from
		for hit < len(u.Blocks) && seen.has(u.Blocks[hit]) {
			hit++
		}
		for _, b := range u.Blocks[hit:] {
			seen.of(b)
		}
		hits[at.Stream][at.Turn] = hit
	}
	return hits
}
