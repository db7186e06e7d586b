package corpus

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// GenerateOptions shape a generated corpus. The zero value of a knob takes what was measured
// on recorded agent runs (kv-cache-tester, 710 traces, 2026-05; see docs/corpus.md).
type GenerateOptions struct {
	Seed   uint64
	Traces int // how many; 0 is 64

	Turns         int64   // median turns of a root
	SystemTokens  int64   // median tokens of tools and system prompt
	SharedSystem  bool    // every agent, sub-agents too, begins with one system prompt of one length
	FirstIn       int64   // median prompt of the first turn
	Growth        int64   // median tokens that a turn adds to the context
	Out           int64   // median output tokens of a turn
	Context       int64   // median context at which a run is compacted
	ThinkNs       int64   // median time between turns
	SubAgentShare float64 // share of turns that are sub-agents'; below 0 is none
	FanOut        int     // most sub-agents that start side by side; 0 is 3
	Rewrites      float64 // share of turns that rewrite the context behind the system prompt; below 0 is none
	Resumes       float64 // share of pauses over an hour behind which a new session begins; below 0 is none
	BlockSize     int64   // tokens in a block; 0 is 64
}

// A knot is a point of a measured distribution: a share q of all values lies under v.
type knot struct{ q, v float64 }

// Measured distributions. Median and 90th percentile of turns, output and think time are those
// of 710 kv-cache-tester traces (49,334 requests, measured 2026-05); the shape between those
// points, the first prompt, the growth and the sub-agents are those of 101 of them, measured
// 2026-11.
var (
	mTurns   = []knot{{0, 3}, {.05, 5}, {.10, 7}, {.25, 21}, {.50, 44}, {.75, 92}, {.90, 150}, {.99, 420}, {1, 514}}
	mOut     = []knot{{0, 5}, {.10, 110}, {.25, 142}, {.50, 216}, {.75, 445}, {.90, 898}, {.99, 3940}, {1, 18195}}
	mThink   = []knot{{0, .2}, {.10, 4}, {.25, 6}, {.50, 10}, {.75, 30}, {.90, 150}, {.99, 2600}, {1, 14000}}
	mFirst   = []knot{{0, 10580}, {.05, 13962}, {.10, 15678}, {.25, 18333}, {.50, 25564}, {.75, 90000}, {.90, 240000}, {1, 525663}}
	mGrowth  = []knot{{0, 14}, {.05, 162}, {.10, 199}, {.25, 339}, {.50, 664}, {.75, 1705}, {.90, 3720}, {.95, 6515}, {.99, 14753}, {1, 109815}}
	mSystem  = []knot{{0, 8718}, {.10, 11500}, {.50, 15100}, {.90, 16700}, {1, 22006}}
	mContext = []knot{{0, 120000}, {.10, 145000}, {.50, 156000}, {.75, 172000}, {.90, 400000}, {1, 894371}}
	mAgentN  = []knot{{0, 2}, {.10, 4}, {.25, 6.5}, {.50, 8}, {.75, 11.5}, {.90, 13}, {1, 24}}
	mAgentIn = []knot{{0, 8868}, {.10, 9834}, {.50, 10348}, {.75, 11682}, {1, 11763}}
	mAgentUp = []knot{{0, 159}, {.05, 324}, {.10, 487}, {.25, 987}, {.50, 2509}, {.75, 5902}, {.90, 15809}, {.99, 66033}, {1, 72266}}
)

const (
	mRewrites      = 0.018 // turns that keep little more than the system prompt
	mPullbacks     = 0.048 // turns that take the last blocks back
	mResumes       = 0.45  // pauses over an hour behind which the context is another: flat agents
	mSubAgentShare = 0.04  // turns of recorded sub-agents
	shortRun       = 12    // turns
	mStreaming     = 0.15  // traces whose requests have a recorded time to first token

	// Service time in seconds: a least-squares fit over the 7,189 turns of the 101 traces that
	// recorded one; the spread is that of the logarithm of the rest.
	apiBase, apiPerIn, apiPerOut, apiSpread = 1.48, 1.33e-5, 0.0155, 0.23
)

