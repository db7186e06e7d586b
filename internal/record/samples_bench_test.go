//go:build unix

package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// page is the metrics of a server under load, as they change from scrape to scrape.
type page struct {
	r          *rand.Rand
	labels     string
	histograms []*growing
	counters   []string
	gauges     []string
	values     map[string]float64
	perCounter int // growth of a counter in a second is below this
}

// growing is a histogram with so many observations a second.
type growing struct {
	names    []string // of the buckets, the count and the sum
	bounds   []float64
	perSec   float64
	median   float64
	buckets  []float64
	sum      float64
	count    float64
	integers bool // what is observed is whole: tokens
}

func bounds(from, factor float64, n int) (out []float64) {
	for range n {
		out = append(out, from)
		from *= factor
	}
	return out
}

func (p *page) histogram(name string, perSec, median float64, n int, integers bool) {
	b := bounds(median/40, math.Pow(1600, 1/float64(n-1)), n)
	h := &growing{bounds: b, perSec: perSec, median: median, buckets: make([]float64, n+1), integers: integers}
	for _, x := range b {
		h.names = append(h.names, fmt.Sprintf("%s_bucket{le=%q,%s}", name, strconv.FormatFloat(x, 'g', 4, 64), p.labels))
	}
	h.names = append(h.names, fmt.Sprintf("%s_bucket{le=\"+Inf\",%s}", name, p.labels), fmt.Sprintf("%s_count{%s}", name, p.labels), fmt.Sprintf("%s_sum{%s}", name, p.labels))
	p.histograms = append(p.histograms, h)
}

// step lets a second pass and returns what changed.
func (p *page) step() map[string]float64 {
	out, first := map[string]float64{}, len(p.values) == 0
	set := func(name string, v float64) {
		if first || p.values[name] != v {
			out[name] = v
			p.values[name] = v
		}
	}
	for _, h := range p.histograms {
		if h.perSec == 0 && !first {
			continue
		}
		n := int(h.perSec)
		if p.r.Float64() < h.perSec-float64(n) {
			n++
		}
		if h.perSec > 2 {
			n += int(math.Sqrt(h.perSec) * p.r.NormFloat64())
		}
		for range n {
			v := h.median * math.Exp(p.r.NormFloat64())
			if h.integers {
				v = math.Round(v)
			}
			h.sum += v
			h.count++
			for i := len(h.bounds); i >= 0 && (i == len(h.bounds) || v <= h.bounds[i]); i-- {
				h.buckets[i]++
			}
		}
		for i, b := range h.buckets {
			set(h.names[i], b)
		}
		set(h.names[len(h.buckets)], h.count)
		set(h.names[len(h.buckets)+1], h.sum)
	}
	for _, c := range p.counters {
		set(c, p.values[c]+float64(p.r.IntN(p.perCounter)))
	}
	for _, g := range p.gauges {
		set(g, math.Round(100*p.r.Float64())/100)
	}
	return out
}

func newPage(seed uint64, labels string) *page {
	return &page{r: rand.New(rand.NewPCG(seed, 1)), labels: labels, values: map[string]float64{}, perCounter: 1000}
}

func (p *page) plain(counters, gauges int) {
	for i := range counters {
		p.counters = append(p.counters, fmt.Sprintf("engine:counter_%d_total{%s}", i, p.labels))
	}
	for i := range gauges {
		p.gauges = append(p.gauges, fmt.Sprintf("engine:gauge_%d{%s}", i, p.labels))
	}
}

// engines are pages by the shape of vLLM's and SGLang's (2026-10): families, buckets and what
// moves them when a server decodes 40 steps a second of 16 requests and ends 2 requests a second.
var engines = map[string]func(seed uint64) *page{
	"vllm": func(seed uint64) *page { // 600 series
		p := newPage(seed, `engine="0",model_name="org/some-model"`)
		p.histogram("vllm:time_to_first_token_seconds", 2, 0.4, 22, false)
		p.histogram("vllm:inter_token_latency_seconds", 640, 0.025, 20, false)
		p.histogram("vllm:iteration_tokens_total", 40, 16, 14, true)
		for _, n := range []string{"e2e_request_latency", "request_queue_time", "request_inference_time", "request_prefill_time", "request_decode_time", "request_time_per_output_token"} {
			p.histogram("vllm:"+n+"_seconds", 2, 8, 22, false)
		}
		for _, n := range []string{"request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens"} {
			p.histogram("vllm:"+n, 2, 2000, 26, true)
		}
		for i := range 10 {
			p.histogram(fmt.Sprintf("http_request_duration_seconds_%d", i), 0.4, 1, 22, false)
		}
		p.plain(30, 8)
		return p
	},
	"sglang": func(seed uint64) *page { // 8 ranks: 4,600 series
		p := newPage(seed, `engine_type="unified",model_name="org/some-model",moe_ep_rank="0",pp_rank="0",tp_rank="0"`)
		for rank := range 8 {
			for i := range 6 {
				p.histogram(fmt.Sprintf("sglang:rank%d_request_%d_seconds", rank, i), 0.3, 2, 24, false)
			}
			for i := range 4 {
				p.histogram(fmt.Sprintf("sglang:rank%d_step_%d_seconds", rank, i), 40, 0.02, 24, false)
			}
			for i := range 8 {
				p.histogram(fmt.Sprintf("sglang:rank%d_stage_%d_seconds", rank, i), 0.3, 0.1, 24, false)
			}
		}
		p.plain(80, 160)
		return p
	},
}

