package frontier

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/result"
)

// An Axis is a named number of a result that points can be compared on.
type Axis struct {
	Name   string // stable, for URLs and flags: "e2e_norm_p90"
	Label  string // full name for a person
	Short  string // name for a table's head
	Unit   string // empty for a share
	Better Direction
	Share  bool // between 0 and 1, shown in percent
	get    func(*result.Result) (v *float64, n, floor int64)
	within func(*result.Result) *result.Interval // interval from within one run; nil where there is none
	pair   func(*result.Paired) *result.Change   // change between two runs of one schedule; nil where there is none
}

// Within is the 95 % interval of the number from within the run, nil where there is none.
func (a *Axis) Within(r *result.Result) *result.Interval {
	if a.within == nil {
		return nil
	}
	return a.within(r)
}

// Value is the number of r on the axis. Without one, why says what is missing.
func (a *Axis) Value(r *result.Result) (v float64, why string, ok bool) {
	p, n, floor := a.get(r)
	switch {
	case p != nil:
		return *p, "", true
	case n < floor && n > 0:
		return 0, fmt.Sprintf("withheld: %d samples, %d are needed", n, floor), false
	case floor > 0 && n == 0:
		return 0, "no sample", false
	default:
		return 0, "not reported", false
	}
}

// Has returns the number and nil without one.
func (a *Axis) Has(r *result.Result) *float64 {
	v, _, ok := a.Value(r)
	if !ok {
		return nil
	}
	return &v
}

// Percents are the percentiles that an axis may have.
var Percents = []string{"p50", "p75", "p90", "p95", "p99"}

func distOf(d *result.Dist, p string) (*float64, int64, int64) {
	switch p {
	case "p50":
		return d.P50, d.N, result.Floors.P50
	case "p75":
		return d.P75, d.N, result.Floors.P75
	case "p90":
		return d.P90, d.N, result.Floors.P90
	case "p95":
		return d.P95, d.N, result.Floors.P95
	}
	return d.P99, d.N, result.Floors.P99
}

func rateOf(d *result.RateDist, p string) (*float64, int64, int64) {
	return distOf(&result.Dist{N: d.N, P50: d.P50, P75: d.P75, P90: d.P90, P95: d.P95, P99: d.P99}, p)
}

func plain(get func(*result.Result) *float64) func(*result.Result) (*float64, int64, int64) {
	return func(r *result.Result) (*float64, int64, int64) { return get(r), 0, 0 }
}

// Axes are all axes in the order in which they are offered.
var Axes = axes()

