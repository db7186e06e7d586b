package inferencex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result/aiperf"
	"github.com/weirbench/weir/internal/spec"
)

// FromBundle forms the row of a bundle: the agentic aggregate, or for a fixed-seq-len point the
// row that process_result makes of benchmark_serving's JSON. It is the row that the same run
// gives by way of AIPerf's artifacts. What the environment does not say is taken from the
// point; a variable that is set stands before the point.
//
// The mark says what the row must not be taken for; it is in the row too.
func FromBundle(b *record.Bundle, env Env, o Options) (any, *Mark, error) {
	mark, err := MarkOf(b)
	if err != nil {
		return nil, nil, err
	}
	row, err := rowOf(b, env, o)
	switch r := row.(type) {
	case *Row:
		r.Mark = mark
	case map[string]any:
		mark.set(r)
	}
	return row, mark, err
}

// rowOf is FromBundle without the mark.
func rowOf(b *record.Bundle, env Env, o Options) (any, error) {
	pointEnv, p, err := EnvOf(b.Meta)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Dir, err)
	}
	if p.Unified == nil && !p.Multinode { // the shape of a server that ran already: the GPUs have to be told, the rest has InferenceX's defaults
		pointEnv["EP_SIZE"], pointEnv["DP_ATTENTION"] = "1", "false"
	}
	env = over(env, pointEnv)
	if multi, _ := env("IS_MULTINODE"); !strings.EqualFold(multi, "true") {
		if _, ok := env("TP"); !ok {
			return nil, fmt.Errorf("%s: the point does not say how many GPUs served it: set TP, or give --gpus to the run", b.Dir)
		}
	}
	if p.Scenario == spec.FixedSeqLen {
		bench, err := benchmark(b, p)
		if err != nil {
			return nil, err
		}
		row, err := servingOf(filepath.Join(b.Dir, record.RequestsFile), bench, env)
		if err != nil {
			return nil, err
		}
		return row, nil
	}
	q, row, err := readPoint(env)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Dir, err)
	}
	in, err := inputsOf(b)
	if err != nil {
		return nil, err
	}
	if _, err := in.form(q, &row, o); err != nil {
		return nil, err
	}
	return &row, nil
}

// offloadEnv are variables that only make sense together.
var offloadEnv = []string{"KV_OFFLOADING", "KV_OFFLOAD_BACKEND", "KV_OFFLOAD_BACKEND_METADATA"}

// over looks into env first.
func over(env Env, under map[string]string) Env {
	for _, name := range offloadEnv {
		if v, ok := env(name); ok && v != "" {
			for _, name := range offloadEnv {
				delete(under, name)
			}
			break
		}
	}
	return func(name string) (string, bool) {
		if v, ok := env(name); ok {
			return v, true
		}
		v, ok := under[name]
		return v, ok
	}
}

