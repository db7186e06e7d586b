package gpu

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// minHold is how long a reading holds at least when no further one comes; see Account.
const minHold = 10e9

// An Account adds up readings within a window, nanoseconds since the run's epoch. A reading holds
// until the next of its source, but no longer than 10 s or three times the time between the
// source's last two, whichever is longer: what comes after that is not known. A device that a
// source does not list any more holds nothing.
type Account struct {
	from, to int64
	sources  map[string]*source
	Samples  int64 // readings that had a device
}

// NewAccount counts from one instant to another.
func NewAccount(from, to int64) *Account {
	return &Account{from: from, to: to, sources: map[string]*source{}}
}

type source struct {
	at, gap int64 // of the last reading, and the time before it
	seen    bool
	devices map[string]*device
	total   meter // power of all devices
	failed  int64
	last    string // error
}

// device is one device as one source tells of it.
type device struct {
	Usage
	present                  bool // in the last reading
	power, util, clock, temp meter
	memory                   meter
	known                    meter // 1 while its power is known
	throttle                 map[int64]*meter
	slow                     meter
	counters                 map[Quantity]*counter
	fault                    int64
	faulted                  bool // fault is known
}

// counter is by how much a count grew within the window; one that falls was reset.
type counter struct {
	last   int64
	growth int64
	has    bool
}

// meter integrates a step function over the window.
type meter struct {
	at        int64
	value     float64
	has       bool
	area      float64
	span      int64
	least     float64
	most      float64
	any       bool
	from, end int64
}

func (m *meter) hold(to int64) {
	if !m.has {
		return
	}
	a, b := max(m.at, m.from), min(to, m.end)
	if b > a {
		m.area += float64(m.value * float64(b-a))
		m.span += b - a
		m.see()
	}
	m.at = max(m.at, to)
}

func (m *meter) see() {
	if !m.any || m.value < m.least {
		m.least = m.value
	}
	if !m.any || m.value > m.most {
		m.most = m.value
	}
	m.any = true
}

func (m *meter) set(at int64, v float64) {
	m.at, m.value, m.has = at, v, true
	if at >= m.from && at < m.end {
		m.see()
	}
}

// Usage is what is known of one device; a nil is unknown.
type Usage struct {
	Device, Index, Host, Model, Source string

	CoveredNs     int64  // of the window, in which its power is known
	EnergyMilliJ  *int64 // over CoveredNs
	CountedMilliJ *int64 // by the device's own counter, from the last reading before the window to the last in it
	PowerMeanMilliW,
	PowerMaxMilliW,
	MemoryMaxBytes,
	MemoryBytes,
	UtilMeanPermille,
	ClockMeanMHz,
	ClockMinMHz,
	TempMaxMilliC *int64
	SlowNs, WatchedNs      int64 // slowed down, of the time in which reasons are known
	Slow                   map[int64]int64
	Corrected, Uncorrected *int64
	Faults                 []int64 // numbers of faults that came up within the window
}

// Add takes the next sample, whole.
func (a *Account) Add(s *record.Sample) {
	src := a.sources[s.Source]
	if s.Error != "" || s.Values == nil {
		if src != nil {
			src.failed++
			src.last = s.Error
		}
		return
	}
	now := gather(s)
	if len(now) == 0 && src == nil {
		return
	}
	if src == nil {
		src = &source{devices: map[string]*device{}, total: a.meter()}
		a.sources[s.Source] = src
	}
	if len(now) > 0 {
		a.Samples++
	}
	src.until(s.At)
	if src.seen {
		src.gap = s.At - src.at
	}
	src.at, src.seen = s.At, true
	for id, d := range src.devices {
		if now[id] == nil {
			d.vanish()
		}
	}
	var total float64
	for _, id := range slices.Sorted(maps.Keys(now)) {
		v := now[id]
		d := src.devices[id]
		if d == nil {
			d = &device{throttle: map[int64]*meter{}, counters: map[Quantity]*counter{}}
			for _, m := range []*meter{&d.power, &d.util, &d.clock, &d.temp, &d.memory, &d.known, &d.slow} {
				*m = a.meter()
			}
			d.Device, d.Source = id, s.Source
			src.devices[id] = d
		}
		d.Index, d.Host, d.Model = cmp.Or(v.index, d.Index), cmp.Or(v.host, d.Host), cmp.Or(v.model, d.Model)
		a.read(d, v, s.At)
		total += d.power.value
		if !d.power.has {
			total = math.NaN()
		}
	}
	src.total.has = false
	if len(now) > 0 && !math.IsNaN(total) {
		src.total.set(s.At, total)
	}
}

func (a *Account) meter() meter { return meter{from: a.from, end: a.to} }

