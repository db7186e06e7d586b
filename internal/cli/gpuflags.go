package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// gpuFlags say how GPUs are read while a load runs.
type gpuFlags struct {
	tool    string
	every   time.Duration
	devices []string
}

func (f *gpuFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.tool, "gpu", "auto", "how GPUs are read: auto (what is on PATH where the engine runs), none, nvidia-smi, amd-smi, the path of one, or the `URL` of DCGM's or AMD's exporter")
	fl.DurationVar(&f.every, "gpu-every", gpu.DefaultEvery, "time between two readings of the GPUs")
	fl.StringSliceVar(&f.devices, "gpu-devices", nil, "numbers of the GPUs that are read, such as 0,1; all when empty")
}

// url is the exporter that is named in place of a command, empty for none.
func (f *gpuFlags) url() string {
	if strings.Contains(f.tool, "://") || strings.Contains(f.tool, ":") && !strings.Contains(f.tool, "/") {
		return f.tool
	}
	return ""
}

// read checks the flags and is how devices are read; nil reads none by a command.
func (f *gpuFlags) read() (*run.GPUs, error) {
	if f.every < 100*time.Millisecond {
		return nil, fmt.Errorf("--gpu-every is %s: at least 100ms", f.every)
	}
	if u := f.url(); u != "" {
		if _, err := scrape.Endpoint(u); err != nil {
			return nil, fmt.Errorf("--gpu: %w", err)
		}
		return &run.GPUs{Tool: "none", Exporters: []string{u}}, nil
	}
	if err := gpu.Check(f.tool); err != nil {
		return nil, fmt.Errorf("--gpu: %w", err)
	}
	if f.tool == "none" {
		return nil, nil
	}
	return &run.GPUs{Tool: f.tool, Every: f.every, Devices: f.devices}, nil
}

// beside is read for a server that runs already: its GPUs are those of this machine only where
// all URLs are.
func (f *gpuFlags) beside(urls []string) (*run.GPUs, error) {
	g, err := f.read()
	if g != nil && g.Tool == "auto" && !run.Here(urls) {
		g = nil
	}
	return g, err
}

// deviceLines print what was read of the GPUs.
func (a *App) deviceLines(r *result.Result, line func(name, format string, v ...any)) {
	d := r.Devices
	if d == nil {
		return
	}
	line("GPUs", "%d read: %s W mean, %s W max, %s J; utilisation %s, memory %s at most, %s °C at most", d.Count, num(d.PowerMean, 0), num(d.PowerMax, 0), counted(d.EnergyJ),
		num(d.UtilMean, 3), gib(d.MemoryMax), num(d.TempMax, 0))
	line("energy", "%s tok/J out, %s tok/J in all", num(d.OutputPerJ, 3), num(d.TotalPerJ, 2))
}

func gib(n *int64) string {
	if n == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.1f GiB", float64(*n)/(1<<30))
}
