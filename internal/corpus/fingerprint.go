package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// fingerprintVersion is part of every digest; it changes when the meaning of a field does.
const fingerprintVersion = "weir-corpus-1"

// digest names the content of a trace: everything but names. Block ids enter by the order of
// their first use, so any renumbering of them gives the same digest.
func digest(t *Trace) []byte {
	h := sha256.New()
	buf := make([]byte, 0, 1<<15)
	put := func(v int64) {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(v))
		if len(buf) > 1<<14 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	buf = append(buf, fingerprintVersion...)
	put(t.BlockSize)
	if t.LengthsOnly {
		put(1)
	}
	put(int64(len(t.Streams)))
	n := newNumbering()
	for i := range t.Streams {
		s := &t.Streams[i]
		for _, v := range []int64{int64(s.Kind), int64(s.Parent), int64(s.Spawn), int64(s.Join), s.StartNs, s.EndNs,
			s.SystemTokens, int64(len(s.Turns))} {
			put(v)
		}
		var prev []uint32
		for k := range s.Turns {
			u := &s.Turns[k]
			keep := commonPrefix(prev, u.Blocks)
			for _, v := range []int64{u.StartNs, u.APINs, u.ThinkNs, u.TTFTNs, u.In, u.Out, int64(u.Model),
				int64(keep), int64(len(u.Blocks))} {
				put(v)
			}
			for _, b := range u.Blocks[keep:] {
				buf = binary.LittleEndian.AppendUint32(buf, n.of(b))
				if len(buf) > 1<<14 {
					h.Write(buf)
					buf = buf[:0]
				}
			}
			prev = u.Blocks
		}
	}
	h.Write(buf)
	return h.Sum(nil)
}

// fingerprint names a corpus by the digests of its traces, in whatever order they came.
func fingerprint(digests [][]byte) string {
	sorted := slices.Clone(digests)
	slices.SortFunc(sorted, bytes.Compare)
	h := sha256.New()
	h.Write([]byte(fingerprintVersion))
	for _, d := range sorted {
		h.Write(d)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// A numbering gives block ids dense numbers from 0 in order of first use.
type numbering struct {
	small []uint32 // number + 1 by id, for ids below smallIDs
	large map[uint32]uint32
	n     uint32
}

const smallIDs = 1 << 22

func newNumbering() *numbering { return &numbering{} }

func (n *numbering) of(id uint32) uint32 {
	if id < smallIDs {
		if int(id) >= len(n.small) {
			n.small = append(n.small, make([]uint32, max(int(id)+1-len(n.small), len(n.small)))...)
		}
		if n.small[id] == 0 {
			n.n++
			n.small[id] = n.n
		}
		return n.small[id] - 1
	}
	if n.large == nil {
		n.large = map[uint32]uint32{}
	}
	v, ok := n.large[id]
	if !ok {
		n.n++
		v = n.n
		n.large[id] = v
	}
	return v - 1
}

func (n *numbering) has(id uint32) bool {
	if id < smallIDs {
		return int(id) < len(n.small) && n.small[id] != 0
	}
	_, ok := n.large[id]
	return ok
}
