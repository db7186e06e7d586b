package gpu

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// amd is how amd-smi is asked and understood. "metric --json" tells most and has changed its shape
// from release to release (ROCm 6.0 to 7.2: a list or an object with gpu_data; numbers, texts with
// a unit, or {value, unit}; clocks by kind or by kind and number), so every value is looked for
// where any release had it. Where it cannot be read, "monitor --csv" is asked.
type amd struct {
	csv   bool // "metric --json" could not be read
	uuids map[string]string
}

func (a *amd) args(devices []string) []string {
	args := []string{"metric", "--json"}
	if a.csv {
		args = []string{"monitor", "--csv"}
	}
	if len(devices) > 0 {
		args = append(append(args, "--gpu"), devices...)
	}
	return args
}

// learn falls back to the table.
func (a *amd) learn([]byte) bool {
	if a.csv {
		return false
	}
	a.csv = true
	return true
}

func (a *amd) read(out []byte) ([]Device, error) {
	devices, err := amdJSON(out)
	if a.csv {
		devices, err = amdCSV(out)
	}
	for i := range devices {
		devices[i].UUID = a.uuids[devices[i].Index]
	}
	return devices, err
}

// names reads "list --json": what the devices are called.
func (a *amd) names(out []byte) {
	list, err := amdList(out)
	if err != nil {
		return
	}
	a.uuids = map[string]string{}
	for _, m := range list {
		var d struct {
			GPU  json.RawMessage `json:"gpu"`
			UUID string          `json:"uuid"`
		}
		if json.Unmarshal(m, &d) == nil && d.UUID != "" && !unknown(d.UUID) {
			a.uuids[strings.Trim(string(d.GPU), `"`)] = d.UUID
		}
	}
}

// amdList finds the list of devices in an answer, behind what amd-smi may print before it.
func amdList(out []byte) ([]json.RawMessage, error) {
	for from := 0; from < len(out); {
		i := bytes.IndexAny(out[from:], "[{")
		if i < 0 {
			break
		}
		from += i
		dec := json.NewDecoder(bytes.NewReader(out[from:]))
		var raw json.RawMessage
		if dec.Decode(&raw) == nil {
			var list []json.RawMessage
			if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
				return list, nil
			}
			var m struct {
				Data []json.RawMessage `json:"gpu_data"`
			}
			if json.Unmarshal(raw, &m) == nil && len(m.Data) > 0 {
				return m.Data, nil
			}
		}
		from++
	}
	return nil, fmt.Errorf("no list of devices in what amd-smi printed: %s", firstLine(out))
}

func amdJSON(out []byte) ([]Device, error) {
	list, err := amdList(out)
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, raw := range list {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var t map[string]any
		if dec.Decode(&t) != nil {
			continue
		}
		d := Device{Index: plainText(t["gpu"]), Values: map[Quantity]int64{}}
		if _, err := strconv.Atoi(d.Index); err != nil {
			continue
		}
		set := func(q Quantity, scale float64, paths ...string) {
			for _, p := range paths {
				if v, ok := quantity(at(t, p), q, scale); ok && v >= 0 {
					d.Values[q] = v
					return
				}
			}
		}
		set(Power, 1000, "power.socket_power", "power.current_socket_power", "power.average_socket_power", "power.current_power")
		set(Energy, 1000, "energy.total_energy_consumption")
		set(MemoryUsed, mib, "mem_usage.used_vram", "vram.vram_used", "memory.vram_used", "fb_memory_usage.used")
		set(MemoryTotal, mib, "mem_usage.total_vram", "vram.vram_total", "memory.vram_total", "fb_memory_usage.total")
		set(Utilization, 10, "usage.gfx_activity", "usage.gfx_usage")
		set(Temperature, 1000, "temperature.hotspot", "temperature.edge", "temperature.hotspot_temperature", "temperature.edge_temperature")
		set(MemoryTemperature, 1000, "temperature.mem", "temperature.mem_temperature", "temperature.vram")
		set(Corrected, 1, "ecc.total_correctable_count", "ecc.correctable", "ecc.total.correctable")
		set(Uncorrected, 1, "ecc.total_uncorrectable_count", "ecc.uncorrectable", "ecc.total.uncorrectable")
		clocks(t["clock"], &d)
		throttled(t, &d)
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, errors.New("none of the entries of amd-smi has the number of a gpu")
	}
	return devices, nil
}

