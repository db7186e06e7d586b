package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus/hub"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result/aiperf"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/scrape"
)

func newAIPerfCmd(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "aiperf",
		Short:   "Take AIPerf's place: its flags in, its files out",
		Example: `  weir aiperf profile --help`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "profile --url URL --model NAME --concurrency N (--scenario NAME (--public-dataset NAME | --input-file PATH) | --isl N --osl N | --fixed-schedule --input-file PATH)",
		Short: "Replay agent traces, or send prompts of one length, with AIPerf's flags, and write AIPerf's artifacts",
		Long: `Profile takes the flags of 'aiperf profile' as InferenceX passes them and the common rest,
runs the agentic replay of 'weir replay' under a --scenario, without one a load of made-up prompts or,
with --fixed-schedule, of a file at its times ('weir load'), and writes profile_export.jsonl, profile_export_aiperf.json and .csv,
server_metrics_export.json and .csv into the folder of --output-artifact-dir, and the bundle
beside them.

A flag that nobody knows is an error that names the nearest one; one that AIPerf knows and that
would change what is measured is refused; one without effect says so. All are listed below;
docs/aiperf.md says more.

The exit code is 3 when the run is not valid. A run under --unsafe-override whose only fault is
what was overridden ends with 0 and submission_valid false.

Flags, with what is done with them (acted on; load: acted on without a --scenario, else refused;
accepted: without effect; refused):
` + aiperfFlagList(),
		Example: `  weir aiperf profile --scenario inferencex-agentx-mvp --url http://127.0.0.1:8000 --endpoint-type chat \
    --streaming --model my-model --concurrency 8 --benchmark-duration 1800 --input-file traces/ \
    --output-artifact-dir results/aiperf_artifacts
  weir aiperf profile --url http://127.0.0.1:8000 --model my-model --streaming --concurrency 16 --isl 1024 --osl 128 \
    --extra-inputs ignore_eos:true --request-count 160 --output-artifact-dir fixed`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = slices.DeleteFunc(slices.Clone(args), func(s string) bool {
				if s == "--json" {
					app.JSON = true
				}
				return s == "--json"
			})
			if len(args) == 0 || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cmd.Help()
			}
			a, err := parseAIPerf(args)
			if err != nil {
				return usage(err)
			}
			defer runtime.KeepAlive(ballast())
			p := &profile{app: app, args: a, line: "weir aiperf profile " + strings.Join(redact(args), " ")}
			err = p.read()
			for _, n := range a.notes {
				fmt.Fprintln(app.Err, "weir: "+n)
			}
			if err != nil {
				return usage(err)
			}
			return p.run(cmd.Context())
		},
	})
	return cmd
}

// ballast is memory that is never touched, so that it takes none of the machine's, and that the collector
// counts: without it a process as small as this one is collected every few megabytes, and each time
// goes over the words of a tokenizer.
func ballast() []byte { return make([]byte, 64<<20) }

// redact hides keys in a command line that is written down.
func redact(args []string) []string {
	out := slices.Clone(args)
	for i, s := range out {
		name, _, has := strings.Cut(s, "=")
		switch {
		case name == "--api-key" && has:
			out[i] = "--api-key=<redacted>"
		case i > 0 && (out[i-1] == "--api-key" || out[i-1] == "--header" || out[i-1] == "-H"):
			out[i] = "<redacted>"
		}
	}
	return out
}

// profile is one run of 'aiperf profile'.
type profile struct {
	app  *App
	args *aiperfArgs
	line string

	scenario   string
	model      string
	conc       int
	opt        replay.Options
	load       *replay.Load // without a scenario
	lengths    replay.Lengths
	grows      bool // a line of the file has what a turn adds to its session
	client     client.Config
	body       prompt.Options
	words      *prompt.Words
	counter    *prompt.Counter // nil where nothing is counted here
	metrics    *scrape.Options
	gpus       *run.GPUs // nil reads none by a command
	violations []string
	out        aiperf.Options
	dataset    map[string]any // where the traces come from
	entries    int
	slice      float64 // seconds of a time slice where no flag says
	maxContext int64
	problems   []string
	limit      clientLimit
	cover      coverageLimit
	calibrator *client.Calibrator // nil for none
}

func (p *profile) has(name string) bool { return len(p.args.values[name]) > 0 }

