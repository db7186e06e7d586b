package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// A block is closed after this time of samples, with so many changes, or with so many bytes in the file of
// samples that are in no block.
const (
	blockNs      = int64(60e9)
	blockChanges = 1 << 19 // twice as many where some are to be left out
	maxOpen      = 8 << 20
)

// A sampleWriter packs samples into blocks. Equal samples give equal bytes.
type sampleWriter struct {
	file    *os.File
	room    *Room
	out     io.Writer
	hash    hash.Hash
	size    int64
	enc     *zstd.Encoder
	sources map[string]*sampledSource
	order   []*sampledSource
	told    int // sources that blocks have named

	samples []heldSample
	changes int

	blocks  int      // written
	open    *os.File // of samples in no block, nil when the run is not recorded live
	openBuf []byte
	set     []int    // series that the last sample changed
	setBits []uint64 // to bring them into order; see mark
	openLen int64    // of the file of samples in no block

	needed       func(series string) bool // see ThinSamples; nil thins nothing
	every        int                      // of so many samples one keeps all series
	free         float64                  // thinFree
	begun, ended int64                    // the first sample, the last in a block
}

// sampledSource is what an endpoint last said.
type sampledSource struct {
	name    string
	id      int
	whole   bool // a whole sample came
	series  map[string]int
	names   []string
	chained []bool
	numbers []int      // of series by Changed.Number, 1 more; 0 for one that was not looked up
	told    int        // series that blocks have named
	noted   int        // series that blocks or the file of open samples have named
	values  []float64  // NaN for one that is not there
	before  []float64  // when the block began
	at, lag int64      // of the last sample in a block
	step    int64      // between the last two
	n       int        // samples with values in the block
	changed [][]change // by series
	touched []int      // the series that changed

	types   map[string]string // of families
	loose   []bool            // series that may be thinned
	kept    []bool            // samples of the block that are not thinned
	taken   int               // samples with values in blocks before
	thinned bool              // something in the block
}

// change is a value, NaN for none any more, in the n-th sample of its source in the block.
type change struct {
	n int
	v float64
}

// heldSample is a sample of the block without its values.
type heldSample struct {
	Sample
	source *sampledSource
	n      int // which of the source's samples with values in the block
	values bool
}

