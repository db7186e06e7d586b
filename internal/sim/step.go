package sim

import (
	"fmt"
	"math"

	"github.com/weirbench/weir/internal/facts"
)

// A span is a piece of a prompt that one step computes: n tokens after prefix tokens whose
// keys and values are there.
type span struct{ n, prefix int64 }

// A load is what one rank does in one step.
type load struct {
	spans   []span
	decodes int64 // sequences that decode
	ctx     int64 // their context lengths, summed
	longest int64 // the longest of them
	capped  []int64
}

// stepModel says how long a step takes: for attention and dense layers the larger of arithmetic
// and memory traffic, for experts their sum, plus collectives, plus what layers, sequences and
// steps cost beside them. It is
// made once per engine; nothing in it changes afterwards.
//
// Products of floating-point numbers are converted before they are added, so that no
// processor may fuse them: a step takes the same nanoseconds everywhere.
type stepModel struct {
	co        *facts.Coefficients
	attention []attention
	caps      []int64 // context lengths beyond which some layer does not look
	tp        int64   // ranks that share a layer
	attnTP    int64   // ranks that share one sequence's attention
	width     int64   // tokens that a decode step computes for a sequence: 1, or draft tokens and one
	drafts    int64
	draftPart float64 // share of the target's layers that one draft pass runs

	denseFlop, denseByteNs float64 // per token; once
	expertFlop             float64 // ns per token
	expertByteNs           float64 // per expert that is touched, all layers
	expertNs               float64 // all layers, beside the peaks
	experts                int64
	touched                []float64 // experts touched by the tokens of a step
	reduceNs, reduceTokNs  float64   // all layers
	hostNs                 float64   // per token copied to or from the host
	nicNs                  float64   // per token sent to another engine
	layers                 int64
}

// attention is what a run of equal layers costs, in nanoseconds for all of them.
type attention struct {
	pairNs    float64 // per pair of query and key at prefill, and at decode where arithmetic bounds
	keyNs     float64 // per key read, once for a sequence
	cap       int     // index in caps of the most keys a query looks at, -1 for all
	every     int64   // one key for so many tokens, at least 1
	window    int64   // keys that are always looked at, beside those
	indexNs   float64 // per pair in the indexer at prefill
	indexKey  float64 // per key read by the indexer
	indexTok  float64 // per token of the longest context
	seqNs     float64 // per sequence that decodes: a fixed state is read and written
	chunkNs   float64 // per token of prefill: the same state, once in stateChunk tokens
	layersNs  float64 // beside the peaks
	decodePer float64 // pairs at decode cost this much of pairs at prefill
}

const (
	// stateChunk is the number of prefill tokens that a linear layer folds into its state at once.
	stateChunk = 64
	// mlaHeadDims is the sum of key and value widths per head of latent attention at prefill
	// where a model's facts do not give them: 192 + 128 of DeepSeek-V3 (config.json).
	mlaHeadDims = 320
)

func kvItem(dtype string) (float64, error) {
	switch dtype {
	case "fp8", "fp8_e4m3", "fp8_e5m2", "int8":
		return 1, nil
	case "bf16", "fp16", "auto", "":
		return 2, nil
	case "fp4", "mxfp4", "nvfp4":
		return 0.5, nil
	}
	return 0, fmt.Errorf("KV dtype %q is unknown: use fp8, bf16 or fp4", dtype)
}