func (p *profile) text(name, def string) string {
	if v := p.args.values[name]; len(v) > 0 {
		return v[0]
	}
	return def
}

func (p *profile) fail(format string, a ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, a...))
}

func (p *profile) number(name string, def, low, high float64) float64 {
	v := p.text(name, "")
	if v == "" {
		return def
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || f < low || f > high {
		p.fail("%s %q: need a number from %v to %v", name, v, low, high)
		return def
	}
	return f
}

func (p *profile) whole(name string, def, low int) int {
	f := p.number(name, float64(def), float64(low), 1<<40)
	if f != math.Trunc(f) {
		p.fail("%s %v: need a whole number", name, f)
		return def
	}
	return int(f)
}

// seconds reads a time; the longest is a year.
func (p *profile) seconds(name string, def float64) int64 {
	return int64(p.number(name, def, 0, 366*86400) * 1e9)
}

// seed is --random-seed, that of the preset, or as with AIPerf a fresh one, which is said. A fresh one
// has 53 bits, so that every reader of JSON keeps it.
func (p *profile) seed(preset bool) uint64 {
	if v := p.text("--random-seed", ""); v != "" {
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			p.fail("--random-seed %q: need a whole number from 0 to %d", v, math.MaxInt64)
		}
		return n
	}
	if preset {
		return 42
	}
	n := rand.Uint64N(1 << 53)
	p.args.notes = append(p.args.notes, fmt.Sprintf("no --random-seed, so the seed is a fresh one: %d", n))
	return n
}

// threshold is --failed-request-threshold. A given 0 ends the run with the first failure that counts.
func (p *profile) threshold(def float64) float64 {
	f := p.number("--failed-request-threshold", def, 0, 1)
	if f == 0 && p.has("--failed-request-threshold") {
		return math.SmallestNonzeroFloat64
	}
	return f
}

// drain is the time for outcomes after a cancellation.
func (p *profile) drain() int64 {
	const name = "AIPERF_TIMING_CANCEL_DRAIN_TIMEOUT"
	return int64(p.variable(name, os.Getenv(name), 10, 0.001, 86400) * 1e9)
}

// timedGrace bounds the grace after a warm-up by time where no flag says, nanoseconds
// (timing/config.py, 2026-10).
const timedGrace = int64(300e9)

// violate notes what the scenario forbids.
func (p *profile) violate(format string, a ...any) {
	p.violations = append(p.violations, fmt.Sprintf(format, a...))
}

// minSubmission is the shortest window of a valid submission (inferencex_agentx_mvp.py, 2026-10).
const minSubmission = 900