// draw takes a value from a distribution: the knots, interpolated in the logarithm.
func draw(r *rand.Rand, k []knot, scale float64) float64 { return at(k, r.Float64(), scale) }

// at is the value of a distribution at a share u.
func at(k []knot, u, scale float64) float64 {
	for i := 1; i < len(k); i++ {
		if u <= k[i].q {
			a, b := k[i-1], k[i]
			x := (u - a.q) / (b.q - a.q)
			return scale * math.Exp(math.Log(a.v)+(math.Log(b.v)-math.Log(a.v))*x)
		}
	}
	return scale * k[len(k)-1].v
}

func median(k []knot) float64 { return at(k, 0.5, 1) }

// mean is the mean of what draw takes from a distribution.
func mean(k []knot) float64 {
	sum := 0.0
	for i := 1; i < len(k); i++ {
		a, b := k[i-1], k[i]
		m := a.v
		if a.v != b.v {
			m = (b.v - a.v) / math.Log(b.v/a.v)
		}
		sum += (b.q - a.q) * m
	}
	return sum
}

// Generate makes a corpus up: agent runs whose lengths, growth, pauses, prefix reuse and
// sub-agents follow what was measured. Equal options give an equal corpus on any machine; a
// trace depends on the seed and its number alone.
func Generate(opt GenerateOptions) (*Corpus, error) {
	if opt.Traces == 0 {
		opt.Traces = 64
	}
	if opt.BlockSize == 0 {
		opt.BlockSize = 64
	}
	if opt.FanOut == 0 {
		opt.FanOut = 3
	}
	switch {
	case opt.SubAgentShare >= 0.9:
		return nil, fmt.Errorf("the share of sub-agents is %g: want under 0.9", opt.SubAgentShare)
	case opt.Rewrites > 1 || opt.Resumes > 1:
		return nil, fmt.Errorf("the share of rewrites is %g and that of resumes %g: want at most 1", opt.Rewrites, opt.Resumes)
	case math.IsNaN(opt.SubAgentShare) || math.IsNaN(opt.Rewrites) || math.IsNaN(opt.Resumes):
		return nil, fmt.Errorf("a share is not a number")
	}
	for _, k := range []struct {
		name string
		v    int64
	}{{"traces", int64(opt.Traces)}, {"turns", opt.Turns}, {"system tokens", opt.SystemTokens}, {"first prompt", opt.FirstIn}, {"growth", opt.Growth},
		{"output", opt.Out}, {"context", opt.Context}, {"think time", opt.ThinkNs}, {"fan-out", int64(opt.FanOut)}, {"block size", opt.BlockSize}} {
		const most = int64(10_000_000)
		if k.name == "think time" {
			if d := time.Duration(k.v); d < 0 || d > 30*24*time.Hour {
				return nil, fmt.Errorf("think time is %v: want 0s to 720h", d)
			}
			continue
		}
		if k.v < 0 || k.v > most {
			return nil, fmt.Errorf("%s is %d: want 0 to %d", k.name, k.v, most)
		}
	}
	traces := make([]*Trace, opt.Traces)
	digests := make([][]byte, opt.Traces)
	err := inParallel(opt.Traces, func(i int) error {
		t, err := newGenerator(&opt, i).trace().build()
		if err != nil {
			return err
		}
		traces[i], digests[i] = t, digest(t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Corpus{
		Name:        fmt.Sprintf("generated, seed %d, %d traces", opt.Seed, opt.Traces),
		Fingerprint: fingerprint(digests),
		Traces:      traces,
	}, nil
}

// generator makes one trace.
type generator struct {
	opt  *GenerateOptions
	r    *rand.Rand
	id   string
	next uint32 // next block id that is free

	system, agentSystem          int64
	sysBlocks, agentBlocks       []uint32
	streaming                    bool
	sTurns, sOut, sThink, sFirst float64 // scales of the distributions
	sGrowth, sSystem, sContext   float64
}

func scale(want int64, k []knot, unit float64) float64 {
	if want == 0 {
		return 1
	}
	return float64(want) / (median(k) * unit)
}

func newGenerator(opt *GenerateOptions, i int) *generator {
	g := &generator{
		opt: opt, id: fmt.Sprintf("gen_%04d", i), next: 1,
		r:      rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "weir corpus %d %d", opt.Seed, i)))),
		sTurns: scale(opt.Turns, mTurns, 1), sOut: scale(opt.Out, mOut, 1), sThink: scale(opt.ThinkNs, mThink, 1e9),
		sFirst: scale(opt.FirstIn, mFirst, 1), sGrowth: scale(opt.Growth, mGrowth, 1),
		sSystem: scale(opt.SystemTokens, mSystem, 1), sContext: scale(opt.Context, mContext, 1),
	}
	g.streaming = g.r.Float64() < mStreaming
	g.system = int64(draw(g.r, mSystem, g.sSystem))
	if opt.SharedSystem {
		g.system = int64(median(mSystem) * g.sSystem)
	}
	g.agentSystem = g.system * 3 / 5
	g.sysBlocks = g.fresh((g.system + opt.BlockSize - 1) / opt.BlockSize)
	if opt.SharedSystem {
		g.agentSystem, g.agentBlocks = g.system, g.sysBlocks
	} else {
		g.agentBlocks = g.fresh((g.agentSystem + opt.BlockSize - 1) / opt.BlockSize)
	}
	return g
}

