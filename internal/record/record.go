// Package record holds what was measured: one Request for every request that was sent, in
// the order in which they ended, and the bundle on disk that keeps them.
//
// It decides nothing and derives nothing. Every number that Weir shows is derived from these
// records by package result, so a fault in a metric is a new derivation, never a new run.
//
// All times are integer nanoseconds since the run's epoch on one monotonic clock (real or
// virtual); the wall clock is kept once, in the bundle. A time that did not happen is Never.
// A count that nobody reported is Unknown. Neither is ever written as zero.
package record

import "fmt"

// Never is the value of a timestamp for something that did not happen.
const Never int64 = -1

// Unknown is the value of a count that nobody reported.
const Unknown int64 = -1

// Phase says which part of a run a request belongs to. Only Profiling enters metrics.
type Phase string

const (
	Calibrate Phase = "calibrate" // probes that learn the template's overhead
	Primer    Phase = "primer"    // warm-up: one token on the prefix before the start instant
	Pressure  Phase = "pressure"  // warm-up: further turns, one token each, no idle time
	Profiling Phase = "profiling"

	// NextPass is no phase of a request: it marks the sample that was asked for when a load began
	// its list of conversations again.
	NextPass Phase = "pass"
)

// Times are the eight instants of one request, in nanoseconds since the run's epoch.
// From Queued to End they never decrease, leaving out those that are Never.
type Times struct {
	Intended     int64 `json:"intended"`      // when the schedule wanted it sent
	Queued       int64 `json:"queued"`        // when the scheduler handed it to the target
	Sent         int64 `json:"sent"`          // just before the first byte was written
	Headers      int64 `json:"headers"`       // response headers received
	FirstToken   int64 `json:"first_token"`   // first non-empty text in any channel
	FirstVisible int64 `json:"first_visible"` // first non-empty text that is not reasoning
	LastToken    int64 `json:"last_token"`    // last non-empty text in any channel
	End          int64 `json:"end"`           // body ended, or the failure was seen
}

// Hits are prompt tokens by the tier in which their prefix was found. Unknown where the
// server does not say; Total is the sum that the server reported, which may be known
// when the split is not.
type Hits struct {
	Device  int64 `json:"device"`
	Host    int64 `json:"host"`
	Storage int64 `json:"storage"`
	Total   int64 `json:"total"`
}

// UnknownHits is a Hits about which nothing was reported.
var UnknownHits = Hits{Device: Unknown, Host: Unknown, Storage: Unknown, Total: Unknown}

// Chunk is one content frame of a streamed answer.
type Chunk struct {
	At     int64 `json:"at"`     // nanoseconds since the run's epoch
	Tokens int64 `json:"tokens"` // tokens in it, Unknown when the server does not say
}

// Doubt says how far instants may be off because of the client itself, in nanoseconds:
// upper bounds that were measured for this request, Unknown where nothing measured them.
// What the network and the kernels add is not in it.
type Doubt struct {
	Sent  int64 `json:"sent"`  // Sent may be too early by this
	First int64 `json:"first"` // FirstToken may be too late by this
	Last  int64 `json:"last"`  // LastToken may be too late by this
}

// TTFT bounds the error of FirstToken - Sent, which can only be too long; Unknown when one
// of its parts is.
func (d *Doubt) TTFT() int64 {
	if d == nil || d.Sent == Unknown || d.First == Unknown {
		return Unknown
	}
	return d.Sent + d.First
}

// Wire is how a request and its answer went over their connection.
type Wire struct {
	Reused bool `json:"reused"` // the connection had served another request before
	// DNSNs and ConnectNs are what looking the name up, and connecting (TLS included), took before
	// Sent, nanoseconds; 0 on a connection that was there.
	DNSNs     int64 `json:"dns_ns"`
	ConnectNs int64 `json:"connect_ns"`
	Written   int64 `json:"written"` // instant at which the whole request was with the kernel, Never when it was not
	Body      int64 `json:"body"`    // instant of the first byte of the answer's body, Never when there was none
	BytesOut  int64 `json:"bytes_out"`
	BytesIn   int64 `json:"bytes_in"` // heads included, as they came over the connection, both ways
	BodyOut   int64 `json:"body_out"` // of BytesOut the body
	BodyIn    int64 `json:"body_in"`  // of BytesIn the body, without the lengths between chunks; both 0 in records of before 2026-12-02
	Writes    int64 `json:"writes"`
	Reads     int64 `json:"reads"`
}