func at(t map[string]any, path string) any {
	var v any = t
	for k := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func plainText(v any) string {
	switch v := v.(type) {
	case json.Number:
		return v.String()
	case string:
		return v
	}
	return ""
}

// quantity reads 214, "214", "214 W" or {"value": 214, "unit": "W"}.
func quantity(v any, q Quantity, scale float64) (int64, bool) {
	unit := ""
	if m, ok := v.(map[string]any); ok {
		v, unit = m["value"], plainText(m["unit"])
	}
	s := strings.TrimSpace(plainText(v))
	if i := strings.IndexByte(s, ' '); i >= 0 {
		s, unit = s[:i], strings.TrimSpace(s[i:])
	}
	s = strings.TrimSuffix(s, "%")
	return number(s, scale*unitScale(q, unit))
}

// unitScale is what a unit makes of a value that is scaled for the usual one: W, J, MB, %, C, MHz.
func unitScale(q Quantity, unit string) float64 {
	switch strings.ToLower(unit) {
	case "gb", "gib":
		if q == MemoryUsed || q == MemoryTotal {
			return 1024
		}
	case "kb", "kib":
		if q == MemoryUsed || q == MemoryTotal {
			return 1.0 / 1024
		}
	case "b":
		if q == MemoryUsed || q == MemoryTotal {
			return 1.0 / mib
		}
	case "mw":
		return 1e-3
	case "uw":
		return 1e-6
	case "uj":
		return 1e-6
	case "mj":
		return 1e-3
	case "kj":
		return 1e3
	case "ghz":
		return 1e3
	}
	return 1
}

// clocks takes the fastest of the compute units and of the memories.
func clocks(v any, d *Device) {
	m, _ := v.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		q := None
		switch {
		case strings.HasPrefix(k, "gfx"):
			q = Clock
		case strings.HasPrefix(k, "mem"):
			q = MemoryClock
		default:
			continue
		}
		c := m[k]
		if inner, ok := c.(map[string]any); ok {
			for _, name := range []string{"clk", "cur_clk", "current_clk"} {
				if x, ok := inner[name]; ok {
					c = x
					break
				}
			}
		}
		if n, ok := quantity(c, q, 1); ok && n >= 0 && n < 1e6 {
			if old, has := d.Values[q]; !has || n > old {
				d.Values[q] = n
			}
		}
	}
}

// throttled reads what slows a device down: a word of older releases, statuses of newer ones.
func throttled(t map[string]any, d *Device) {
	known, mask := false, int64(0)
	word := func(v any) (active, ok bool) {
		switch strings.ToUpper(plainText(v)) {
		case "ACTIVE", "THROTTLED":
			return true, true
		case "NOT ACTIVE", "UNTHROTTLED", "INACTIVE":
			return false, true
		}
		return false, false
	}
	for _, r := range []struct {
		path string
		bit  int64
	}{
		{"power.throttle_status", Hardware}, {"throttle.prochot_violation_status", Hardware}, {"throttle.ppt_violation_status", PowerCap},
		{"throttle.socket_thermal_violation_status", HardThermal}, {"throttle.vr_thermal_violation_status", HardThermal},
		{"throttle.hbm_thermal_violation_status", HardThermal},
	} {
		if active, ok := word(at(t, r.path)); ok {
			known = true
			if active {
				mask |= r.bit
			}
		}
	}
	if known {
		d.Values[Throttle] = mask
	}
}

// amdColumns are columns of "monitor --csv", in lower case, by release.
var amdColumns = map[string]struct {
	quantity Quantity
	scale    float64
}{
	"power": {Power, 1000}, "power_usage": {Power, 1000},
	"gpu_temp": {Temperature, 1000}, "hotspot_temperature": {Temperature, 1000}, "gpu_t": {Temperature, 1000},
	"mem_temp": {MemoryTemperature, 1000}, "memory_temperature": {MemoryTemperature, 1000}, "mem_t": {MemoryTemperature, 1000},
	"gfx_util": {Utilization, 10}, "gfx%": {Utilization, 10}, "gfx": {Utilization, 10},
	"gfx_clock": {Clock, 1}, "gfx_clk": {Clock, 1},
	"mem_clock": {MemoryClock, 1}, "mem_clk": {MemoryClock, 1},
	"vram_used": {MemoryUsed, mib}, "vram_total": {MemoryTotal, mib},
	"single_ecc": {Corrected, 1}, "single_bit_ecc": {Corrected, 1},
	"double_ecc": {Uncorrected, 1}, "double_bit_ecc": {Uncorrected, 1},
}

func amdCSV(out []byte) ([]Device, error) {
	r := csv.NewReader(bytes.NewReader(out))
	r.FieldsPerRecord, r.LazyQuotes, r.TrimLeadingSpace = -1, true, true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("amd-smi monitor: %w", err)
	}
	var head []string
	var devices []Device
	for _, row := range rows {
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if i := slices.IndexFunc(row, func(s string) bool { return strings.EqualFold(s, "gpu") }); i >= 0 {
			head = make([]string, len(row))
			for i := range row {
				head[i] = strings.ToLower(row[i])
			}
			continue
		}
		if head == nil || len(row) != len(head) {
			continue
		}
		d := Device{Values: map[Quantity]int64{}}
		for i, name := range head {
			if name == "gpu" {
				d.Index = row[i]
				continue
			}
			c, ok := amdColumns[name]
			if !ok {
				continue
			}
			if v, ok := quantity(row[i], c.quantity, c.scale); ok && v >= 0 {
				d.Values[c.quantity] = v
			}
		}
		if _, err := strconv.Atoi(d.Index); err == nil {
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("no device in what amd-smi monitor printed: %s", firstLine(out))
	}
	return devices, nil
}
