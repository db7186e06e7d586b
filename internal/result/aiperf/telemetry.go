package aiperf

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// deviceField is one of AIPerf's fields of a GPU: its name, its unit, and what turns Weir's unit into that.
type deviceField struct {
	name, unit string
	by         float64
	counter    bool
}

// deviceFields are those of the two platforms (AIPerf 0.13, gpu_telemetry/constants.py): W, MJ, %, GB of 10^9, °C.
var deviceFields = map[string]map[gpu.Quantity]deviceField{
	"nvidia": {
		gpu.Power: {"nvidia_power_usage", "W", 1e-3, false}, gpu.Energy: {"nvidia_energy_consumption", "MJ", 1e-9, true},
		gpu.Utilization: {"nvidia_gpu_utilization", "%", 0.1, false}, gpu.MemoryUsed: {"nvidia_memory_used", "GB", 1e-9, false},
		gpu.Temperature: {"nvidia_temperature", "°C", 1e-3, false}, gpu.Fault: {"nvidia_xid_errors", "count", 1, true},
	},
	"amd": {
		gpu.Power: {"amd_power", "W", 1e-3, false}, gpu.Energy: {"amd_energy_consumption", "MJ", 1e-9, true},
		gpu.Utilization: {"amd_gfx_activity", "%", 0.1, false}, gpu.MemoryUsed: {"amd_memory_used", "GB", 1e-9, false},
		gpu.Temperature: {"amd_temperature", "°C", 1e-3, false}, gpu.Uncorrected: {"amd_ecc_uncorrectable", "count", 1, true},
	},
}

// platform tells whose device a series is of.
func platform(source, series string) string {
	if strings.HasPrefix(series, "gpu_") || strings.HasPrefix(series, "amd_") || source == "gpu:amd-smi" {
		return "amd"
	}
	return "nvidia"
}

// telemetry are the devices of a run, by source and name.
type telemetry struct {
	wall    int64
	startNs int64
	endNs   int64
	sources []string // that were asked, those of devices
	good    map[string]bool
	devices map[[2]string]*telling
	known   map[string]*deviceSeries // of every series that came: which device it tells of
	now     []*deviceSeries          // those of the sample that is being read
}

// deviceSeries is a series with what it says of a device.
type deviceSeries struct {
	name string
	of   gpu.Signal
	ok   bool // it tells of a device
}

// telling is what one device said.
type telling struct {
	source, platform         string
	device, index, model, at string
	values                   map[string]*deviceValues
	now                      map[string]float64 // of the sample that is being read
}

type deviceValues struct {
	field     deviceField
	values    []float64 // within the phase
	ref, last float64   // of a counter
	hasRef    bool
}

// readTelemetry reads what devices said and writes a line for each device and sample to the file at path; nil where no
// device was read, and then there is no file.
func readTelemetry(b *record.Bundle, path string) (t *telemetry, err error) {
	t = &telemetry{wall: b.Meta.EpochWallNs, startNs: b.Meta.Window.StartNs, good: map[string]bool{}, devices: map[[2]string]*telling{}, known: map[string]*deviceSeries{}}
	var f *os.File
	var w *bufio.Writer
	defer func() {
		if f != nil {
			err = whole(path, errors.Join(err, w.Flush(), f.Close()))
		}
	}()
	for s, err := range b.Samples() {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(s.Source, "gpu:") && !slices.Contains(t.sources, s.Source) {
			t.sources = append(t.sources, s.Source)
		}
		said := t.add(s)
		if len(said) == 0 {
			continue
		}
		if !slices.Contains(t.sources, s.Source) {
			t.sources = append(t.sources, s.Source)
		}
		t.good[s.Source] = true
		if f == nil {
			if f, err = os.Create(path); err != nil {
				return nil, err
			}
			w = bufio.NewWriterSize(f, 1<<16)
		}
		for _, d := range said {
			raw, err := json.Marshal(d.line(t.wall + s.At))
			if err != nil {
				return nil, err
			}
			w.Write(raw)
			if err := w.WriteByte('\n'); err != nil {
				return nil, err
			}
		}
	}
	if len(t.sources) == 0 {
		return nil, nil
	}
	return t, nil
}