// Request is what was measured for one request.
type Request struct {
	Seq    uint64 `json:"seq"`    // unique in the run, in the order of dispatch, from 1
	Lane   int    `json:"lane"`   // unit of concurrency, from 0
	Play   int    `json:"play"`   // how many trees this lane had played before, from 0
	Tree   string `json:"tree"`   // identity of the live play; one salt a tree
	Trace  string `json:"trace"`  // id of the recorded run
	Stream string `json:"stream"` // id of the conversation, "<trace>" or "<trace>::sa:..."
	Depth  int    `json:"depth"`  // 0 for the root stream
	Turn   int    `json:"turn"`   // index in the stream, from 0
	// Outer is the request's place in a Weka trace's list of requests and sub-agents, from 1, Inner
	// that in the sub-agent's own list; 0 where there is none.
	Outer  int    `json:"outer,omitempty"`
	Inner  int    `json:"inner,omitempty"`
	Phase  Phase  `json:"phase"`   // only Profiling enters metrics
	Start  string `json:"start"`   // "snapshot" (tree began inside the trace) or "recycled"
	URL    string `json:"url"`     // base URL it went to, empty for the simulator in virtual time
	Model  string `json:"model"`   // model name that was asked for
	WantIn int64  `json:"want_in"` // prompt tokens that the trace recorded
	// WantOut is the number of output tokens asked for (max_tokens).
	WantOut int64 `json:"want_out"`

	Times Times `json:"times"`

	PromptTokens    int64 `json:"prompt_tokens"`    // as the server's usage says, else Unknown
	OutputTokens    int64 `json:"output_tokens"`    // all output, reasoning included, else Unknown
	ReasoningTokens int64 `json:"reasoning_tokens"` // part of OutputTokens, else Unknown
	Hits            Hits  `json:"hits"`

	// BadCount is the first count of the server's usage that is no count of tokens (negative, a
	// fraction, text, above MaxTokens), as "name value"; such a count is Unknown above.
	BadCount string `json:"bad_count,omitempty"`

	// CeilingTokens are the prompt tokens that an infinite cache, clean at the start of
	// the run, would have found, by block identity, at the moment of dispatch.
	CeilingTokens int64 `json:"ceiling_tokens"`

	// JoinWait and what follows are the waits before Intended could be reached, nanoseconds.
	JoinWait    int64 `json:"join_wait"`    // behind sub-agents that the turn joins
	BarrierWait int64 `json:"barrier_wait"` // behind other streams by recorded order

	Chunks []Chunk `json:"chunks,omitempty"` // content frames, kept when asked for
	Frames int64   `json:"frames,omitempty"` // number of content frames; 0 in virtual time
	// TextBytes are the bytes of all text in the answer as it stood in the frames, escapes
	// included; 0 in virtual time, where tokens came as ids, and from SGLang's generate,
	// whose frames may repeat the text so far.
	TextBytes int64 `json:"text_bytes,omitempty"`
	// LocalOutput is the output counted with a tokenizer of Weir's own, to check the
	// server's usage on a sample; nil where nobody counted.
	LocalOutput *int64 `json:"local_output,omitempty"`
	Doubt       *Doubt `json:"doubt,omitempty"` // nil in virtual time
	Wire        *Wire  `json:"wire,omitempty"`  // kept when asked for, over HTTP/1.1

	Failure *Failure `json:"failure,omitempty"` // nil when the request succeeded
	Resent  bool     `json:"resent,omitempty"`  // sent again once: the server closed the idle connection, or said over HTTP/2 that it processed nothing of it
}

// MaxTokens bounds a count of tokens of one request that is believed.
const MaxTokens = 1 << 40

// usageSlack are output tokens without text of their own that a usage may count: the end of
// the sequence, marks around reasoning and tool calls.
const usageSlack = 16

// UsageDoubt says why the server's count of output tokens cannot be true, empty when it can:
// every content frame has at least one token, every token but a few has at least one byte of
// text, and a local count that was made should not differ by more than 1 %.
func (r *Request) UsageDoubt() string {
	n := r.OutputTokens
	switch {
	case n == Unknown || r.Failure != nil || r.Frames == 0:
		return ""
	case n < r.Frames:
		return fmt.Sprintf("usage counts %d output tokens, but %d frames had text", n, r.Frames)
	case r.TextBytes > 0 && n > r.TextBytes+usageSlack:
		return fmt.Sprintf("usage counts %d output tokens, but the text has only %d bytes", n, r.TextBytes)
	case r.LocalOutput != nil && abs(n-*r.LocalOutput) > max(usageSlack, n/100):
		return fmt.Sprintf("usage counts %d output tokens, a local tokenizer %d", n, *r.LocalOutput)
	}
	return ""
}

func abs(n int64) int64 { return max(n, -n) }

// OK tells whether the request succeeded with at least one token.
func (r *Request) OK() bool { return r.Failure == nil }