func axes() []*Axis {
	var all []*Axis
	type intervals = func(*result.Intervals) *result.PercentIntervals
	type changes = func(*result.Paired) *result.PercentChanges
	rate := func(name, label, short string, get func(*result.Result) *result.RateDist, within intervals, pair changes) {
		for _, p := range Percents {
			all = append(all, &Axis{
				Name: name + "_" + p, Label: label + ", " + p, Short: short + " " + p, Unit: "tok/s/user", Better: Higher,
				get:    func(r *result.Result) (*float64, int64, int64) { return rateOf(get(r), p) },
				within: func(r *result.Result) *result.Interval { return reciprocal(intervalOf(r, within, p)) },
				pair:   func(c *result.Paired) *result.Change { return inverse(changeOf(c, pair, p)) },
			})
		}
	}
	dist := func(name, label, short, unit string, get func(*result.Result) *result.Dist, within intervals, pair changes) {
		for _, p := range Percents {
			all = append(all, &Axis{
				Name: name + "_" + p, Label: label + ", " + p, Short: short + " " + p, Unit: unit, Better: Lower,
				get:    func(r *result.Result) (*float64, int64, int64) { return distOf(get(r), p) },
				within: func(r *result.Result) *result.Interval { return intervalOf(r, within, p) },
				pair:   func(c *result.Paired) *result.Change { return changeOf(c, pair, p) },
			})
		}
	}
	one := func(name, label, short, unit string, better Direction, get func(*result.Result) *float64) {
		all = append(all, &Axis{Name: name, Label: label, Short: short, Unit: unit, Better: better, get: plain(get)})
	}
	share := func(name, label, short string, better Direction, get func(*result.Result) *float64) {
		all = append(all, &Axis{Name: name, Label: label, Short: short, Better: better, Share: true, get: plain(get)})
	}
	rate("e2e_norm", "End-to-end normalised interactivity", "E2E intvty", func(r *result.Result) *result.RateDist { return &r.Intvty.E2ENorm },
		func(i *result.Intervals) *result.PercentIntervals { return &i.E2EPerToken },
		func(c *result.Paired) *result.PercentChanges { return &c.E2EPerToken })
	rate("intvty", "Interactivity (1/ITL)", "intvty", func(r *result.Result) *result.RateDist { return &r.Intvty.Decode },
		func(i *result.Intervals) *result.PercentIntervals { return &i.ITL },
		func(c *result.Paired) *result.PercentChanges { return &c.ITL })
	rate("full_intvty", "Full-response interactivity", "full intvty", func(r *result.Result) *result.RateDist { return &r.Intvty.FullResponse }, nil, nil)
	dist("ttft", "Time to first token", "TTFT", "s", func(r *result.Result) *result.Dist { return &r.Latency.TTFT },
		func(i *result.Intervals) *result.PercentIntervals { return &i.TTFT },
		func(c *result.Paired) *result.PercentChanges { return &c.TTFT })
	dist("e2el", "End-to-end latency", "E2EL", "s", func(r *result.Result) *result.Dist { return &r.Latency.E2EL },
		func(i *result.Intervals) *result.PercentIntervals { return &i.E2EL },
		func(c *result.Paired) *result.PercentChanges { return &c.E2EL })
	dist("itl", "Inter-token latency", "ITL", "s", func(r *result.Result) *result.Dist { return &r.Latency.ITL },
		func(i *result.Intervals) *result.PercentIntervals { return &i.ITL },
		func(c *result.Paired) *result.PercentChanges { return &c.ITL })

	type flow = func(*result.Flow) *float64
	for _, f := range []struct {
		name, label, short string
		get                flow
	}{
		{"total", "Throughput", "tok/s", func(f *result.Flow) *float64 { return f.Total }},
		{"input", "Input throughput", "in tok/s", func(f *result.Flow) *float64 { return f.Input }},
		{"output", "Output throughput", "out tok/s", func(f *result.Flow) *float64 { return f.Output }},
		{"fresh", "Fresh-token throughput", "fresh tok/s", func(f *result.Flow) *float64 { return f.Fresh }},
	} {
		one(f.name+"_per_gpu", f.label+" per GPU", f.short+"/GPU", "tok/s/GPU", Higher, func(r *result.Result) *float64 { return f.get(&r.Throughput.EdgePerGPU) })
		one(f.name, f.label, f.short, "tok/s", Higher, func(r *result.Result) *float64 { return f.get(&r.Throughput.Edge) })
		one(f.name+"_window_per_gpu", f.label+" per GPU inside the window", f.short+"/GPU win", "tok/s/GPU", Higher, func(r *result.Result) *float64 { return f.get(&r.Throughput.WindowPerGPU) })
	}
	for _, a := range all {
		switch a.Name {
		case "total":
			a.within = func(r *result.Result) *result.Interval { return around(r, 1) }
			a.pair = func(c *result.Paired) *result.Change { return c.Total }
		case "total_per_gpu":
			a.within = func(r *result.Result) *result.Interval { return around(r, float64(r.GPUs.Used)) }
			a.pair = func(c *result.Paired) *result.Change { return c.TotalPerGPU }
		}
	}
	one("jobs_per_hour_per_gpu", "Agent runs completed per hour and GPU", "jobs/h/GPU", "jobs/h/GPU", Higher, func(r *result.Result) *float64 { return r.Jobs.PerHourPerGPU })
	one("jobs_per_hour_per_user", "Agent runs completed per hour and user", "jobs/h/user", "jobs/h/user", Higher, func(r *result.Result) *float64 { return r.Jobs.PerHourPerUser })
	one("conc", "Concurrent agents", "conc", "agents", Higher, func(r *result.Result) *float64 {
		if r.Point.Conc == 0 { // an open load has none
			return nil
		}
		v := float64(r.Point.Conc)
		return &v
	})
	share("hit_total", "Prefix hit rate, all tiers", "hit", Higher, func(r *result.Result) *float64 { return r.Hits.Total })
	all[len(all)-1].within = func(r *result.Result) *result.Interval { return r.Intervals.HitTotal }
	all[len(all)-1].pair = func(c *result.Paired) *result.Change { return c.HitTotal }
	share("hit_device", "Prefix hit rate, device", "hit HBM", Higher, func(r *result.Result) *float64 { return r.Hits.Device })
	share("hit_host", "Prefix hit rate, host", "hit host", Higher, func(r *result.Result) *float64 { return r.Hits.Host })
	share("hit_storage", "Prefix hit rate, storage", "hit stor", Higher, func(r *result.Result) *float64 { return r.Hits.Storage })
	share("ceiling", "Infinite-cache ceiling", "ceiling", Higher, func(r *result.Result) *float64 { return r.Hits.Ceiling })
	share("kv_device", "Device KV pool held by requests, mean", "KV held", Lower, func(r *result.Result) *float64 { return r.Server.DeviceKVMean })
	share("kv_filled", "Device KV pool filled, mean", "KV filled", Lower, func(r *result.Result) *float64 { return r.Server.DeviceFilledMean })
	share("kv_host", "Host KV pool filled, mean", "KV host", Lower, func(r *result.Result) *float64 { return r.Server.HostKVMean })
	device := func(get func(*result.Devices) *float64) func(*result.Result) *float64 {
		return func(r *result.Result) *float64 {
			if r.Devices == nil {
				return nil
			}
			return get(r.Devices)
		}
	}
	one("output_per_joule", "Output tokens per joule", "out tok/J", "tok/J", Higher, device(func(d *result.Devices) *float64 { return d.OutputPerJ }))
	one("total_per_joule", "Tokens per joule", "tok/J", "tok/J", Higher, device(func(d *result.Devices) *float64 { return d.TotalPerJ }))
	one("power", "Power of all GPUs, mean", "power", "W", Lower, device(func(d *result.Devices) *float64 { return d.PowerMean }))
	share("error_rate", "Failed requests", "errors", Lower, func(r *result.Result) *float64 { return r.Requests.ErrorRate })
	return all
}

