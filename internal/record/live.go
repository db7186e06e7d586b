package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/bits"
	"os"
	"slices"
	"sync"
	"time"
)

// liveEvery bounds how long a request's record stays in the memory of this process.
const liveEvery = time.Second

// Live makes what is recorded outlast a kill of this process: from now on a request's record is in
// its file a second after it was written here, a sample at once. Without Live the bytes of the files are a function
// of what was recorded, with it also of when; a run in virtual time needs none.
func (w *BundleWriter) Live() error {
	if w.sealed {
		return errSealed
	}
	w.requests.mu.Lock()
	w.requests.live = true
	w.requests.mu.Unlock()
	err := w.metrics.live(w.dir)
	if err != nil && w.room.GiveBack(err) {
		err = w.metrics.live(w.dir)
	}
	return err
}

// A lateFlush flushes a stream a while after something was appended, and never without that.
type lateFlush struct {
	mu    sync.Mutex
	live  bool
	timer *time.Timer // nil when nothing is pending
	err   error       // of the last flush
	ended bool
}

// pend asks for a flush; mu is held.
func (s *stream) pend() {
	if s.live && s.timer == nil && !s.ended {
		s.timer = time.AfterFunc(liveEvery, s.late)
	}
}

func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer = nil; s.ended {
		return
	}
	if s.err = s.bw.Flush(); s.err == nil {
		s.err = s.zw.Flush()
	}
}

// rest ends flushing.
func (s *stream) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = true; s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// openFile holds the samples that are in no block yet, while a run is recorded live: openMagic and
// for each the length of its payload and the CRC-32C of it, as in a block, and the payload: the
// number of blocks before it, its source, what the head of a block says of it, new series, and
// the series that changed with the bits of their values. It begins anew with every block and is
// removed when the bundle is sealed.
const (
	openFile  = "metrics.open"
	openMagic = "WEIROPN1"
)

// live begins the file of samples that are in no block; those before it are not in it.
func (w *sampleWriter) live(dir string) error {
	if err := w.flush(); err != nil {
		return err
	}
	f, err := os.Create(dir + string(os.PathSeparator) + openFile)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, openMagic); err != nil {
		return errors.Join(err, f.Close())
	}
	w.open = f
	return nil
}

// note writes a sample that the open block has taken.
func (w *sampleWriter) note(s *heldSample) error {
	src := s.source
	b := append(w.openBuf[:0], make([]byte, 8)...)
	b = binary.AppendUvarint(b, uint64(w.blocks))
	b = putText(b, src.name)
	b = binary.AppendUvarint(b, zigzag(s.At))
	b = binary.AppendUvarint(b, zigzag(s.LagNs))
	b = putMarks(b, s)
	if s.values {
		b = putNames(b, src.names[src.noted:], src.chained[src.noted:])
		src.noted = len(src.names)
		b = binary.AppendUvarint(b, uint64(w.mark(len(src.names))))
		last := 0
		w.marked(func(id int) {
			b = binary.AppendUvarint(b, uint64(id-last))
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(src.values[id]))
			last = id
		})
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-8))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	w.openBuf = b
	if _, err := w.room.write(w.open, b); err != nil {
		return err // what it wrote of the sample has no checksum
	}
	w.openLen += int64(len(b))
	return nil
}

// mark notes in setBits which series the last sample changed, of so many, and returns how many these are. A
// sort of the thousands of a large page would take longer than what is done with them.
func (w *sampleWriter) mark(series int) (n int) {
	for len(w.setBits) <= series/64 {
		w.setBits = append(w.setBits, 0)
	}
	for _, id := range w.set {
		if bit := uint64(1) << (id % 64); w.setBits[id/64]&bit == 0 {
			w.setBits[id/64] |= bit
			n++
		}
	}
	return n
}

// marked takes the marks away and gives the series that had one, in order.
func (w *sampleWriter) marked(each func(id int)) {
	for i, u := range w.setBits {
		for ; u != 0; u &= u - 1 {
			each(64*i + bits.TrailingZeros64(u))
		}
		w.setBits[i] = 0
	}
}

// anew empties the file of samples once they are in a block.
func (w *sampleWriter) anew() error {
	if w.open == nil {
		return nil
	}
	n := int64(len(openMagic))
	if err := w.open.Truncate(n); err != nil {
		return err
	}
	_, err := w.open.Seek(n, io.SeekStart)
	return err
}

// readOpen yields the samples that came after the given number of blocks, up to the last that is
// whole. It tells whether more are wanted.
func readOpen(r io.Reader, blocks int, sources []*readSource, yield func(*Sample, error) bool) {
	magic := make([]byte, len(openMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != openMagic {
		return
	}
	for {
		payload, err := readPayload(r)
		if err != nil {
			return
		}
		c := cursor{b: payload}
		if c.uvarint() != uint64(blocks) {
			return // in a block by now
		}
		name := c.text()
		i := slices.IndexFunc(sources, func(s *readSource) bool { return s.name == name })
		if i < 0 {
			sources = append(sources, &readSource{name: name, all: map[string]float64{}})
			i = len(sources) - 1
		}
		src := sources[i]
		s := &Sample{Source: name, At: c.varint(), LagNs: c.varint()}
		if readMarks(&c, s) {
			src.readNames(&c)
			id := uint64(0)
			for range c.count() {
				id += c.uvarint()
				raw := c.bytes(8)
				if c.err != nil || id >= uint64(len(src.names)) {
					return
				}
				if v := math.Float64frombits(binary.LittleEndian.Uint64(raw)); finite(v) {
					src.all[src.names[id]] = v
				} else {
					delete(src.all, src.names[id])
				}
			}
			s.Values = src.all
		}
		if c.err != nil || !yield(s, nil) {
			return
		}
	}
}
