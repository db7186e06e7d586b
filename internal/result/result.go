// Package result turns a bundle into a result: the numbers of a point with their sample counts,
// whether they are valid or why not, and where they come from.
//
// Derive is pure: the same bundle gives the same bytes on every machine and at every time. So a
// fault in a metric is a new derivation with a new Definitions, never a new run. Every number
// is defined in docs/metrics.md under the name that it has in the JSON form of Result.
//
// Undefined is a value. A number that nobody measured is null, a percentile with too few
// samples behind it is null and its n says why, and nothing is ever NaN or infinite. Times in a
// result are seconds, rates are per second, shares are between 0 and 1, sizes are tokens or
// bytes; the unit is in the name where the name would not say it.
package result

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// Definitions is the version of the definitions that a result was derived by. It changes with
// every change of a formula.
const Definitions = "weir-1"

// A Result is what was found out about one point by one run.
type Result struct {
	Definitions string `json:"definitions"`
	// ID names the run: equal for equal point, seed, repeat, corpus, semantics and, on a real
	// clock, start. A second derivation keeps it.
	ID      string     `json:"id"`
	PointID string     `json:"point_id"`
	Point   spec.Point `json:"point"` // without Origin

	Valid    bool      `json:"valid"`
	Reasons  []Finding `json:"invalid_reasons"` // empty when Valid
	Warnings []Finding `json:"warnings"`

	Seed   uint64 `json:"seed"`
	Repeat int    `json:"repeat"`
	// ControlOf are the ids of points with offload beside which the sweep added this one without;
	// empty for points that the file has.
	ControlOf []string      `json:"control_of,omitempty"`
	Semantics string        `json:"semantics"`
	Corpus    record.Corpus `json:"corpus"`
	Engine    record.Engine `json:"engine"`
	Recorder  string        `json:"recorder"`  // version of Weir that recorded the run
	Simulated bool          `json:"simulated"` // no real engine answered
	Virtual   bool          `json:"virtual"`   // the clock was virtual too
	SimError  string        `json:"sim_error"` // the simulation's stated error, "" when none is known
	// SimSpeed is how many times as fast as its own time the simulated engine ran; 0 in virtual time
	// and where it is unknown. Anything but 0 and 1 makes its times and rates no engine's.
	SimSpeed float64 `json:"sim_speed,omitempty"`
	// Unanswered says that the run failed before any request was answered, so what would have
	// answered is not known.
	Unanswered bool   `json:"unanswered,omitempty"`
	MeasuredAt string `json:"measured_at"` // RFC 3339, "" when the clock was virtual

	GPUs  GPUs  `json:"gpus"`
	Pools Pools `json:"pools"`

	Window     Window     `json:"window"`
	Requests   Requests   `json:"requests"`
	Tokens     Tokens     `json:"tokens"`
	Latency    Latency    `json:"latency"`
	Adjusted   Adjusted   `json:"error_adjusted"`
	Intvty     Intvty     `json:"interactivity"`
	Throughput Throughput `json:"throughput"`
	Hits       Hits       `json:"hits"`
	// Passes are the passes of a load that sends its list of conversations more than once.
	Passes    []replay.PassHits `json:"passes,omitempty"`
	Intervals Intervals         `json:"intervals"`
	Jobs      Jobs              `json:"jobs"`
	Server    Server            `json:"server"`
	Devices   *Devices          `json:"devices,omitempty"` // nil where no GPU was read
	Client    Client            `json:"client"`
}

// OffSpeed tells whether a simulated engine ran at another speed than its own.
func (r *Result) OffSpeed() bool { return r.Simulated && r.SimSpeed > 0 && r.SimSpeed != 1 }

// Kind is "measured", or "simulated" with the speed where that is not the engine's own, or
// "unknown" where no request was answered.
func (r *Result) Kind() string {
	switch {
	case r.Unanswered && !r.Simulated:
		return "unknown"
	case !r.Simulated:
		return "measured"
	case r.OffSpeed():
		return fmt.Sprintf("simulated at %g times its own time", r.SimSpeed)
	}
	return "simulated"
}

