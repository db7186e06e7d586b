package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/spec"
)

// flagKind says what a flag of AIPerf's is followed by.
type flagKind uint8

const (
	oneValue flagKind = iota
	noValue
	manyValues // up to the next flag; may also be repeated
)

// flagUse says what Weir does with it.
type flagUse uint8

const (
	acted   flagUse = iota
	inert           // known, without effect on what is measured
	closed          // known, and it would change what is measured
	forload         // acted on without a --scenario, closed with one
)

type aiperfFlag struct {
	kind flagKind
	use  flagUse
	why  string // of inert and closed, of forload under a scenario
}

// aiperfAlias are other names of one flag, and short ones.
var aiperfAlias = map[string]string{
	"-u": "--url", "-m": "--model", "--model-names": "--model", "-H": "--header", "--artifact-dir": "--output-artifact-dir",
	"--num-requests": "--request-count", "--num-conversations": "--num-sessions", "--conversation-num": "--num-sessions",
	"--agentic-warmup-grace-period": "--warmup-grace-period", "--agentic-cache-warmup-duration": "--warmup-duration",
	"--profile-export-file": "--profile-export-prefix", "--profile-export-level": "--export-level",
	"--num-prompts": "--num-dataset-entries", "--max-idle-gap-cap-seconds": "--trace-idle-gap-cap-seconds", "-v": "--verbose", "-f": "--config",
	"--transport-type": "--transport", "--ui-type": "--ui", "--request-rate-mode": "--arrival-pattern", "-vv": "--extra-verbose",
	"--workers-max": "--max-workers", "--record-processors": "--record-processor-service-count", "--custom-endpoint": "--endpoint",
	"--prompt-input-tokens-mean": "--isl", "--synthetic-input-tokens-mean": "--isl", "--prompt-input-tokens-stddev": "--isl-stddev",
	"--synthetic-input-tokens-stddev": "--isl-stddev", "--prompt-input-tokens-block-size": "--isl-block-size",
	"--synthetic-input-tokens-block-size": "--isl-block-size", "--prompt-output-tokens-mean": "--osl", "--output-tokens-mean": "--osl",
	"--prompt-output-tokens-stddev": "--osl-stddev", "--output-tokens-stddev": "--osl-stddev", "--vllm-burstiness": "--arrival-smoothness",
	"-b": "--batch-size", "--prompt-batch-size": "--batch-size", "--batch-size-text": "--batch-size", "--num-warmup-requests": "--warmup-request-count",
	"--conversation-turn-mean": "--session-turns-mean", "--conversation-turn-stddev": "--session-turns-stddev",
	"--conversation-turn-delay-mean": "--session-turn-delay-mean", "--conversation-turn-delay-stddev": "--session-turn-delay-stddev",
	"--conversation-turn-delay-ratio": "--session-delay-ratio", "--prompt-prefix-length": "--prefix-prompt-length",
	"--prompt-prefix-pool-size": "--prefix-prompt-pool-size", "--num-prefix-prompts": "--prefix-prompt-pool-size", "--sweep-variant": "--variant", "--seq-dist": "--sequence-distribution",
	"--image-batch-size": "--batch-size-image", "--audio-batch-size": "--batch-size-audio", "--video-batch-size": "--batch-size-video",
}

