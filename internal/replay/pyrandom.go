package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// pyRandom is Python's random.Random, the Mersenne Twister of Matsumoto and Nishimura (mt19937ar,
// 2002) seeded by an array, and the variates that Python makes of it (3.9 to 3.14). AIPerf draws
// lengths, arrivals and cancellations with it, so that equal seeds give its very requests.
type pyRandom struct {
	state [624]uint32
	next  int
	spare float64 // the second of a pair of normal draws
	has   bool
}

// aiperfSeed is what AIPerf derives from a run's seed for one purpose: the first eight bytes,
// big-endian, of SHA-256 over "<seed>:<purpose>" (common/random_generator.py of 0.13, 2026-10).
func aiperfSeed(seed uint64, purpose string) uint64 {
	h := sha256.Sum256([]byte(strconv.FormatUint(seed, 10) + ":" + purpose))
	return binary.BigEndian.Uint64(h[:8])
}

func aiperfRandom(seed uint64, purpose string) *pyRandom {
	return newPyRandom(aiperfSeed(seed, purpose))
}

// newPyRandom is random.Random(seed).
func newPyRandom(seed uint64) *pyRandom {
	r := &pyRandom{next: 624}
	key := []uint32{uint32(seed), uint32(seed >> 32)}
	if key[1] == 0 {
		key = key[:1]
	}
	s := &r.state
	s[0] = 19650218
	for i := 1; i < len(s); i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	i := 1
	step := func(mul, add uint32, subtract bool) {
		v := s[i] ^ (s[i-1]^s[i-1]>>30)*mul
		if subtract {
			v -= uint32(i)
		} else {
			v += add
		}
		s[i] = v
		if i++; i == len(s) {
			s[0], i = s[len(s)-1], 1
		}
	}
	for k := range len(s) {
		j := k % len(key)
		step(1664525, key[j]+uint32(j), false)
	}
	for range len(s) - 1 {
		step(1566083941, 0, true)
	}
	s[0] = 1 << 31
	return r
}

func (r *pyRandom) uint32() uint32 {
	s := &r.state
	if r.next == len(s) {
		for i := range s {
			y := s[i]&(1<<31) | s[(i+1)%len(s)]&(1<<31-1)
			s[i] = s[(i+397)%len(s)] ^ y>>1 ^ (y&1)*0x9908b0df
		}
		r.next = 0
	}
	y := s[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 is random(): uniform in [0, 1) with 53 bits.
func (r *pyRandom) float64() float64 {
	a, b := r.uint32()>>5, r.uint32()>>6
	return float64(uint64(a)<<26|uint64(b)) / (1 << 53)
}

// intn is choice(range(n)): as many bits as n has, drawn again while they are not below it; n from 1 to 2^31.
func (r *pyRandom) intn(n uint32) uint32 {
	for {
		if v := r.uint32() >> (32 - bits.Len32(n)); v < n {
			return v
		}
	}
}

// exp is expovariate(1).
func (r *pyRandom) exp() float64 { return -ln(1 - r.float64()) }

// normal is gauss(0, 1): two at a time, by their angle and distance.
func (r *pyRandom) normal() float64 {
	if r.has {
		r.has = false
		return r.spare
	}
	angle := float64(r.float64() * 2 * math.Pi)
	far := math.Sqrt(-2 * ln(1-r.float64()))
	r.spare, r.has = float64(math.Sin(angle)*far), true
	return float64(math.Cos(angle) * far)
}

// gamma is gammavariate(shape, 1): Cheng's GB for a shape above 1, Ahrens and Dieter's GS below it.
func (r *pyRandom) gamma(shape float64) float64 {
	switch {
	case shape > 1:
		a := math.Sqrt(float64(2*shape) - 1)
		b, c := shape-2*math.Ln2, shape+a
		for {
			u := r.float64()
			if !(u > 1e-7 && u < 0.9999999) {
				continue
			}
			w := 1 - r.float64()
			v := ln(u/(1-u)) / a
			x := float64(shape * grow(v))
			z := float64(float64(u*u) * w)
			d := b + float64(c*v) - x
			if d+(1+ln(4.5))-float64(4.5*z) >= 0 || d >= ln(z) {
				return x
			}
		}
	case shape == 1:
		return r.exp()
	}
	b := (math.E + shape) / math.E
	for {
		p := float64(b * r.float64())
		if p <= 1 {
			x := 0.0
			if p > 0 {
				x = grow(ln(p) / shape)
			}
			if r.float64() <= exp(-x) {
				return x
			}
			continue
		}
		x := -ln((b - p) / shape)
		if r.float64() <= grow(float64((shape-1)*ln(x))) {
			return x
		}
	}
}

// grow is the exponential of any number, made as exp is.
func grow(x float64) float64 {
	switch {
	case x <= 0:
		return exp(x)
	case x > 700:
		return math.Inf(1)
	}
	return 1 / exp(-x)
}

// around is AIPerf's whole number near a mean: normal with a deviation, drawn again while it is
// negative, rounded up, at least 1. Without a deviation it is the mean.
func (r *pyRandom) around(mean, dev float64) int64 {
	if dev <= 0 {
		return max(1, int64(math.RoundToEven(mean)))
	}
	for {
		if x := mean + float64(r.normal()*dev); x >= 0 {
			return max(1, int64(math.Ceil(x)))
		}
	}
}
