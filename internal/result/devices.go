package result

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/scrape/gpu"
)

// Devices are the GPUs that were read within the window, each and together. Energy is power over
// the time in which it is known; what is nil nobody told.
type Devices struct {
	Samples int64  `json:"samples"`
	Count   int    `json:"count"`
	EnergyJ *int64 `json:"energy_j"` // of all devices, over the time in which their power is known
	// Covered is the least share of the window in which the power of a device is known.
	Covered   *float64 `json:"covered"`
	PowerMean *float64 `json:"power_mean_w"` // of all devices together
	PowerMax  *float64 `json:"power_max_w"`  // of all devices together, at once
	// MemoryMax is the most that any of the devices held, bytes.
	MemoryMax *int64   `json:"memory_max_bytes"`
	UtilMean  *float64 `json:"utilization_mean"` // share of the time in which a kernel ran, mean over the devices
	TempMax   *float64 `json:"temperature_max_c"`
	// TokensPerJ are tokens within the window over the energy; nil where the power of a device is
	// known for less than 95 % of it.
	OutputPerJ *float64 `json:"output_tokens_per_joule"`
	TotalPerJ  *float64 `json:"total_tokens_per_joule"`
	FreshPerJ  *float64 `json:"fresh_tokens_per_joule"`

	List []Device `json:"list"`
}

// A Device is what was read of one GPU within the window.
type Device struct {
	ID      string   `json:"id"` // its UUID, else its number
	Index   string   `json:"index,omitempty"`
	Host    string   `json:"host,omitempty"`
	Model   string   `json:"model,omitempty"`
	From    string   `json:"from"`      // the command or exporter that was read
	Covered *float64 `json:"covered"`   // share of the window in which its power is known
	EnergyJ *float64 `json:"energy_j"`  // over that time
	Counted *float64 `json:"counted_j"` // by the device's own counter of energy
	// Power, memory, utilisation, clock and temperature; the clock is that of the compute units.
	PowerMean   *float64 `json:"power_mean_w"`
	PowerMax    *float64 `json:"power_max_w"`
	MemoryMax   *int64   `json:"memory_max_bytes"`
	MemoryBytes *int64   `json:"memory_bytes"`
	UtilMean    *float64 `json:"utilization_mean"`
	ClockMean   *int64   `json:"clock_mean_mhz"`
	ClockMin    *int64   `json:"clock_min_mhz"`
	TempMax     *float64 `json:"temperature_max_c"`
	// Slowed is the share of the time in which something slowed the device down, of that in which
	// it tells; Reasons are what did, each with its share.
	Slowed      *float64           `json:"slowed"`
	Reasons     map[string]float64 `json:"slowed_by,omitempty"`
	Corrected   *int64             `json:"ecc_corrected"`
	Uncorrected *int64             `json:"ecc_uncorrected"`
	Faults      []int64            `json:"faults,omitempty"` // numbers of the driver's faults (XID) that came up
}

// coverage is the share of the window in which power must be known for tokens per joule.
const coverage = 0.95

// newDevices accounts for the planned window, or from the first request to the last end where
// none was planned.
func newDevices(t *tally) *gpu.Account {
	from, to := deviceWindow(t)
	return gpu.NewAccount(from, to)
}

func deviceWindow(t *tally) (from, to int64) {
	w := t.meta.Window
	if w.EndNs > w.StartNs {
		return w.StartNs, w.EndNs
	}
	return max(t.firstSent, 0), max(t.lastEnd, t.firstSent, 0)
}

