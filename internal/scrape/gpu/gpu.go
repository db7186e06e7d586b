// Package gpu reads power, memory, utilisation, clocks, temperatures and errors of GPUs while a
// point runs, and accounts for them.
//
// Readings come from the vendors' commands (a Reader) or from exporters that package scrape scrapes
// (DCGM's and AMD's). Both end up as samples of the bundle: the commands' under the names
// weir_gpu_*, the exporters' as they are. Classify says what a series means whoever published it,
// and an Account, which is pure, adds samples up to energy, means, maxima and events of every
// device. Units are integers that are named: milliwatts, millijoules, bytes, permille, MHz,
// thousandths of a degree Celsius. What a tool cannot say ("[N/A]", "N/A", "[Not Supported]",
// "ERR!") is no value, never zero. Devices may appear and vanish at any time.
package gpu

import (
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/engine"
)

// A Quantity is what a series says of a device.
type Quantity uint8

// Quantities of devices.
const (
	None              Quantity = iota
	Power                      // milliwatts
	Energy                     // millijoules since some instant, a counter
	MemoryUsed                 // bytes
	MemoryFree                 // bytes
	MemoryTotal                // bytes
	Utilization                // permille of the time in which a kernel ran
	Clock                      // MHz of the compute units
	MemoryClock                // MHz
	Temperature                // millidegrees Celsius, the hottest spot where there are several
	MemoryTemperature          // millidegrees Celsius
	Throttle                   // mask of reasons, as NVML's
	Corrected                  // memory errors that were corrected, a counter
	Uncorrected                // memory errors that were not, a counter
	Fault                      // number of the last fault that the driver reported (NVIDIA's XID), 0 for none
	Present                    // 1 while a tool lists the device
	quantityCount     int      = iota
)

// Bits of Throttle that slow a device down (NVML nvmlClocksEventReasons, nvml.h, 2025). The other
// bits, such as idle (1) and application clocks (2), are the user's or nobody's doing.
const (
	PowerCap    = 0x4
	Hardware    = 0x8
	SoftThermal = 0x20
	HardThermal = 0x40
	PowerBrake  = 0x80
	slowing     = PowerCap | Hardware | SoftThermal | HardThermal | PowerBrake
)

// Reasons names the bits of a mask that slow a device down.
func Reasons(mask int64) []string {
	var out []string
	for _, r := range []struct {
		bit  int64
		name string
	}{{PowerCap, "power-cap"}, {Hardware, "hardware"}, {SoftThermal, "thermal-software"}, {HardThermal, "thermal-hardware"}, {PowerBrake, "power-brake"}} {
		if mask&r.bit != 0 {
			out = append(out, r.name)
		}
	}
	return out
}

// A Signal is what one series says of one device.
type Signal struct {
	Quantity Quantity
	Scale    float64 // turns the series' value into the quantity's unit
	Bit      int64   // of Throttle: a value above 0 sets this bit; 0 takes the value as the mask
	// Device is the name of the device: its UUID where the series has one, else its number.
	// Instance is a part of it (MIG, partition), empty for the whole.
	Device, Instance string
	Index            string // number of the device on its node, empty when unknown
	Host             string // as the exporter says, empty when it does not
	Model            string
}

type family struct {
	quantity Quantity
	scale    float64
	bit      int64
	label    string // when set, the row holds for series with this label
	value    string // that begins with this, in lower case
}

const mib = 1 << 20