// around moves the interval of the throughput inside the window to where the throughput over
// the edges lies, keeping its relative width.
func around(r *result.Result, gpus float64) *result.Interval {
	iv, mid, edge := r.Intervals.Total, r.Throughput.Window.Total, r.Throughput.Edge.Total
	if iv == nil || mid == nil || edge == nil || *mid <= 0 || gpus <= 0 {
		return nil
	}
	return &result.Interval{*edge * iv[0] / *mid / gpus, *edge * iv[1] / *mid / gpus}
}

func intervalOf(r *result.Result, get func(*result.Intervals) *result.PercentIntervals, p string) *result.Interval {
	if get == nil {
		return nil
	}
	i := get(&r.Intervals)
	switch p {
	case "p50":
		return i.P50
	case "p75":
		return i.P75
	case "p90":
		return i.P90
	case "p95":
		return i.P95
	}
	return i.P99
}

func changeOf(c *result.Paired, get func(*result.Paired) *result.PercentChanges, p string) *result.Change {
	if get == nil {
		return nil
	}
	i := get(c)
	switch p {
	case "p50":
		return i.P50
	case "p75":
		return i.P75
	case "p90":
		return i.P90
	case "p95":
		return i.P95
	}
	return i.P99
}

// inverse is the change of a rate whose time changed by c.
func inverse(c *result.Change) *result.Change {
	if c == nil || c.Value <= 0 || c.Interval[0] <= 0 {
		return nil
	}
	return &result.Change{Value: 1 / c.Value, Interval: *reciprocal(&c.Interval)}
}

func reciprocal(i *result.Interval) *result.Interval {
	if i == nil || i[0] <= 0 {
		return nil
	}
	return &result.Interval{1 / i[1], 1 / i[0]}
}

// Default axes of an agentic comparison.
const (
	DefaultX = "e2e_norm_p90"
	DefaultY = "total_per_gpu"
)

// ByName finds an axis; an unknown name is an error that lists the near ones.
func ByName(name string) (*Axis, error) {
	var near []string
	stem, _, _ := strings.Cut(name, "_")
	for _, a := range Axes {
		if a.Name == name {
			return a, nil
		}
		if stem != "" && strings.Contains(a.Name, stem) {
			near = append(near, a.Name)
		}
	}
	if len(near) == 0 {
		for _, a := range Axes {
			near = append(near, a.Name)
		}
	}
	return nil, fmt.Errorf("unknown axis %q; there are %s", name, strings.Join(near, ", "))
}