func createSamples(path string, room *Room) (*sampleWriter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &sampleWriter{file: f, room: room, hash: sha256.New(), sources: map[string]*sampledSource{}, every: 1, free: thinFree}
	w.out = writerFunc(w.write)
	w.enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
	if err == nil {
		_, err = io.WriteString(w.out, blockMagic)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// write appends all of b or nothing.
func (w *sampleWriter) write(b []byte) (int, error) {
	if _, err := w.room.write(w.file, b); err != nil {
		_, seekErr := w.file.Seek(w.size, io.SeekStart)
		return 0, errors.Join(err, w.file.Truncate(w.size), seekErr)
	}
	w.hash.Write(b)
	w.size += int64(len(b))
	return len(b), nil
}

// append takes a sample. Values that are not finite are none.
func (w *sampleWriter) append(s *Sample) error {
	src := w.sources[s.Source]
	if src == nil {
		src = &sampledSource{name: s.Source, id: len(w.order), series: map[string]int{}, types: map[string]string{}}
		if len(w.order) == 0 {
			w.begun, w.ended = s.At, s.At
		}
		w.sources[s.Source] = src
		w.order = append(w.order, src)
	}
	held := heldSample{Sample: *s, source: src, n: src.n, values: s.Error == "" && (s.Values != nil || s.Changed != nil)}
	held.Values, held.Gone, held.Changed, held.Delta, held.Thinned = nil, nil, nil, false, false
	held.Families = maps.Clone(s.Families)
	for name, f := range s.Families {
		src.types[strings.Clone(name)] = strings.Clone(f.Type)
	}
	if s.Mark != "" {
		src.border(src.n)
	}
	if held.values {
		if s.Delta && !src.whole {
			return fmt.Errorf("a difference at %d ns to a sample of %s that is not there", s.At, s.Source)
		}
		w.take(src, s)
	}
	w.samples = append(w.samples, held)
	if w.open != nil {
		if err := w.note(&held); err != nil {
			return err
		}
	}
	if first := w.samples[0].At; w.changes >= blockChanges*min(w.every, 2) || s.At-first >= blockNs || w.openLen >= maxOpen {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return w.room.Full()
}

// take notes what a sample changes.
func (w *sampleWriter) take(src *sampledSource, s *Sample) {
	w.set = w.set[:0]
	switch {
	case s.Changed == nil:
		w.takeMap(src, s)
	case !s.Delta:
		whole := *s
		whole.Spread()
		w.takeMap(src, &whole)
	default:
		w.takeList(src, s.Changed)
	}
	src.whole = true
	src.n++
}

// setValue notes a value of a series, NaN for none any more.
func (w *sampleWriter) setValue(src *sampledSource, id int, v float64) {
	old := src.values[id]
	if old == v || math.IsNaN(old) && math.IsNaN(v) {
		return
	}
	src.values[id] = v
	if len(src.changed[id]) == 0 {
		src.touched = append(src.touched, id)
	}
	src.changed[id] = append(src.changed[id], change{src.n, v})
	w.changes++
	w.set = append(w.set, id)
}

// takeList takes differences whose series are numbered, so that none is looked up by its name twice.
func (w *sampleWriter) takeList(src *sampledSource, list []Changed) {
	var fresh []string
	number := func(c *Changed) int {
		for int(c.Number) >= len(src.numbers) {
			src.numbers = append(src.numbers, 0)
		}
		if src.numbers[c.Number] == 0 {
			if id, ok := src.series[c.Series]; ok {
				src.numbers[c.Number] = id + 1
			}
		}
		return src.numbers[c.Number] - 1
	}
	for i := range list {
		c := &list[i]
		v := c.Value
		if !finite(v) {
			v = math.NaN()
		}
		if id := number(c); id >= 0 {
			w.setValue(src, id, v)
		} else if finite(v) {
			fresh = append(fresh, c.Series)
		}
	}
	if len(fresh) == 0 {
		return
	}
	slices.Sort(fresh)
	src.learn(slices.Compact(fresh), w.needed)
	for i := range list {
		if c := &list[i]; finite(c.Value) {
			w.setValue(src, number(c), c.Value)
		}
	}
}

// takeMap takes a sample by the names of its series.
func (w *sampleWriter) takeMap(src *sampledSource, s *Sample) {
	set := func(id int, v float64) { w.setValue(src, id, v) }
	var fresh []string
	for name, v := range s.Values {
		if !finite(v) {
			continue
		}
		if id, ok := src.series[name]; ok {
			set(id, v)
		} else {
			fresh = append(fresh, name)
		}
	}
	if len(fresh) > 0 {
		src.learn(fresh, w.needed)
		for _, name := range fresh {
			set(src.series[name], s.Values[name])
		}
	}
	nan := math.NaN()
	if s.Delta {
		for _, name := range s.Gone {
			if _, said := s.Values[name]; said {
				continue
			}
			if id, ok := src.series[name]; ok {
				set(id, nan)
			}
		}
		for name, v := range s.Values {
			if id, ok := src.series[name]; ok && !finite(v) {
				set(id, nan)
			}
		}
	} else {
		for id, name := range src.names {
			if v, ok := s.Values[name]; !ok || !finite(v) {
				set(id, nan)
			}
		}
	}
}

// learn numbers new series so that the buckets of a histogram stand in order, its count behind them.
func (src *sampledSource) learn(names []string, needed func(series string) bool) {
	type key struct {
		family, labels string
		part           int
		le             float64
		name           string
	}
	keys := make([]key, len(names))
	for i, name := range names {
		base, labels, _ := strings.Cut(name, "{")
		k := key{family: base, labels: labels, part: -1, name: strings.Clone(name)}
		for part, suffix := range []string{"_bucket", "_count", "_sum"} {
			if f, ok := strings.CutSuffix(base, suffix); ok {
				k.family, k.part = f, part
			}
		}
		if from := strings.Index(labels, `le="`); from >= 0 && k.part == 0 && (from == 0 || labels[from-1] == ',') {
			if n := strings.IndexByte(labels[from+4:], '"'); n >= 0 {
				if v, err := strconv.ParseFloat(labels[from+4:from+4+n], 64); err == nil {
					k.le = v
					k.labels = strings.Trim(labels[:from]+strings.TrimPrefix(labels[from+4+n+1:], ","), ",}")
				}
			}
		}
		k.labels = strings.Trim(k.labels, ",}")
		keys[i] = k
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.family, b.family), strings.Compare(a.labels, b.labels), cmp.Compare(a.part, b.part), cmp.Compare(a.le, b.le), strings.Compare(a.name, b.name))
	})
	bucketed := -1 // the last bucket
	for i, k := range keys {
		names[i] = k.name
		if k.part == 0 {
			bucketed = i
		}
		of := bucketed >= 0 && k.part >= 0 && keys[bucketed].family == k.family && keys[bucketed].labels == k.labels
		src.loose = append(src.loose, needed != nil && src.addsUp(k.name, of) && !needed(k.name))
		chained := i > 0 && (k.part == 0 || k.part == 1) && keys[i-1].part == 0 && keys[i-1].family == k.family && keys[i-1].labels == k.labels
		src.series[k.name] = len(src.names)
		src.names = append(src.names, k.name)
		src.chained = append(src.chained, chained)
		src.values = append(src.values, math.NaN())
		src.before = append(src.before, math.NaN())
		src.changed = append(src.changed, nil)
	}
}