func newStepModel(c *Config) (*stepModel, error) {
	m, g, co := c.Model, c.GPU, c.Coefficients
	tp := int64(c.Parallel.TP)
	s := &stepModel{co: co, tp: tp, attnTP: tp, width: 1, layers: m.NumLayers()}
	ranks := tp // that share what is not experts
	if c.Parallel.DPAttn {
		s.attnTP, ranks = 1, 1
	}
	if c.DraftTokens > 0 {
		s.width, s.drafts = c.DraftTokens+1, c.DraftTokens
		s.draftPart = float64(max(1, m.DraftLayers)) / float64(s.layers)
	}
	item, err := kvItem(c.KVDType)
	if err != nil {
		return nil, err
	}
	bf16 := g.FLOPS["bf16"]
	if bf16 <= 0 || g.HBMBandwidth <= 0 {
		return nil, fmt.Errorf("facts of GPU %q hold no arithmetic peak for bf16 or no HBM bandwidth", g.Name)
	}
	// peak is the GPU's for a precision; weights narrower than its units compute as the next
	// wider type.
	peak := func(precision string) float64 {
		for _, p := range []string{precision, "fp8", "bf16"} {
			if v := g.FLOPS[p]; v > 0 {
				return float64(v)
			}
		}
		return float64(bf16)
	}
	perFlop := func(peak, share float64) float64 { return 1e9 / (peak * share) }
	perByte := func(share float64) float64 { return 1e9 / (float64(g.HBMBandwidth) * share) }
	kvByte := perByte(co.KVBytes)

	weights, ok := m.WeightBytes[c.WeightPrecision]
	if !ok || weights <= 0 || m.Params <= 0 {
		return nil, fmt.Errorf("facts of model %q hold no checkpoint size for precision %q or no parameter count", m.Name, c.WeightPrecision)
	}
	expert := float64(3 * m.Hidden * m.MoE.Dim) // parameters
	routed := expert * float64(m.MoE.Experts*m.MoE.Layers)
	rest := float64(m.Params) - routed
	if rest <= 0 { // a rounded count of parameters: what a token uses beside its experts
		rest = float64(m.ActiveParams) - expert*float64(m.MoE.TopK*m.MoE.Layers)
	}
	if rest <= 0 {
		return nil, fmt.Errorf("facts of model %q do not add up: %.3g parameters in experts, %d in all", m.Name, routed, m.Params)
	}
	perParam := float64(weights) / float64(m.Params)
	expertBytes := expert * perParam
	if b := m.ExpertBytes[c.WeightPrecision]; b > 0 && b < weights && routed > 0 {
		expertBytes = float64(b) / float64(m.MoE.Experts*m.MoE.Layers)
		perParam = min(2, float64(weights-b)/rest)
	}
	dense := "bf16" // what is not experts often keeps a wider type
	if perParam < 0.8 {
		dense = "fp4"
	} else if perParam < 1.5 {
		dense = "fp8"
	}
	s.denseFlop = 2 * rest / float64(ranks) * perFlop(peak(dense), facts.ShareOf(co.DenseFLOPS, dense))
	s.denseByteNs = rest * perParam / float64(ranks) * perByte(facts.ShareOf(co.DenseBytes, dense))
	if m.MoE.Layers > 0 {
		all := float64(m.MoE.Layers) / float64(tp)
		share := facts.ShareOf(co.ExpertFLOPS, c.WeightPrecision)
		if int64(c.Parallel.EP) >= tp && tp > 1 {
			share = min(1, share*co.WholeExperts)
		}
		s.experts = m.MoE.Experts
		s.expertFlop = 2 * expert * float64(m.MoE.TopK) * all * perFlop(peak(c.WeightPrecision), share)
		s.expertByteNs = expertBytes * all * perByte(co.ExpertBytes)
		s.expertNs = co.ExpertLayerNs * float64(m.MoE.Layers)
		s.touched = touchedExperts(m.MoE.Experts, m.MoE.TopK)
	}
	if tp > 1 {
		if g.LinkBandwidth <= 0 {
			return nil, fmt.Errorf("facts of GPU %q hold no scale-up link: TP %d needs one", g.Name, tp)
		}
		per := float64(2 * s.layers)
		s.reduceNs = co.AllReduceNs * per
		s.reduceTokNs = float64(2*m.Hidden) * per * 1e9 / (float64(g.LinkBandwidth) * co.LinkBytes)
	}
	if g.HostBandwidth > 0 {
		s.hostNs = float64(c.KVBytesPerToken) * 1e9 / (float64(g.HostBandwidth) * co.HostBytes)
	} else if c.HostTokens > 0 {
		return nil, fmt.Errorf("facts of GPU %q hold no bandwidth to the host: a host tier needs one", g.Name)
	}
	if g.NICBandwidth > 0 {
		s.nicNs = float64(c.KVBytesPerToken) * 1e9 / (float64(g.NICBandwidth) * co.NICBytes)
	}

	for _, l := range m.Layers {
		a, capTokens, err := attentionOf(&l, float64(m.Heads)/float64(s.attnTP), float64(s.attnTP), item, kvByte,
			perFlop(float64(bf16), co.AttnFLOPS), perFlop(float64(bf16), co.SparseFLOPS), perFlop(peak("fp8"), co.IndexFLOPS), co)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", m.Name, err)
		}
		a.cap = -1
		if capTokens > 0 {
			a.cap = s.capIndex(capTokens)
		}
		s.attention = append(s.attention, a)
	}
	return s, nil
}

