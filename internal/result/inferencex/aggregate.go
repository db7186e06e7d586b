package inferencex

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of AIPerf's artifacts.
const (
	RecordsFile = "profile_export.jsonl"
	SummaryFile = "profile_export_aiperf.json"
	ServerFile  = "server_metrics_export.json"
	ArtifactDir = "aiperf_artifacts"
)

// Options say what goes into a row beside the compatible fields.
type Options struct {
	Own bool // Weir's own numbers beside compatible ones that it thinks wrong
}

// Aggregate forms the row of the run in a result folder from its artifacts and the environment
// that InferenceX's aggregator reads. An error names the variable, or the file and line.
func Aggregate(dir string, env Env, o Options) (*Row, error) {
	p, row, err := readPoint(env)
	if err != nil {
		return nil, err
	}
	in, err := readInputs(dir)
	if err != nil {
		return nil, err
	}
	return in.form(p, &row, o)
}

// inputs are what a row is formed from.
type inputs struct {
	records    []profiled
	accounting Accounting
	summary    summary
	server     *scraped
	logs       []string
}

func readInputs(dir string) (*inputs, error) {
	artifacts := artifactDir(dir)
	records, accounting, err := readRecords(filepath.Join(artifacts, RecordsFile))
	if err != nil {
		return nil, err
	}
	summary, err := readSummary(filepath.Join(artifacts, SummaryFile))
	if err != nil {
		return nil, err
	}
	server, err := readScraped(filepath.Join(artifacts, ServerFile))
	if err != nil {
		return nil, err
	}
	logs, err := readLogs(dir)
	if err != nil {
		return nil, err
	}
	return &inputs{records, accounting, summary, server, logs}, nil
}

func (in *inputs) form(p *point, row *Row, o Options) (_ *Row, err error) {
	row.Accounting = in.accounting
	row.Total, row.Successful = in.accounting.Total, in.accounting.Profiled
	row.Dataset, row.Mark, row.NoSummary = in.summary.dataset, in.summary.mark, in.summary.missing
	row.Requests = requestMetrics(in.records, in.summary.theoretical)
	if t := &row.Requests.Throughput; t.Total != nil && p.gpus > 0 {
		per := func(r *PerSecond) *Number { return number(float64(r.Tokens) / float64(p.gpus)) }
		t.PerGPU = &PerGPU{Total: per(t.Total), Output: per(t.Output), Input: per(t.Input)}
	}
	if row.Server, row.Warnings, err = serverSide(in.server, row.Framework, in.records, in.logs); err != nil {
		return nil, err
	}
	row.PoolTokens = row.Server.KV.GPUTokens
	if o.Own {
		row.Own = own(in.server, row)
	}
	return row, nil
}

// artifactDir is the folder that holds the records: aiperf_artifacts or the first below it.
func artifactDir(dir string) string {
	base := filepath.Join(dir, ArtifactDir)
	if isFile(filepath.Join(base, RecordsFile)) {
		return base
	}
	found, _ := filepath.Glob(filepath.Join(base, "*", RecordsFile)) // sorted; the pattern is well formed
	if len(found) > 0 {
		return filepath.Dir(found[0])
	}
	return base
}

// summary is what a row takes from profile_export_aiperf.json.
type summary struct {
	theoretical *float64
	dataset     json.RawMessage
	mark        *Mark // nil unless Weir wrote that a server was simulated
	missing     bool  // there is no such file
}

func readSummary(path string) (summary, error) {
	var s summary
	b, err := readFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return summary{missing: true}, nil
	}
	if err != nil {
		return s, err
	}
	var v struct {
		Theoretical *struct {
			Unit  string          `json:"unit"`
			Sum   json.RawMessage `json:"sum"`
			Count json.RawMessage `json:"count"`
			Avg   json.RawMessage `json:"avg"`
		} `json:"theoretical_prefix_cache_hit"`
		Metadata struct {
			Dataset   json.RawMessage `json:"dataset"`
			Simulated json.RawMessage `json:"weir_simulated"`
			Reasons   json.RawMessage `json:"weir_invalid_reasons"`
		} `json:"metadata"`
	}
	if err := unmarshal(b, &v); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if len(v.Metadata.Dataset) > 0 && v.Metadata.Dataset[0] == '{' {
		s.dataset = v.Metadata.Dataset
	}
	if string(v.Metadata.Simulated) == "true" {
		var codes []string
		if json.Unmarshal(v.Metadata.Reasons, &codes) != nil {
			codes = nil // not as Weir writes them
		}
		s.mark = &Mark{Simulated: true, Valid: len(codes) == 0, Reasons: []string{noEngine}}
		for _, c := range codes {
			s.mark.Reasons = append(s.mark.Reasons, "invalid: "+c)
		}
	}
	if t := v.Theoretical; t != nil {
		if s.theoretical = ratio(float(t.Sum), float(t.Count)); s.theoretical == nil {
			if s.theoretical = float(t.Avg); s.theoretical != nil && strings.TrimSpace(t.Unit) == "%" {
				*s.theoretical /= 100
			}
		}
	}
	return s, nil
}