// families are the names under which devices are published. Sources: NVIDIA's dcgm-exporter
// etc/default-counters.csv and DCGM's dcgm_fields.h (2026), AMD's device-metrics-exporter
// docs/configuration/metricslist.md (1.5, 2026-09; "MB" there is MiB: 196592 for an MI300X),
// and Weir's own for what commands say.
var families = map[string][]family{
	"weir_gpu_power_milliwatts":                {{quantity: Power, scale: 1}},
	"weir_gpu_energy_millijoules":              {{quantity: Energy, scale: 1}},
	"weir_gpu_memory_used_bytes":               {{quantity: MemoryUsed, scale: 1}},
	"weir_gpu_memory_total_bytes":              {{quantity: MemoryTotal, scale: 1}},
	"weir_gpu_utilization_permille":            {{quantity: Utilization, scale: 1}},
	"weir_gpu_clock_mhz":                       {{quantity: Clock, scale: 1}},
	"weir_gpu_memory_clock_mhz":                {{quantity: MemoryClock, scale: 1}},
	"weir_gpu_temperature_millicelsius":        {{quantity: Temperature, scale: 1}},
	"weir_gpu_memory_temperature_millicelsius": {{quantity: MemoryTemperature, scale: 1}},
	"weir_gpu_throttle_reasons":                {{quantity: Throttle, scale: 1}},
	"weir_gpu_ecc_corrected":                   {{quantity: Corrected, scale: 1}},
	"weir_gpu_ecc_uncorrected":                 {{quantity: Uncorrected, scale: 1}},
	"weir_gpu_present":                         {{quantity: Present, scale: 1}},

	"DCGM_FI_DEV_POWER_USAGE":              {{quantity: Power, scale: 1000}},
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {{quantity: Energy, scale: 1}},
	"DCGM_FI_DEV_FB_USED":                  {{quantity: MemoryUsed, scale: mib}},
	"DCGM_FI_DEV_FB_FREE":                  {{quantity: MemoryFree, scale: mib}},
	"DCGM_FI_DEV_FB_TOTAL":                 {{quantity: MemoryTotal, scale: mib}},
	"DCGM_FI_DEV_GPU_UTIL":                 {{quantity: Utilization, scale: 10}},
	"DCGM_FI_DEV_SM_CLOCK":                 {{quantity: Clock, scale: 1}},
	"DCGM_FI_DEV_MEM_CLOCK":                {{quantity: MemoryClock, scale: 1}},
	"DCGM_FI_DEV_GPU_TEMP":                 {{quantity: Temperature, scale: 1000}},
	"DCGM_FI_DEV_MEMORY_TEMP":              {{quantity: MemoryTemperature, scale: 1000}},
	"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS":   {{quantity: Throttle, scale: 1}},
	"DCGM_FI_DEV_CLOCKS_EVENT_REASONS":     {{quantity: Throttle, scale: 1}},
	"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL":        {{quantity: Corrected, scale: 1}},
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":        {{quantity: Uncorrected, scale: 1}},
	"DCGM_FI_DEV_XID_ERRORS":               {{quantity: Fault, scale: 1}},

	"gpu_package_power":         {{quantity: Power, scale: 1000}},
	"gpu_average_package_power": {{quantity: Power, scale: 1000}},
	"gpu_power_usage":           {{quantity: Power, scale: 1000}},
	"gpu_energy_consumed":       {{quantity: Energy, scale: 1e-3}}, // microjoules
	"gpu_used_vram":             {{quantity: MemoryUsed, scale: mib}},
	"gpu_free_vram":             {{quantity: MemoryFree, scale: mib}},
	"gpu_total_vram":            {{quantity: MemoryTotal, scale: mib}},
	"gpu_gfx_activity":          {{quantity: Utilization, scale: 10}},
	"gpu_junction_temperature":  {{quantity: Temperature, scale: 1000}},
	"gpu_edge_temperature":      {{quantity: Temperature, scale: 1000}},
	"gpu_memory_temperature":    {{quantity: MemoryTemperature, scale: 1000}},
	"gpu_clock": {
		{quantity: Clock, scale: 1, label: "clock_type", value: "gpu_clock_type_system"},
		{quantity: Clock, scale: 1, label: "clock_type", value: "system"},
		{quantity: MemoryClock, scale: 1, label: "clock_type", value: "gpu_clock_type_memory"},
		{quantity: MemoryClock, scale: 1, label: "clock_type", value: "memory"},
	},
	"gpu_ecc_correct_total":                             {{quantity: Corrected, scale: 1}},
	"gpu_ecc_uncorrect_total":                           {{quantity: Uncorrected, scale: 1}},
	"gpu_violation_ppt_residency_percentage":            {{quantity: Throttle, scale: 1, bit: PowerCap}},
	"gpu_violation_processor_hot_residency_percentage":  {{quantity: Throttle, scale: 1, bit: Hardware}},
	"gpu_violation_socket_thermal_residency_percentage": {{quantity: Throttle, scale: 1, bit: HardThermal}},
	"gpu_violation_vr_thermal_residency_percentage":     {{quantity: Throttle, scale: 1, bit: HardThermal}},
	"gpu_violation_hbm_thermal_residency_percentage":    {{quantity: Throttle, scale: 1, bit: HardThermal}},
}