// add takes a sample and returns the devices that it tells of, in order.
func (t *telemetry) add(s *record.Sample) []*telling {
	if s.Error != "" || s.Values == nil {
		return nil
	}
	var said []*telling
	t.now = t.now[:0]
	for name := range s.Values {
		x := t.known[name]
		if x == nil {
			x = &deviceSeries{name: strings.Clone(name)}
			x.of, x.ok = gpu.Classify(x.name)
			t.known[x.name] = x
		}
		if x.ok {
			t.now = append(t.now, x)
		}
	}
	slices.SortFunc(t.now, func(a, b *deviceSeries) int { return strings.Compare(a.name, b.name) })
	for _, x := range t.now {
		series, g := x.name, x.of
		if g.Instance != "" || math.Abs(s.Values[series]) > 1e15 {
			continue
		}
		key := [2]string{s.Source, g.Device}
		d := t.devices[key]
		if d == nil {
			d = &telling{source: s.Source, platform: platform(s.Source, series), device: g.Device, values: map[string]*deviceValues{}}
			t.devices[key] = d
		}
		d.index, d.model, d.at = cmp.Or(d.index, g.Index), cmp.Or(d.model, g.Model), cmp.Or(d.at, g.Host)
		field, ok := deviceFields[d.platform][g.Quantity]
		if !ok {
			continue
		}
		if d.now == nil {
			d.now = map[string]float64{}
			said = append(said, d)
		}
		v := s.Values[series] * g.Scale * field.by
		d.now[field.name] = v
		x := d.values[field.name]
		if x == nil {
			x = &deviceValues{field: field}
			d.values[field.name] = x
		}
		if inside := s.At >= t.startNs; !inside || !x.hasRef {
			x.ref, x.hasRef = v, true
		}
		if s.At >= t.startNs {
			x.values = append(x.values, v)
			t.endNs = max(t.endNs, s.At)
		}
		x.last = v
	}
	return said
}

// line is what a device said in one sample, and makes it ready for the next.
func (d *telling) line(wall int64) map[string]any {
	out := map[string]any{"timestamp_ns": wall, "telemetry_source_url": d.url(), "gpu_index": d.number(), "gpu_uuid": d.device,
		"gpu_model_name": d.model, "platform": d.platform, "telemetry_data": d.now}
	if d.at != "" {
		out["hostname"] = d.at
	}
	d.now = nil
	return out
}

func (d *telling) number() int {
	n, _ := strconv.Atoi(d.index) // 0 where the source has no numbers
	return n
}

// url names a source as AIPerf does: its local collectors are "pynvml" and "amdsmi".
func (d *telling) url() string { return sourceURL(d.source) }

func sourceURL(source string) string {
	switch source {
	case "gpu:nvidia-smi":
		return "pynvml://localhost"
	case "gpu:amd-smi":
		return "amdsmi://localhost"
	}
	return source
}

// display is the source without its scheme and /metrics.
func display(source string) string {
	u, err := url.Parse(sourceURL(source))
	if err != nil {
		return source
	}
	return u.Host + strings.TrimSuffix(u.Path, "/metrics")
}

// summary is the document's telemetry_data.
func (t *telemetry) summary() map[string]any {
	configured, good := []string{}, []string{}
	for _, s := range t.sources {
		configured = append(configured, display(s))
		if t.good[s] {
			good = append(good, display(s))
		}
	}
	endpoints := map[string]any{}
	list := slices.Collect(maps.Values(t.devices))
	slices.SortFunc(list, func(a, b *telling) int {
		return cmp.Or(strings.Compare(a.source, b.source), cmp.Compare(a.number(), b.number()), strings.Compare(a.device, b.device))
	})
	for _, d := range list {
		e, _ := endpoints[display(d.source)].(map[string]any)
		if e == nil {
			e = map[string]any{"gpus": map[string]any{}}
			endpoints[display(d.source)] = e
		}
		metrics := map[string]*stats{}
		for name, x := range d.values {
			if st := x.stats(); st != nil {
				metrics[name] = st
			}
		}
		g := map[string]any{"gpu_index": d.number(), "gpu_name": d.model, "gpu_uuid": d.device, "platform": d.platform, "hostname": nil, "metrics": metrics}
		if d.at != "" {
			g["hostname"] = d.at
		}
		e["gpus"].(map[string]any)["gpu_"+strconv.Itoa(d.number())] = g
	}
	return map[string]any{"endpoints": endpoints, "summary": map[string]any{
		"endpoints_configured": configured, "endpoints_successful": good,
		"start_time": local(t.wall + t.startNs), "end_time": local(t.wall + max(t.endNs, t.startNs)),
	}}
}

// stats are a gauge's over the samples of the phase, with the deviation of a sample; of a counter by how much it grew.
func (x *deviceValues) stats() *stats {
	if len(x.values) == 0 {
		return nil
	}
	if x.field.counter {
		return single(x.field.unit, max(x.last-x.ref, 0))
	}
	st := distribution(x.field.unit, x.values)
	if n := float64(len(x.values)); n > 1 {
		st.v[statStd] *= math.Sqrt(n / (n - 1))
	}
	return st
}
