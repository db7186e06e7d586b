package record

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// modeOf is the smallest power of ten that makes all values whole, asBits when none does.
func modeOf(before float64, list []change) int {
	k := 0
	fits := func(v float64) bool {
		for ; k <= maxExponent; k++ {
			if _, ok := whole(v, k); ok {
				return true
			}
		}
		return false
	}
	if !math.IsNaN(before) && !fits(before) {
		return asBits
	}
	for {
		from := k
		for _, c := range list {
			if !math.IsNaN(c.v) && !fits(c.v) {
				return asBits
			}
		}
		if !math.IsNaN(before) && !fits(before) {
			return asBits
		}
		if k == from { // the first value fits this power too
			return k
		}
	}
}

// gone stands in place of the growth of a series that is no more; the zigzag of others is one more.
const gone = 0

// growth notes by how much a series that is always there grew.
func growth(before float64, list []change, k int, grown []int64) {
	last, _ := whole(before, k)
	for _, c := range list {
		v, _ := whole(c.v, k)
		grown[c.n] = v - last
		last = v
	}
}

// putGrowth writes growths less those under them, and notes them in grown. It tells whether all
// are growths indeed, none a fall, which are written without a sign.
func putGrowth(sections *[sectionCount][]byte, before float64, list []change, k int, under, grown []int64) bool {
	last := int64(0)
	if !math.IsNaN(before) {
		last, _ = whole(before, k)
	}
	up := true
	for _, c := range list {
		if math.IsNaN(c.v) {
			last = 0
			continue
		}
		v, _ := whole(c.v, k)
		grown[c.n] = v - last
		last = v
		if grown[c.n] < 0 || under != nil && grown[c.n] < under[c.n] {
			up = false
		}
	}
	at := secLow
	if up {
		at = secUp
	}
	low, high := sections[at], sections[at+1]
	for _, c := range list {
		u := uint64(gone)
		if !math.IsNaN(c.v) {
			d := grown[c.n]
			if under != nil {
				d -= under[c.n]
			}
			if up {
				u = uint64(d) + 1
			} else {
				u = zigzag(d) + 1
			}
		}
		low = append(low, byte(u))
		high = binary.AppendUvarint(high, u>>8)
	}
	sections[at], sections[at+1] = low, high
	return up
}

// noValue are the bits that stand for no value.
var noValue = math.Float64bits(math.NaN())

// putBits writes differences of the values' bits, 0 for none any more.
func putBits(sections *[sectionCount][]byte, before float64, list []change) {
	last := math.Float64bits(before)
	for _, c := range list {
		if math.IsNaN(c.v) {
			sections[secSizes] = append(sections[secSizes], 0) // no value has the bits of another one
			last = noValue
			continue
		}
		v := math.Float64bits(c.v)
		d := zigzag(int64(v - last))
		n := (bits.Len64(d) + 7) / 8
		sections[secSizes] = append(sections[secSizes], byte(n))
		for i := range n {
			sections[secFloats+i] = append(sections[secFloats+i], byte(d>>(8*i)))
		}
		last = v
	}
}
