package corpus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"unsafe"
)

// A compiled corpus is one file that loads in place: the block ids lie in it as an array of
// 32-bit numbers that turns point into, behind a small table of everything else.
//
//	header, 64 bytes, little-endian:
//	   0  magic "WEIRCRP\x02"; \x01 is read too, which lacks the turns' places in their source
//	   8  length of the table, bytes          uint64
//	  16  length of the array, bytes          uint64
//	  24  CRC-32C of the table                uint32
//	  28  CRC-32C of the array                uint32
//	  32  key of the source: the first 28 bytes of a SHA-256 over its content (SourceKey)
//	  60  CRC-32C of the 60 bytes before      uint32
//	array of block ids, from byte 64
//	table
//
// The file is written under another name and renamed, so a reader never sees half of one; a
// file that was torn by other means fails a checksum.
const (
	compiledMagic  = "WEIRCRP\x02"
	compiledMagic1 = "WEIRCRP\x01"
	compiledHeader = 64
	keyBytes       = 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrTorn is what loading a damaged compiled corpus ends with.
var ErrTorn = errors.New("the compiled corpus is torn")

func isCompiled(path string) bool {
	f, err := openRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [len(compiledMagic)]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && (string(magic[:]) == compiledMagic || string(magic[:]) == compiledMagic1)
}

// loadCompiled maps a compiled corpus into memory. The mapping lasts as long as the program.
func loadCompiled(path string) (*Corpus, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	c, err := decodeCompiled(data)
	if err != nil {
		unmap(data)
		return nil, fmt.Errorf("%s: %w; write it again with weir corpus compile", path, err)
	}
	c.Name = path
	return c, nil
}

// compiledKey reads the key of a compiled file that is whole.
func compiledKey(path string) (key [keyBytes]byte, err error) {
	if !isCompiled(path) {
		if _, err := os.Stat(path); err != nil {
			return key, err
		}
		return key, fmt.Errorf("%s: %w: it doesn't begin like one", path, ErrTorn)
	}
	data, err := mapFile(path)
	if err != nil {
		return key, err
	}
	defer unmap(data)
	if _, _, err := sections(data); err != nil {
		return key, err
	}
	if string(data[:len(compiledMagic)]) == compiledMagic {
		copy(key[:], data[32:])
	} // an older one is compiled again
	return key, nil
}

// sections checks the frame of a compiled file and returns its two parts.
func sections(data []byte) (table, array []byte, err error) {
	if len(data) < compiledHeader {
		return nil, nil, fmt.Errorf("%w: %d bytes, the header has %d", ErrTorn, len(data), compiledHeader)
	}
	if sum := crc32.Checksum(data[:60], castagnoli); sum != binary.LittleEndian.Uint32(data[60:]) {
		return nil, nil, fmt.Errorf("%w: the checksum of the header does not match", ErrTorn)
	}
	nTable, nArray := binary.LittleEndian.Uint64(data[8:]), binary.LittleEndian.Uint64(data[16:])
	room := uint64(len(data) - compiledHeader)
	if nTable > room || nArray > room || nTable+nArray != room || nArray%4 != 0 {
		return nil, nil, fmt.Errorf("%w: it has %d bytes behind the header, which promises %d", ErrTorn, room, nTable+nArray)
	}
	array = data[compiledHeader : compiledHeader+nArray]
	table = data[compiledHeader+nArray:]
	if crc32.Checksum(table, castagnoli) != binary.LittleEndian.Uint32(data[24:]) ||
		crc32.Checksum(array, castagnoli) != binary.LittleEndian.Uint32(data[28:]) {
		return nil, nil, fmt.Errorf("%w: a checksum does not match", ErrTorn)
	}
	return table, array, nil
}

// encodeCompiled writes a corpus in the compiled form.
func encodeCompiled(w io.Writer, c *Corpus, key [keyBytes]byte) error {
	var e encoder
	e.str(c.Fingerprint)
	e.num(int64(len(c.Skipped)))
	for _, err := range c.Skipped {
		e.str(err.Error())
	}
	e.num(int64(len(c.Notes)))
	for _, n := range c.Notes {
		e.str(n)
	}
	e.num(int64(len(c.Traces)))
	for _, t := range c.Traces {
		e.trace(t)
	}
	header := make([]byte, compiledHeader)
	copy(header, compiledMagic)
	binary.LittleEndian.PutUint64(header[8:], uint64(len(e.table)))
	binary.LittleEndian.PutUint64(header[16:], uint64(len(e.array)))
	binary.LittleEndian.PutUint32(header[24:], crc32.Checksum(e.table, castagnoli))
	binary.LittleEndian.PutUint32(header[28:], crc32.Checksum(e.array, castagnoli))
	copy(header[32:], key[:])
	binary.LittleEndian.PutUint32(header[60:], crc32.Checksum(header[:60], castagnoli))
	for _, b := range [][]byte{header, e.array, e.table} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

type encoder struct {
	table   []byte
	array   []byte
	strings map[string]int // strings that were written before
}

func (e *encoder) num(v int64) { e.table = binary.AppendVarint(e.table, v) }

// str writes a string, or the number of an earlier equal one.
func (e *encoder) str(s string) {
	if e.strings == nil {
		e.strings = map[string]int{}
	}
	if i, ok := e.strings[s]; ok {
		e.num(int64(i))
		return
	}
	e.strings[s] = len(e.strings)
	e.num(-1)
	e.num(int64(len(s)))
	e.table = append(e.table, s...)
}

func (e *encoder) trace(t *Trace) {
	e.str(t.ID)
	e.num(t.BlockSize)
	flags := int64(0)
	if t.LengthsOnly {
		flags |= 1
	}
	if t.Estimated {
		flags |= 2
	}
	e.num(flags)
	e.num(int64(t.DroppedTurns))
	e.num(int64(len(t.Models)))
	for _, m := range t.Models {
		e.str(m)
	}
	e.num(int64(len(t.Streams)))
	e.extra(t, At{Unbound, Unbound})
	for i := range t.Streams {
		s := &t.Streams[i]
		e.str(s.ID)
		e.str(s.Label)
		for _, v := range []int64{int64(s.Kind), int64(s.Parent), int64(s.Depth), int64(s.Spawn), int64(s.Join),
			s.StartNs, s.EndNs, s.SystemTokens, int64(len(s.Turns))} {
			e.num(v)
		}
		e.extra(t, At{i, Unbound})
		for k := 0; k < len(s.Turns); {
			k = e.run(t, i, k)
		}
	}
}

func (e *encoder) extra(t *Trace, at At) { e.str(t.Extra[at]) }

// run writes the turns from k that share one array, and the array.
func (e *encoder) run(t *Trace, stream, k int) int {
	turns := t.Streams[stream].Turns
	longest := turns[k].Blocks
	end := k + 1
	for end < len(turns) {
		b := turns[end].Blocks
		if n := min(len(b), len(longest)); n > 0 && &b[0] != &longest[0] {
			break
		}
		if len(b) > len(longest) {
			longest = b
		}
		end++
	}
	base := len(e.array) / 4
	for _, id := range longest {
		e.array = binary.LittleEndian.AppendUint32(e.array, id)
	}
	for ; k < end; k++ {
		u := &turns[k]
		for _, v := range []int64{u.StartNs, u.APINs, u.ThinkNs, u.TTFTNs, u.In, u.Out, int64(u.Model), int64(base), int64(len(u.Blocks)), int64(u.Outer), int64(u.Inner)} {
			e.num(v)
		}
		e.extra(t, At{stream, k})
	}
	return end
}

// decodeCompiled reads the compiled form; the blocks of the result lie in data.
func decodeCompiled(data []byte) (*Corpus, error) {
	table, array, err := sections(data)
	if err != nil {
		return nil, err
	}
	d := &decoder{rest: table, ids: asIDs(array), placed: string(data[:len(compiledMagic)]) != compiledMagic1}
	c := &Corpus{Fingerprint: d.str()}
	for range d.len(1) {
		c.Skipped = append(c.Skipped, errors.New(d.str()))
	}
	for range d.len(1) {
		c.Notes = append(c.Notes, d.str())
	}
	for range d.len(1) {
		t := d.trace()
		if d.bad {
			break
		}
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTorn, err)
		}
		c.Traces = append(c.Traces, t)
	}
	if d.bad || len(d.rest) > 0 || len(c.Traces) == 0 {
		return nil, fmt.Errorf("%w: the table does not add up", ErrTorn)
	}
	return c, nil
}