// aiperfFlags are the flags of 'aiperf profile' that Weir knows (AIPerf 0.13, agentx-harness
// 1.0.12 and the fork that InferenceX pins, 2026-10). --server-metrics is acted on although
// AIPerf has it under two kinds.
var aiperfFlags = func() map[string]aiperfFlag {
	m := map[string]aiperfFlag{}
	add := func(kind flagKind, use flagUse, why, names string) {
		for _, n := range strings.Fields(names) {
			m[n] = aiperfFlag{kind, use, why}
		}
	}
	add(oneValue, acted, "", `--scenario --endpoint --endpoint-type --model --tokenizer --concurrency --benchmark-duration
		--random-seed --failed-request-threshold --trajectory-start-min-ratio --trajectory-start-max-ratio --warmup-requests-per-lane
		--trace-idle-gap-cap-seconds --system-idle-gap-cap-seconds --warmup-grace-period --warmup-duration --benchmark-grace-period
		--max-context-length --num-dataset-entries --slice-duration --output-artifact-dir --public-dataset --input-file
		--custom-dataset-type --hf-weka-dataset --api-key --request-timeout-seconds --request-count --num-sessions --cache-bust
		--inter-turn-delay-cap-seconds --synthesis-max-osl --synthesis-max-isl --dataset-sampling-strategy --profile-export-prefix
		--export-level --stats-interval --num-profile-runs --goodput`)
	add(manyValues, acted, "", `--url --server-metrics --server-metrics-formats --gpu-telemetry --extra-inputs --header --session-header`)
	add(noValue, acted, "", `--streaming --use-server-token-count --no-server-metrics --no-gpu-telemetry --unsafe-override --ignore-trace-delays
		--use-think-time-only --use-legacy-max-tokens --allow-dataset-wrap --no-allow-dataset-wrap --burst-phase-starts
		--use-dynamo-conv-aware-routing`)

	add(oneValue, acted, "", `--client-limit --coverage --calibrate`) // Weir's own, as the one below
	add(noValue, acted, "", `--count-primers`)

	add(noValue, inert, "Weir reads no tokenizer code", `--tokenizer-trust-remote-code`)
	add(oneValue, inert, "Weir reads no tokenizer code", `--tokenizer-revision`)
	add(oneValue, inert, "one process sends everything", `--max-workers --record-processor-service-count --zmq-host --zmq-ipc-path --api-host --api-port`)
	add(noValue, inert, "one process sends everything", `--zmq-dual-bind`)
	add(oneValue, inert, "it concerns the screen", `--ui --log-level`)
	add(noValue, inert, "it concerns the screen", `--verbose --extra-verbose --show-trace-timing`)
	add(noValue, inert, "'weir report' draws", `--auto-plot --no-auto-plot --plot-required`)
	add(noValue, inert, "the bundle has every instant", `--export-http-trace`)
	add(oneValue, inert, "connections are kept as long as the server keeps them", `--connection-reuse-strategy --transport`)
	add(oneValue, inert, "the server is asked for its models at once", `--wait-for-model-timeout --wait-for-model-interval --wait-for-model-mode`)
	add(oneValue, inert, "the session's end is the server's to find", `--dynamo-session-timeout-seconds`)
	add(noValue, inert, "seeds are fixed", `--set-consistent-seed --no-set-consistent-seed --vary-seed-per-trial --no-vary-seed-per-trial`)
	add(oneValue, inert, "it concerns services that are not asked", `--mlflow-experiment --mlflow-parent-run-id --mlflow-run-name --mlflow-tracking-uri
		--wandb-entity --wandb-project --wandb-run-name --otel-url --gen-ai-provider`)
	add(manyValues, inert, "it concerns services that are not asked", `--stream --mlflow-tag --mlflow-artifact-glob --wandb-tag --otel-resource-attributes`)

	rate := "agentic replay has no rate; leave out --scenario, or 'weir load' sends at one"
	add(oneValue, forload, rate, `--request-rate --arrival-pattern --arrival-smoothness`)
	add(oneValue, forload, "agentic replay has its own pace; leave out --scenario", `--user-centric-rate --num-users`)
	add(oneValue, forload, "agentic replay has its own times; leave out --scenario", `--fixed-schedule-start-offset --fixed-schedule-end-offset`)
	add(noValue, forload, "agentic replay has its own times; leave out --scenario", `--fixed-schedule --fixed-schedule-auto-offset`)
	add(oneValue, closed, "it is of baseten_trace, which Weir does not read; 'weir load --mode schedule --speed' sends faster", `--replay-speedup`)
	add(noValue, forload, "agentic replay has its own times; leave out --scenario", `--no-fixed-schedule`)
	add(noValue, closed, "it is of baseten_trace, which Weir does not read", `--open-loop-replay --no-open-loop-replay --open-loop-strict`)
	add(oneValue, forload, rate, `--request-rate-ramp-duration --request-rate-series`)
	synthetic := "prompts are those of the traces; leave out --scenario, or 'weir load' makes others"
	add(oneValue, forload, synthetic, `--isl --isl-stddev --osl --osl-stddev --batch-size --session-turns-mean --session-turns-stddev
		--shared-system-prompt-length --random-range-ratio --random-corpus-style --prefix-prompt-length --prefix-prompt-pool-size
		--session-turn-delay-mean --session-turn-delay-stddev --session-delay-ratio --sequence-distribution --user-context-prompt-length`)
	add(oneValue, closed, "they are several runs, one for each length: 'weir sweep' measures several points", `--isl-min --isl-max --osl-min --osl-max --isl-steps --osl-steps --isl-osl-pairs`)
	add(oneValue, closed, "blocks have the size that the form of a file says", `--isl-block-size`)
	add(oneValue, closed, "prompts are those of the traces, as recorded", `--synthesis-output-len-multiplier --synthesis-prefix-len-multiplier
		--synthesis-prefix-root-multiplier --synthesis-prompt-len-multiplier --synthesis-speedup-ratio --prompt-corpus --system-prompt
		--system-prompt-file --trace-session-sample-ratio`)
	add(manyValues, closed, "Weir reads whole data sets", `--dataset-filter`)
	add(oneValue, closed, "Weir reads whole data sets", `--hf-subset`)
	add(oneValue, forload, "agentic replay has no such phase; see 'weir replay --help'", `--prefill-concurrency --prefill-concurrency-ramp-duration
		--concurrency-ramp-duration --warmup-request-count --num-warmup-sessions --warmup-concurrency --warmup-request-rate
		--warmup-arrival-pattern --warmup-prefill-concurrency --warmup-concurrency-ramp-duration --warmup-prefill-concurrency-ramp-duration
		--warmup-request-rate-ramp-duration`)
	add(oneValue, closed, "Weir cuts no single requests", `--request-cancellation-rate --request-cancellation-delay`)
	sweep := "'weir sweep' and 'weir knee' measure several points"
	add(oneValue, closed, sweep, `--concurrency-min --concurrency-max --concurrency-steps --sweep-type --search-metric --search-recipe
		--search-direction --search-initial-points --search-max-iterations --search-percentile-pooling --search-planner --search-random-seed
		--search-stat --search-style --bo-constraint-mode --optuna-acquisition --optuna-sampler --optuna-terminator --convergence-metric
		--convergence-mode --convergence-stat --convergence-threshold --degradation-metric-tag --degradation-stat --degradation-threshold
		--confidence-level --parameter-sweep-mode --ttft-sla-ms --tpot-sla-ms --itl-sla-ms --e2e-sla-ms --error-rate-sla --slo-attainment-fraction`)
	add(manyValues, closed, sweep, `--search-sla --search-sla-tier --search-space --variant`)
	add(oneValue, inert, "it is one run", `--parameter-sweep-cooldown-seconds --profile-run-cooldown-seconds`)
	add(noValue, inert, "it is one run", `--parameter-sweep-same-seed --no-parameter-sweep-same-seed --profile-run-disable-warmup-after-first
		--no-profile-run-disable-warmup-after-first --no-sweep-table`)
	add(oneValue, inert, "one model is asked for", `--model-selection-strategy`)
	add(noValue, closed, "the server's usage counts tokens, and the chat template is learned from it", `--apply-chat-template`)
	add(noValue, closed, "Weir asks for usage once, at the end of a stream", `--per-chunk-usage`)
	add(noValue, closed, "answers are not kept", `--export-outputs-json`)
	add(noValue, closed, "min_tokens is a field of --extra-inputs", `--force-min-tokens`)
	add(noValue, inert, "min_tokens is sent only if --extra-inputs says so", `--no-force-min-tokens`)
	add(noValue, inert, "bodies carry no such hints", `--omit-kv-hints`)
	add(oneValue, closed, "Weir's configuration is a master file; see 'weir sweep'", `--config --cli-config`)
	add(noValue, closed, "'weir sweep' resets caches between points; here restart the server or reset it before", `--reset-kv-cache`)
	add(oneValue, closed, "'weir sweep' resets caches between points; here restart the server or reset it before", `--reset-kv-cache-path --reset-kv-cache-timeout-seconds`)
	add(noValue, closed, "Weir starts no profiler in the server", `--server-profiler`)
	add(oneValue, closed, "Weir starts no profiler in the server", `--server-profiler-start-path --server-profiler-stop-path --server-profiler-timeout-seconds`)
	add(oneValue, closed, "bodies are JSON", `--request-content-type`)
	add(oneValue, closed, "Weir computes no such metric", `--network-latency-mean --network-latency-ping-interval --accuracy-benchmark --accuracy-grader
		--accuracy-n-shots --accuracy-system-prompt`)
	add(manyValues, closed, "Weir computes no such metric", `--accuracy-tasks`)
	add(noValue, closed, "Weir computes no such metric", `--network-latency-automatic --accuracy-enable-cot --accuracy-no-enable-cot --accuracy-verbose`)
	media := "Weir sends text"
	add(oneValue, closed, media, `--batch-size-audio --batch-size-image --batch-size-video --audio-format --audio-length-mean --audio-length-stddev
		--audio-num-channels --image-format --image-height-mean --image-height-stddev --image-source --image-source-sampling --image-width-mean
		--image-width-stddev --video-audio-codec --video-audio-depth --video-audio-num-channels --video-audio-sample-rate --video-codec
		--video-duration --video-format --video-fps --video-height --video-synth-type --video-width --rankings-passages-mean
		--rankings-passages-stddev --rankings-passages-prompt-token-mean --rankings-passages-prompt-token-stddev
		--rankings-query-prompt-token-mean --rankings-query-prompt-token-stddev`)
	add(manyValues, closed, media, `--audio-depths --audio-sample-rates`)
	add(noValue, closed, media, `--download-video-content --uuid-and-strip`)
	add(oneValue, inert, "several URLs are spread by tree", `--url-strategy`)
	return m
}()

