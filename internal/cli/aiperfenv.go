package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// aiperfHonoured are the variables of AIPerf that are acted on, without their AIPERF_.
var aiperfHonoured = map[string]bool{
	"SERVER_METRICS_COLLECTION_INTERVAL": true, "HTTP_X_SESSION_ID_FROM_CORRELATION_ID": true, "HTTP_X_SMG_ROUTING_KEY_FROM_CORRELATION_ID": true,
	"HTTP_X_DYNAMO_SESSION_ID_FROM_CORRELATION_ID": true, "TIMING_CANCEL_DRAIN_TIMEOUT": true, "AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT": true,
}

// aiperfSettled are variables that change what is sent or judged, with the value that Weir keeps to
// and what it does (common/environment.py of agentx-harness 1.0.12 and its older forks, 2026-10).
var aiperfSettled = map[string]struct{ value, does string }{
	"DATASET_WEKA_LIVE_ASSISTANT_RESPONSES":    {"0", "prompts carry the recorded lengths of earlier answers, not the server's answers"},
	"DATASET_WEKA_TOOL_SHAPED_MESSAGES":        {"0", "messages are plain text"},
	"DATASET_WEKA_SPLIT_FLATTENED_AGENTS":      {"1", "agents inside a flat list are found"},
	"DATASET_WEKA_SEAM_MAX_GAP_SECONDS":        {"3600", "it finds agents by the usual rules"},
	"DATASET_WEKA_SEAM_MIN_OVERLAP_RATIO":      {"0.5", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_MAX_REQUESTS":            {"1", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_ISL_RATIO":               {"0.1", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_ISL_FLOOR":               {"16384", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_CROSS_MODEL":             {"1", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_REDUCTION_OSL_MAX":       {"4000", "it finds agents by the usual rules"},
	"DATASET_WEKA_AUX_REDUCTION_RATIO":         {"20", "it finds agents by the usual rules"},
	"DATASET_WEKA_WORKER_GROUP_MIN":            {"3", "it finds agents by the usual rules"},
	"AGENTX_CONTEXT_OVERFLOW_SUBSTRINGS":       {"", "it knows overflows by the usual texts"},
	"DAG_FAIL_FAST":                            {"0", "a child that fails has ended, and the run goes on"},
	"HTTP_SSL_VERIFY":                          {"1", "certificates are checked"},
	"HTTP_TRUST_ENV":                           {"0", "proxies of the environment are not used"},
	"HTTP_FORCE_CLOSE":                         {"0", "connections are kept"},
	"METRICS_OSL_MISMATCH_PCT_THRESHOLD":       {"5", "the usual threshold counts"},
	"METRICS_OSL_MISMATCH_MAX_TOKEN_THRESHOLD": {"50", "the usual threshold counts"},
}

// aiperfPrefixes say of groups of variables why they have no effect.
var aiperfPrefixes = []struct{ prefix, why string }{
	{"UI_", "it concerns the screen"}, {"SERVICE_", "one process does everything"}, {"WORKER_", "one process does everything"},
	{"ZMQ_", "one process does everything"}, {"RECORD_", "one process does everything"}, {"LOGGING_", "it concerns the screen"},
	{"DATASET_MMAP_", "traces are read in place"}, {"DATASET_", "Weir prepares data sets in its own way"},
	{"TOKENIZER_", "Weir reads no tokenizer code"}, {"HTTP_", "Weir's client sets up its connections in its own way"},
}

// environment notes every variable of AIPerf that is set and not honoured.
func (p *profile) environment(environ []string) {
	slices.Sort(environ)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		short, ok := strings.CutPrefix(name, "AIPERF_")
		if !ok || aiperfHonoured[short] {
			continue
		}
		why := "Weir does not know it"
		if s, ok := aiperfSettled[short]; ok {
			if sameSetting(value, s.value) {
				continue // as it is
			}
			p.note("%s=%s is not honoured: %s", name, value, s.does)
			continue
		}
		for _, g := range aiperfPrefixes {
			if strings.HasPrefix(short, g.prefix) {
				why = g.why
				break
			}
		}
		p.note("%s has no effect: %s", name, why)
	}
}

func (p *profile) note(format string, a ...any) {
	p.args.notes = append(p.args.notes, fmt.Sprintf(format, a...))
}

// sameSetting compares two values as a switch or a number where they are one.
func sameSetting(a, b string) bool {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	switch {
	case errA == nil && errB == nil:
		return x == y
	case errB == nil && (y == 0 || y == 1) && errA != nil && a != "":
		return isOn(a) == (y == 1)
	}
	return a == b
}

// variable reads a number of AIPerf's environment.
func (p *profile) variable(name, text string, def, low, high float64) float64 {
	if text == "" {
		return def
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || f < low || f > high {
		p.fail("%s=%q: need a number from %v to %v", name, text, low, high)
		return def
	}
	return f
}