func (g *generator) fresh(n int64) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = g.next
		g.next++
	}
	return out
}

// A context is the state of one conversation.
type genContext struct {
	in     int64
	blocks []uint32 // of in, full ones only
}

// grow returns a context of in tokens that keeps the first keep blocks of old.
func (g *generator) grow(old []uint32, keep int, in int64) genContext {
	full := int(in / g.opt.BlockSize)
	keep = min(keep, full, len(old))
	var blocks []uint32
	if keep == len(old) {
		blocks = append(old, g.fresh(int64(full-keep))...)
	} else {
		blocks = append(old[:keep:keep], g.fresh(int64(full-keep))...)
	}
	return genContext{in: in, blocks: blocks}
}

func (g *generator) request(outer int, t int64, c genContext, model int, think int64) request {
	out := max(1, int64(draw(g.r, mOut, g.sOut)))
	ttft := apiBase + apiPerIn*float64(c.in)
	noise := math.Exp(apiSpread * g.r.NormFloat64())
	api := (ttft + apiPerOut*float64(out)) * noise
	r := request{outer: outer, t: t, api: toNs(api), hasAPI: true, think: think, in: c.in, out: out, model: model,
		blocks: c.blocks[:len(c.blocks):len(c.blocks)]}
	if g.streaming {
		r.ttft = toNs(ttft * noise)
	}
	return r
}

// toNs rounds seconds to the millisecond, the resolution of recorded times.
func toNs(s float64) int64 { return int64(math.Round(s*1000)) * 1_000_000 }

func (g *generator) think() int64 { return toNs(draw(g.r, mThink, g.sThink)) }

// step is what a turn adds: of the answer before it what is kept, and what a tool or a person
// said.
func (g *generator) step(k []knot) int64 { return max(int64(draw(g.r, k, g.sGrowth)), 1) }