// word is a use in one word of a list.
func (u flagUse) word() string {
	return [...]string{acted: "acted on", inert: "accepted", closed: "refused", forload: "load"}[u]
}

// aiperfFlagList lists every known flag with its other names, its value and its use, a line each:
// first what is acted on, then what has no effect, then what is refused.
func aiperfFlagList() string {
	others := map[string][]string{}
	for alias, name := range aiperfAlias {
		others[name] = append(others[name], alias)
	}
	names := slices.Collect(maps.Keys(aiperfFlags))
	rank := map[flagUse]int{acted: 0, forload: 1, inert: 2, closed: 3}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[aiperfFlags[a].use], rank[aiperfFlags[b].use]), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, n := range names {
		f := aiperfFlags[n]
		slices.Sort(others[n])
		text := strings.Join(append([]string{n}, others[n]...), ", ") + [...]string{oneValue: " VALUE", noValue: "", manyValues: " VALUE..."}[f.kind]
		fmt.Fprintf(&b, "  %-8s  %s\n", f.use.word(), text)
	}
	return strings.TrimRight(b.String(), "\n")
}

// aiperfArgs are the flags of a command line.
type aiperfArgs struct {
	values map[string][]string
	order  []string // names of values, as given
	notes  []string // what is known and without effect
}

