package record

import (
	"encoding/json"
	"math"
)

// SchemaVersion is the version of the bundle's layout. A reader refuses a newer one.
const SchemaVersion = 1

// Meta is the content of point.json: what the run was asked to do, what it found, and all that
// a derivation needs beside the requests. Counts that nobody knows are Unknown.
type Meta struct {
	Schema  int    `json:"schema"`
	Weir    string `json:"weir"`     // version of the program that recorded it
	PointID string `json:"point_id"` // spec.Point.ID
	// Point is the resolved spec.Point; Recipe and Fleet what it was launched with.
	Point  json.RawMessage `json:"point"`
	Recipe json.RawMessage `json:"recipe,omitempty"`
	Fleet  json.RawMessage `json:"fleet,omitempty"`
	// Facts names the facts that were put before the embedded ones by the first 12 hex digits of
	// the SHA-256 of their text; empty for none.
	Facts string `json:"facts,omitempty"`
	// Processes are the command lines of everything that was started.
	Processes []Process `json:"processes,omitempty"`

	Seed   uint64 `json:"seed"`
	Repeat int    `json:"repeat"` // which repeat of the point this is, from 0
	// ControlOf are the ids of points with offload beside which a sweep added this one without, which
	// its file does not have; empty for points of the file.
	ControlOf []string `json:"control_of,omitempty"`
	Semantics string   `json:"semantics"` // replay semantics with its version, "agentx-1"
	// Replay are the resolved replay.Options, or the replay.Load, that made the schedule.
	Replay json.RawMessage `json:"replay,omitempty"`
	Corpus Corpus          `json:"corpus"`
	// Dataset says where the corpus came from, as AIPerf's metadata.dataset does; nil when nobody said.
	Dataset json.RawMessage `json:"dataset,omitempty"`

	// EpochWallNs is the wall clock at the run's epoch, nanoseconds since 1970. It enters a
	// result only when Virtual is false.
	EpochWallNs int64 `json:"epoch_wall_ns"`
	// Simulated says that no real engine answered; Virtual that the clock was virtual too.
	Simulated bool `json:"simulated"`
	Virtual   bool `json:"virtual"`
	// SimError describes the stated error of the simulation, empty when none is known.
	SimError string `json:"sim_error,omitempty"`
	// SimSpeed is how many times as fast as its own time a simulated engine ran on a real clock; 0
	// in virtual time and where no simulated engine said it.
	SimSpeed float64 `json:"sim_speed,omitempty"`

	// Window is the profiling phase.
	Window Window `json:"window"`
	// RanOutNs is how long after the window's start a load had sent its whole list and every
	// answer had come, nanoseconds; 0 when that was not before the window's end.
	RanOutNs int64 `json:"ran_out_ns,omitempty"`

	GPUs         GPUs  `json:"gpus"`          // as the point declares
	ObservedGPUs int64 `json:"observed_gpus"` // as the allocation or the devices say, else Unknown

	Pools         Pools `json:"pools"`          // as planned
	ObservedPools Pools `json:"observed_pools"` // as the engine's metrics say

	// Told is what the engines told of themselves, in their logs and on their info endpoints.
	Told []Fact `json:"told,omitempty"`

	// ClientCPUs is the list of CPUs that the client had for itself, such as "6-7"; empty for none.
	ClientCPUs string  `json:"client_cpus,omitempty"`
	Client     *Client `json:"client,omitempty"` // nil when the clock was virtual
	Engine     Engine  `json:"engine"`

	// CacheClean says whether the cache was verified empty at the start; nil when nobody looked.
	CacheClean *bool `json:"cache_clean,omitempty"`
	// CacheStart is how that was verified; nil where nobody looked.
	CacheStart *CacheStart `json:"cache_start,omitempty"`
	// LRUDevice and LRUHost are the hit rates, 0 to 1, of a plain LRU of the device pool's size
	// and of device and host pool together over the same schedule; nil when not computed.
	LRUDevice *float64 `json:"lru_device,omitempty"`
	LRUHost   *float64 `json:"lru_host,omitempty"`

	// RecordedHits are what an infinite cache would have found of the turns that succeeded, had
	// every trace come in recorded order (AIPerf's theoretical_prefix_cache_hit); nil where the
	// corpus has no blocks.
	RecordedHits *RecordedHits `json:"recorded_hits,omitempty"`

	// Cancelled says why the run was cut short; empty when it was not.
	Cancelled string `json:"cancelled,omitempty"`
	// Stalled says what made no progress; empty when nothing stalled.
	Stalled string `json:"stalled,omitempty"`
	// UnsafeOverrides are the rules that were switched off by hand.
	UnsafeOverrides []string `json:"unsafe_overrides,omitempty"`
	// ErrorRateLimit is the share of failed requests, 0 to 1, above which the result is
	// invalid; nil takes the default of package result.
	ErrorRateLimit *float64 `json:"error_rate_limit,omitempty"`
	// ClientLimit is the share of the median that the client's own error may reach, from 0 on;
	// a negative number sets no limit, nil takes the default of package result.
	ClientLimit *float64 `json:"client_limit,omitempty"`
	// CoverageLimit is the share of a long window, 0 to 1, that the last token must reach; a
	// negative number sets no limit, nil takes the default of package result.
	CoverageLimit *float64 `json:"coverage_limit,omitempty"`
}