// GPUs are physical GPUs. Per-GPU numbers divide by Used.
type GPUs struct {
	Prefill  int    `json:"prefill"`
	Decode   int    `json:"decode"`
	Declared int    `json:"declared"`
	Observed *int64 `json:"observed"` // nil when nobody looked
	Used     int64  `json:"used"`     // Observed where it is known, else Declared
}

// Pools are KV pools in unique tokens and bytes: what was observed, or else what was planned.
type Pools struct {
	DeviceTokens *int64 `json:"device_tokens"`
	HostTokens   *int64 `json:"host_tokens"`
	DeviceBytes  *int64 `json:"device_bytes"`
	HostBytes    *int64 `json:"host_bytes"`
	Observed     bool   `json:"observed"` // the token counts come from the engine
	// From says who told the device tokens: "metrics", "log", "info" or "plan"; "" when nobody did.
	From string `json:"from,omitempty"`
	// Planned, Metrics, Log and Info are what each of them says; nil where it says nothing.
	Planned *PoolTokens `json:"planned,omitempty"`
	Metrics *PoolTokens `json:"metrics,omitempty"`
	Log     *PoolTokens `json:"log,omitempty"`
	Info    *PoolTokens `json:"info,omitempty"`
	// DeviceOff and HostOff are what the engine told over what was planned, minus one; nil where
	// one of the two is not known.
	DeviceOff *float64 `json:"device_off,omitempty"`
	HostOff   *float64 `json:"host_off,omitempty"`
}

// PoolTokens are the sizes of KV pools by one source, in unique tokens.
type PoolTokens struct {
	DeviceTokens *int64 `json:"device_tokens"`
	HostTokens   *int64 `json:"host_tokens"`
}

// Window says what part of the run was measured.
type Window struct {
	PlannedS *float64 `json:"planned_s"` // length that was asked for
	EdgeS    *float64 `json:"edge_s"`    // first sent to last end of valid requests
	Coverage *float64 `json:"coverage"`  // last token within the window, as a share of it
}

// Requests counts the requests of the profiling phase, and those of the warm-up apart.
type Requests struct {
	Sent      int64            `json:"sent"`
	OK        int64            `json:"ok"`
	Failed    int64            `json:"failed"` // without those that were cut
	Cut       int64            `json:"cut"`    // cancelled by Weir, at the end of the window or on interrupt
	Overflow  int64            `json:"context_overflow"`
	Resent    int64            `json:"resent"`
	ErrorRate *float64         `json:"error_rate"` // failed / (ok + failed)
	ByClass   map[string]int64 `json:"failed_by_class"`
	Warmup    int64            `json:"warmup_sent"`
	WarmupBad int64            `json:"warmup_failed"`
}

// Tokens counts tokens of valid profiling requests.
type Tokens struct {
	Input     *int64 `json:"input"`     // prompt tokens, reused prefix included
	Output    *int64 `json:"output"`    // reasoning included
	Reasoning *int64 `json:"reasoning"` // part of Output
	Fresh     *int64 `json:"fresh"`     // prompt tokens that were computed, plus output
	// ISL and OSL are per request; Drift is the prompt tokens that the server counted over
	// those that the trace recorded, minus one.
	ISL   Dist     `json:"isl"`
	OSL   Dist     `json:"osl"`
	Drift *float64 `json:"prompt_drift"`
}

// Latency holds distributions in seconds over valid profiling requests.
type Latency struct {
	TTFT            Dist `json:"ttft_s"`
	FirstVisible    Dist `json:"first_visible_s"`
	E2EL            Dist `json:"e2el_s"`
	ITL             Dist `json:"itl_s"`
	FullResponseITL Dist `json:"full_response_itl_s"`
	E2EPerToken     Dist `json:"e2el_per_output_token_s"`
	ChunkGap        Dist `json:"chunk_gap_s"`
	ScheduleLag     Dist `json:"schedule_lag_s"` // sent - intended
	SendLag         Dist `json:"send_lag_s"`     // sent - queued: the client's own part
}