// read turns the flags into what is run. The scenario's locks are those of AIPerf's
// inferencex-agentx-mvp and agentx (2026-10).
func (p *profile) read() error {
	p.scenario = p.text("--scenario", "")
	preset := false
	switch p.scenario {
	case "inferencex-agentx-mvp", "":
	case "agentx", "inferencex-agentx":
		preset = true
	default:
		p.fail("--scenario %q is unknown: use inferencex-agentx-mvp or agentx", p.scenario)
	}
	if p.model = p.text("--model", ""); p.model == "" {
		p.fail("no --model")
	}
	if p.scenario == "" {
		p.conc = p.whole("--concurrency", 1, 1)
		p.readLoad()
		return p.settle()
	}
	for _, n := range p.args.order {
		if f := aiperfFlags[n]; f.use == forload {
			p.fail("%s: %s", n, f.why)
		}
	}
	def := func(mvp, agentx float64) float64 {
		if preset {
			return agentx
		}
		return mvp
	}
	p.conc = p.whole("--concurrency", int(def(1, 8)), 1)
	o := replay.InferenceX(p.conc, 0)
	o.DurationNs = p.seconds("--benchmark-duration", def(1800, 3600))
	o.Seed = p.seed(preset)
	o.StartMin = p.number("--trajectory-start-min-ratio", def(0, 0.25), 0, 1)
	o.StartMax = p.number("--trajectory-start-max-ratio", def(1, 0.75), 0, 1)
	o.PressureRequests = p.whole("--warmup-requests-per-lane", int(def(0, 10)), 0)
	if p.has("--warmup-duration") {
		if p.has("--warmup-requests-per-lane") {
			p.fail("--warmup-duration and --warmup-requests-per-lane are both given: pass one")
		}
		o.PressureNs, o.PressureRequests = p.seconds("--warmup-duration", 0), 0
	}
	o.TraceIdleCapNs = p.seconds("--trace-idle-gap-cap-seconds", def(0, 300))
	o.SystemIdleCapNs = p.seconds("--system-idle-gap-cap-seconds", 10)
	o.GraceNs = p.seconds("--benchmark-grace-period", 30)
	grace := def(0, 1800) // 0 is unlimited
	if o.PressureNs > 0 && !preset {
		grace = float64(max(o.GraceNs, min(o.PressureNs, timedGrace))) / 1e9
	}
	o.WarmupGraceNs = p.seconds("--warmup-grace-period", grace)
	o.WarmupGraceFixed = true
	o.CountPrimers = p.has("--count-primers")
	o.DrainNs = p.drain()
	o.FailedThreshold = p.threshold(def(0, 0.10))
	o.MaxRequests = uint64(p.whole("--request-count", 0, 0))
	o.MaxTrees = uint64(p.whole("--num-sessions", 0, 0))
	o.MaxOut = int64(p.whole("--synthesis-max-osl", 0, 0))
	o.TurnGapCapNs = p.seconds("--inter-turn-delay-cap-seconds", 0)
	o.NoGaps, o.ThinkGaps, o.Burst = p.has("--ignore-trace-delays"), p.has("--use-think-time-only"), p.has("--burst-phase-starts")
	o.AllowWrap = p.has("--allow-dataset-wrap")
	salt := p.text("--cache-bust", prompt.FirstTurnPrefix.String())
	if err := o.Salt.UnmarshalText([]byte(salt)); err != nil {
		p.fail("--cache-bust: %v", err)
	}
	if s := p.text("--dataset-sampling-strategy", ""); s != "" {
		if err := o.Sampling.UnmarshalText([]byte(s)); err != nil {
			p.fail("--dataset-sampling-strategy: %v", err)
		}
	}
	p.opt = o
	p.entries = p.whole("--num-dataset-entries", int(def(0, 393)), 0)
	p.slice = def(0, 1)
	p.maxContext = int64(p.whole("--max-context-length", 0, 0))
	p.locks(salt)
	return p.settle()
}

// settle reads what does not depend on the load, and says everything that is wrong.
func (p *profile) settle() error {
	if p.has("--synthesis-max-isl") {
		p.fail("--synthesis-max-isl would cut prompts, which Weir does not do: --max-context-length leaves out whole traces")
	}
	if n := p.whole("--num-profile-runs", 1, 1); n != 1 {
		p.fail("--num-profile-runs %d: Weir does one run here; 'weir sweep' with seeds repeats a point", n)
	}
	if v := p.text("--client-limit", ""); v != "" {
		if err := p.limit.Set(v); err != nil {
			p.fail("--client-limit %q: %v", v, err)
		}
	}
	if v := p.text("--coverage", ""); v != "" {
		if err := p.cover.Set(v); err != nil {
			p.fail("--coverage %q: %v", v, err)
		}
	}
	p.environment(os.Environ())
	p.calibrates()
	if !p.has("--use-server-token-count") {
		p.args.notes = append(p.args.notes, "without --use-server-token-count AIPerf counts tokens with its tokenizer; Weir takes the server's counts all the same")
	}
	p.seconds("--stats-interval", 30) // checked; the terminal shows progress all the time
	p.target()
	p.export()
	p.telemetry()
	if len(p.problems) > 0 {
		return fmt.Errorf("%s", strings.Join(p.problems, "; "))
	}
	if len(p.violations) > 0 && !p.has("--unsafe-override") {
		return fmt.Errorf("the scenario %s forbids: %s; pass --unsafe-override to run all the same, with submission_valid false", p.scenario, strings.Join(p.violations, "; "))
	}
	return nil
}

// locks are what the scenario demands of a submission.
func (p *profile) locks(salt string) {
	if d := p.opt.DurationNs; d < minSubmission*1e9 {
		p.violate("--benchmark-duration is %v s, at least %d", float64(d)/1e9, minSubmission)
	}
	if p.opt.NoGaps {
		p.violate("--ignore-trace-delays drops the recorded pauses")
	}
	if p.has("--inter-turn-delay-cap-seconds") {
		p.violate("--inter-turn-delay-cap-seconds cuts the recorded pauses")
	}
	if salt != prompt.FirstTurnPrefix.String() {
		p.violate("--cache-bust is %s, need first_turn_prefix", salt)
	}
	if p.opt.SystemIdleCapNs != 10e9 {
		p.violate("--system-idle-gap-cap-seconds is %v, need 10", float64(p.opt.SystemIdleCapNs)/1e9)
	}
	if n := p.text("--public-dataset", ""); n != "" {
		if a, ok := hub.Lookup(datasetName(n)); ok && strings.Contains(a.Repo, "no-subagents") {
			p.violate("--public-dataset %s has no sub-agents", n)
		}
	}
}