func (g *generator) trace() *recording {
	rec := &recording{
		file: g.id, id: g.id, blockSize: g.opt.BlockSize, placed: true, models: []string{"agent-large", "agent-small"},
		toolTokens: g.system * 4 / 5, systemTokens: g.system - g.system*4/5,
	}
	n := max(1, int(math.Round(draw(g.r, mTurns, g.sTurns))))
	limit := int64(draw(g.r, mContext, g.sContext))
	// Short runs are mostly those that were given a large context at once: 15 of the 17 traces
	// of up to 12 turns began over the median of all first prompts.
	upper := 0.41
	if float64(n) <= shortRun*g.sTurns {
		upper = 0.85
	}
	u := g.r.Float64() / 2
	if g.r.Float64() < upper {
		u += 0.5
	}
	first := max(int64(at(mFirst, u, g.sFirst)), g.system+g.opt.BlockSize)
	limit = max(limit, first+first/8)
	rewrites := g.opt.Rewrites
	switch {
	case rewrites == 0:
		rewrites = mRewrites
	case rewrites < 0:
		rewrites = 0
	}
	resumes := g.opt.Resumes
	switch {
	case resumes == 0:
		resumes = mResumes
	case resumes < 0:
		resumes = 0
	}
	sys := len(g.sysBlocks)
	c := g.grow(g.sysBlocks[:sys:sys], sys, first)
	var t, think int64
	outer := 0
	for k := range n {
		q := g.request(outer, t, c, 0, think)
		outer++
		rec.requests = append(rec.requests, q)
		think = g.think()
		t = q.end() + think
		if k == n-1 {
			break
		}
		if end := g.spawn(rec, &outer, q.end()); end+200e6 > t {
			t = end + 200e6
			think = t - q.end()
		}
		up := g.step(mGrowth)
		u := g.r.Float64()
		switch in := c.in + up; {
		case think > seamMaxGapNs && g.r.Float64() < resumes:
			// Somebody came back and began anew: another session of the same agent.
			in = max(int64(draw(g.r, mFirst, g.sFirst)), g.system+g.opt.BlockSize)
			limit = max(limit, in+in/8)
			c = g.grow(c.blocks, sys, in)
		case in > limit:
			// Compaction: the system prompt and a summary stay.
			c = g.grow(c.blocks, sys, max(g.system+g.opt.BlockSize, int64(float64(limit)*(0.10+0.25*g.r.Float64()))))
		case u < rewrites:
			c = g.grow(c.blocks, sys, max(g.system+g.opt.BlockSize, int64(float64(in)*(0.85+0.15*g.r.Float64()))))
		case u < rewrites+mPullbacks:
			c = g.grow(c.blocks, len(c.blocks)-1-g.r.IntN(2), in)
		default:
			c = g.grow(c.blocks, len(c.blocks), in)
		}
	}
	return rec
}

// spawn starts sub-agents behind a turn that ended at t, now and then, and returns when the
// last of those ends that the next turn waits for.
func (g *generator) spawn(rec *recording, outer *int, t int64) int64 {
	share := g.opt.SubAgentShare
	switch {
	case share == 0:
		share = mSubAgentShare
	case share < 0:
		return 0
	}
	perSpawn := float64(1+g.opt.FanOut) / 2 * mean(mAgentN)
	if g.r.Float64() >= share/(1-share)/perSpawn {
		return 0
	}
	wait := int64(0)
	background := g.r.Float64() < 0.1
	for range 1 + g.r.IntN(g.opt.FanOut) {
		t += toNs(0.2 + 4*g.r.Float64())
		a := agent{outer: *outer, t: t, id: fmt.Sprintf("agent_%03d", len(rec.agents)+1), label: "Explore",
			toolTokens: g.agentSystem * 9 / 10, systemTokens: g.agentSystem - g.agentSystem*9/10}
		*outer++
		sys := len(g.agentBlocks)
		in := max(int64(draw(g.r, mAgentIn, g.sSystem)), g.agentSystem+g.opt.BlockSize)
		c := g.grow(g.agentBlocks[:sys:sys], sys, in)
		at := t
		var think int64
		for j := range int(math.Round(draw(g.r, mAgentN, 1))) {
			q := g.request(j, at, c, 1, think)
			a.requests = append(a.requests, q)
			think = min(g.think(), toNs(20))
			at = q.end() + think
			c = g.grow(c.blocks, len(c.blocks), c.in+g.step(mAgentUp))
		}
		last := a.requests[len(a.requests)-1]
		a.duration = last.end() - a.t
		rec.agents = append(rec.agents, a)
		wait = max(wait, t)
		if !background {
			wait = max(wait, last.end())
		}
	}
	return wait
}