// flush writes the block that is open.
func (w *sampleWriter) flush() error {
	if len(w.samples) == 0 {
		return nil
	}
	var sections [sectionCount][]byte
	for _, src := range w.order {
		src.thin(w.every)
	}
	for i := range w.samples {
		s := &w.samples[i]
		s.Thinned = s.values && s.source.thins(s.n)
	}
	w.head(&sections[secHead])
	for _, src := range w.order {
		src.columns(&sections)
	}
	last, size := w.samples[len(w.samples)-1].At, w.size
	w.samples, w.changes, w.openLen = w.samples[:0], 0, 0
	if err := frame(w.out, w.enc, &sections); err != nil {
		return err
	}
	w.adapt(w.size-size, last)
	w.blocks++
	return w.anew()
}

func (w *sampleWriter) head(to *[]byte) {
	b := binary.AppendUvarint(*to, uint64(len(w.order)-w.told))
	for _, src := range w.order[w.told:] {
		b = putText(b, src.name)
	}
	w.told = len(w.order)
	for _, src := range w.order {
		b = putNames(b, src.names[src.told:], src.chained[src.told:])
		src.told, src.noted = len(src.names), len(src.names)
	}
	b = binary.AppendUvarint(b, uint64(len(w.samples)))
	for i := range w.samples {
		s := &w.samples[i]
		src := s.source
		b = binary.AppendUvarint(b, uint64(src.id))
		step := s.At - src.at
		b = binary.AppendUvarint(b, zigzag(step-src.step))
		b = binary.AppendUvarint(b, zigzag(s.LagNs-src.lag))
		src.at, src.step, src.lag = s.At, step, s.LagNs
		b = putMarks(b, s)
	}
	*to = b
}

// putNames writes the names of series, each by what it does not share with that before it.
func putNames(b []byte, names []string, chained []bool) []byte {
	b = binary.AppendUvarint(b, uint64(len(names)))
	last := ""
	for i, name := range names {
		same := 0
		for same < len(name) && same < len(last) && name[same] == last[same] {
			same++
		}
		b = binary.AppendUvarint(b, uint64(same))
		b = putText(b, name[same:])
		chain := byte(0)
		if chained[i] {
			chain = 1
		}
		b = append(b, chain)
		last = name
	}
	return b
}

// putMarks writes what a sample has beside its times and values.
func putMarks(b []byte, s *heldSample) []byte {
	flags := byte(0)
	if s.values {
		flags |= hasValues
	}
	if s.Thinned {
		flags |= isThinned
	}
	if s.Mark != "" {
		flags |= hasMark
	}
	if s.Error != "" {
		flags |= hasError
	}
	if len(s.Families) > 0 {
		flags |= hasFamilies
	}
	b = append(b, flags)
	if s.Mark != "" {
		b = putText(b, string(s.Mark))
	}
	if s.Error != "" {
		b = putText(b, s.Error)
	}
	if len(s.Families) > 0 {
		b = binary.AppendUvarint(b, uint64(len(s.Families)))
		for _, name := range slices.Sorted(maps.Keys(s.Families)) {
			f := s.Families[name]
			b = putText(putText(putText(putText(b, name), f.Type), f.Help), f.Unit)
		}
	}
	return b
}