func serverSide(m *scraped, framework string, records []profiled, logs []string) (Server, []string, error) {
	s := Server{Present: len(m.families) > 0, Adapter: "none", Count: m.count, Sources: []Source{}}
	s.Cache.BySource = map[string]Number{}
	s.Tokens.BySource.Raw = map[string]Number{}
	a := adapterFor(m, framework)
	var warnings []string
	switch {
	case !s.Present:
		warnings = append(warnings, ServerFile+" missing or empty")
	case a == nil:
		names := slices.Sorted(maps.Keys(m.families))
		return s, nil, fmt.Errorf("no known engine: FRAMEWORK=%s, and none of the metrics (%s) is of SGLang, vLLM, Dynamo or ATOM",
			framework, strings.Join(names[:min(10, len(names))], ", "))
	default:
		s.Adapter = a.name
		a.fill(m, &s)
	}
	if a != nil && a.capacity != nil {
		if n := a.capacity(logs); n != nil {
			s.KV.GPUTokens = n
		}
	}
	fromRecords := func(v *int64, get func(*profiled) *float64) *int64 {
		if v != nil {
			return v
		}
		values := tokens(records, get)
		if values == nil {
			return nil
		}
		t := sum(values)
		return counter(&t)
	}
	s.Tokens.Prompt = fromRecords(s.Tokens.Prompt, func(p *profiled) *float64 { return p.isl })
	s.Tokens.Generation = fromRecords(s.Tokens.Generation, func(p *profiled) *float64 { return p.osl })
	s.Tokens.Completed = len(records)
	return s, warnings, nil
}

// own are Weir's numbers beside the compatible ones.
func own(m *scraped, r *Row) *Own {
	o := &Own{}
	for _, v := range []*Number{r.Server.Cache.Overall, r.Server.Cache.Frontend, r.Server.Cache.RouterShared} {
		if o.OverallHitRate == nil {
			o.OverallHitRate = v
		}
	}
	var storage float64
	for source, n := range byLabel(m.find("sglang:cached_tokens"), "cache_source") {
		if strings.HasPrefix(source, "storage") {
			storage += n
		}
	}
	if p := r.Server.Tokens.Prompt; p != nil && len(m.find("sglang:cached_tokens")) > 0 {
		all := float64(*p)
		o.StorageHitRate = numberOf(ratio(&storage, &all))
	}
	o.PoolTokens = r.PoolTokens
	if pools := m.find("sglang:max_total_num_tokens"); len(pools) > 0 {
		ranks := map[string]float64{}
		for i := range pools {
			if v := pools[i].stat(maxima); v != nil {
				ranks[pools[i].Endpoint+"|"+pools[i].label("dp_rank")] = *v
			}
		}
		t := sum(slices.Collect(maps.Values(ranks)))
		o.PoolTokens = counter(&t)
	}
	moved := func(names []string, transfer string) *Number {
		for _, n := range names {
			if v := total(m.find(n), totals, nil); v != nil {
				return numberOf(v)
			}
		}
		return numberOf(total(m.find("vllm:kv_offload_total_bytes"), totals, func(s *series) bool { return s.label("transfer_type") == transfer }))
	}
	o.OffloadOut = moved([]string{"vllm:kv_offload_bytes_gpu_to_cpu", "vllm:kv_offload_store_bytes"}, "GPU_to_CPU")
	o.OffloadIn = moved([]string{"vllm:kv_offload_bytes_cpu_to_gpu", "vllm:kv_offload_load_bytes"}, "CPU_to_GPU")
	failed, ended := float64(r.Accounting.Errors), float64(r.Accounting.Errors+r.Accounting.Profiled)
	o.ErrorRate = numberOf(ratio(&failed, &ended))
	return o
}
