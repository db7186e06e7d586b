package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/klauspost/compress/zstd"
)

// readSource is an endpoint while its samples are read.
type readSource struct {
	name    string
	names   []string
	chained []bool
	values  []float64 // NaN for one that is not there
	all     map[string]float64
	at, lag int64
	step    int64
	n       int      // samples with values in the block
	changes [][]told // of each of them
}

// told is a value that a sample brought, NaN for none any more.
type told struct {
	id int
	v  float64
}

// ReadSampleBlocks reads the file of samples; name stands in errors. The Values of a sample are
// valid until the next one. A file that is torn gives what its whole blocks hold, and then an error.
func ReadSampleBlocks(r io.Reader, name string) iter.Seq2[*Sample, error] {
	return readBlocks(r, name, nil)
}

// readBlocks is ReadSampleBlocks that goes on with the samples in no block, where open is set.
func readBlocks(r io.Reader, name string, open io.Reader) iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		fail := func(format string, a ...any) { yield(nil, fmt.Errorf(name+": "+format, a...)) }
		br := bufio.NewReaderSize(r, 1<<16)
		magic := make([]byte, len(blockMagic))
		if n, err := io.ReadFull(br, magic); err != nil || string(magic) != blockMagic && string(magic) != blockMagic1 {
			if err == nil || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("it does not begin as one")
			}
			fail("not a file of samples: %w", err)
			return
		}
		count := sectionCount
		if string(magic) == blockMagic1 {
			count = sectionCount1
		}
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPayload))
		if err != nil {
			fail("%w", err)
			return
		}
		defer dec.Close()
		var sources []*readSource
		for block := 1; ; block++ {
			sections, err := unframe(br, dec, count)
			if errors.Is(err, io.EOF) {
				if open != nil {
					readOpen(open, block-1, sources, yield)
				}
				return
			}
			var samples []*Sample
			var of []*readSource
			if err == nil {
				samples, of, err = readHead(sections[secHead], &sources)
			}
			if err == nil {
				err = readColumns(&sections, sources, count == sectionCount1)
			}
			if err != nil {
				fail("block %d: %w", block, err)
				return
			}
			next := make(map[*readSource]int, len(sources))
			for i, s := range samples {
				if src := of[i]; s.Values != nil {
					for _, c := range src.changes[next[src]] {
						if math.IsNaN(c.v) {
							delete(src.all, src.names[c.id])
						} else {
							src.all[src.names[c.id]] = c.v
						}
					}
					next[src]++
					s.Values = src.all
				}
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// something marks a sample that has values.
var something = map[string]float64{}

func readHead(b []byte, sources *[]*readSource) ([]*Sample, []*readSource, error) {
	c := cursor{b: b}
	for range c.count() {
		*sources = append(*sources, &readSource{name: c.text(), all: map[string]float64{}})
	}
	total := 0
	for _, src := range *sources {
		src.readNames(&c)
		src.n = 0
		if total += len(src.names); total > maxSeries {
			return nil, nil, fmt.Errorf("more than %d series", maxSeries)
		}
	}
	n := c.count()
	samples, of := make([]*Sample, 0, n), make([]*readSource, 0, n)
	for range n {
		id := c.uvarint()
		if id >= uint64(len(*sources)) {
			c.fail()
			break
		}
		src := (*sources)[id]
		src.step += c.varint()
		src.at += src.step
		src.lag += c.varint()
		s := &Sample{At: src.at, Source: src.name, LagNs: src.lag}
		if readMarks(&c, s) {
			s.Values = something
			src.n++
		}
		samples, of = append(samples, s), append(of, src)
	}
	if c.err == nil && len(c.b) > 0 {
		c.err = errors.New("more than the samples in the head of a block")
	}
	return samples, of, c.err
}

// readNames reads the names of new series.
func (src *readSource) readNames(c *cursor) {
	last := ""
	for range c.count() {
		same := c.uvarint()
		if same > uint64(len(last)) {
			c.fail()
			return
		}
		name := last[:same] + c.text()
		src.names, src.chained, src.values = append(src.names, name), append(src.chained, c.byte() == 1), append(src.values, math.NaN())
		last = name
	}
}

// readMarks reads what a sample has beside its times, and tells whether it has values.
func readMarks(c *cursor, s *Sample) bool {
	flags := c.byte()
	s.Thinned = flags&isThinned != 0
	if flags&hasMark != 0 {
		s.Mark = Phase(c.text())
	}
	if flags&hasError != 0 {
		s.Error = c.text()
	}
	if flags&hasFamilies != 0 {
		s.Families = map[string]Family{}
		for range c.count() {
			s.Families[c.text()] = Family{Type: c.text(), Help: c.text(), Unit: c.text()}
		}
	}
	return flags&hasValues != 0
}

// readColumns reads the values that changed; old says that all growths stand in one section.
func readColumns(sections *[sectionCount][]byte, sources []*readSource, old bool) error {
	which, when := cursor{b: sections[secWhich]}, cursor{b: sections[secWhen]}
	ints, sizes, runs := cursor{b: sections[secInts]}, cursor{b: sections[secSizes]}, cursor{b: sections[secRuns]}
	low, high := [2]cursor{{b: sections[secLow]}, {b: sections[secUp]}}, [2]cursor{{b: sections[secLow+1]}, {b: sections[secUp+1]}}
	var floats [8]cursor
	for i := range floats {
		floats[i].b = sections[secFloats+i]
	}
	plain := func(up int) uint64 {
		if old {
			return ints.uvarint()
		}
		return uint64(low[up].byte()) | high[up].uvarint()<<8
	}
	work := 0
	for _, src := range sources {
		src.changes = make([][]told, src.n)
		grown, chain := make([]int64, src.n), make([]int64, src.n)
		chainMode, chainID := -1, -1
		bits, times := make([]byte, (src.n+7)/8), make([]byte, (src.n+7)/8)
		last := uint64(0)
		zeros, begun := uint64(0), false // of dense series
		for range which.count() {
			if work += src.n; work > maxWork || which.err != nil {
				break
			}
			gap := which.uvarint()
			if last += gap; gap > maxSeries || last >= uint64(len(src.names)) {
				return errors.New("a change of a series that has no name")
			}
			id := int(last)
			control := when.byte()
			isDense := control&dense != 0
			switch {
			case control&(everyTime|dense) != 0:
				for i := range bits {
					bits[i] = 0xff
				}
				if r := src.n % 8; r > 0 {
					bits[len(bits)-1] = 1<<r - 1
				}
			case control&sameTimes != 0:
				copy(bits, times)
			default:
				copy(bits, when.bytes(uint64(len(bits))))
			}
			if isDense && (control&modeBits == asBits || math.IsNaN(src.values[id])) {
				return errors.New("a dense series without whole values")
			}
			copy(times, bits)
			mode, up := int(control&modeBits), 0
			if control&grows != 0 {
				up = 1
			}
			clear(grown)
			under := src.chained[id] && chainID == id-1 && chainMode == mode && mode != asBits
			before := src.values[id]
			lastInt, lastBits := int64(0), noValue
			if !math.IsNaN(before) {
				lastBits = math.Float64bits(before)
				if mode != asBits {
					var ok bool
					if lastInt, ok = whole(before, mode); !ok {
						return errors.New("a growth of a value that is not whole")
					}
				}
			}
			for n := range src.n {
				if bits[n/8]&(1<<(n%8)) == 0 {
					continue
				}
				v := math.NaN()
				if isDense {
					if !begun {
						zeros, begun = runs.uvarint(), true
					}
					d := int64(0)
					if zeros > 0 {
						zeros--
					} else {
						d = unzigzag(ints.uvarint() - 1)
						zeros = runs.uvarint()
					}
					if under {
						d += chain[n]
					}
					if grown[n] = d; d == 0 {
						continue
					}
					lastInt += d
					v = float64(lastInt) / pow10[mode]
				} else if mode == asBits {
					if size := sizes.byte(); size == 0 {
						lastBits = noValue
					} else {
						u := uint64(0)
						for i := range min(int(size), 8) {
							u |= uint64(floats[i].byte()) << (8 * i)
						}
						lastBits += uint64(unzigzag(u))
						if v = math.Float64frombits(lastBits); !finite(v) {
							return errors.New("a value that is not finite")
						}
					}
				} else if u := plain(up); u == gone {
					lastInt = 0
				} else {
					d := int64(u - 1)
					if up == 0 {
						d = unzigzag(u - 1)
					}
					if under {
						d += chain[n]
					}
					grown[n] = d
					lastInt += d
					v = float64(lastInt) / pow10[mode]
				}
				src.changes[n] = append(src.changes[n], told{id, v})
				before = v
			}
			src.values[id] = before
			chain, grown = grown, chain
			chainMode, chainID = mode, id
		}
	}
	if work > maxWork {
		return errors.New("more than can be in a block")
	}
	for _, c := range []*cursor{&which, &when, &ints, &sizes, &runs, &low[0], &low[1], &high[0], &high[1]} {
		if c.err != nil {
			return c.err
		}
	}
	for _, c := range floats {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}