type decoder struct {
	rest    []byte
	ids     []uint32
	strings []string
	bad     bool
	placed  bool // turns have places in their source
}

func (d *decoder) num() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad = true
		d.rest = nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// len reads a number of things that take at least so many bytes each.
func (d *decoder) len(each int) int {
	v := d.num()
	if v < 0 || v > int64(len(d.rest)/each) {
		d.bad = true
		d.rest = nil
		return 0
	}
	return int(v)
}

func (d *decoder) str() string {
	i := d.num()
	if i == -1 {
		n := d.len(1)
		s := string(d.rest[:n])
		d.rest = d.rest[n:]
		d.strings = append(d.strings, s)
		return s
	}
	if i < 0 || i >= int64(len(d.strings)) {
		d.bad = true
		d.rest = nil
		return ""
	}
	return d.strings[i]
}

func (d *decoder) trace() *Trace {
	t := &Trace{ID: d.str(), BlockSize: d.num()}
	flags := d.num()
	t.LengthsOnly, t.Estimated = flags&1 != 0, flags&2 != 0
	t.DroppedTurns = int(d.num())
	for range d.len(1) {
		t.Models = append(t.Models, d.str())
	}
	t.Streams = make([]Stream, d.len(12))
	d.extra(t, At{Unbound, Unbound})
	for i := range t.Streams {
		s := &t.Streams[i]
		s.ID, s.Label = d.str(), d.str()
		s.Kind = Kind(d.num())
		s.Parent, s.Depth, s.Spawn, s.Join = int(d.num()), int(d.num()), int(d.num()), int(d.num())
		s.StartNs, s.EndNs, s.SystemTokens = d.num(), d.num(), d.num()
		s.Turns = make([]Turn, d.len(10))
		d.extra(t, At{i, Unbound})
		for k := range s.Turns {
			u := &s.Turns[k]
			u.StartNs, u.APINs, u.ThinkNs, u.TTFTNs = d.num(), d.num(), d.num(), d.num()
			u.In, u.Out, u.Model = d.num(), d.num(), int(d.num())
			base, n := d.num(), d.num()
			if d.placed {
				u.Outer, u.Inner = int(d.num()), int(d.num())
			}
			if base < 0 || n < 0 || base > int64(len(d.ids)) || n > int64(len(d.ids))-base {
				d.bad = true
				d.rest = nil
			} else {
				u.Blocks = d.ids[base : base+n : base+n]
			}
			d.extra(t, At{i, k})
			if d.bad {
				return t
			}
		}
	}
	return t
}

func (d *decoder) extra(t *Trace, at At) {
	if s := d.str(); s != "" {
		if t.Extra == nil {
			t.Extra = map[At]string{}
		}
		t.Extra[at] = s
	}
}

// asIDs looks at little-endian bytes as numbers, in place where the machine allows it.
func asIDs(b []byte) []uint32 {
	if len(b) == 0 {
		return nil
	}
	one := uint16(1)
	little := *(*byte)(unsafe.Pointer(&one)) == 1
	if p := unsafe.Pointer(&b[0]); little && uintptr(p)%4 == 0 && len(b)/4 <= math.MaxInt32 {
		return unsafe.Slice((*uint32)(p), len(b)/4)
	}
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}