// EnvOf are the variables that InferenceX would set for the point of a bundle, and the point.
func EnvOf(m *record.Meta) (map[string]string, *spec.Point, error) {
	p := &spec.Point{}
	if err := json.Unmarshal(m.Point, p); err != nil {
		return nil, nil, fmt.Errorf("its point cannot be read: %w", err)
	}
	framework := p.Framework
	if framework == "" || framework == "external" {
		framework = m.Engine.Facts["metrics"]
		if framework == "" {
			framework = m.Engine.Name
		}
	}
	e := map[string]string{
		"RUNNER_TYPE": p.Runner, "CONC": strconv.Itoa(p.Conc), "IMAGE": p.Image, "MODEL": p.Model, "MODEL_PREFIX": p.ModelPrefix,
		"FRAMEWORK": framework, "PRECISION": p.Precision, "SPEC_DECODING": p.SpecDecoding,
		"DISAGG": strconv.FormatBool(p.Disagg), "IS_MULTINODE": strconv.FormatBool(p.Multinode),
		"KV_OFFLOADING": p.Offload.Mode, "TOTAL_CPU_DRAM_GB": strconv.FormatInt(p.Offload.BudgetGB, 10),
		"ISL": strconv.FormatInt(p.ISL, 10), "OSL": strconv.FormatInt(p.OSL, 10),
	}
	if p.Offload.Backend.Name != "" {
		e["KV_OFFLOAD_BACKEND"], e["KV_OFFLOAD_BACKEND_METADATA"] = p.Offload.Backend.Name, asJSON(p.Offload.Backend)
	}
	if p.Router.Name != "" {
		e["ROUTER_METADATA"] = asJSON(p.Router)
	}
	if p.KVTransfer != "" {
		e["KV_P2P_TRANSFER"] = p.KVTransfer
	}
	if u := p.Unified; u != nil {
		shape(e, "", *u)
		e["DP_ATTENTION"], e["EP_SIZE"] = strconv.FormatBool(u.DPAttn), strconv.Itoa(u.EP)
	}
	for prefix, w := range map[string]*spec.Worker{"PREFILL_": p.Prefill, "DECODE_": p.Decode} {
		if w == nil {
			if p.Multinode && prefix == "DECODE_" { // prefill workers decode too
				for _, k := range []string{"NUM_WORKERS", "TP", "EP", "GPUS"} {
					e[prefix+k] = "0"
				}
				e[prefix+"DP_ATTN"] = "false"
			}
			continue
		}
		shape(e, prefix, w.Parallel)
		e[prefix+"NUM_WORKERS"], e[prefix+"EP"], e[prefix+"DP_ATTN"] = strconv.Itoa(w.Workers), strconv.Itoa(w.EP), strconv.FormatBool(w.DPAttn)
		e[prefix+"GPUS"] = strconv.Itoa(w.Workers * w.GPUs())
		if w.Hardware != "" {
			e[prefix+"HARDWARE"] = w.Hardware
		}
	}
	return e, p, nil
}

func shape(e map[string]string, prefix string, p spec.Parallel) {
	e[prefix+"TP"] = strconv.Itoa(p.TP)
	e[prefix+"PP_SIZE"], e[prefix+"DCP_SIZE"], e[prefix+"PCP_SIZE"] = strconv.Itoa(max(p.PP, 1)), strconv.Itoa(max(p.DCP, 1)), strconv.Itoa(max(p.PCP, 1))
}

func asJSON(c spec.Component) string {
	b, err := json.Marshal(c)
	if err != nil { // two strings
		panic(err)
	}
	return string(b)
}

// inputsOf takes from a bundle what AIPerf's artifacts would hold.
func inputsOf(b *record.Bundle) (*inputs, error) {
	in := &inputs{server: &scraped{families: map[string][]series{}}}
	r, w := io.Pipe()
	go func() { w.CloseWithError(aiperf.WriteRecords(b, w)) }()
	var err error
	in.records, in.accounting, err = parseRecords(r, filepath.Join(b.Dir, record.RequestsFile))
	r.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return nil, err
	}
	js, err := aiperf.ServerMetrics(b)
	if err != nil {
		return nil, err
	}
	if js != nil {
		if err := in.server.read(json.NewDecoder(bytes.NewReader(js))); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(b.Dir, record.MetricsFile), err)
		}
	}
	in.summary.dataset = b.Meta.Dataset
	if in.summary.dataset == nil {
		c := b.Meta.Corpus
		if in.summary.dataset, err = json.Marshal(map[string]any{"source_type": "weir", "name": c.Name, "entries": c.Traces, "fingerprint": c.Fingerprint}); err != nil {
			return nil, err
		}
	}
	if h := b.Meta.RecordedHits; h != nil {
		hit, total := float64(h.Profiling.Hit), float64(h.Profiling.Total)
		in.summary.theoretical = ratio(&hit, &total)
	}
	in.logs, err = engineLogs(b)
	return in, err
}

// engineLogs are the heads of the logs of the engines that Weir started, without its own.
func engineLogs(b *record.Bundle) ([]string, error) {
	dir := filepath.Join(b.Dir, record.LogsDir)
	list, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	var out []string
	for _, f := range list {
		if !f.Type().IsRegular() || !strings.HasSuffix(f.Name(), ".log") {
			continue
		}
		text, err := head(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}