// Adjusted are latencies in which every failed request counts as infinitely late.
type Adjusted struct {
	TTFT AdjustedDist `json:"ttft_s"`
	E2EL AdjustedDist `json:"e2el_s"`
	ITL  AdjustedDist `json:"itl_s"`
}

// Intvty holds tokens per second per user; pXX is the reciprocal of pXX of the time, so a
// higher percentile is a slower user.
type Intvty struct {
	Decode       RateDist `json:"decode"`        // 1 / pXX(itl)
	FullResponse RateDist `json:"full_response"` // 1 / pXX(full_response_itl)
	E2ENorm      RateDist `json:"e2e_norm"`      // 1 / pXX(e2el / osl)
	// E2ESum is the sum of output tokens over the sum of e2el.
	E2ESum *float64 `json:"e2e_sum"`
}

// Flow is tokens and requests per second.
type Flow struct {
	Requests *float64 `json:"requests"`
	Input    *float64 `json:"input"`
	Output   *float64 `json:"output"`
	Total    *float64 `json:"total"`
	Fresh    *float64 `json:"fresh"`
}

// Throughput is given over the edges (first sent to last end of valid requests, the default)
// and inside the fixed window, for the deployment and per used GPU.
type Throughput struct {
	Edge         Flow `json:"edge"`
	EdgePerGPU   Flow `json:"edge_per_gpu"`
	Window       Flow `json:"window"`
	WindowPerGPU Flow `json:"window_per_gpu"`
}

// Hits are shares of prompt tokens by the tier in which their prefix was found.
type Hits struct {
	N int64 `json:"n"` // requests that reported
	// Exceeding are requests that reported more cached tokens than their prompt had; they are in
	// no rate.
	Exceeding int64 `json:"exceeding,omitempty"`

	Device  *float64 `json:"device"`
	Host    *float64 `json:"host"`
	Storage *float64 `json:"storage"`
	Total   *float64 `json:"total"`
	// SplitFrom and TotalFrom are "counters" when the requests' usage did not say and the
	// server's counters did.
	SplitFrom string `json:"split_from,omitempty"`
	TotalFrom string `json:"total_from,omitempty"`
	// Ceiling is what an infinite cache would have found; LRUDevice and LRUHost what a plain
	// LRU of the size of the device pool, and of both pools together, would have.
	Ceiling   *float64 `json:"ceiling"`
	LRUDevice *float64 `json:"lru_device"`
	LRUHost   *float64 `json:"lru_host"`
}

// Jobs are whole trees. A tree is complete when its lane has begun another one.
type Jobs struct {
	Completed      int64    `json:"completed"` // within the window, trees that began inside the trace included
	PerHour        *float64 `json:"per_hour"`
	PerHourPerUser *float64 `json:"per_hour_per_user"`
	PerHourPerGPU  *float64 `json:"per_hour_per_gpu"`
	Completion     Dist     `json:"completion_s"` // trees that were played from their first turn
	JoinWait       Dist     `json:"join_wait_s"`  // requests that waited at all
	BarrierWait    Dist     `json:"barrier_wait_s"`
	// Trees and Traces are how many took part in the window.
	Trees  int64 `json:"trees"`
	Traces int64 `json:"traces"`
}

// Server is what the server's own metrics said within the window: means over time and maxima.
type Server struct {
	Samples      int64    `json:"samples"`
	DeviceKVMean *float64 `json:"device_kv_mean"` // share of the pool that requests hold
	DeviceKVMax  *float64 `json:"device_kv_max"`
	// DeviceFilled is the share that holds anything, cached prefixes that nobody holds included.
	DeviceFilledMean *float64 `json:"device_filled_mean"`
	DeviceFilledMax  *float64 `json:"device_filled_max"`
	HostKVMean       *float64 `json:"host_kv_mean"`
	HostKVMax        *float64 `json:"host_kv_max"`
	RunningMean      *float64 `json:"running_mean"` // requests
	QueuedMean       *float64 `json:"queued_mean"`
	QueuedMax        *float64 `json:"queued_max"`
	// AcceptMean are tokens of a decode step with speculative decoding; the others are the
	// queues of a disaggregated engine, requests.
	AcceptMean    *float64 `json:"accept_length_mean,omitempty"`
	BootstrapMean *float64 `json:"prefill_bootstrap_mean,omitempty"`
	InflightMean  *float64 `json:"prefill_inflight_mean,omitempty"`
	PreallocMean  *float64 `json:"decode_prealloc_mean,omitempty"`
	TransferMean  *float64 `json:"decode_transfer_mean,omitempty"`
	// Timings are the engine's own times, from its histograms; nil when nothing was scraped that has any.
	Timings *Timings `json:"timings,omitempty"`
	// Counters is nil when nothing was scraped that has any.
	Counters *Counted `json:"counters,omitempty"`
	// ByRole and ByEndpoint are the same by role ("prefill", "decode", "unified", "router") and by
	// endpoint in order of its URL; absent where one endpoint of one rank is all there is.
	ByRole     map[string]*Part `json:"by_role,omitempty"`
	ByEndpoint []Endpoint       `json:"by_endpoint,omitempty"`
}