// Flags of a sample.
const (
	hasValues = 1 << iota
	hasMark
	hasError
	hasFamilies
	isThinned
)

// columns writes what changed of a source in the block and makes it ready for the next.
func (src *sampledSource) columns(sections *[sectionCount][]byte) {
	which, when := sections[secWhich], sections[secWhen]
	ids := src.touched
	slices.Sort(ids)
	which = binary.AppendUvarint(which, uint64(len(ids)))
	// grown is by how much the series before grew in each sample, in the power of ten of mode.
	grown, chain := make([]int64, src.n), make([]int64, src.n)
	chainMode, chainID := -1, -1
	zeros, anyDense := 0, false
	set := make([]byte, (src.n+7)/8)
	var times []byte
	last := 0
	for _, id := range ids {
		if which = binary.AppendUvarint(which, uint64(id-last)); len(which)%256 == 0 {
			runtime.Gosched() // packing takes some milliseconds; nobody should wait for them
		}
		last = id
		list := src.changed[id]
		mode := modeOf(src.before[id], list)
		under := []int64(nil)
		if src.chained[id] && chainID == id-1 && chainMode == mode && mode != asBits {
			under = chain
		}
		isDense := under != nil && !math.IsNaN(src.before[id]) && !slices.ContainsFunc(list, func(c change) bool { return math.IsNaN(c.v) })
		clear(set)
		for _, c := range list {
			set[c.n/8] |= 1 << (c.n % 8)
		}
		control := byte(mode)
		switch {
		case isDense:
			control |= dense
		case len(list) == src.n:
			control |= everyTime
		case slices.Equal(set, times):
			control |= sameTimes
		}
		controlAt := len(when)
		when = append(when, control)
		if control&(everyTime|sameTimes|dense) == 0 {
			when = append(when, set...)
		}
		if isDense {
			for n := range src.n {
				set[n/8] |= 1 << (n % 8)
			}
		}
		times = append(times[:0], set...)
		clear(grown)
		switch {
		case mode == asBits:
			putBits(sections, src.before[id], list)
		case isDense:
			anyDense = true
			growth(src.before[id], list, mode, grown)
			for n, d := range grown {
				if under != nil {
					d -= under[n]
				}
				if d == 0 {
					zeros++
					continue
				}
				sections[secRuns] = binary.AppendUvarint(sections[secRuns], uint64(zeros))
				sections[secInts] = binary.AppendUvarint(sections[secInts], zigzag(d)+1)
				zeros = 0
			}
		default:
			if putGrowth(sections, src.before[id], list, mode, under, grown) {
				when[controlAt] |= grows
			}
		}
		chain, grown = grown, chain
		chainMode, chainID = mode, id
		src.before[id], src.changed[id] = src.values[id], list[:0]
	}
	if anyDense {
		sections[secRuns] = binary.AppendUvarint(sections[secRuns], uint64(zeros))
	}
	sections[secWhich], sections[secWhen] = which, when
	src.taken += src.n
	src.n, src.touched, src.kept = 0, ids[:0], src.kept[:0]
}

func (w *sampleWriter) close() error {
	err := w.flush()
	if err == nil {
		err = w.file.Sync()
	}
	if w.open != nil {
		w.open.Close()
		if err == nil { // else the samples are in no other file
			os.Remove(w.open.Name())
		}
	}
	return cmp.Or(err, w.file.Close(), w.enc.Close())
}

func (w *sampleWriter) abort() {
	if w.open != nil {
		w.open.Close()
	}
	w.file.Close()
	w.enc.Close()
}

func (w *sampleWriter) sum(name string) FileSum {
	return FileSum{name, w.size, fmt.Sprintf("%x", w.hash.Sum(nil))}
}