func devices(r *Result, t *tally, a *gpu.Account) *Devices {
	list := a.Usages()
	if len(list) == 0 {
		return nil
	}
	from, to := deviceWindow(t)
	span := to - from
	d := &Devices{Samples: a.Samples, Count: len(list), List: []Device{}}
	milli := func(n *int64) *float64 {
		if n == nil {
			return nil
		}
		return defined(float64(*n) / 1000)
	}
	var energy, power int64
	var knownEnergy, knownPower, utils, util int64
	for _, u := range list {
		x := Device{ID: u.Device, Index: u.Index, Host: u.Host, Model: u.Model, From: u.Source,
			Covered: ratio(float64(u.CoveredNs), float64(span)), EnergyJ: milli(u.EnergyMilliJ), Counted: milli(u.CountedMilliJ),
			PowerMean: milli(u.PowerMeanMilliW), PowerMax: milli(u.PowerMaxMilliW), MemoryMax: u.MemoryMaxBytes, MemoryBytes: u.MemoryBytes,
			UtilMean: milli(u.UtilMeanPermille), ClockMean: u.ClockMeanMHz, ClockMin: u.ClockMinMHz, TempMax: milli(u.TempMaxMilliC),
			Slowed: ratio(float64(u.SlowNs), float64(u.WatchedNs)), Corrected: u.Corrected, Uncorrected: u.Uncorrected, Faults: u.Faults}
		for bit, ns := range u.Slow {
			if x.Reasons == nil {
				x.Reasons = map[string]float64{}
			}
			if s := ratio(float64(ns), float64(u.WatchedNs)); s != nil {
				x.Reasons[gpu.Reasons(bit)[0]] = *s
			}
		}
		if x.Covered != nil && (d.Covered == nil || *x.Covered < *d.Covered) {
			d.Covered = x.Covered
		}
		if u.EnergyMilliJ != nil {
			energy += *u.EnergyMilliJ
			knownEnergy++
		}
		if u.PowerMeanMilliW != nil {
			power += *u.PowerMeanMilliW
			knownPower++
		}
		if u.UtilMeanPermille != nil {
			util += *u.UtilMeanPermille
			utils++
		}
		if u.MemoryMaxBytes != nil && (d.MemoryMax == nil || *u.MemoryMaxBytes > *d.MemoryMax) {
			d.MemoryMax = u.MemoryMaxBytes
		}
		if x.TempMax != nil && (d.TempMax == nil || *x.TempMax > *d.TempMax) {
			d.TempMax = x.TempMax
		}
		d.List = append(d.List, x)
	}
	if knownEnergy > 0 {
		j := (energy + 500) / 1000
		d.EnergyJ = &j
	}
	if knownPower == int64(len(list)) { // a sum without one of them would be no sum
		d.PowerMean, d.PowerMax = milli(&power), milli(a.PeakMilliW())
	}
	d.UtilMean = ratio(float64(util), float64(utils*1000))
	if d.Covered != nil && *d.Covered >= coverage {
		joules := float64(energy) / 1000
		// A device whose power was known for less than the window drew the rest unseen.
		per := func(rate *float64, whole *int64) *float64 {
			switch {
			case r.Window.PlannedS != nil && rate != nil:
				return ratio(*rate**r.Window.PlannedS, joules)
			case r.Window.PlannedS == nil && whole != nil:
				return ratio(float64(*whole), joules)
			}
			return nil
		}
		var total *int64
		if r.Tokens.Input != nil && r.Tokens.Output != nil {
			n := *r.Tokens.Input + *r.Tokens.Output
			total = &n
		}
		w := r.Throughput.Window
		d.OutputPerJ, d.TotalPerJ, d.FreshPerJ = per(w.Output, r.Tokens.Output), per(w.Total, total), per(w.Fresh, r.Tokens.Fresh)
	}
	return d
}

// doubts are warnings about the devices.
func (d *Devices) doubts(r *Result) []Finding {
	if d == nil {
		return nil
	}
	var out []Finding
	note := func(c Code, format string, a ...any) { out = append(out, Finding{c, fmt.Sprintf(format, a...)}) }
	var broken, slow, gaps []string
	for _, x := range d.List {
		name := x.ID
		if x.Index != "" && x.Index != x.ID {
			name = fmt.Sprintf("%s (%s)", x.Index, x.ID)
		}
		if len(x.Faults) > 0 {
			broken = append(broken, fmt.Sprintf("%s reported fault %s", name, strings.Trim(fmt.Sprint(x.Faults), "[]")))
		}
		if x.Uncorrected != nil && *x.Uncorrected > 0 {
			broken = append(broken, fmt.Sprintf("%s had %d memory errors that were not corrected", name, *x.Uncorrected))
		}
		for _, why := range []string{"thermal-hardware", "thermal-software", "hardware", "power-brake"} {
			if s := x.Reasons[why]; s > 0 {
				slow = append(slow, fmt.Sprintf("%s for %.1f %% (%s)", name, 100*s, why))
			}
		}
		if x.Covered != nil && *x.Covered < coverage {
			gaps = append(gaps, fmt.Sprintf("%s for %.1f %%", name, 100**x.Covered))
		}
	}
	if len(broken) > 0 {
		note(DeviceErrors, "%s", strings.Join(broken, "; "))
	}
	if len(slow) > 0 {
		note(DeviceSlowed, "slowed down: %s", strings.Join(slow, "; "))
	}
	if len(gaps) > 0 {
		note(DeviceGaps, "power is known only in part of the window: %s; tokens per joule are withheld", strings.Join(gaps, "; "))
	}
	if used := r.GPUs.Used; used > 0 && !r.Simulated && int64(d.Count) != used {
		note(DeviceCount, "%d GPUs were read, the point uses %d: the energy is that of all that were read", d.Count, used)
	}
	return out
}