// target reads where requests go and what they look like.
func (p *profile) target() {
	kind := p.text("--endpoint-type", "chat")
	e, err := client.ParseEndpoint(strings.ReplaceAll(kind, "_", "-"))
	if err != nil {
		p.fail("--endpoint-type: %v", err)
	} else if path := p.text("--endpoint", e.Path()); path != e.Path() && "/"+path != e.Path() {
		p.fail("--endpoint is %s, and %s is at %s: leave it out or start the server there", path, kind, e.Path())
	}
	urls := p.args.values["--url"]
	if len(urls) == 0 {
		urls = []string{"http://localhost:8000"}
	}
	var clean []string
	for _, list := range urls {
		for u := range strings.SplitSeq(list, ",") {
			if !strings.Contains(u, "://") {
				u = "http://" + u
			}
			clean = append(clean, strings.TrimSuffix(strings.TrimRight(u, "/"), "/v1"))
		}
	}
	header := http.Header{}
	for _, h := range p.args.values["--header"] {
		k, v, ok := strings.Cut(h, ":")
		if !ok {
			p.fail("--header %q: write NAME:VALUE", h)
			continue
		}
		header.Add(strings.TrimSpace(k), strings.TrimSpace(v))
	}
	wait := time.Duration(p.seconds("--request-timeout-seconds", 6*3600))
	if wait <= 0 {
		p.fail("--request-timeout-seconds must be above 0")
	}
	p.client = client.Config{
		URLs: clean, Endpoint: e, APIKey: p.text("--api-key", os.Getenv(keyEnv)), Header: header, Spread: client.SpreadTree,
		SessionHeaders: slices.Clone(p.args.values["--session-header"]),
		Chunks:         true, Wire: true,
		Timeouts: client.Timeouts{Connect: 30 * time.Second, First: wait, Headers: wait, Stream: wait, Total: wait},
	}
	if len(p.client.SessionHeaders) == 0 { // --session-header renames it
		p.client.SessionHeaders = []string{"X-Correlation-ID"}
	}
	for _, h := range [][2]string{{"SESSION_ID", "X-Session-ID"}, {"SMG_ROUTING_KEY", "X-SMG-Routing-Key"}} {
		if isOn(os.Getenv("AIPERF_HTTP_X_" + h[0] + "_FROM_CORRELATION_ID")) {
			p.client.SessionHeaders = append(p.client.SessionHeaders, h[1])
		}
	}
	if p.has("--use-dynamo-conv-aware-routing") || isOn(os.Getenv("AIPERF_HTTP_X_DYNAMO_SESSION_ID_FROM_CORRELATION_ID")) {
		p.client.SessionHeaders = append(p.client.SessionHeaders, "X-Dynamo-Session-ID")
		p.client.ParentHeader = "X-Dynamo-Parent-Session-ID"
	}
	extra, ignoreEOS := p.extra()
	p.body = prompt.Options{Models: []string{p.model}, IgnoreEOS: ignoreEOS, LegacyMaxTokens: p.has("--use-legacy-max-tokens"), Salt: p.opt.Salt, Extra: extra}
	p.words = prompt.Default()
	if t := p.text("--tokenizer", ""); t != "" {
		file := t
		if fi, err := os.Stat(t); err == nil && fi.IsDir() {
			file = filepath.Join(t, "tokenizer.json")
		}
		raw, err := os.ReadFile(file)
		const instead = "the words used are one token in common tokenizers, and the server counts"
		if err != nil {
			fmt.Fprintf(p.app.Err, "weir: --tokenizer %s is no file here: %s\n", t, instead)
			return
		}
		t, w, err := readTokenizer(file, raw)
		if err != nil { // the probes find out whether the words fit
			fmt.Fprintf(p.app.Err, "weir: --tokenizer is not used: %v: %s\n", err, instead)
			return
		}
		p.words, p.counter = w, p.app.counter(t)
	}
}

