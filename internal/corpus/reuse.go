package corpus

import (
	"fmt"
	"math"
)

// A ReuseProfile says how a prefix cache of any size would do on one trace that is played
// alone, in recorded order: for every block of every prompt, how many different tokens were
// touched since it was used last. Prompts are the unit of time: the blocks of one prompt are
// touched together.
type ReuseProfile struct {
	// Tokens counts, by distance, the tokens that were touched again: bin i holds distances
	// over binTokens(i-1) and up to binTokens(i).
	Tokens [reuseBins]int64
	Total  int64 // tokens in blocks of all prompts
	Unique int64 // of these, different ones
	Peak   int64 // the largest prompt
}

// Bins are an eighth of an octave wide, from 1,024 tokens to 2^36.
const (
	reuseBins      = 26*8 + 1
	reuseBinsPer2  = 8
	reuseFirstLog2 = 10
)

// binTokens is the largest distance in a bin.
func binTokens(i int) float64 {
	return math.Exp2(reuseFirstLog2 + float64(i)/reuseBinsPer2)
}

func binOf(tokens int64) int {
	if tokens <= 1<<reuseFirstLog2 {
		return 0
	}
	i := int(math.Ceil((math.Log2(float64(tokens)) - reuseFirstLog2) * reuseBinsPer2))
	return min(i, reuseBins-1)
}

// Reuse computes the profile of a trace.
func (t *Trace) Reuse() *ReuseProfile {
	p := &ReuseProfile{}
	order := t.InTime()
	numbers := newNumbering()
	var last []int32                        // by block: the prompt that touched it last
	touched := make([]int64, len(order)+1)  // by prompt: blocks that were touched there last
	distance := make([]int64, len(order)+1) // by prompt: different blocks touched from it on
	var reused [reuseBins]int64
	for n, at := range order {
		u := &t.Streams[at.Stream].Turns[at.Turn]
		p.Peak = max(p.Peak, u.In)
		// Different blocks touched since prompt i are those whose last prompt is i or later.
		sum := int64(0)
		for i := n - 1; i >= 0; i-- {
			sum += touched[i]
			distance[i] = sum
		}
		for _, b := range u.Blocks {
			id := int(numbers.of(b))
			if id == len(last) {
				last = append(last, -1)
			}
			if l := last[id]; l >= 0 {
				if int(l) == n {
					continue // twice in one prompt
				}
				reused[binOf(distance[l]*t.BlockSize)]++
				touched[l]--
			}
			touched[n]++
			last[id] = int32(n)
		}
		p.Total += int64(len(u.Blocks)) * t.BlockSize
	}
	for i, n := range reused {
		p.Tokens[i] = n * t.BlockSize
	}
	p.Unique = int64(numbers.n) * t.BlockSize
	return p
}

// A CurvePoint is the hit rate of a cache of some capacity.
type CurvePoint struct {
	CapacityTokens int64   `json:"capacity_tokens"`
	HitRate        float64 `json:"hit_rate"`
}

// curve is the hit rate by capacity over profiles, at the upper ends of all bins.
func curve(profiles []*ReuseProfile) []float64 {
	var total int64
	var bins [reuseBins]int64
	for _, p := range profiles {
		total += p.Total
		for i, n := range p.Tokens {
			bins[i] += n
		}
	}
	out := make([]float64, reuseBins)
	var sum int64
	for i, n := range bins {
		sum += n
		if total > 0 {
			out[i] = float64(sum) / float64(total)
		}
	}
	return out
}

// HitCurve is the hit rate of an LRU cache by capacity when the traces of c are played one by
// one, each from a cold cache: a property of the corpus, not of a server. Capacities are the
// powers of two that the corpus spans.
func (c *Corpus) HitCurve() ([]CurvePoint, error) {
	if err := c.NeedBlocks("the hit rate by capacity"); err != nil {
		return nil, err
	}
	profiles := c.profiles()
	var most int64
	for _, p := range profiles {
		most = max(most, p.Unique)
	}
	all := curve(profiles)
	var out []CurvePoint
	for i := 0; i < reuseBins; i += reuseBinsPer2 {
		out = append(out, CurvePoint{int64(binTokens(i)), all[i]})
		if binTokens(i) > float64(most) {
			break
		}
	}
	return out, nil
}

func (c *Corpus) profiles() []*ReuseProfile {
	out := make([]*ReuseProfile, len(c.Traces))
	inParallel(len(out), func(i int) error {
		out[i] = c.Traces[i].Reuse()
		return nil
	})
	return out
}

// derive makes a corpus of other traces.
func (c *Corpus) derive(traces []*Trace, what string) *Corpus {
	d := &Corpus{Name: fmt.Sprintf("%s, %s", c.Name, what), Traces: traces, Skipped: c.Skipped, Notes: c.Notes}
	d.Fingerprint = fingerprint(digests(traces))
	return d
}

func digests(traces []*Trace) [][]byte {
	out := make([][]byte, len(traces))
	inParallel(len(out), func(i int) error {
		out[i] = digest(traces[i])
		return nil
	})
	return out
}
