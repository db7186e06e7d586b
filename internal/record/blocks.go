package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// Samples are kept in blocks of columns: of a few thousand series that a page has, some change
// from one scrape to the next, most of them counters that grow by little. A block holds some
// seconds of all endpoints; a reader needs the blocks before it, and a torn file is whole up to its
// last whole block.
//
// The file is blockMagic and blocks. A block is the length of its payload and the CRC-32C of it,
// four bytes each, little-endian, and the payload: for each section the uvarint of its length and of that of
// its zstd frame, and the frame. The sections:
//
//	head     new sources and series, then the samples in order: source, times, marks, errors, families
//	which    of each source the series that changed in the block, as gaps between their numbers
//	when     of each of them in which of the source's samples, and how its values are written
//	ints     growths of dense series that are not 0, as zigzag varints
//	runs     how many growths of dense series are 0 before the first that is not, the second, ...
//	sizes    of differences between the bits of two values: the bytes that they take
//	floats   eight sections: their lowest bytes, the next, ...
//	low      growths of other series: the lowest byte of each as a zigzag number, and
//	high     the rest of it as a varint
//	up       the same two sections of series that never fell in the block, without signs
//
// Files of before 2026-12-02 begin with blockMagic1: they have no sections behind floats, and all growths as varints in
// ints.
//
// A series whose values are all whole numbers, or whole multiples of a power of a tenth, is
// written as growths of those. Buckets of one histogram grow together, so a bucket's growth is
// written less that of the bucket before it, and the count's less that of the last bucket.
const (
	blockMagic  = "WEIRMET2"
	blockMagic1 = "WEIRMET1"
)

// sections of a payload.
const (
	secHead = iota
	secWhich
	secWhen
	secInts
	secRuns
	secSizes
	secFloats
	secLow        = secFloats + 8 // and secLow+1 the high bytes
	secUp         = secLow + 2    // and secUp+1
	sectionCount  = secUp + 2
	sectionCount1 = secLow // under blockMagic1
)

// Bounds of what is read.
const (
	maxPayload  = 256 << 20
	maxSeries   = 1 << 24
	maxExponent = 6       // of ten
	maxWork     = 1 << 28 // series times samples of a block
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Ways in which the values of a series are written: 0 to maxExponent are the power of ten that
// makes them whole.
const asBits = 7

// Bits of a series' byte in the section "when".
const (
	modeBits  = 0x07
	sameTimes = 0x08 // as the series before it
	everyTime = 0x10 // in every sample
	dense     = 0x20 // written for every sample, also those in which nothing changed
	grows     = 0x40 // and never falls: its growths stand in secUp
)

// whole is v times ten to the power of k when that is a whole number that gives v back.
func whole(v float64, k int) (int64, bool) {
	x := v * pow10[k]
	if math.Abs(x) > 1<<53 {
		return 0, false
	}
	n := int64(math.Round(x))
	if back := float64(n) / pow10[k]; math.Float64bits(back) != math.Float64bits(v) {
		return 0, false
	}
	return n, true
}

var pow10 = [maxExponent + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// frame writes a block of sections to out.
func frame(out io.Writer, enc *zstd.Encoder, sections *[sectionCount][]byte) error {
	payload := make([]byte, 8, 4096)
	var z []byte
	for _, s := range sections {
		z = enc.EncodeAll(s, z[:0])
		payload = binary.AppendUvarint(payload, uint64(len(s)))
		payload = binary.AppendUvarint(payload, uint64(len(z)))
		payload = append(payload, z...)
	}
	binary.LittleEndian.PutUint32(payload, uint32(len(payload)-8))
	binary.LittleEndian.PutUint32(payload[4:], crc32.Checksum(payload[8:], castagnoli))
	_, err := out.Write(payload)
	return err
}

// unframe reads the sections of the next block, of which it has so many; io.EOF at the end.
func unframe(r io.Reader, dec *zstd.Decoder, count int) (sections [sectionCount][]byte, err error) {
	b, err := readPayload(r)
	if err != nil {
		return sections, err
	}
	c := cursor{b: b}
	for i := range count {
		size, packed := c.uvarint(), c.bytes(c.uvarint())
		if c.err != nil {
			return sections, c.err
		}
		if size > maxPayload {
			return sections, fmt.Errorf("a section of %d bytes: at most %d", size, maxPayload)
		}
		if sections[i], err = dec.DecodeAll(packed, nil); err != nil {
			return sections, err
		}
		if uint64(len(sections[i])) != size {
			return sections, fmt.Errorf("a section has %d bytes, not %d", len(sections[i]), size)
		}
	}
	return sections, nil
}

// readPayload reads what stands behind its length and its checksum; io.EOF at the end.
func readPayload(r io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("torn in the middle of a block")
		}
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxPayload {
		return nil, fmt.Errorf("a block of %d bytes: at most %d", n, maxPayload)
	}
	var payload bytes.Buffer
	if got, err := io.CopyN(&payload, r, int64(n)); err != nil {
		return nil, fmt.Errorf("torn in the middle of a block: %d of %d bytes", got, n)
	}
	b := payload.Bytes()
	if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("a block does not have its checksum")
	}
	return b, nil
}

// cursor reads a section. After an error it gives zeros.
type cursor struct {
	b   []byte
	err error
}

var errShort = errors.New("a section is too short")

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint() int64 { return unzigzag(c.uvarint()) }

func (c *cursor) fail() {
	c.b = nil
	if c.err == nil {
		c.err = errShort
	}
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail()
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) text() string { return string(c.bytes(c.uvarint())) }

// count reads a number of things of which each takes at least a byte of what is left.
func (c *cursor) count() int {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.fail()
		return 0
	}
	return int(n)
}

func putText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