func isOn(v string) bool {
	switch strings.ToLower(v) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

// extra reads --extra-inputs: JSON objects or key:value.
func (p *profile) extra() ([]byte, bool) {
	all := map[string]json.RawMessage{}
	for _, s := range p.args.values["--extra-inputs"] {
		if strings.HasPrefix(strings.TrimSpace(s), "{") {
			if err := json.Unmarshal([]byte(s), &all); err != nil {
				p.fail("--extra-inputs %q is no JSON object: %v", s, err)
			}
			continue
		}
		k, v, ok := strings.Cut(s, ":")
		if !ok || k == "" {
			p.fail("--extra-inputs %q: write KEY:VALUE or a JSON object", s)
			continue
		}
		raw := json.RawMessage(v)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(v) // a string always has a form in JSON
		}
		all[k] = raw
	}
	ignore := p.scenario != ""
	if v, ok := all["ignore_eos"]; ok {
		delete(all, "ignore_eos")
		if ignore = isOn(strings.Trim(string(v), `"`)); !ignore && p.scenario != "" {
			p.violate("--extra-inputs sets ignore_eos to %s, need true", v)
		}
	}
	if len(all) == 0 {
		return nil, ignore
	}
	raw, err := json.Marshal(all)
	if err != nil {
		p.fail("--extra-inputs: %v", err)
	}
	return raw, ignore
}

// export reads what is written and scraped.
func (p *profile) export() {
	dir := p.text("--output-artifact-dir", "")
	if dir == "" {
		dir = filepath.Join("artifacts", fmt.Sprintf("%s-openai-%s-concurrency%d", strings.ReplaceAll(p.model, "/", "_"), p.text("--endpoint-type", "chat"), p.conc))
	}
	prefix := filepath.Base(p.text("--profile-export-prefix", ""))
	if !p.has("--profile-export-prefix") {
		prefix = ""
	}
	for _, s := range []string{".jsonl", ".json", ".csv"} {
		prefix = strings.TrimSuffix(prefix, s)
	}
	level := p.text("--export-level", "records")
	if level != "records" && level != "summary" {
		p.fail("--export-level %q: Weir writes records or summary; what was sent is made from the corpus again", level)
	}
	for _, f := range p.args.values["--server-metrics-formats"] {
		if f != "json" && f != "csv" {
			p.fail("--server-metrics-formats %s: Weir writes json and csv; the bundle has every sample", f)
		}
	}
	p.out = aiperf.Options{
		Dir: dir, Prefix: prefix, Program: "weir-" + buildVersion(), Command: p.line, Scenario: p.scenario,
		SliceNs: p.seconds("--slice-duration", p.slice), NoRecords: level == "summary", NoServer: p.has("--no-server-metrics"),
		Input: map[string]any{"flags": p.args.values},
	}
	const overflow = "AIPERF_AGENTX_CONTEXT_OVERFLOW_RATE_LIMIT"
	p.out.OverflowRate = p.variable(overflow, os.Getenv(overflow), aiperf.OverflowAccepted, 0, 1)
	if v := p.text("--goodput", ""); v != "" {
		g, err := aiperf.ParseGoodput(v)
		if err != nil {
			p.fail("--goodput: %v", err)
		}
		p.out.Goodput = g
	}
	if p.has("--api-key") {
		p.out.Input = map[string]any{}
	}
	if p.has("--no-server-metrics") {
		return
	}
	every := 333 * time.Millisecond // AIPERF_SERVER_METRICS_COLLECTION_INTERVAL
	if v := os.Getenv("AIPERF_SERVER_METRICS_COLLECTION_INTERVAL"); v != "" {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || f < 0.01 || f > 3600 {
			p.fail("AIPERF_SERVER_METRICS_COLLECTION_INTERVAL=%q: need seconds from 0.01 to 3600", v)
		} else {
			every = time.Duration(f * 1e9)
		}
	}
	var urls []string
	for _, u := range append(slices.Clone(p.client.URLs), p.args.values["--server-metrics"]...) {
		for one := range strings.SplitSeq(u, ",") {
			if _, err := scrape.Endpoint(one); err != nil {
				p.fail("--server-metrics: %v", err)
			}
			urls = append(urls, one)
		}
	}
	p.metrics = &scrape.Options{URLs: urls, Every: every, TLS: p.client.TLS}
}
