package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// pcg64 is NumPy's default bit generator (PCG XSL RR 128/64) seeded through SeedSequence, so
// that a start instant drawn here equals the one that numpy.random.default_rng(seed) draws,
// bit for bit. The algorithms are O'Neill's (PCG, 2014; seed_seq_fe, 2015), the constants and
// the order of words NumPy's (numpy/random/bit_generator.pyx and src/pcg64, 2.x).
type pcg64 struct {
	hi, lo       uint64 // state
	incHi, incLo uint64
	buffered     bool // a high half waits for next32
	buffer       uint32
}

const (
	pcgMulHi, pcgMulLo = 0x2360ED051FC65DA4, 0x4385DF649FCCF645

	seedInitA, seedMultA = 0x43b0d7e5, 0x931e8875
	seedInitB, seedMultB = 0x8b51f9dd, 0x58f38ded
	seedMixL, seedMixR   = 0xca01f9dd, 0x4973f715
)

// seedWords is SeedSequence(entropy).generate_state(4, uint64) for an entropy below 2^64.
func seedWords(entropy uint64) [4]uint64 {
	words := [4]uint32{uint32(entropy), uint32(entropy >> 32)}
	h := uint32(seedInitA)
	hash := func(v uint32) uint32 {
		v ^= h
		h *= seedMultA
		v *= h
		return v ^ v>>16
	}
	var pool [4]uint32
	for i := range pool {
		pool[i] = hash(words[i])
	}
	for src := range pool {
		for dst := range pool {
			if src != dst {
				v := seedMixL*pool[dst] - seedMixR*hash(pool[src])
				pool[dst] = v ^ v>>16
			}
		}
	}
	var out [4]uint64
	h = seedInitB
	for i := range 8 {
		v := pool[i%4] ^ h
		h *= seedMultB
		v *= h
		v ^= v >> 16
		out[i/2] |= uint64(v) << (32 * (i % 2))
	}
	return out
}

// newPCG64 is numpy.random.default_rng(seed).
func newPCG64(seed uint64) *pcg64 {
	w := seedWords(seed)
	p := &pcg64{incHi: w[2]<<1 | w[3]>>63, incLo: w[3]<<1 | 1}
	p.step()
	var carry uint64
	p.lo, carry = bits.Add64(p.lo, w[1], 0)
	p.hi, _ = bits.Add64(p.hi, w[0], carry)
	p.step()
	return p
}

func (p *pcg64) step() {
	hi, lo := bits.Mul64(p.lo, pcgMulLo)
	hi += p.hi*pcgMulLo + p.lo*pcgMulHi
	var carry uint64
	p.lo, carry = bits.Add64(lo, p.incLo, 0)
	p.hi, _ = bits.Add64(hi, p.incHi, carry)
}

func (p *pcg64) next64() uint64 {
	p.step()
	return bits.RotateLeft64(p.hi^p.lo, -int(p.hi>>58))
}

func (p *pcg64) next32() uint32 {
	if p.buffered {
		p.buffered = false
		return p.buffer
	}
	v := p.next64()
	p.buffered, p.buffer = true, uint32(v>>32)
	return uint32(v)
}

// float64 is uniform in [0, 1) with 53 bits.
func (p *pcg64) float64() float64 { return float64(p.next64()>>11) * (1.0 / (1 << 53)) }

// uniform is Generator.uniform(lo, hi). The conversions keep the compiler from fusing the
// product into the sum, which would change the last bit on some machines.
func (p *pcg64) uniform(lo, hi float64) float64 {
	return lo + float64(float64(hi-lo)*p.float64())
}

// intn is Generator.choice(range(n)): Lemire's bounded draw over 32 bits; n from 1 to 2^32-1.
func (p *pcg64) intn(n uint32) uint32 {
	if n <= 1 {
		return 0
	}
	m := uint64(p.next32()) * uint64(n)
	if low := uint32(m); low < n {
		for floor := -n % n; uint32(m) < floor; {
			m = uint64(p.next32()) * uint64(n)
		}
	}
	return uint32(m >> 32)
}

// upTo is uniform in [0, n] as Generator.shuffle of a list draws it: as many bits as n has, again while
// they are above it.
func (p *pcg64) upTo(n uint32) uint32 {
	for {
		if v := p.next32() & (1<<bits.Len32(n) - 1); v <= n {
			return v
		}
	}
}

// laneSeed is the seed of one lane's draw on one trace: the first eight bytes, big-endian, of
// SHA-256 over "<seed>:<trace>:<lane>" (AIPerf trajectory_source.py, 2026-08).
func laneSeed(seed uint64, trace string, lane int) uint64 {
	h := sha256.Sum256([]byte(strconv.FormatUint(seed, 10) + ":" + trace + ":" + strconv.Itoa(lane)))
	return binary.BigEndian.Uint64(h[:8])
}