func (a *Account) read(d *device, v *values, at int64) {
	d.present = true
	for _, m := range []struct {
		m *meter
		q Quantity
	}{{&d.power, Power}, {&d.util, Utilization}, {&d.clock, Clock}, {&d.temp, Temperature}, {&d.memory, MemoryUsed}} {
		if x, ok := v.of[m.q]; ok {
			m.m.set(at, x)
		} else {
			m.m.has = false
		}
	}
	d.known.has = d.power.has
	if d.known.has {
		d.known.set(at, 1)
	}
	if x, ok := v.of[MemoryTotal]; ok {
		n := int64(x)
		d.MemoryBytes = &n
	} else if free, ok := v.of[MemoryFree]; ok && d.memory.has {
		n := int64(free + d.memory.value)
		d.MemoryBytes = &n
	}
	d.slow.has = false
	for _, m := range d.throttle {
		m.has = false
	}
	if x, ok := v.of[Throttle]; ok {
		mask := int64(x)
		slow := 0.0
		for bit := int64(1); bit <= PowerBrake; bit <<= 1 {
			if bit&slowing == 0 {
				continue
			}
			on := 0.0
			if mask&bit != 0 {
				on, slow = 1, 1
			}
			m := d.throttle[bit]
			if m == nil {
				n := a.meter()
				m = &n
				d.throttle[bit] = m
			}
			m.set(at, on)
		}
		d.slow.set(at, slow)
	}
	for _, q := range []Quantity{Energy, Corrected, Uncorrected} {
		x, ok := v.of[q]
		if !ok {
			continue
		}
		c := d.counters[q]
		if c == nil {
			c = &counter{}
			d.counters[q] = c
		}
		n := int64(x)
		switch {
		case at >= a.to && c.has && at-a.to > int64(minHold):
			continue // long after the window
		case !c.has || at <= a.from:
			c.growth = 0
		case n >= c.last:
			c.growth += n - c.last
		default:
			c.growth += n
		}
		c.last, c.has = n, true
	}
	if x, ok := v.of[Fault]; ok {
		n := int64(x)
		if n != 0 && d.faulted && n != d.fault && at >= a.from && at <= a.to+int64(minHold) {
			d.Faults = append(d.Faults, n)
		}
		d.fault, d.faulted = n, true
	}
}

// vanish ends what a device said.
func (d *device) vanish() {
	d.present = false
	for _, m := range d.meters() {
		m.has = false
	}
}

func (d *device) meters() []*meter {
	list := []*meter{&d.power, &d.util, &d.clock, &d.temp, &d.memory, &d.known, &d.slow}
	for _, b := range slices.Sorted(maps.Keys(d.throttle)) {
		list = append(list, d.throttle[b])
	}
	return list
}

// until lets the last readings hold up to an instant.
func (s *source) until(at int64) {
	if !s.seen {
		return
	}
	at = min(at, s.at+max(int64(minHold), 3*s.gap))
	for _, d := range s.devices {
		for _, m := range d.meters() {
			m.hold(at)
		}
	}
	s.total.hold(at)
}

// values are what one sample says of one device.
type values struct {
	index, host, model string
	of                 map[Quantity]float64
	parts              map[Quantity]bool // summed over parts of the device
}

// gather lays the series of a sample out by device. Parts of a device (MIG, partitions) have
// memory of their own, which adds up; all else of them, and series that repeat a device for every
// container on it, tell of the same device, so the largest counts.
func gather(s *record.Sample) map[string]*values {
	out := map[string]*values{}
	var names []string
	for name := range s.Values {
		if named(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // the order of a map's keys must not matter
	for _, name := range names {
		sig, ok := Classify(name)
		if !ok {
			continue
		}
		id := sig.Device
		if sig.Index == id && sig.Host != "" {
			id = sig.Host + "/" + id
		}
		v := out[id]
		if v == nil {
			v = &values{of: map[Quantity]float64{}, parts: map[Quantity]bool{}}
			out[id] = v
		}
		v.index, v.host, v.model = cmp.Or(v.index, sig.Index), cmp.Or(v.host, sig.Host), cmp.Or(v.model, sig.Model)
		x := s.Values[name]
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) || x*sig.Scale > 1<<60 || !strings.HasPrefix(name, "weir_") && blank(x) {
			continue
		}
		x = math.Round(x * sig.Scale)
		if sig.Bit != 0 {
			if x > 0 {
				v.of[Throttle] = float64(int64(v.of[Throttle]) | sig.Bit)
			} else if _, has := v.of[Throttle]; !has {
				v.of[Throttle] = 0
			}
			continue
		}
		old, has := v.of[sig.Quantity]
		memory := sig.Quantity == MemoryUsed || sig.Quantity == MemoryFree || sig.Quantity == MemoryTotal
		switch {
		case !has:
			v.of[sig.Quantity] = x
			v.parts[sig.Quantity] = sig.Instance != ""
		case memory && sig.Instance != "" && v.parts[sig.Quantity]:
			v.of[sig.Quantity] = old + x
		case memory && v.parts[sig.Quantity]: // the whole device stands before its parts
			v.of[sig.Quantity], v.parts[sig.Quantity] = x, false
		case memory && sig.Instance != "":
		default:
			v.of[sig.Quantity] = max(old, x)
		}
	}
	return out
}

// Watts is what the devices of one sample draw together; false when one of them does not tell, or
// there is none.
func Watts(s *record.Sample) (float64, bool) {
	devices := gather(s)
	sum := 0.0
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		x, ok := devices[id].of[Power]
		if !ok {
			return 0, false
		}
		sum += x
	}
	return sum / 1000, len(devices) > 0
}

