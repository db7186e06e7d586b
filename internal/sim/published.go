package sim

import (
	"bytes"
	"embed"
	"fmt"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

//go:embed data/published.yaml
var data embed.FS

// A Published result is one point that somebody else measured, and what the simulator gives.
type Published struct {
	Series string `json:"series"`
	Note   string `json:"note,omitempty"`
	Conc   int    `json:"concurrency"`
	// PerGPU counts input and output tokens per GPU and second, TPOT is nanoseconds per output
	// token after the first, its median over requests.
	PerGPU    float64 `json:"tokens_per_gpu_s"`
	TPOTNs    float64 `json:"tpot_ns"`
	SimPerGPU float64 `json:"simulated_tokens_per_gpu_s"`
	SimTPOTNs float64 `json:"simulated_tpot_ns"`
	SimTTFTNs float64 `json:"simulated_ttft_ns"` // median; the published points have none
	PerGPUErr float64 `json:"tokens_per_gpu_error"`
	TPOTErr   float64 `json:"tpot_error"`
	// Coefficients names those that were used; Fitted says that they were fitted to this
	// point, so that its error says little.
	Coefficients string `json:"coefficients"`
	Fitted       bool   `json:"fitted"`
}

type publishedFile struct {
	Source facts.Source      `yaml:"source"`
	Prompt int64             `yaml:"prompt"`
	Output int64             `yaml:"output"`
	Ratio  float64           `yaml:"ratio"`
	Series []publishedSeries `yaml:"series"`
}

type publishedSeries struct {
	Name     string          `yaml:"name"`
	Note     string          `yaml:"note"`
	Config   publishedConfig `yaml:"config"`
	TPOTOnly bool            `yaml:"tpot_only"` // throughput is not fitted to
	Points   []struct {
		Conc   int     `yaml:"conc"`
		PerGPU float64 `yaml:"per_gpu"`
		TPOT   float64 `yaml:"tpot_ms"`
	} `yaml:"points"`
}

// fitted says whether a fit uses a point: every second one of a series from the first on, when
// there are at least three.
func (s *publishedSeries) fitted(i int) bool { return len(s.Points) >= 3 && i%2 == 0 }

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

func (p publishedConfig) name() string { return p.GPU + "/" + p.Model + "/" + p.Precision }

func (p publishedConfig) config(set *facts.Set) (Config, error) {
	m, err := set.ModelByName(p.Model)
	if err != nil {
		return Config{}, err
	}
	g, err := set.GPUByName(p.GPU)
	if err != nil {
		return Config{}, err
	}
	co, err := set.CoefficientsFor(m.Name, g.Name, p.Precision)
	if err != nil {
		return Config{}, err
	}
	return Config{
		Engine: p.Engine, Model: m, GPU: g, Parallel: spec.Parallel{TP: p.TP, PP: 1, EP: p.EP, DCP: 1, PCP: 1},
		WeightPrecision: p.Precision, KVDType: "fp8", KVBytesPerToken: 1, DeviceTokens: 1 << 24, PageSize: 64,
		DraftTokens: p.Draft, AcceptPPM: int64(p.Accept * ppm), Coefficients: co,
	}, nil
}

func readPublished() (*publishedFile, error) {
	b, err := data.ReadFile("data/published.yaml")
	if err != nil {
		return nil, err
	}
	f := &publishedFile{}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(f); err != nil {
		return nil, fmt.Errorf("published.yaml: %w", err)
	}
	return f, nil
}

// PublishedPoints simulates every published point with the given facts. Pools are taken to be
// large: the workload shares nothing.
func PublishedPoints(set *facts.Set) ([]Published, error) {
	f, err := readPublished()
	if err != nil {
		return nil, err
	}
	var out []Published
	for i := range f.Series {
		s := &f.Series[i]
		c, err := s.Config.config(set)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		for i, pt := range s.Points {
			l, err := fixedLoad(c, pt.Conc, f.Prompt, f.Output, f.Ratio)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			p := Published{
				Series: s.Name, Note: s.Note, Conc: pt.Conc, PerGPU: pt.PerGPU, TPOTNs: pt.TPOT * 1e6,
				SimPerGPU: l.perSecond / float64(s.Config.TP), SimTPOTNs: l.tpot, SimTTFTNs: l.ttft,
				Coefficients: c.Coefficients.Name, Fitted: c.Coefficients.Name == s.Config.name() && s.fitted(i),
			}
			p.PerGPUErr, p.TPOTErr = p.SimPerGPU/p.PerGPU-1, p.SimTPOTNs/p.TPOTNs-1
			out = append(out, p)
		}
	}
	return out, nil
}

// FitPublished fits, for every published series of a model on a GPU at a precision, the
// coefficients of that GPU to every second point, and reports the mean error on the others. watch may
// be nil.
func FitPublished(set *facts.Set, date string, watch Watch) ([]facts.Coefficients, error) {
	f, err := readPublished()
	if err != nil {
		return nil, err
	}
	var out []facts.Coefficients
	for k, name := range f.names() {
		var c facts.Coefficients
		loss := func(co *facts.Coefficients) (float64, error) {
			sum := 0.0
			err := f.each(set, name, co, func(s *publishedSeries, i int, l loadResult) {
				if s.fitted(i) {
					sum += away(l.tpot, s.Points[i].TPOT*1e6)
					if !s.TPOTOnly {
						sum += away(l.perSecond/float64(s.Config.TP), s.Points[i].PerGPU)
					}
				}
			})
			return sum, err
		}
		for i := range f.Series {
			if p := f.Series[i].Config; p.name() == name {
				base, err := set.CoefficientsFor("", p.GPU, "")
				if err != nil {
					return nil, err
				}
				c = *base
			}
		}
		if c, _, err = fit(c, publishedKnobs, watch.over(k, len(f.names()), name), loss); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.Name = name
		var tpot, tput, nt, np float64
		err := f.each(set, name, &c, func(s *publishedSeries, i int, l loadResult) {
			if s.fitted(i) {
				return
			}
			tpot += math.Abs(l.tpot/(s.Points[i].TPOT*1e6) - 1)
			nt++
			if !s.TPOTOnly {
				tput += math.Abs(l.perSecond/float64(s.Config.TP)/s.Points[i].PerGPU - 1)
				np++
			}
		})
		if err != nil {
			return nil, err
		}
		c.Fit = facts.Fit{To: "every second published 8k/1k point (" + f.Source.Where + ")", Date: date, Errors: map[string]int64{}}
		if nt > 0 {
			c.Fit.Errors["itl"] = int64(math.Round(tpot / nt * ppm))
		}
		if np > 0 {
			c.Fit.Errors["throughput"] = int64(math.Round(tput / np * ppm))
		}
		out = append(out, c)
	}
	return out, nil
}

// publishedKnobs leave out what only a time to first token would tell.
var publishedKnobs = []string{"compute", "memory", "layers", "step", "draft", "sequence"}

// names are the model, GPU and precision of series that a fit can use.
func (f *publishedFile) names() (names []string) {
	for i := range f.Series {
		s := &f.Series[i]
		if n := s.Config.name(); s.fitted(0) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// each simulates the points of one model, GPU and precision.
func (f *publishedFile) each(set *facts.Set, name string, co *facts.Coefficients, found func(*publishedSeries, int, loadResult)) error {
	for i := range f.Series {
		s := &f.Series[i]
		if s.Config.name() != name {
			continue
		}
		c, err := s.Config.config(set)
		if err != nil {
			return err
		}
		c.Coefficients = co
		for k, pt := range s.Points {
			l, err := fixedLoad(c, pt.Conc, f.Prompt, f.Output, f.Ratio)
			if err != nil {
				return err
			}
			found(s, k, l)
		}
	}
	return nil
}