// NewMeta returns a Meta of the current schema in which every count is Unknown.
func NewMeta() *Meta {
	return &Meta{
		Schema:        SchemaVersion,
		ObservedGPUs:  Unknown,
		Pools:         UnknownPools,
		ObservedPools: UnknownPools,
	}
}

// A CacheStart is how the caches of a server were emptied before a run, and what showed that
// they were. Token counts that nobody told are Unknown.
type CacheStart struct {
	// PointsBefore is how many points ran on the same server before; Restarted says why the server
	// was started again for this point though another had run on one before it.
	PointsBefore int    `json:"points_before"`
	Restarted    string `json:"restarted,omitempty"`
	// Salt keeps the prompts of the point apart from those of others on the server.
	Salt    string       `json:"salt,omitempty"`
	DrainNs int64        `json:"drain_ns"` // until no request was in flight
	Tries   int          `json:"tries"`    // rounds of flush and probe
	Flushes []CacheFlush `json:"flushes"`  // in order, of all rounds
	Probes  []CacheProbe `json:"probes"`   // of the last round
	// HeldTokens are cached tokens by the engines' gauges after the first request of the last probe.
	HeldTokens int64 `json:"held_tokens"`
	// Clean is the verdict, nil when nothing tells; Why says what spoke against it.
	Clean *bool  `json:"clean,omitempty"`
	Why   string `json:"why,omitempty"`
}

// A CacheFlush is one call that empties one tier of one process.
type CacheFlush struct {
	URL    string `json:"url"`
	Tries  int    `json:"tries"`  // calls, the last one answered with Status
	Status int    `json:"status"` // HTTP status
	Ns     int64  `json:"ns"`     // all tries
}

// A CacheProbe is the same prompt sent twice to a cache that was flushed: how many of its tokens
// were found by the answer's usage and by the engine's counters.
type CacheProbe struct {
	URL          string `json:"url"`
	PromptTokens int64  `json:"prompt_tokens"`
	Cold         int64  `json:"cold"`
	Warm         int64  `json:"warm"`
	ColdCounted  int64  `json:"cold_counted"`
	WarmCounted  int64  `json:"warm_counted"`
}

// Process is one process that was started for the point.
type Process struct {
	Name string            `json:"name,omitempty"` // unique among the point's; its log is logs/NAME.log
	Role string            `json:"role"`           // "prefill", "decode", "unified", "router", ...
	Host string            `json:"host,omitempty"`
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"` // without secrets
	// CPUs is the list of those that it is kept on, such as "0-5"; empty for no limit of Weir's.
	CPUs string `json:"cpus,omitempty"`
	// Metrics are the URLs under which samples of its metrics are recorded.
	Metrics []string `json:"metrics,omitempty"`
}

// Corpus names what was replayed.
type Corpus struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Traces      int    `json:"traces"`
	Skipped     int    `json:"skipped"` // broken traces left out by request
	// LengthsOnly are the traces that record lengths and no block identities: which of their prompts
	// share a prefix nobody knows, so that no hit rate of a run with them says anything.
	LengthsOnly int `json:"lengths_only,omitempty"`
}

// RecordedHits are blocks by phase; the warm-up is all that is not profiling.
type RecordedHits struct {
	Profiling Blocks `json:"profiling"`
	Warmup    Blocks `json:"warmup"`
}

// Blocks are those that were found, of those that were asked for.
type Blocks struct {
	Hit   int64 `json:"hit"`
	Total int64 `json:"total"`
}

// Window is the profiling phase in nanoseconds since the run's epoch. EndNs is StartNs plus the
// duration that was asked for, also when the run stopped before; EndNs equal to StartNs means
// that no duration was set and the phase lasts from the first request to the last.
type Window struct {
	StartNs int64 `json:"start_ns"`
	EndNs   int64 `json:"end_ns"`
}

// GPUs are physical GPUs. Prefill and Decode are 0 unless the point is disaggregated.
type GPUs struct {
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
	Total   int `json:"total"`
}

// Pools are the KV pools of the whole deployment, in unique tokens and in bytes. A pool that
// does not exist is 0, one of unknown size Unknown.
type Pools struct {
	DeviceTokens int64 `json:"device_tokens"`
	HostTokens   int64 `json:"host_tokens"`
	DeviceBytes  int64 `json:"device_bytes"`
	HostBytes    int64 `json:"host_bytes"`
}