// blank are DCGM's numbers for what a device does not have (dcgm_structs.h: DCGM_INT32_BLANK and
// the values behind it, DCGM_INT64_BLANK, DCGM_FP64_BLANK), and AMD's, which are all ones.
func blank(x float64) bool {
	return x >= 2147483632 && x <= 2147483647 || x >= 9223372036854775792 || x >= 140737488355328 && x <= 140737488355343 ||
		x == math.MaxUint16 || x == math.MaxUint32
}

// Usages are the devices at the end of the window, by name. Of sources that tell of one device the
// one that knows its power for longest counts.
func (a *Account) Usages() []Usage {
	best := map[string]*Usage{}
	for _, name := range slices.Sorted(maps.Keys(a.sources)) {
		src := a.sources[name]
		src.until(a.to)
		for id, d := range src.devices {
			u := d.usage()
			if b := best[id]; b == nil || u.CoveredNs > b.CoveredNs {
				best[id] = u
			}
		}
	}
	out := make([]Usage, 0, len(best))
	for _, u := range best {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(x, y Usage) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(len(x.Index), len(y.Index)), cmp.Compare(x.Index, y.Index), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Device, y.Device))
	})
	return out
}

// PeakMilliW is the most that all devices of one source drew at once, added up over the sources
// that Usages took devices from; nil when nobody knows.
func (a *Account) PeakMilliW() *int64 {
	used := map[string]bool{}
	for _, u := range a.Usages() {
		used[u.Source] = true
	}
	var sum int64
	any := false
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if t := &a.sources[name].total; t.any {
			sum += int64(t.most)
			any = true
		}
	}
	if !any {
		return nil
	}
	return &sum
}

// Failures are the sources whose readings failed, with how many and the last error.
func (a *Account) Failures() map[string]string {
	out := map[string]string{}
	for name, s := range a.sources {
		if s.failed > 0 && strings.HasPrefix(name, "gpu:") {
			out[name] = s.last
		}
	}
	return out
}

func (d *device) usage() *Usage {
	u := d.Usage
	whole := func(v float64) *int64 {
		if math.IsNaN(v) || math.Abs(v) >= 1<<62 {
			return nil
		}
		n := int64(math.Round(v))
		return &n
	}
	mean := func(m *meter) *int64 {
		if m.span == 0 {
			return nil
		}
		return whole(m.area / float64(m.span))
	}
	most := func(m *meter) *int64 {
		if !m.any {
			return nil
		}
		return whole(m.most)
	}
	u.CoveredNs = d.known.span
	if d.power.span > 0 {
		u.EnergyMilliJ = whole(d.power.area / 1e9)
	}
	u.PowerMeanMilliW, u.PowerMaxMilliW = mean(&d.power), most(&d.power)
	u.MemoryMaxBytes, u.UtilMeanPermille = most(&d.memory), mean(&d.util)
	u.ClockMeanMHz, u.TempMaxMilliC = mean(&d.clock), most(&d.temp)
	if d.clock.any {
		u.ClockMinMHz = whole(d.clock.least)
	}
	u.WatchedNs, u.SlowNs = d.slow.span, int64(d.slow.area)
	u.Slow = map[int64]int64{}
	for bit, m := range d.throttle {
		if m.area > 0 {
			u.Slow[bit] = int64(m.area)
		}
	}
	growth := func(q Quantity) *int64 {
		c := d.counters[q]
		if c == nil {
			return nil
		}
		n := c.growth
		return &n
	}
	u.CountedMilliJ, u.Corrected, u.Uncorrected = growth(Energy), growth(Corrected), growth(Uncorrected)
	return &u
}
