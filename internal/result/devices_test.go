package result

import (
	"iter"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestDevices derives energy and tokens per joule of a run whose devices drew a known power, with
// one that is gone for part of it, and from an exporter.
func TestDevices(t *testing.T) {
	const sec = int64(1e9)
	watch := func(at int64, watts ...float64) *record.Sample {
		s := &record.Sample{At: at, Source: "gpu:nvidia-smi", Values: map[string]float64{}}
		for i, w := range watts {
			if w < 0 {
				continue
			}
			l := []string{`{gpu="0",uuid="GPU-a"}`, `{gpu="1",uuid="GPU-b"}`}[i]
			s.Values["weir_gpu_power_milliwatts"+l] = 1000 * w
			s.Values["weir_gpu_throttle_reasons"+l] = 0x40
			s.Values["weir_gpu_memory_used_bytes"+l] = float64(at)
		}
		return s
	}
	run := func(samples []*record.Sample, gpus int) *Result {
		t.Helper()
		m := record.NewMeta()
		m.Window = record.Window{StartNs: 10 * sec, EndNs: 20 * sec}
		m.GPUs.Total = gpus
		q := &record.Request{Seq: 1, Phase: record.Profiling, PromptTokens: 900, OutputTokens: 100, Hits: record.UnknownHits, CeilingTokens: record.Unknown,
			Times: record.Times{Intended: record.Never, Queued: 11 * sec, Sent: 11 * sec, Headers: 11 * sec, FirstToken: 12 * sec, FirstVisible: 12 * sec, LastToken: 15 * sec, End: 15 * sec}}
		var requests iter.Seq2[*record.Request, error] = func(yield func(*record.Request, error) bool) { yield(q, nil) }
		var seq iter.Seq2[*record.Sample, error] = func(yield func(*record.Sample, error) bool) {
			for _, s := range samples {
				if !yield(s, nil) {
					return
				}
			}
		}
		r, err := derive(&record.Bundle{Meta: m, State: record.Complete}, requests, seq)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	warned := func(r *Result, c Code) string {
		for _, w := range r.Warnings {
			if w.Code == c {
				return w.Text
			}
		}
		return ""
	}

	var all []*record.Sample
	for at := int64(0); at <= 25; at++ {
		all = append(all, watch(at*sec, 300, 200))
	}
	r := run(all, 2)
	d := r.Devices
	if d == nil || d.Count != 2 || *d.EnergyJ != 5000 || *d.Covered != 1 || *d.PowerMean != 500 || *d.PowerMax != 500 || *d.OutputPerJ != 100.0/5000 || *d.TotalPerJ != 1000.0/5000 {
		t.Fatalf("%+v", d)
	}
	if x := d.List[1]; x.ID != "GPU-b" || x.Index != "1" || *x.EnergyJ != 2000 || *x.Slowed != 1 || x.Reasons["thermal-hardware"] != 1 || x.Uncorrected != nil || x.Counted != nil || *x.MemoryMax != 19*sec {
		t.Errorf("%+v", x)
	}
	if w := warned(r, DeviceSlowed); !strings.Contains(w, "1 (GPU-b) for 100.0 % (thermal-hardware)") {
		t.Errorf("slowed: %q", w)
	}
	if w := warned(r, DeviceCount) + warned(r, DeviceGaps) + warned(r, DeviceErrors); w != "" {
		t.Errorf("warned: %q", w)
	}

	for i := range all {
		if i >= 14 && i < 18 {
			all[i] = watch(int64(i)*sec, 300, -1) // off the bus for four seconds
		}
	}
	r = run(all, 4)
	d = r.Devices
	if *d.EnergyJ != 3000+1200 || *d.Covered != 0.6 || d.OutputPerJ != nil || *d.List[1].EnergyJ != 1200 {
		t.Errorf("%+v", d)
	}
	if w := warned(r, DeviceGaps); !strings.Contains(w, "1 (GPU-b) for 60.0 %") {
		t.Errorf("gaps: %q", w)
	}
	if w := warned(r, DeviceCount); !strings.Contains(w, "2 GPUs were read, the point uses 4") {
		t.Errorf("count: %q", w)
	}

	r = run([]*record.Sample{{At: 9 * sec, Source: "u", Values: map[string]float64{`DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a"}`: 0}},
		{At: 12 * sec, Source: "u", Values: map[string]float64{`DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",err_code="79"}`: 79}}}, 1)
	if d = r.Devices; d.EnergyJ != nil || d.PowerMean != nil || d.OutputPerJ != nil || len(d.List[0].Faults) != 1 {
		t.Errorf("without power: %+v", d)
	}
	if w := warned(r, DeviceErrors); !strings.Contains(w, "reported fault 79") {
		t.Errorf("errors: %q", w)
	}
	if r = run(nil, 1); r.Devices != nil {
		t.Errorf("from nothing: %+v", r.Devices)
	}
}