// named tells whether a series has one of the beginnings that devices' have.
func named(series string) bool {
	return strings.HasPrefix(series, "DCGM_FI_") || strings.HasPrefix(series, "gpu_") || strings.HasPrefix(series, "amd_gpu_") || strings.HasPrefix(series, "weir_gpu_")
}

// Classify says what a series in Prometheus text form tells of a device; false when it tells
// nothing that is known.
func Classify(series string) (Signal, bool) {
	name, labels, _ := strings.Cut(series, "{")
	labels = strings.TrimSuffix(labels, "}")
	if !named(name) {
		return Signal{}, false
	}
	amd := strings.HasPrefix(name, "gpu_") || strings.HasPrefix(name, "amd_gpu_")
	for _, f := range families[strings.TrimPrefix(name, "amd_")] {
		if f.label != "" && !strings.HasPrefix(strings.ToLower(engine.Label(labels, f.label)), f.value) {
			continue
		}
		s := Signal{Quantity: f.quantity, Scale: f.scale, Bit: f.bit}
		first := func(names ...string) string {
			for _, n := range names {
				if v := engine.Label(labels, n); v != "" {
					return v
				}
			}
			return ""
		}
		if amd {
			s.Index, s.Host, s.Model = first("gpu_id"), first("hostname"), first("card_model", "card_series")
			if s.Index == "" {
				return Signal{}, false // another exporter that begins its names alike
			}
			if p := first("gpu_partition_id"); p != "" && p != "0" {
				s.Instance = p
			}
			s.Device = first("gpu_uuid", "uuid")
		} else {
			s.Index, s.Host, s.Model = first("gpu"), first("Hostname", "host"), first("modelName", "name")
			s.Device, s.Instance = first("UUID", "uuid"), first("GPU_I_ID")
		}
		if s.Device == "" {
			s.Device = s.Index
		}
		return s, s.Device != ""
	}
	return Signal{}, false
}

// series is the name of one of Weir's own series.
func series(name string, d *Device) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteString(`{gpu=`)
	b.WriteString(strconv.Quote(d.Index))
	if d.UUID != "" {
		b.WriteString(`,uuid=`)
		b.WriteString(strconv.Quote(d.UUID))
	}
	if name == "weir_gpu_present" && d.Name != "" {
		b.WriteString(`,name=`)
		b.WriteString(strconv.Quote(d.Name))
	}
	b.WriteByte('}')
	return b.String()
}

// A Device is one reading of one device by a command. A value that nobody told is not in Values.
type Device struct {
	Index, UUID, Name string
	Values            map[Quantity]int64
}

var own = map[Quantity]string{
	Power: "weir_gpu_power_milliwatts", Energy: "weir_gpu_energy_millijoules", MemoryUsed: "weir_gpu_memory_used_bytes",
	MemoryTotal: "weir_gpu_memory_total_bytes", Utilization: "weir_gpu_utilization_permille", Clock: "weir_gpu_clock_mhz",
	MemoryClock: "weir_gpu_memory_clock_mhz", Temperature: "weir_gpu_temperature_millicelsius",
	MemoryTemperature: "weir_gpu_memory_temperature_millicelsius", Throttle: "weir_gpu_throttle_reasons",
	Corrected: "weir_gpu_ecc_corrected", Uncorrected: "weir_gpu_ecc_uncorrected",
}

// Values are a reading's series.
func Values(devices []Device) map[string]float64 {
	out := map[string]float64{}
	for i := range devices {
		d := &devices[i]
		out[series("weir_gpu_present", d)] = 1
		for q, v := range d.Values {
			if n := own[q]; n != "" {
				out[series(n, d)] = float64(v)
			}
		}
	}
	return out
}

// number reads a decimal of a tool, scaled to an integer; false for what is none and for what no
// device has.
func number(s string, scale float64) (int64, bool) {
	s = strings.TrimSpace(s)
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v != v || v < -1e6 || v*scale > 1e18 || v*scale < -1e18 {
		return 0, false
	}
	if v >= 0 {
		return int64(v*scale + 0.5), true
	}
	return -int64(-v*scale + 0.5), true
}
