package inferencex

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Serving forms the row of a fixed-sequence-length run from the JSON of benchmark_serving and
// the environment that InferenceX's process_result reads. Throughput is per GPU: input over the
// prefill GPUs and output over the decode GPUs of a multi-node run. Keys in milliseconds become
// seconds under the name without "_ms"; for each of TPOT there is its reciprocal as intvty.
//
// The JSON has no order of keys that matters; the row is returned as a map for that reason.
func Serving(path string, env Env) (map[string]any, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var bench map[string]json.RawMessage
	if err := unmarshal(b, &bench); err != nil {
		return nil, fmt.Errorf("%s: not the JSON of benchmark_serving: %w", path, err)
	}
	return servingOf(path, bench, env)
}

// servingOf is Serving; name stands in errors.
func servingOf(path string, bench map[string]json.RawMessage, env Env) (map[string]any, error) {
	s := servingRow{point: point{env: env}, path: path, bench: bench, row: map[string]any{}}
	s.identity()
	if strings.EqualFold(s.text("IS_MULTINODE"), "true") {
		s.multi()
	} else {
		s.single()
	}
	s.times()
	if err := errors.Join(s.problems...); err != nil {
		return nil, err
	}
	return s.row, nil
}

type servingRow struct {
	point
	path  string
	bench map[string]json.RawMessage
	row   map[string]any
}

// required reads a variable that must be set; it may be empty.
func (s *servingRow) required(name string) string {
	v, ok := s.env(name)
	if !ok {
		s.fail("%s is not set", name)
	}
	return v
}

func (s *servingRow) requiredNumber(name string) int {
	if _, ok := s.env(name); !ok {
		s.fail("%s is not set", name)
		return 0
	}
	return s.number(name, 0)
}

// measured is a number of the benchmark.
func (s *servingRow) measured(key string) float64 {
	v := float(s.bench[key])
	if v == nil {
		s.fail("%s: %s is missing or no number", s.path, key)
		return 0
	}
	return *v
}

func (s *servingRow) identity() {
	r := s.row
	for _, x := range [][2]string{
		{"hw", "RUNNER_TYPE"}, {"image", "IMAGE"}, {"infmax_model_prefix", "MODEL_PREFIX"}, {"framework", "FRAMEWORK"},
		{"precision", "PRECISION"}, {"spec_decoding", "SPEC_DECODING"},
	} {
		r[x[0]] = s.required(x[1])
	}
	r["conc"] = int(s.measured("max_concurrency"))
	r["model"] = plainText(s.bench["model_id"])
	if r["model"] == "" {
		s.fail("%s: model_id is missing", s.path)
	}
	r["disagg"] = strings.EqualFold(s.required("DISAGG"), "true")
	r["recipe_fingerprint"] = s.text("RECIPE_FINGERPRINT")
	r["isl"], r["osl"] = s.requiredNumber("ISL"), s.requiredNumber("OSL")
	if c := s.component("ROUTER_METADATA", true); c != nil {
		r["router"] = c
	}
	if v := s.text("KV_P2P_TRANSFER"); v != "" {
		r["kv_p2p_transfer"] = v
	}
}

func (s *servingRow) single() {
	if s.row["disagg"] == true {
		s.fail("DISAGG=true needs IS_MULTINODE=true")
	}
	tp, ep := s.requiredNumber("TP"), s.requiredNumber("EP_SIZE")
	pp, dcp, pcp := s.positive("PP_SIZE"), s.positive("DCP_SIZE"), s.positive("PCP_SIZE")
	if _, set := s.env("TP"); set && tp < 1 {
		s.fail("TP=%d: it must be at least 1", tp)
	}
	maps.Copy(s.row, map[string]any{
		"is_multinode": false, "tp": tp, "pp": pp, "dcp_size": dcp, "pcp_size": pcp, "ep": ep, "dp_attention": s.required("DP_ATTENTION"),
	})
	gpus := tp * pp * pcp
	s.throughput(gpus, gpus, gpus)
}

func (s *servingRow) multi() {
	prefill, decode := s.requiredNumber("PREFILL_GPUS"), s.requiredNumber("DECODE_GPUS")
	if prefill <= 0 {
		s.fail("PREFILL_GPUS=%d: a multi-node run has at least one prefill GPU", prefill)
	}
	hwP, hwD := s.text("PREFILL_HARDWARE"), s.text("DECODE_HARDWARE")
	if (hwP == "") != (hwD == "") {
		s.fail("PREFILL_HARDWARE=%q and DECODE_HARDWARE=%q: set both or neither", hwP, hwD)
	}
	s.row["is_multinode"] = true
	for _, role := range []string{"prefill", "decode"} {
		up := strings.ToUpper(role)
		sizes := map[string]int{
			"_tp": s.requiredNumber(up + "_TP"), "_ep": s.requiredNumber(up + "_EP"),
			"_pp": s.positive(up + "_PP_SIZE"), "_dcp_size": s.positive(up + "_DCP_SIZE"), "_pcp_size": s.positive(up + "_PCP_SIZE"),
		}
		if role == "decode" && decode <= 0 { // prefill workers decode too
			sizes = map[string]int{"_tp": 0, "_ep": 0, "_pp": 1, "_dcp_size": 1, "_pcp_size": 1}
		}
		for k, v := range sizes {
			s.row[role+k] = v
		}
		s.row[role+"_dp_attention"] = s.required(up + "_DP_ATTN")
		s.row[role+"_num_workers"] = s.requiredNumber(up + "_NUM_WORKERS")
	}
	s.row["num_prefill_gpu"], s.row["num_decode_gpu"] = prefill, decode
	if hwP != "" {
		s.row["prefill_hw"], s.row["decode_hw"] = hwP, hwD
	}
	output := decode
	if decode <= 0 {
		output = prefill + decode
	}
	s.throughput(prefill+decode, output, prefill)
}

func (s *servingRow) throughput(total, output, input int) {
	all, out := s.measured("total_token_throughput"), s.measured("output_throughput")
	if total <= 0 || output <= 0 || input <= 0 {
		return // said already
	}
	s.row["tput_per_gpu"] = all / float64(total)
	s.row["output_tput_per_gpu"] = out / float64(output)
	s.row["input_tput_per_gpu"] = (all - out) / float64(input)
}

func (s *servingRow) times() {
	for _, key := range slices.Sorted(maps.Keys(s.bench)) {
		isMs := strings.HasSuffix(key, "ms")
		isTPOT := strings.Contains(key, "tpot")
		if !isMs && !isTPOT {
			continue
		}
		v := s.measured(key)
		name := strings.ReplaceAll(key, "_ms", "")
		if isMs {
			s.row[name] = v / 1000
		}
		if isTPOT {
			if v == 0 || math.IsInf(1000/v, 0) {
				s.fail("%s: %s is %v: its reciprocal is not defined", s.path, key, v)
				continue
			}
			s.row[strings.ReplaceAll(name, "tpot", "intvty")] = 1000 / v
		}
	}
}