// large is a page of 2 MB and 18,000 series of which about so many change in a second.
func large(seed uint64, changing int) *page {
	p := newPage(seed, `engine_type="unified",model_name="org/some-model",worker="`+strconv.FormatUint(seed, 10)+`"`)
	for i := range 900 {
		perSec := 0.0
		if i*16 < changing { // of 20 series of a histogram, most change
			perSec = 4
		}
		p.histogram(fmt.Sprintf("sglang:some_latency_of_stage_%d_seconds", i), perSec, 0.3, 18, false)
	}
	return p
}

// processor is the time of processors that the process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// read stands for what adapters read: of each page the gauges and 80 of its counters.
func read(series string) bool {
	n, ok := strings.CutPrefix(series, "engine:counter_")
	if !ok {
		return strings.HasPrefix(series, "engine:gauge")
	}
	n, _, _ = strings.Cut(n, "_")
	i, err := strconv.Atoi(n)
	return err == nil && i < 80
}

// BenchmarkHour reports what an hour of twenty endpoints takes at a scrape a second, MB of 10^6
// bytes, whole (extrapolated from a minute) and thinned as in a bundle (what may be taken at once and 20 times three
// minutes, behind three in which the writer finds its measure); of how many samples one keeps all series; how many
// series of an endpoint changed in a second, and the share of a core that packing takes.
func BenchmarkHour(b *testing.B) {
	pages := map[string]func(uint64) *page{"vllm": engines["vllm"], "sglang-8-ranks": engines["sglang"]}
	for _, n := range []int{0, 450, 900, 1800, 3600} {
		pages[fmt.Sprintf("2MB/histograms-%d", n)] = func(seed uint64) *page { return large(seed, n) }
	}
	for _, n := range []int{450, 1800} { // the worst that counters can do: nothing tells the growth of one
		pages[fmt.Sprintf("2MB/random-counters-%d", n)] = func(seed uint64) *page {
			p := large(seed, 0)
			p.plain(n, 0)
			return p
		}
		pages[fmt.Sprintf("2MB/even-counters-%d", n)] = func(seed uint64) *page {
			p := large(seed, 0)
			p.plain(n, 0)
			p.perCounter = 4
			return p
		}
	}
	const endpoints = 20
	for name, make := range pages {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f := newFarm(b, make, endpoints)
				f.seconds(b, 1)
				if err := f.w.flush(); err != nil {
					b.Fatal(err)
				}
				names := f.w.size // once
				f.changes, f.took = 0, 0
				f.seconds(b, 60)
				if err := f.w.flush(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric((float64(names)+float64(f.w.size-names)*60)/1e6, "MB/hour-whole")
				b.ReportMetric(float64(f.changes)/endpoints/60, "changes/s")
				b.ReportMetric(float64(len(f.pages[0].values)), "series")
				b.ReportMetric(float64(f.took)/60/1e9*100, "%core")
				whole := float64(names) + float64(f.w.size-names)*60
				f.w.abort()
				if whole < thinFree+3600*thinPerSecond {
					b.ReportMetric(whole/1e6, "MB/hour")
					b.ReportMetric(1, "one-of")
					continue
				}
				f = newFarm(b, make, endpoints)
				f.w.needed, f.w.free = read, 0
				f.seconds(b, 181)
				if err := f.w.flush(); err != nil {
					b.Fatal(err)
				}
				settled := f.w.size
				f.seconds(b, 180)
				if err := f.w.flush(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric((thinFree+float64(f.w.size-settled)*20)/1e6, "MB/hour")
				b.ReportMetric(float64(f.w.every), "one-of")
				f.w.abort()
			}
		})
	}
}

// BenchmarkWholeHour writes an hour of the page of eight SGLang ranks second by second.
func BenchmarkWholeHour(b *testing.B) {
	for b.Loop() {
		f := newFarm(b, engines["sglang"], 20)
		f.w.needed = read
		for minute := range 60 {
			f.seconds(b, 60)
			if minute%6 == 5 {
				b.Logf("minute %d: %.1f MB, one of %d", minute+1, float64(f.w.size)/1e6, f.w.every)
			}
		}
		if err := f.w.close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(f.w.size)/1e6, "MB/hour")
		b.ReportMetric(float64(f.took)/3600/1e9*100, "%core")
	}
}

// farm is endpoints whose samples are written.
type farm struct {
	w       *sampleWriter
	pages   []*page
	r       *rand.Rand
	at      int
	changes int
	took    time.Duration
}

func newFarm(b *testing.B, make func(uint64) *page, endpoints int) *farm {
	f := &farm{r: rand.New(rand.NewPCG(1, 2))}
	for i := range endpoints {
		f.pages = append(f.pages, make(uint64(i)))
	}
	var err error
	if f.w, err = createSamples(filepath.Join(b.TempDir(), MetricsFile), nil); err != nil {
		b.Fatal(err)
	}
	return f
}

func (f *farm) seconds(b *testing.B, n int) {
	for range n {
		for i, p := range f.pages {
			v := p.step()
			f.changes += len(v)
			s := &Sample{At: int64(f.at)*1e9 + int64(i)*5e7 + f.r.Int64N(2e6), Source: fmt.Sprintf("http://node%d:30000/metrics", i), Values: v, Delta: f.at > 0, LagNs: 3e6 + f.r.Int64N(2e6)}
			begun := processor()
			if err := f.w.append(s); err != nil {
				b.Fatal(err)
			}
			f.took += processor() - begun
		}
		f.at++
	}
}