// parseAIPerf reads flags as AIPerf's command line does.
func parseAIPerf(args []string) (*aiperfArgs, error) {
	a := &aiperfArgs{values: map[string][]string{}}
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") || len(name) < 2 {
			return nil, fmt.Errorf("%q is no flag", args[i])
		}
		given := name
		if full, ok := aiperfAlias[name]; ok {
			name = full
		}
		f, ok := aiperfFlags[name]
		if !ok {
			return nil, fmt.Errorf("unknown flag %s; did you mean %s?", given, spec.Nearest(given, slices.Sorted(maps.Keys(aiperfFlags))))
		}
		if f.use == closed {
			return nil, fmt.Errorf("%s is AIPerf's and Weir does not do it: %s", given, f.why)
		}
		var values []string
		switch f.kind {
		case noValue:
			if has && value != "true" && value != "false" {
				return nil, fmt.Errorf("%s takes no value, %q was given", given, value)
			}
			if value == "false" {
				continue
			}
			values = []string{"true"}
		case oneValue, manyValues:
			if has {
				values = []string{value}
			}
			for !has && i+1 < len(args) && (len(values) == 0 || f.kind == manyValues) && !isFlag(args[i+1]) {
				i++
				values = append(values, args[i])
			}
			if len(values) == 0 {
				return nil, fmt.Errorf("%s needs a value", given)
			}
		}
		if f.use == inert {
			a.notes = append(a.notes, fmt.Sprintf("%s has no effect: %s", given, f.why))
			continue
		}
		if f.kind == oneValue && len(a.values[name]) > 0 {
			return nil, fmt.Errorf("%s is given twice", given)
		}
		if len(a.values[name]) == 0 {
			a.order = append(a.order, name)
		}
		a.values[name] = append(a.values[name], values...)
	}
	return a, nil
}

// isFlag tells a flag from a value such as a negative number.
func isFlag(s string) bool {
	return strings.HasPrefix(s, "--") || len(s) == 2 && s[0] == '-' && (s[1] < '0' || s[1] > '9')
}
