package aiperf

import (
	"bytes"
	"encoding/csv"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// metrics are the scraped series of the profiling phase.
type metrics struct {
	meta      *record.Meta
	startNs   int64
	endNs     int64
	endpoints map[string]*endpoint
}

// endpoint is one source with its series.
type endpoint struct {
	fetches, lagNs     int64
	firstNs, lastNs    int64
	updates, firstUpNs int64
	lastUpNs           int64
	devices            bool // it tells of GPUs: an exporter, or a command that was read
	families           map[string]record.Family
	series             map[string]*series
}

// series is one series over time.
type series struct {
	family, part, labels, le string // part is "", "bucket", "sum" or "count"
	kind                     string
	ref                      float64
	hasRef                   bool
	refNs                    int64
	last                     float64
	lastNs                   int64
	seen                     bool
	values                   []float64 // of a gauge, one a scrape
	points                   []point   // when slices are wanted
}

type point struct {
	at int64
	v  float64
}

// readMetrics reads the samples of a bundle; nil when there are none.
func readMetrics(b *record.Bundle, o *Options) (*metrics, error) {
	m := &metrics{meta: b.Meta, startNs: b.Meta.Window.StartNs, endpoints: map[string]*endpoint{}}
	for s, err := range b.Samples() {
		if err != nil {
			return nil, err
		}
		m.add(s, o.SliceNs > 0)
	}
	maps.DeleteFunc(m.endpoints, func(url string, e *endpoint) bool { return e.devices || strings.HasPrefix(url, "gpu:") }) // in readTelemetry
	if len(m.endpoints) == 0 {
		return nil, nil
	}
	return m, nil
}

// ServerMetrics is server_metrics_export.json without slices; nil when nothing was scraped.
func ServerMetrics(b *record.Bundle) ([]byte, error) {
	o := &Options{}
	m, err := readMetrics(b, o)
	if err != nil || m == nil {
		return nil, err
	}
	js, _, err := m.write(o)
	return js, err
}

func (m *metrics) add(s *record.Sample, keep bool) {
	e := m.endpoints[s.Source]
	if e == nil {
		e = &endpoint{families: map[string]record.Family{}, series: map[string]*series{}, firstNs: record.Never, firstUpNs: record.Never}
		m.endpoints[s.Source] = e
	}
	if s.Error != "" || s.Values == nil {
		return
	}
	maps.Copy(e.families, s.Families)
	e.fetches++
	e.lagNs += s.LagNs
	if e.firstNs == record.Never {
		e.firstNs = s.At
	}
	e.lastNs = s.At
	m.endNs = max(m.endNs, s.At)
	changed := false
	before := s.At < m.startNs || s.Mark == record.Profiling
	for name, v := range s.Values {
		x := e.series[name]
		if x == nil {
			x = e.parse(name)
			if _, ok := gpu.Classify(name); ok {
				e.devices = true
			}
			e.series[strings.Clone(name)] = x
			changed = true
		}
		if x.kind == "" {
			continue
		}
		if x.last != v {
			changed = true
		}
		switch {
		case before:
			x.ref, x.refNs, x.hasRef = v, s.At, true
		case !x.hasRef && !x.seen:
			x.ref, x.refNs = v, s.At
			if e.fetches > 1 && x.kind != "gauge" {
				x.ref = 0 // born while its endpoint was watched
			}
		}
		if !before {
			x.seen = true
			if x.kind == "gauge" || x.kind == "unknown" {
				x.values = append(x.values, v)
			}
		}
		x.last, x.lastNs = v, s.At
		if keep && x.kind != "histogram" {
			x.points = append(x.points, point{s.At, v})
		}
	}
	if changed {
		e.updates++
		e.lastUpNs = s.At
		if e.firstUpNs == record.Never {
			e.firstUpNs = s.At
		}
	}
}

// parse finds the family of a series. A kind of "" is left out, as AIPerf does: summaries,
// instants of creation, uptimes.
func (e *endpoint) parse(name string) *series {
	base, labels, _ := strings.Cut(name, "{")
	x := &series{labels: strings.TrimSuffix(labels, "}")}
	if strings.HasSuffix(base, "_created") || strings.Contains(base, "_uptime") {
		return x
	}
	for _, part := range []string{"bucket", "sum", "count"} {
		if f, ok := strings.CutSuffix(base, "_"+part); ok {
			switch e.families[f].Type {
			case "summary":
				return x
			case "histogram":
				x.family, x.part, x.kind = f, part, "histogram"
				x.le = engine.Label(x.labels, "le")
				x.labels = without(x.labels, "le")
				return x
			}
		}
	}
	f, ok := e.families[base]
	if !ok {
		f = e.families[strings.TrimSuffix(base, "_total")]
	}
	x.family = base
	switch f.Type {
	case "summary":
	case "counter":
		x.family, x.kind = strings.TrimSuffix(base, "_total"), "counter"
	case "gauge":
		x.kind = "gauge"
	default:
		x.kind = "unknown"
	}
	return x
}

// without takes one label out of a set.
func without(labels, name string) string {
	v := engine.Label(labels, name)
	for _, form := range []string{"," + name + `="` + v + `"`, name + `="` + v + `",`, name + `="` + v + `"`} {
		if strings.Contains(labels, form) {
			return strings.Replace(labels, form, "", 1)
		}
	}
	return labels
}

// labelMap turns a label set into a map.
func labelMap(labels string) map[string]string {
	out := map[string]string{}
	for labels != "" {
		key, rest, ok := strings.Cut(labels, `="`)
		if !ok {
			break
		}
		key = strings.TrimLeft(key, ", ")
		v := engine.Label(key+`="`+rest, key)
		text, err := strconv.Unquote(`"` + v + `"`)
		if err != nil {
			text = v
		}
		out[key] = text
		labels = rest[min(len(v)+1, len(rest)):]
	}
	return out
}

// exported is one series of the document.
type exported struct {
	Endpoint string             `json:"endpoint_url"`
	Labels   map[string]string  `json:"labels,omitempty"`
	Stats    map[string]any     `json:"stats"`
	Buckets  map[string]float64 `json:"buckets,omitempty"`
	Slices   []map[string]any   `json:"timeslices,omitempty"`
}

type family struct {
	Type        string     `json:"type"`
	Description string     `json:"description"`
	Unit        string     `json:"unit,omitempty"`
	Series      []exported `json:"series"`
}

func (f *family) json(w *jsonWriter) {
	first := w.open('{')
	w.key(&first, "type")
	w.text(f.Type)
	w.key(&first, "description")
	w.text(f.Description)
	if f.Unit != "" {
		w.key(&first, "unit")
		w.text(f.Unit)
	}
	w.key(&first, "series")
	jsonList(w, f.Series, func(w *jsonWriter, x exported) { x.json(w) })
	w.close(first, '}')
}

func (x *exported) json(w *jsonWriter) {
	first := w.open('{')
	w.key(&first, "endpoint_url")
	w.text(x.Endpoint)
	if len(x.Labels) > 0 {
		w.key(&first, "labels")
		w.value(x.Labels)
	}
	w.key(&first, "stats")
	w.value(x.Stats)
	if len(x.Buckets) > 0 {
		w.key(&first, "buckets")
		w.value(x.Buckets)
	}
	if len(x.Slices) > 0 {
		w.key(&first, "timeslices")
		w.value(x.Slices)
	}
	w.close(first, '}')
}

// histogram gathers the parts of one.
type histogram struct {
	sum, count float64
	buckets    map[string]float64
	spanNs     int64
}

func (m *metrics) write(o *Options) (js, table []byte, err error) {
	families := map[string]*family{}
	put := func(name string, e *endpoint, kind string, x exported) {
		f := families[name]
		if f == nil {
			d, ok := e.families[name]
			if !ok {
				d = e.families[name+"_total"]
			}
			f = &family{Type: kind, Description: d.Help, Unit: unitOf(name, d.Unit)}
			families[name] = f
		}
		f.Series = append(f.Series, x)
	}
	info := map[string]any{}
	configured, good := []string{}, []string{}
	for _, url := range slices.Sorted(maps.Keys(m.endpoints)) {
		e := m.endpoints[url]
		configured = append(configured, url)
		if e.fetches == 0 {
			continue
		}
		good = append(good, url)
		info[url] = m.endpointInfo(e)
		histograms := map[[2]string]*histogram{}
		for _, name := range slices.Sorted(maps.Keys(e.series)) {
			x := e.series[name]
			if x.kind == "" || !x.seen {
				continue
			}
			switch x.kind {
			case "histogram":
				key := [2]string{x.family, x.labels}
				h := histograms[key]
				if h == nil {
					h = &histogram{buckets: map[string]float64{}}
					histograms[key] = h
				}
				d := max(x.last-x.ref, 0)
				h.spanNs = x.lastNs - x.refNs
				switch x.part {
				case "sum":
					h.sum = d
				case "count":
					h.count = d
				default:
					h.buckets[x.le] += d
				}
			case "counter":
				d := max(x.last-x.ref, 0)
				st := map[string]any{"total": d}
				if s := float64(x.lastNs-x.refNs) / 1e9; s > 0 {
					st["rate"] = d / s
				}
				put(x.family, e, x.kind, exported{Endpoint: url, Labels: labelMap(x.labels), Stats: st, Slices: m.counterSlices(x, st, o.SliceNs)})
			default:
				put(x.family, e, x.kind, exported{Endpoint: url, Labels: labelMap(x.labels), Stats: gauge(x.values), Slices: m.gaugeSlices(x, o.SliceNs)})
			}
		}
		for _, key := range sortedKeys(histograms) {
			h := histograms[key]
			put(key[0], e, "histogram", exported{Endpoint: url, Labels: labelMap(key[1]), Stats: h.stats(), Buckets: h.buckets})
		}
	}
	doc := map[string]any{
		"schema_version": "1.0", "aiperf_version": o.Program, "benchmark_id": m.meta.PointID,
		"summary": map[string]any{
			"endpoints_configured": configured, "endpoints_successful": good, "endpoint_info": info,
			"start_time": local(m.meta.EpochWallNs + m.startNs), "end_time": local(m.meta.EpochWallNs + m.endNs),
		},
		"metrics": families, "input_config": o.Input,
	}
	js, err = encode(doc)
	return js, m.table(families), err
}

func sortedKeys(m map[[2]string]*histogram) [][2]string {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	return keys
}

func (m *metrics) endpointInfo(e *endpoint) map[string]any {
	wall := m.meta.EpochWallNs
	out := map[string]any{
		"total_fetches": e.fetches, "first_fetch_ns": wall + e.firstNs, "last_fetch_ns": wall + e.lastNs,
		"avg_fetch_latency_ms": float64(e.lagNs) / float64(e.fetches) / 1e6,
		"unique_updates":       e.updates, "duration_seconds": float64(e.lastNs-e.firstNs) / 1e9,
	}
	if e.updates > 0 {
		out["first_update_ns"], out["last_update_ns"] = wall+e.firstUpNs, wall+e.lastUpNs
	}
	if e.updates > 1 {
		out["avg_update_interval_ms"] = float64(e.lastUpNs-e.firstUpNs) / float64(e.updates-1) / 1e6
	}
	return out
}

// gauge is the statistics of scrapes, each counting the same; the deviation is the sample's.
func gauge(v []float64) map[string]any {
	sorted := slices.Clone(v)
	slices.Sort(sorted)
	sum, sq, n := 0.0, 0.0, float64(len(v))
	for _, x := range sorted {
		sum += x
	}
	for _, x := range sorted {
		sq += (x - sum/n) * (x - sum/n)
	}
	out := map[string]any{"avg": sum / n, "min": sorted[0], "max": sorted[len(sorted)-1], "std": math.Sqrt(sq / max(n-1, 1))}
	for _, p := range percentiles {
		out[statNames[p.stat]] = result.Percentile(sorted, p.q)
	}
	return out
}

// stats are those of the observations that fell into the phase. Percentiles interpolate inside
// their bucket; those in the last bucket are left out. Between weir_pN_low and weir_pN_high, the
// bucket's bounds, lies the true one; the last, open bucket has no upper bound.
func (h *histogram) stats() map[string]any {
	out := map[string]any{"count": h.count, "sum": h.sum}
	if h.count > 0 {
		out["avg"] = h.sum / h.count
	}
	if s := float64(h.spanNs) / 1e9; s > 0 {
		out["count_rate"], out["sum_rate"] = h.count/s, h.sum/s
	}
	type bound struct{ le, n float64 }
	var bounds []bound
	for le, n := range h.buckets {
		if v, err := strconv.ParseFloat(le, 64); err == nil && !math.IsInf(v, 0) {
			bounds = append(bounds, bound{v, n})
		}
	}
	sort.Slice(bounds, func(i, j int) bool { return bounds[i].le < bounds[j].le })
	if h.count <= 0 || len(bounds) == 0 {
		return out
	}
	for _, p := range percentiles {
		key := statNames[p.stat]
		at, low, below := float64(p.q)/100*h.count, min(0, bounds[0].le), 0.0
		open := true
		for _, b := range bounds {
			if b.n >= at && b.n > below {
				out[key+"_estimate"] = low + (b.le-low)*(at-below)/(b.n-below)
				if below > 0 || b.le > 0 { // what is in a first bucket up to 0 or less may be anything below
					out["weir_"+key+"_low"] = low
				}
				out["weir_"+key+"_high"], open = b.le, false
				break
			}
			low, below = b.le, b.n
		}
		if open {
			out["weir_"+key+"_low"] = low
		}
	}
	return out
}

// slices calls each with every slice of the phase.
func (m *metrics) slices(length int64, each func(from, to int64, whole bool)) {
	if length <= 0 {
		return
	}
	end := m.endNs
	if w := m.meta.Window.EndNs; w > m.startNs {
		end = min(end, w)
	}
	for from := m.startNs; from < end; from += length {
		each(from, min(from+length, end), from+length <= end)
	}
}

// at is the last value at or before an instant.
func (x *series) at(t int64) float64 {
	i, _ := slices.BinarySearchFunc(x.points, t, func(p point, t int64) int {
		if p.at <= t {
			return -1
		}
		return 1
	})
	if i == 0 {
		return x.ref
	}
	return x.points[i-1].v
}

func (m *metrics) counterSlices(x *series, st map[string]any, length int64) []map[string]any {
	var out []map[string]any
	var rates []float64
	m.slices(length, func(from, to int64, whole bool) {
		d := max(x.at(to)-x.at(from), 0)
		rate := d / (float64(to-from) / 1e9)
		s := m.slice(from, to, whole)
		s["total"], s["rate"] = d, rate
		out = append(out, s)
		if whole {
			rates = append(rates, rate)
		}
	})
	if len(rates) > 0 {
		g := gauge(rates)
		st["rate_avg"], st["rate_min"], st["rate_max"], st["rate_std"] = g["avg"], g["min"], g["max"], g["std"]
	}
	return out
}

func (m *metrics) gaugeSlices(x *series, length int64) []map[string]any {
	var out []map[string]any
	i := 0
	m.slices(length, func(from, to int64, whole bool) {
		for i < len(x.points) && x.points[i].at < from {
			i++
		}
		var v []float64
		for ; i < len(x.points) && x.points[i].at < to; i++ {
			v = append(v, x.points[i].v)
		}
		if len(v) == 0 {
			return
		}
		g := gauge(v)
		s := m.slice(from, to, whole)
		s["avg"], s["min"], s["max"] = g["avg"], g["min"], g["max"]
		out = append(out, s)
	})
	return out
}

func (m *metrics) slice(from, to int64, whole bool) map[string]any {
	s := map[string]any{"start_ns": m.meta.EpochWallNs + from, "end_ns": m.meta.EpochWallNs + to}
	if !whole {
		s["is_complete"] = false
	}
	return s
}

// unitOf is the unit that the endpoint states, or that the name ends with.
func unitOf(name, stated string) string {
	if stated != "" {
		return stated
	}
	name = strings.TrimSuffix(name, "_total")
	for _, u := range []struct{ suffix, unit string }{
		{"_seconds", "seconds"}, {"_tokens", "tokens"}, {"_bytes", "bytes"}, {"_blocks", "blocks"}, {"_requests", "requests"},
		{"_reqs", "requests"}, {"_perc", "percent"}, {"_percent", "percent"}, {"_ratio", "ratio"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}

var serverColumns = []string{"total", "rate", "rate_avg", "rate_min", "rate_max", "rate_std", "count", "sum", "avg", "min", "max", "std", "count_rate", "sum_rate",
	"p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99"}

// table is one line a series.
func (m *metrics) table(families map[string]*family) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	w.Write(append([]string{"Endpoint", "Type", "Metric", "Unit", "Labels"}, serverColumns...))
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		for _, s := range f.Series {
			var labels []string
			for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
				labels = append(labels, k+"="+s.Labels[k])
			}
			row := []string{s.Endpoint, f.Type, name, f.Unit, strings.Join(labels, ",")}
			for _, c := range serverColumns {
				v, ok := s.Stats[c]
				if !ok {
					v, ok = s.Stats[c+"_estimate"]
				}
				if !ok {
					row = append(row, "")
					continue
				}
				row = append(row, strconv.FormatFloat(v.(float64), 'g', -1, 64))
			}
			w.Write(row)
		}
	}
	w.Flush()
	return b.Bytes()
}