// UnknownPools is a Pools about which nothing is known.
var UnknownPools = Pools{DeviceTokens: Unknown, HostTokens: Unknown, DeviceBytes: Unknown, HostBytes: Unknown}

// Client is what the load generator knows of its own error. All fields are nanoseconds and
// Unknown where they were not measured.
type Client struct {
	TTFTBoundNs int64 `json:"ttft_bound_ns"` // its error on a time to first token is at most this, for nine of ten requests
	ITLBoundNs  int64 `json:"itl_bound_ns"`  // its error on the time between two tokens is at most this, for nine of ten requests
	GCPauseNs   int64 `json:"gc_pause_ns"`   // longest pause of its garbage collector
	TimerLagNs  int64 `json:"timer_lag_ns"`  // p99 of the time from a timer's instant to its handling
	// Beyond says in what the run went beyond the calibration that its bounds are made of; empty
	// where it did not.
	Beyond string `json:"beyond,omitempty"`
	// Detail is what the bounds were made of: the run's own measurements and the calibration.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Engine is what was observed of the server.
type Engine struct {
	Name    string            `json:"name"` // "sglang", "vllm", "sim", ...; empty when unknown
	Version string            `json:"version,omitempty"`
	Image   string            `json:"image,omitempty"`
	Digest  string            `json:"image_digest,omitempty"` // of the image that ran, "sha256:..."; empty when unknown
	Facts   map[string]string `json:"facts,omitempty"`        // resolved arguments and what else its log said
}

// A Fact is one thing that an engine told of itself. Ranks and processes that tell different
// things have a fact each.
type Fact struct {
	Engine  string `json:"engine"` // whose spelling it is: "sglang", "vllm", ...
	Name    string `json:"name"`   // package engine/told has them; arguments are "arg.NAME"
	Value   string `json:"value"`
	Process string `json:"process,omitempty"` // name of the process, or the URL that was asked
	Rank    string `json:"rank,omitempty"`    // as the engine writes it: "DP0 TP1", "EngineCore_DP0"
	From    string `json:"from"`              // "log" or "info"
	Line    int64  `json:"line,omitempty"`    // of the log, from 1, where it was first seen
	Text    string `json:"text"`              // the spelling that it was read from, shortened
	Count   int64  `json:"count,omitempty"`   // how often the log says so
}

// A Sample is one scrape of one endpoint. On disk a sample may be a difference to the endpoint's
// sample before; ReadSamples puts it together again.
type Sample struct {
	At     int64  `json:"at"`     // nanoseconds since the run's epoch
	Source string `json:"source"` // URL of the endpoint, or "sim"
	// Values are by series in Prometheus text form: name or name{label="value",...}. A reader of
	// a bundle gets all of them, in a map that is valid until the next sample.
	Values map[string]float64 `json:"values"`
	// Delta says that Values are only those that changed, and Gone those that are no more.
	Delta bool     `json:"delta,omitempty"`
	Gone  []string `json:"gone,omitempty"`
	// Changed, where it is not nil, stands in place of Values and Gone, for a writer of samples alone: a
	// large page has thousands of changes a second, and a map of them costs more than they do. Spread makes
	// a map of it.
	Changed []Changed `json:"-"`
	// Families describe the metrics, by name, when they were first seen.
	Families map[string]Family `json:"families,omitempty"`
	Mark     Phase             `json:"mark,omitempty"`   // the phase that began when this was asked
	LagNs    int64             `json:"lag_ns,omitempty"` // from asking to the end of the answer
	// Thinned says that series which only add up may stand as at a sample before this one; see
	// BundleWriter.ThinSamples.
	Thinned bool   `json:"thinned,omitempty"`
	Error   string `json:"error,omitempty"` // why there are no values
}

// Changed is one series that has another value than before.
type Changed struct {
	// Number names the series beside Series: counted from 0 by who reads the source, of two series of a source
	// never the same.
	Number uint32
	Series string
	Value  float64 // NaN for a series that is no more
}

// Spread puts what Changed says into Values and Gone.
func (s *Sample) Spread() {
	if s.Changed == nil {
		return
	}
	s.Values, s.Gone = make(map[string]float64, len(s.Changed)), nil
	for _, c := range s.Changed {
		if math.IsNaN(c.Value) {
			s.Gone = append(s.Gone, c.Series)
		} else {
			s.Values[c.Series] = c.Value
		}
	}
	s.Changed = nil
}

// A Family is what an endpoint says of one metric.
type Family struct {
	Type string `json:"type"` // "counter", "gauge", "histogram", "summary", "unknown"
	Help string `json:"help,omitempty"`
	Unit string `json:"unit,omitempty"`
}