// Timings are times as the engines see them, over what they observed from the start of the window
// to the last scrape; nil is what no engine publishes.
type Timings struct {
	TTFT  *Timing `json:"ttft_s,omitempty"`
	ITL   *Timing `json:"itl_s,omitempty"`
	E2EL  *Timing `json:"e2el_s,omitempty"`
	Queue *Timing `json:"queue_s,omitempty"`
}

// Timing is a histogram of seconds.
type Timing struct {
	N    int64    `json:"n"`
	Mean *float64 `json:"mean"` // exact
	P50  *Within  `json:"p50"`
	P90  *Within  `json:"p90"`
	P99  *Within  `json:"p99"`
}

// Within is a percentile that is known to lie in a bucket: Value is interpolated there, and off
// by at most High - Low. Value and High are nil in the last bucket, which is open.
type Within struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Counted is what the server's counters grew by from the start of the window to the last scrape,
// after the drain, over all endpoints; nil is what no engine counts. Tokens and requests.
type Counted struct {
	Engines []string `json:"engines"`
	Resets  int64    `json:"resets"` // how often a counter fell, as after a restart
	Counts
}

// Counts are what counters grew by; nil is what nobody counts.
type Counts struct {
	Prompt *int64 `json:"prompt_tokens,omitempty"`
	Output *int64 `json:"output_tokens,omitempty"`
	Ended  *int64 `json:"ended_requests,omitempty"`
	// HitPrompt are the prompt tokens that the hits below are a part of, by the counters of the
	// engine HitsOf.
	HitsOf         string `json:"hits_of,omitempty"`
	HitPrompt      *int64 `json:"hit_prompt_tokens,omitempty"`
	HitDevice      *int64 `json:"hit_device_tokens,omitempty"`
	HitHost        *int64 `json:"hit_host_tokens,omitempty"`
	HitStorage     *int64 `json:"hit_storage_tokens,omitempty"`
	Hit            *int64 `json:"hit_tokens,omitempty"`
	Computed       *int64 `json:"computed_tokens,omitempty"`
	Evicted        *int64 `json:"evicted_tokens,omitempty"`
	LoadedBack     *int64 `json:"loaded_back_tokens,omitempty"`
	BackedUp       *int64 `json:"backed_up_tokens,omitempty"`
	Retracted      *int64 `json:"retracted_requests,omitempty"`
	Preempted      *int64 `json:"preempted_requests,omitempty"`
	TransferFailed *int64 `json:"transfer_failed_requests,omitempty"`
	BytesToHost    *int64 `json:"bytes_to_host,omitempty"`
	BytesToDevice  *int64 `json:"bytes_to_device,omitempty"`
}

// Client is the load generator's own error; nil where it was not measured. On a virtual clock
// it has none.
type Client struct {
	TTFTBoundS *float64 `json:"ttft_bound_s"`
	ITLBoundS  *float64 `json:"itl_bound_s"`
	GCPauseS   *float64 `json:"gc_pause_s"`
	TimerLagS  *float64 `json:"timer_lag_s"`
}

// JSON is the form of result.json: indented, keys in the order of the fields, a newline at the
// end. Equal results have equal bytes.
func (r *Result) JSON() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
