package gpu

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

const sec = int64(1e9)

func power(at int64, watts ...float64) *record.Sample {
	s := &record.Sample{At: at, Source: "gpu:nvidia-smi", Values: map[string]float64{}}
	for i, w := range watts {
		if math.IsNaN(w) {
			continue // not listed
		}
		s.Values[fmt.Sprintf(`weir_gpu_present{gpu="%d"}`, i)] = 1
		if w >= 0 {
			s.Values[fmt.Sprintf(`weir_gpu_power_milliwatts{gpu="%d"}`, i)] = w * 1000
		}
	}
	return s
}

// TestEnergy compares the energy of devices that appear, vanish and do not tell with a sum over
// every nanosecond.
func TestEnergy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int64Range(0, 20).Draw(t, "from")
		to := from + rapid.Int64Range(1, 60).Draw(t, "length")
		a := NewAccount(from, to)
		times := rapid.SliceOfNDistinct(rapid.Int64Range(0, 90), 1, 12, rapid.ID[int64]).Draw(t, "times")
		sortInts(times)
		watts := make([][]float64, len(times))
		for i, at := range times {
			for range 2 {
				watts[i] = append(watts[i], rapid.SampledFrom([]float64{math.NaN(), -1, 0, 1, 250, 700}).Draw(t, "watts"))
			}
			a.Add(power(at, watts[i]...))
		}
		for dev := range 2 {
			var milliNs, known int64
			seen := false
			for x := from; x < to; x++ {
				for i := len(times) - 1; i >= 0; i-- {
					if times[i] <= x {
						if w := watts[i][dev]; w >= 0 {
							milliNs += int64(w) * 1000
							known++
						}
						break
					}
				}
			}
			for i := range times {
				seen = seen || !math.IsNaN(watts[i][dev])
			}
			var u *Usage
			for _, x := range a.Usages() {
				if x.Index == fmt.Sprint(dev) {
					u = &x
				}
			}
			if (u != nil) != seen {
				t.Fatalf("device %d: %+v, seen %t", dev, u, seen)
			}
			if u == nil {
				continue
			}
			if u.CoveredNs != known {
				t.Fatalf("device %d is covered for %d ns, want %d", dev, u.CoveredNs, known)
			}
			if (u.PowerMeanMilliW != nil) != (known > 0) || known > 0 && *u.PowerMeanMilliW != int64(math.Round(float64(milliNs)/float64(known))) {
				t.Fatalf("device %d: mean %v, want %d over %d", dev, u.PowerMeanMilliW, milliNs, known)
			}
		}
	})
}

func sortInts(v []int64) {
	for i := range v {
		for j := i; j > 0 && v[j] < v[j-1]; j-- {
			v[j], v[j-1] = v[j-1], v[j]
		}
	}
}

// TestHold: a reading holds for 10 s or three intervals, not for ever.
func TestHold(t *testing.T) {
	a := NewAccount(0, 100*sec)
	a.Add(power(0, 100))
	a.Add(power(1*sec, 100))
	a.Add(power(50*sec, 100)) // nothing is known from 11 s to here
	u := a.Usages()[0]
	if u.CoveredNs != 11*sec+50*sec { // the last interval was 49 s long
		t.Errorf("covered %d s, want 61", u.CoveredNs/sec)
	}
	if *u.EnergyMilliJ != 61*100*1000 {
		t.Errorf("%d mJ", *u.EnergyMilliJ)
	}
}

