package gpu

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func told(d Device) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s:", d.Index, d.UUID, d.Name)
	for q := None; int(q) < quantityCount; q++ {
		if v, ok := d.Values[q]; ok {
			fmt.Fprintf(&b, " %d=%d", q, v)
		}
	}
	return b.String()
}

func want(d Device, values map[Quantity]int64) string {
	d.Values = values
	return told(d)
}

// TestNvidia reads what nvidia-smi prints for a working device, one in MIG mode, one that fell off
// the bus, and what is no answer at all. The forms are those of releases 535 to 580.
func TestNvidia(t *testing.T) {
	const head = "0, GPU-8f6e5ad2-0001, NVIDIA H100 80GB HBM3, "
	for _, c := range []struct {
		name, out string
		want      []string
		err       string
	}{
		{"one that works", head + "699.42, 78231, 81559, 100, 1755, 2619, 64, 78, 2, 0, 0x0000000000000004\n", []string{want(Device{Index: "0", UUID: "GPU-8f6e5ad2-0001", Name: "NVIDIA H100 80GB HBM3"},
			map[Quantity]int64{Power: 699420, MemoryUsed: 78231 << 20, MemoryTotal: 81559 << 20, Utilization: 1000, Clock: 1755, MemoryClock: 2619, Temperature: 64000,
				MemoryTemperature: 78000, Corrected: 2, Uncorrected: 0, Throttle: 4})}, ""},
		{"MIG, and a card without ECC", head + "88.10, 512, 81559, [N/A], 345, 2619, 30, N/A, [N/A], [N/A], 0x0000000000000001\n", []string{want(Device{Index: "0", UUID: "GPU-8f6e5ad2-0001", Name: "NVIDIA H100 80GB HBM3"},
			map[Quantity]int64{Power: 88100, MemoryUsed: 512 << 20, MemoryTotal: 81559 << 20, Clock: 345, MemoryClock: 2619, Temperature: 30000, Throttle: 1})}, ""},
		{"nothing is known", head + "[Unknown Error], [Not Supported], [N/A], ERR!, [GPU requires reset], [N/A], [N/A], N/A, [N/A], [N/A], [N/A]\n",
			[]string{want(Device{Index: "0", UUID: "GPU-8f6e5ad2-0001", Name: "NVIDIA H100 80GB HBM3"}, nil)}, ""},
		{"one is lost", head + "1.00, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x0000000000000000\nUnable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
			[]string{want(Device{Index: "0", UUID: "GPU-8f6e5ad2-0001", Name: "NVIDIA H100 80GB HBM3"}, map[Quantity]int64{Power: 1000, MemoryUsed: 1 << 20, MemoryTotal: 2 << 20, Utilization: 30,
				Clock: 4, MemoryClock: 5, Temperature: 6000, MemoryTemperature: 7000, Corrected: 8, Uncorrected: 9, Throttle: 0})}, ""},
		{"no driver", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n", nil, "couldn't communicate with the NVIDIA driver"},
		{"no devices", "No devices were found\n", nil, "No devices were found"},
		{"garbage", "\xff\x00\x01\"\n,,,\n\"", nil, "no device"},
		{"nothing", "", nil, "nothing"},
	} {
		devices, err := newNvidia().read([]byte(c.out))
		var have []string
		for _, d := range devices {
			have = append(have, told(d))
		}
		if strings.Join(have, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\nhave %q\nwant %q", c.name, have, c.want)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
	}
}

// TestNvidiaLearns asks an older release for what it knows.
func TestNvidiaLearns(t *testing.T) {
	n := newNvidia()
	if !strings.Contains(n.args(nil)[0], ",clocks_event_reasons.active") {
		t.Error(n.args(nil))
	}
	if !n.learn([]byte("Field \"clocks_event_reasons.active\" is not a valid field to query.\n")) || n.learn([]byte("No devices were found")) {
		t.Error("the unknown field was not learned, or another complaint was")
	}
	args := strings.Join(n.args([]string{"0", "3"}), " ")
	if !strings.Contains(args, ",clocks_throttle_reasons.active --format=csv,noheader,nounits --id=0,3") || strings.Contains(args, "event_reasons") {
		t.Error(args)
	}
	if !n.learn([]byte("Field \"temperature.memory\" is not a valid field to query.")) || strings.Contains(n.args(nil)[0], "temperature.memory") {
		t.Error(n.args(nil))
	}
}

// TestAMD reads the shapes that "amd-smi metric --json" and "monitor --csv" had from ROCm 6.0 on.
func TestAMD(t *testing.T) {
	full := map[Quantity]int64{Power: 142000, MemoryUsed: 49148 << 20, MemoryTotal: 196592 << 20, Utilization: 730, Temperature: 61000, MemoryTemperature: 58000}
	for _, c := range []struct {
		name, out string
		csv       bool
		want      []string
	}{
		{"a list of values with units behind a warning", "WARNING: User is missing the following required groups: render\n" + `[{"gpu": 1, "usage": {"gfx_activity": {"value": 73, "unit": "%"}, "umc_activity": {"value": 12, "unit": "%"}},
			"mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 49148, "unit": "MB"}},
			"temperature": {"edge": "N/A", "hotspot": {"value": 61, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
			"power": {"socket_power": {"value": 142, "unit": "W"}, "throttle_status": "N/A"},
			"clock": {"gfx_0": {"clk": {"value": 2098, "unit": "MHz"}}, "gfx_1": {"clk": {"value": 2103, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
			"energy": {"total_energy_consumption": {"value": 12.5, "unit": "J"}},
			"ecc": {"total_correctable_count": 3, "total_uncorrectable_count": 0},
			"throttle": {"accumulation_counter": 9, "ppt_violation_status": "ACTIVE", "socket_thermal_violation_status": "NOT ACTIVE", "hbm_thermal_violation_status": "N/A"}}]`, false,
			[]string{want(Device{Index: "1"}, with(full, map[Quantity]int64{Clock: 2103, MemoryClock: 1300, Energy: 12500, Corrected: 3, Uncorrected: 0, Throttle: PowerCap}))}},
		{"an object of the list, plain numbers", `{"gpu_data":[{"gpu":0,"usage":{"gfx_activity":50},"mem_usage":{"total_vram":1000,"used_vram":250},"temperature":{"edge":40},"power":{"average_socket_power":100,"throttle_status":"UNTHROTTLED"},"clock":{"gfx":{"clk":1700}}}]}`, false,
			[]string{want(Device{Index: "0"}, map[Quantity]int64{Power: 100000, MemoryUsed: 250 << 20, MemoryTotal: 1000 << 20, Utilization: 500, Temperature: 40000, Clock: 1700, Throttle: 0})}},
		{"texts with units", `[{"gpu": "0", "power": {"current_socket_power": "90 W", "average_socket_power": "N/A"}, "usage": {"gfx_activity": "7 %"}, "mem_usage": {"used_vram": "2 GB"}}]`, false,
			[]string{want(Device{Index: "0"}, map[Quantity]int64{Power: 90000, Utilization: 70, MemoryUsed: 2 << 30})}},
		{"nothing is known, and what is no device", `[{"gpu": 0, "power": {"socket_power": "N/A"}, "usage": "N/A", "clock": [], "temperature": {"hotspot": {"value": null}}}, {"cpu": 0}, 7]`, false,
			[]string{want(Device{Index: "0"}, nil)}},
		{"a table of ROCm 6", "GPU,POWER,GPU_TEMP,MEM_TEMP,GFX_UTIL,GFX_CLOCK,MEM_UTIL,MEM_CLOCK,VRAM_USED,VRAM_TOTAL\n0,142 W,61 C,58 C,73 %,2103 MHz,12 %,1300 MHz,49148 MB,196592 MB\n", true,
			[]string{want(Device{Index: "0"}, with(full, map[Quantity]int64{Clock: 2103, MemoryClock: 1300}))}},
		{"a table of ROCm 7", "timestamp,gpu,power_usage,max_power,hotspot_temperature,memory_temperature,gfx_clk,gfx,mem,mem_clock,vram_used,vram_total,vram_percent\n1750000000,1,142,750,61,58,2103,73,12,1300,49148,196592,25.0\n1750000000,2,N/A,750,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n", true,
			[]string{want(Device{Index: "1"}, with(full, map[Quantity]int64{Clock: 2103, MemoryClock: 1300})), want(Device{Index: "2"}, nil)}},
		{"garbage", "[[[{{{", false, nil},
		{"a traceback", "Traceback (most recent call last):\n  File \"amdsmi_cli.py\", line 3\nAmdSmiLibraryException: Error code: 34\n", true, nil},
	} {
		a := &amd{csv: c.csv}
		devices, err := a.read([]byte(c.out))
		var have []string
		for _, d := range devices {
			have = append(have, told(d))
		}
		if strings.Join(have, "\n") != strings.Join(c.want, "\n") || (err == nil) != (c.want != nil) {
			t.Errorf("%s: error %v\nhave %q\nwant %q", c.name, err, have, c.want)
		}
	}
	a := &amd{}
	a.names([]byte(`[{"gpu": 0, "bdf": "0000:01:00.0", "uuid": "7eff74a0-0000-1000-808f-7e20764e2714"}]`))
	if d, err := a.read([]byte(`[{"gpu": 0, "power": {"socket_power": 1}}]`)); err != nil || d[0].UUID != "7eff74a0-0000-1000-808f-7e20764e2714" {
		t.Errorf("%+v %v", d, err)
	}
}

func with(a, b map[Quantity]int64) map[Quantity]int64 {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// TestClassify reads the families of DCGM's and AMD's exporters, and leaves others alone.
func TestClassify(t *testing.T) {
	const labels = `gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100",Hostname="n1"`
	for series, want := range map[string]Signal{
		`DCGM_FI_DEV_POWER_USAGE{` + labels + `}`:                                  {Quantity: Power, Scale: 1000, Device: "GPU-1", Index: "0", Host: "n1", Model: "NVIDIA H100"},
		`DCGM_FI_DEV_FB_USED{` + labels + `,GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}`: {Quantity: MemoryUsed, Scale: mib, Device: "GPU-1", Index: "0", Host: "n1", Model: "NVIDIA H100", Instance: "7"},
		`DCGM_FI_DEV_XID_ERRORS{` + labels + `,err_code="79",err_msg="fell off"}`:  {Quantity: Fault, Scale: 1, Device: "GPU-1", Index: "0", Host: "n1", Model: "NVIDIA H100"},
		`gpu_package_power{gpu_id="3",hostname="n2",card_model="MI300X"}`:          {Quantity: Power, Scale: 1000, Device: "3", Index: "3", Host: "n2", Model: "MI300X"},
		`amd_gpu_used_vram{gpu_id="3",hostname="n2"}`:                              {Quantity: MemoryUsed, Scale: mib, Device: "3", Index: "3", Host: "n2"},
		`gpu_clock{gpu_id="3",clock_index="0",clock_type="GPU_CLOCK_TYPE_SYSTEM"}`: {Quantity: Clock, Scale: 1, Device: "3", Index: "3"},
		`gpu_clock{gpu_id="3",clock_index="8",clock_type="memory"}`:                {Quantity: MemoryClock, Scale: 1, Device: "3", Index: "3"},
		`gpu_violation_ppt_residency_percentage{gpu_id="3"}`:                       {Quantity: Throttle, Scale: 1, Bit: PowerCap, Device: "3", Index: "3"},
		`weir_gpu_memory_used_bytes{gpu="1",uuid="GPU-2"}`:                         {Quantity: MemoryUsed, Scale: 1, Device: "GPU-2", Index: "1"},
	} {
		if got, ok := Classify(series); !ok || got != want {
			t.Errorf("%s: %+v %t, want %+v", series, got, ok, want)
		}
	}
	for _, series := range []string{`gpu_power_usage{device="0"}`, `gpu_clock{gpu_id="0",clock_type="video"}`, `DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="0"}`, `sglang:token_usage`, `gpu_`, ``, `{`} {
		if got, ok := Classify(series); ok {
			t.Errorf("%s: %+v", series, got)
		}
	}
}

func FuzzAMD(f *testing.F) {
	f.Add([]byte(`WARNING [{"gpu": 0, "power": {"socket_power": {"value": 1e400, "unit": "W"}}}]`), false)
	f.Add([]byte("GPU,POWER\n0,142 W\n"), true)
	f.Fuzz(func(t *testing.T, out []byte, table bool) {
		devices, err := (&amd{csv: table}).read(out)
		sane(t, devices, err)
	})
}

func FuzzNvidia(f *testing.F) {
	f.Add([]byte("0, GPU-1, H100, 699.42, 78231, 81559, 100, 1755, 2619, 64, 78, 2, 0, 0x0000000000000004\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		n := newNvidia()
		n.learn(out)
		devices, err := n.read(out)
		sane(t, devices, err)
	})
}

func sane(t *testing.T, devices []Device, err error) {
	if (err == nil) == (len(devices) == 0) {
		t.Fatalf("%d devices, error %v", len(devices), err)
	}
	for _, d := range devices {
		for q, v := range d.Values {
			if v < 0 {
				t.Fatalf("%d is %d", q, v)
			}
		}
	}
	for name := range Values(devices) {
		if _, ok := Classify(name); !ok {
			t.Fatalf("%s is not known", name)
		}
	}
}
