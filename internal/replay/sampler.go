package replay

// sampler says which trace comes next, over initial lanes and recycled ones alike.
type sampler struct {
	kind  Sampling
	rng   *pcg64
	order []int
	at    int
}

func newSampler(n int, kind Sampling, seed uint64) sampler {
	s := sampler{kind: kind, rng: newPCG64(laneSeed(seed, "sampler", 0)), order: make([]int, n), at: n}
	for i := range s.order {
		s.order[i] = i
	}
	return s
}

func (s *sampler) next() int {
	if s.kind == Random {
		return int(s.rng.intn(uint32(len(s.order))))
	}
	if s.at == len(s.order) {
		s.at = 0
		if s.kind == Shuffle {
			for i := len(s.order) - 1; i > 0; i-- {
				j := int(s.rng.intn(uint32(i + 1)))
				s.order[i], s.order[j] = s.order[j], s.order[i]
			}
		}
	}
	s.at++
	return s.order[s.at-1]
}