func (s *stepModel) capIndex(tokens int64) int {
	for i, c := range s.caps {
		if c == tokens {
			return i
		}
	}
	s.caps = append(s.caps, tokens)
	return len(s.caps) - 1
}

// attentionOf returns the costs of a run of layers and the number of keys, 0 for all, beyond
// which a query does not look.
func attentionOf(l *facts.Layers, heads, tp, item, kvByte, fullNs, sparseNs, indexNs float64, co *facts.Coefficients) (attention, int64, error) {
	n := float64(l.Count)
	a := attention{every: 1, layersNs: co.AttnLayerNs * n, decodePer: 1}
	vDim := l.VHeadDim
	if vDim == 0 {
		vDim = l.HeadDim
	}
	index := func(replicated float64) {
		a.indexNs = 2 * float64(max(1, l.IndexHeads)*l.IndexDim) * indexNs * n / replicated
		a.indexKey = (float64(l.IndexDim) + 4) * kvByte * n
		a.indexTok = co.IndexTokenNs * n
		a.layersNs += co.IndexLayerNs * n
	}
	switch l.Kind {
	case facts.MHA, facts.SWA, facts.Sparse:
		kv := max(1, float64(l.KVHeads)/tp)
		a.pairNs = 2 * float64(l.HeadDim+vDim) * heads * fullNs * n
		a.keyNs = float64(l.HeadDim+vDim) * kv * item * kvByte * n
		if l.Kind == facts.SWA {
			return a, max(1, l.Window), nil
		}
		if l.Kind == facts.Sparse {
			index(1)
			return a, l.TopK, nil
		}
		return a, 0, nil
	case facts.MLA, facts.DSA:
		a.layersNs = co.LatentLayerNs * n
		latent := float64(2*l.LoraRank + l.RopeDim)
		a.keyNs = float64(l.LoraRank+l.RopeDim) * item * kvByte * n
		if l.Kind == facts.DSA {
			a.pairNs = 2 * heads * latent * sparseNs * n
			if !l.SharedIndex {
				index(1)
			}
			return a, l.TopK, nil
		}
		dims := float64(l.HeadDim + vDim)
		if dims == 0 {
			dims = mlaHeadDims
		}
		a.pairNs = 2 * heads * dims * fullNs * n
		a.decodePer = latent / dims // decode works on the latent
		return a, 0, nil
	case facts.DSV4:
		a.layersNs = co.LatentLayerNs * n
		dim := float64(l.HeadDim)
		a.every = max(1, l.Compress)
		a.window = l.Window
		a.pairNs = 2 * heads * 2 * dim * sparseNs * n
		a.keyNs = dim * item * kvByte * n
		if l.IndexDim > 0 {
			index(float64(a.every))
			a.indexKey /= float64(a.every)
			a.indexTok /= float64(a.every)
		}
		return a, l.TopK, nil
	case facts.Linear:
		state := 2 * float64(l.StateBytes+l.ConvBytes) / tp * n * kvByte
		a.seqNs, a.chunkNs = state, state/stateChunk
		return a, 1, nil
	}
	return a, 0, fmt.Errorf("attention kind %q has no cost", l.Kind)
}

// touchedExperts tells, for the number of tokens in a step, how many of the experts at least
// one of them uses when routing is even: N(1-(1-k/N)^tokens).
func touchedExperts(experts, topK int64) []float64 {
	if experts <= 0 {
		return nil
	}
	miss := 1 - float64(topK)/float64(experts)
	left, t := 1.0, []float64{0}
	for range 8192 {
		left *= miss
		if left < 1e-4 {
			break
		}
		t = append(t, float64(experts)*(1-left))
	}
	return append(t, float64(experts))
}