// TestUsage: means, maxima, counters with a reset, reasons and faults within the window.
func TestUsage(t *testing.T) {
	dcgm := func(at int64, xid, sbe, energy, used, reasons float64) *record.Sample {
		const l = `{gpu="0",UUID="GPU-1",modelName="H100",Hostname="n1"`
		return &record.Sample{At: at, Source: "http://n1:9400/metrics", Values: map[string]float64{
			`DCGM_FI_DEV_POWER_USAGE` + l + `}`: 400, `DCGM_FI_DEV_POWER_USAGE` + l + `,pod="b"}`: 400,
			`DCGM_FI_DEV_XID_ERRORS` + l + fmt.Sprintf(`,err_code="%v"}`, xid): xid,
			`DCGM_FI_DEV_ECC_SBE_VOL_TOTAL` + l + `}`:                          sbe,
			`DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION` + l + `}`:                   energy,
			`DCGM_FI_DEV_FB_USED` + l + `,GPU_I_ID="1"}`:                       used, `DCGM_FI_DEV_FB_USED` + l + `,GPU_I_ID="2"}`: used,
			`DCGM_FI_DEV_FB_FREE` + l + `,GPU_I_ID="1"}`: 10, `DCGM_FI_DEV_FB_FREE` + l + `,GPU_I_ID="2"}`: 20,
			`DCGM_FI_DEV_CLOCK_THROTTLE_REASONS` + l + `}`: reasons,
			`DCGM_FI_DEV_GPU_TEMP` + l + `}`:               2147483632, // DCGM's blank
		}}
	}
	a := NewAccount(10*sec, 20*sec)
	a.Add(dcgm(5*sec, 31, 1, 1000, 100, 1)) // before: the fault is an old one
	a.Add(dcgm(12*sec, 31, 3, 5000, 200, 4|1))
	a.Add(dcgm(14*sec, 79, 3, 6000, 300, 0x40|4))
	a.Add(dcgm(17*sec, 79, 1, 7000, 100, 0)) // the driver was loaded again
	list := a.Usages()
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	u := list[0]
	if u.Device != "GPU-1" || u.Host != "n1" || u.Model != "H100" || u.CoveredNs != 10*sec || *u.EnergyMilliJ != 4000*1000 || *u.PowerMaxMilliW != 400_000 {
		t.Errorf("%+v, %d mJ", u, *u.EnergyMilliJ)
	}
	if *u.CountedMilliJ != 6000 || *u.Corrected != 2+1 || u.Uncorrected != nil || len(u.Faults) != 1 || u.Faults[0] != 79 {
		t.Errorf("counted %d mJ, corrected %d, faults %v", *u.CountedMilliJ, *u.Corrected, u.Faults)
	}
	if *u.MemoryMaxBytes != 600<<20 || *u.MemoryBytes != (200+30)<<20 || u.TempMaxMilliC != nil || u.UtilMeanPermille != nil {
		t.Errorf("memory %d of %d, temperature %v", *u.MemoryMaxBytes, *u.MemoryBytes, u.TempMaxMilliC)
	}
	if u.SlowNs != 5*sec || u.WatchedNs != 10*sec || u.Slow[PowerCap] != 5*sec || u.Slow[HardThermal] != 3*sec {
		t.Errorf("slow for %d of %d: %v", u.SlowNs, u.WatchedNs, u.Slow)
	}
	if p := a.PeakMilliW(); p == nil || *p != 400_000 {
		t.Errorf("peak %v", p)
	}
}

// TestOneDeviceOfTwoSources: a device that a command and an exporter tell of counts once.
func TestOneDeviceOfTwoSources(t *testing.T) {
	a := NewAccount(0, 10*sec)
	for at := int64(0); at <= 10*sec; at += sec {
		a.Add(&record.Sample{At: at, Source: "gpu:nvidia-smi", Values: map[string]float64{`weir_gpu_power_milliwatts{gpu="0",uuid="GPU-1"}`: 300_000}})
		if at >= 5*sec {
			a.Add(&record.Sample{At: at, Source: "http://n1:9400/metrics", Values: map[string]float64{`DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1"}`: 310}})
		}
	}
	a.Add(&record.Sample{At: 3 * sec, Source: "gpu:amd-smi", Error: "hangs"})
	if l := a.Usages(); len(l) != 1 || *l[0].EnergyMilliJ != 3_000_000 || l[0].Source != "gpu:nvidia-smi" {
		t.Errorf("%+v", l)
	}
	if p := a.PeakMilliW(); *p != 300_000 {
		t.Errorf("peak %d", *p)
	}
}

func FuzzAccount(f *testing.F) {
	f.Add(`DCGM_FI_DEV_POWER_USAGE{gpu="0"}`, 1.0, int64(5))
	f.Add(`gpu_ecc_correct_total{gpu_id="0"}`, math.Inf(1), int64(-5))
	f.Fuzz(func(t *testing.T, series string, v float64, at int64) {
		a := NewAccount(0, 1000)
		for _, x := range []int64{at, at / 2, 500, 999} {
			a.Add(&record.Sample{At: x, Source: "s", Values: map[string]float64{series: v, strings.ToLower(series): v}})
		}
		for _, u := range a.Usages() {
			if u.CoveredNs < 0 || u.CoveredNs > 1000 || u.EnergyMilliJ != nil && *u.EnergyMilliJ < 0 {
				t.Fatalf("%+v", u)
			}
		}
	})
}
