package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/replay"
)

// readProfile reads a command line of 'aiperf profile' without running it.
func readProfile(t *testing.T, line string) (*profile, error) {
	t.Helper()
	a, err := parseAIPerf(strings.Fields(line))
	if err != nil {
		return nil, err
	}
	p := &profile{app: &App{Err: io.Discard}, args: a}
	return p, p.read()
}

// TestAIPerfDefaults: what no flag says is AIPerf's own of each scenario (agentx-harness 1.0.12):
// inferencex-agentx-mvp has no cache pressure, no threshold, no bound on its warm-up and a fresh
// seed; agentx has what InferenceX passes.
func TestAIPerfDefaults(t *testing.T) {
	const base = "--model m --use-server-token-count --streaming --input-file x --concurrency 2 "
	type knobs struct {
		pressure, grace, duration, idle int64
		threshold, min, max             float64
	}
	of := func(o replay.Options) knobs {
		return knobs{int64(o.PressureRequests), o.WarmupGraceNs / 1e9, o.DurationNs / 1e9, o.TraceIdleCapNs / 1e9, o.FailedThreshold, o.StartMin, o.StartMax}
	}
	for line, want := range map[string]knobs{
		"--scenario inferencex-agentx-mvp":                       {0, 0, 1800, 0, 0, 0, 1},
		"--scenario agentx":                                      {10, 1800, 3600, 300, 0.10, 0.25, 0.75},
		"--scenario inferencex-agentx":                           {10, 1800, 3600, 300, 0.10, 0.25, 0.75},
		"--scenario inferencex-agentx-mvp --warmup-duration 600": {0, 300, 1800, 0, 0, 0, 1},
		"--scenario inferencex-agentx-mvp --warmup-duration 20":  {0, 30, 1800, 0, 0, 0, 1},
		"--scenario agentx --warmup-duration 600":                {0, 1800, 3600, 300, 0.10, 0.25, 0.75},
		"--scenario inferencex-agentx-mvp --warmup-requests-per-lane 3 --warmup-grace-period 60 --failed-request-threshold 0.2":          {3, 60, 1800, 0, 0.2, 0, 1},
		"--scenario inferencex-agentx-mvp --trajectory-start-min-ratio 0.25 --trajectory-start-max-ratio 0.5 --benchmark-duration 900.0": {0, 0, 900, 0, 0, 0.25, 0.5},
	} {
		p, err := readProfile(t, base+line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got := of(p.opt); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
		if preset := strings.HasPrefix(line, "--scenario agentx") || strings.Contains(line, "inferencex-agentx "); preset && (p.entries != 393 || p.out.SliceNs != 1e9) {
			t.Errorf("%s: %d entries, slices of %d ns", line, p.entries, p.out.SliceNs)
		}
	}

	seeds := map[uint64]bool{}
	for range 4 {
		for _, line := range []string{"--scenario inferencex-agentx-mvp", "--isl 8 --osl 8"} {
			if line[2] == 'i' {
				line = strings.Replace(base, "--input-file x", "", 1) + line
			} else {
				line = base + line
			}
			p, err := readProfile(t, line)
			if err != nil {
				t.Fatal(err)
			}
			seed := p.opt.Seed
			if p.load != nil {
				seed = p.load.Seed
			}
			if seeds[seed] || !strings.Contains(strings.Join(p.args.notes, "\n"), "the seed is a fresh one: ") {
				t.Errorf("seed %d is not fresh, or not said: %q", seed, p.args.notes)
			}
			seeds[seed] = true
		}
	}
	if p, err := readProfile(t, base+"--scenario agentx"); err != nil || p.opt.Seed != 42 || len(p.args.notes) != 0 {
		t.Errorf("agentx: seed %d, %v, %v", p.opt.Seed, p.args.notes, err)
	}
	const large = "9223372036854775807"
	if p, err := readProfile(t, base+"--scenario agentx --random-seed "+large); err != nil || p.opt.Seed != 1<<63-1 {
		t.Errorf("seed %s: %v", large, err)
	}
	if _, err := readProfile(t, base+"--scenario agentx --random-seed 1.5"); err == nil || !strings.Contains(err.Error(), "--random-seed") {
		t.Errorf("seed 1.5: %v", err)
	}
	if p, err := readProfile(t, base+"--scenario agentx --failed-request-threshold 0"); err != nil || p.opt.FailedThreshold <= 0 {
		t.Errorf("a threshold of 0 is off: %v", err)
	}
}

// TestAIPerfVariables: every variable of AIPerf that is set and not honoured is named, those that
// would change the load with what Weir does; a value that says what Weir does anyway is not.
func TestAIPerfVariables(t *testing.T) {
	p := &profile{app: &App{Err: io.Discard}, args: &aiperfArgs{}}
	p.environment([]string{
		"PATH=/bin", "AIPERF_DATASET_WEKA_LIVE_ASSISTANT_RESPONSES=1", "AIPERF_UI_REALTIME_METRICS_ENABLED=true", "AIPERF_DATASET_CONFIGURATION_TIMEOUT=1800",
		"AIPERF_DATASET_WEKA_SEAM_MIN_OVERLAP_RATIO=0.50", "AIPERF_DATASET_WEKA_AUX_ISL_RATIO=.2", "AIPERF_DATASET_WEKA_TOOL_SHAPED_MESSAGES=false",
		"AIPERF_DATASET_WEKA_SPLIT_FLATTENED_AGENTS=true", "AIPERF_HTTP_TCP_USER_TIMEOUT=900000", "AIPERF_SERVER_METRICS_COLLECTION_INTERVAL=1",
		"AIPERF_HTTP_X_SESSION_ID_FROM_CORRELATION_ID=1", "AIPERF_AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT=0.5", "AIPERF_NEW_THING=x", "AIPERF_HTTP_SSL_VERIFY=0",
	})
	want := []string{
		"AIPERF_DATASET_CONFIGURATION_TIMEOUT has no effect: Weir prepares data sets in its own way",
		"AIPERF_DATASET_WEKA_AUX_ISL_RATIO=.2 is not honoured: it finds agents by the usual rules",
		"AIPERF_DATASET_WEKA_LIVE_ASSISTANT_RESPONSES=1 is not honoured: prompts carry the recorded lengths of earlier answers, not the server's answers",
		"AIPERF_HTTP_SSL_VERIFY=0 is not honoured: certificates are checked",
		"AIPERF_HTTP_TCP_USER_TIMEOUT has no effect: Weir's client sets up its connections in its own way",
		"AIPERF_NEW_THING has no effect: Weir does not know it",
		"AIPERF_UI_REALTIME_METRICS_ENABLED has no effect: it concerns the screen",
	}
	if got := p.args.notes; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("notes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	t.Setenv("AIPERF_TIMING_CANCEL_DRAIN_TIMEOUT", "3")
	t.Setenv("AIPERF_AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT", "0.05")
	const base = "--model m --use-server-token-count --streaming --input-file x --scenario agentx "
	q, err := readProfile(t, base+"--coverage 98 --count-primers")
	if err != nil || q.opt.DrainNs != 3e9 || q.out.OverflowRate != 0.05 || *q.cover.share != 0.98 || !q.opt.CountPrimers {
		t.Errorf("drain %d, overflow %v, %v", q.opt.DrainNs, q.out.OverflowRate, err)
	}
	if q, err := readProfile(t, base+"--coverage none"); err != nil || *q.cover.share >= 0 {
		t.Errorf("coverage none: %v", err)
	}
	t.Setenv("AIPERF_AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT", "much")
	if _, err := readProfile(t, base+"--coverage 120"); err == nil || !strings.Contains(err.Error(), `AIPERF_AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT="much"`) || !strings.Contains(err.Error(), `--coverage "120"`) {
		t.Errorf("wrong values: %v", err)
	}
}
