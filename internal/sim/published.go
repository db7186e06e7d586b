package sim

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// A Published result is one point that somebody else measured, and what the simulator gives.
type Published struct {
	Series string `json:"series"`
	Note   string `json:"note,omitempty"`
	Conc   int    `json:"concurrency"`
	// PerGPU counts input and output tokens per GPU and second, TPOT is nanoseconds per output
	// token after the first, its median over requests.
	PerGPU     float64 `json:"tokens_per_gpu_s"`
	TPOTNs     float64 `json:"tpot_ns"`
	SimPerGPU  float64 `json:"simulated_tokens_per_gpu_s"`
	SimTPOTNs  float64 `json:"simulated_tpot_ns"`
	SimTTFTNs  float64 `json:"simulated_ttft_ns"` // median; the published points have none
	PerGPUErr  float64 `json:"tokens_per_gpu_error"`
	TPOTErr    float64 `json:"tpot_error"`
	Coeffs     string  `json:"coefficients"`
	FittedHere bool    `json:"fitted"` // the coefficients were fitted to this point
}

type publishedFile struct {
	Source facts.Source `yaml:"source"`
	Prompt int64        `yaml:"prompt"`
	Output int64        `yaml:"output"`
	Ratio  float64      `yaml:"ratio"`
	Series []struct {
		Name   string          `yaml:"name"`
		Note   string          `yaml:"note"`
		Config publishedConfig `yaml:"config"`
		Points []struct {
			Conc   int     `yaml:"conc"`
			PerGPU float64 `yaml:"per_gpu"`
			TPOT   float64 `yaml:"tpot_ms"`
		} `yaml:"points"`
	} `yaml:"series"`
}

type publishedConfig struct {
	Model     string  `yaml:"model"`
	GPU       string  `yaml:"gpu"`
	Precision string  `yaml:"precision"`
	TP        int     `yaml:"tp"`
	EP        int     `yaml:"ep"`
	Engine    string  `yaml:"engine"`
	Draft     int64   `yaml:"draft"`
	Accept    float64 `yaml:"accept"`
}

func (p publishedConfig) config(coeffs []Coefficients) (Config, error) {
	m, err := facts.ModelByName(p.Model)
	if err != nil {
		return Config{}, err
	}
	g, err := facts.GPUByName(p.GPU)
	if err != nil {
		return Config{}, err
	}
	co, err := CoefficientsFor(coeffs, m.Name, g.Name)
	if err != nil {
		return Config{}, err
	}
	return Config{
		Engine: p.Engine, Model: m, GPU: g, Parallel: spec.Parallel{TP: p.TP, PP: 1, EP: p.EP, DCP: 1, PCP: 1},
		WeightPrecision: p.Precision, KVDType: "fp8", KVBytesPerToken: 1, DeviceTokens: 1 << 24, PageSize: 64,
		DraftTokens: p.Draft, AcceptPPM: int64(p.Accept * ppm), Coefficients: co,
	}, nil
}

// PublishedPoints simulates every published point, with the coefficients of the list before
// those in the binary. Pools are taken to be large: the workload shares nothing.
func PublishedPoints(coeffs []Coefficients) ([]Published, error) {
	b, err := data.ReadFile("data/published.yaml")
	if err != nil {
		return nil, err
	}
	var f publishedFile
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("published.yaml: %w", err)
	}
	var out []Published
	for _, s := range f.Series {
		c, err := s.Config.config(coeffs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		for _, pt := range s.Points {
			l, err := fixedLoad(c, pt.Conc, f.Prompt, f.Output, f.Ratio)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			p := Published{
				Series: s.Name, Note: s.Note, Conc: pt.Conc, PerGPU: pt.PerGPU, TPOTNs: pt.TPOT * 1e6,
				SimPerGPU: l.perSecond / float64(s.Config.TP), SimTPOTNs: l.tpot, SimTTFTNs: l.ttft, Coeffs: c.Coefficients.Name,
			}
			p.PerGPUErr, p.TPOTErr = p.SimPerGPU/p.PerGPU-1, p.SimTPOTNs/p.TPOTNs-1
			out = append(out, p)
		}
	}
	return out, nil
}

type loadResult struct{ perSecond, tpot, ttft float64 }

// fixedLoad keeps conc requests of random lengths under way until ten times as many have
// ended, as InferenceX's fixed-length benchmark does.
func fixedLoad(c Config, conc int, prompt, output int64, ratio float64) (loadResult, error) {
	core, err := NewCore(c)
	if err != nil {
		return loadResult{}, err
	}
	type open struct{ sent, first, prompt, out int64 }
	tasks := map[uint64]*open{}
	var id, draws uint64
	length := func(n int64) int64 {
		draws++
		low := int64(float64(n) * ratio)
		return low + int64(mix(draws, 42)%uint64(n-low+1))
	}
	send := func(now int64) {
		id++
		o := &open{sent: now, prompt: length(prompt), out: length(output)}
		tasks[id] = o
		var pages []uint64
		for i := range o.prompt / core.c.PageSize {
			pages = append(pages, 1<<62|id<<24|uint64(i))
		}
		core.Submit(now, Task{ID: id, Prompt: o.prompt, MaxOut: o.out, Pages: pages})
	}
	for range conc {
		send(0)
	}
	var tokens, end int64
	var tpot, ttft []int64
	total := 10 * conc
	for done := 0; done < total; {
		t, ok := core.Next()
		if !ok {
			return loadResult{}, fmt.Errorf("the simulation stands still after %d of %d requests", done, total)
		}
		for _, e := range core.Advance(t) {
			o := tasks[e.ID]
			if e.Kind == Tokens {
				o.first = e.At
				continue
			}
			if e.Failure != nil {
				return loadResult{}, fmt.Errorf("a request failed: %s", e.Failure.Detail)
			}
			delete(tasks, e.ID)
			done++
			end = e.At
			tokens += o.prompt + o.out
			ttft = append(ttft, o.first-o.sent)
			tpot = append(tpot, (e.At-o.first)/(o.out-1))
			if int(id) < total {
				send(e.At)
			}
		}
	}
	median := func(v []int64) float64 {
		slices.Sort(v)
		return float64(v[len(v)/2])
	}
	return loadResult{perSecond: float64(tokens) / (float64(end) / 1e9), tpot: median(tpot), ttft: median(ttft)}, nil
}