// pairsOf is the number of (query, key) pairs of a span when a query looks at no more than
// limit keys (0 for all).
func pairsOf(n, prefix, limit int64) float64 {
	if limit <= 0 || prefix+n <= limit {
		return float64(n)*float64(prefix) + float64(n)*float64(n+1)/2
	}
	if prefix >= limit {
		return float64(n) * float64(limit)
	}
	below := limit - prefix // queries that see fewer keys than the limit
	return pairsOf(below, prefix, 0) + float64(n-below)*float64(limit)
}

// attend is the time of all attention layers on one rank.
func (s *stepModel) attend(l *load) float64 {
	total := 0.0
	for i := range s.attention {
		a := &s.attention[i]
		var capTokens int64
		if a.cap >= 0 {
			capTokens = s.caps[a.cap]
		}
		t := a.layersNs
		for _, p := range l.spans {
			pairs := pairsOf(p.n, p.prefix, capTokens)
			keys := float64(p.prefix + p.n)
			if a.every > 1 {
				pairs = pairsOf(p.n, p.prefix/a.every, capTokens) + float64(p.n)*float64(min(a.window, p.prefix+p.n))
				keys /= float64(a.every)
			}
			t += math.Max(float64(pairs*a.pairNs), float64(keys*a.keyNs)) + float64(float64(p.n)*a.chunkNs)
			if a.indexNs > 0 {
				t += math.Max(float64(pairsOf(p.n, p.prefix, 0)*a.indexNs), float64(float64(p.prefix+p.n)*a.indexKey))
			}
		}
		if l.decodes > 0 {
			keys := float64(l.ctx)
			if a.cap >= 0 {
				keys = float64(l.capped[a.cap])
			}
			if a.every > 1 {
				keys = math.Min(keys, float64(l.ctx)/float64(a.every)) + float64(a.window*l.decodes)
			}
			t += math.Max(float64(keys*a.keyNs), float64(keys*float64(s.width)*a.pairNs*a.decodePer))
			t += float64(float64(l.ctx)*a.indexKey) + float64(float64(l.longest)*a.indexTok)
			t += float64(float64(l.decodes) * a.seqNs)
		}
		total += t
	}
	return total
}

// shared is the time of what all ranks do together on the tokens of a step, apart from their
// attention: weights, experts, collectives.
func (s *stepModel) shared(own, all int64) float64 {
	t := math.Max(float64(float64(own)*s.denseFlop), s.denseByteNs)
	if s.experts > 0 {
		at := min(all, int64(len(s.touched)-1))
		// Weights are read before they are used: the sum, as measured, not the larger.
		t += float64(float64(all)*s.expertFlop) + float64(s.touched[at]*s.expertByteNs) + s.expertNs
	}
	return t + s.reduceNs + float64(float64(all)*s.reduceTokNs)
}

// time is how long a step takes in which the ranks carry these loads, nanoseconds. Ranks that
// share a step wait for the slowest.
func (s *stepModel) time(loads []load) int64 {
	var attn float64
	var all, most, sequences int64
	prefill := false
	for i := range loads {
		l := &loads[i]
		own := l.decodes * s.width
		for _, p := range l.spans {
			own += p.n
			prefill = true
		}
		sequences = max(sequences, l.decodes+int64(len(l.spans)))
		all += own
		most = max(most, own)
		if own > 0 {
			attn = math.Max(attn, s.attend(l))
		}
	}
	if all == 0 {
		return 0
	}
	t := attn + s.shared(most, all) + float64(float64(sequences)*s.co.SequenceNs)
	if prefill { // the draft model's cache is filled along
		t += float64(s.draftPart*t) + s.co.PrefillStepNs
	} else {
		t += float64(float64(s.drafts) * (float64(s.draftPart*t) + s.co.DraftStepNs))
		t += s.co.DecodeStepNs
	}
	return max(1, int64(math.Round(t)))
}

// overlapped is how long a prefill of compute nanoseconds takes when so many tokens of its
// prefix are copied from the host meanwhile, layer by layer: each layer waits for its own copy.
func (s *stepModel) overlapped(compute, tokens int64) int64 {
	if tokens == 0 {
		return compute
	}
	ns := s.hostCopy(tokens)
	return max(compute, ns) + min(compute, ns)/max(1, s.layers)
}

// hostCopy is how long the copy of so many tokens from or to the host takes, nanoseconds.
func (s *stepModel) hostCopy(tokens int64) int64 {
	return int64(math.Round(float64(float64(tokens) * s.hostNs)))
}
