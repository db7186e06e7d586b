// Package corpus holds what to send: recorded or generated agent runs, whatever format they
// came in, as traces made of streams made of turns.
//
// A corpus keeps block identities and times, never text. Equal block ids within one trace are
// equal tokens; ids of different traces have nothing to do with each other. Package prompt
// turns blocks into text when a request is sent.
package corpus

// Unbound marks a Stream's Join when no turn of the parent waits for it.
const Unbound = -1

// A Corpus is a set of traces prepared for replay. It is immutable once built and safe for
// concurrent use.
type Corpus struct {
	Name        string   // what the user called it: a directory, a file, a dataset name
	Fingerprint string   // names the content: equal for equal data in any order and format
	Traces      []*Trace // in order of file name, which is the order of replay
	Skipped     []error  // broken traces that --skip-broken left out; its length stands in every output
	Notes       []string // what the readers noticed and passed over, such as unknown fields, once each
}

// A Trace is one recorded agent run: a tree of streams.
type Trace struct {
	ID        string
	BlockSize int64    // tokens in a block
	Models    []string // in order of first appearance; Turn.Model indexes it
	Streams   []Stream // Streams[0] is the root; a parent comes before its children
	// LengthsOnly is true when the source recorded lengths but no block identities. Such a
	// trace can load a server; it can't answer a question about caches.
	LengthsOnly bool
	// Estimated is true when the source is text and tokens were counted by a rule of thumb.
	Estimated bool
	// Extra holds what the source recorded beyond the schema, as JSON members without braces,
	// by the turn they belong to: {stream, Unbound} is a stream, {Unbound, Unbound} the trace.
	// It is written back by convert and has no other use.
	Extra map[At]string
	// DroppedTurns are the requests of recorded sub-agents that no turn of the root precedes;
	// they belong to no stream and are not sent.
	DroppedTurns int
}

// Kind says what a stream is.
type Kind uint8

const (
	Root        Kind = iota // the agent itself
	SubAgent                // recorded as a sub-agent: "::sa:"
	FlatAgent               // an agent found inside a flat list of requests: "::fa:"
	WorkerGroup             // one of several agents that ran side by side: "::wg:"
	Aux                     // a side call or a reduction: "::aux:"
)

// At names a turn of a trace.
type At struct{ Stream, Turn int }

// A Stream is one conversation of a trace.
type Stream struct {
	ID     string // "<trace>" for the root, else "<trace>::<kind>:<name>"
	Kind   Kind
	Parent int // index in Trace.Streams, Unbound for the root
	Depth  int // 0 for the root
	// Spawn is the turn of the parent at whose dispatch this stream's clock starts.
	Spawn int
	// Join is the turn of the parent that must wait until this stream has ended; Unbound
	// for a background stream.
	Join int
	// StartNs and EndNs are the recorded interval since the trace's start. A sub-agent starts
	// when it was called, which is no later than its first turn.
	StartNs, EndNs int64
	Label          string // recorded type of a sub-agent, such as "Explore"; else empty
	// SystemTokens are the tokens of tools and system prompt at the head of every prompt.
	SystemTokens int64
	Turns        []Turn
}

// A Turn is one recorded request of a stream.
type Turn struct {
	StartNs int64 // since the trace's start
	// APINs is the recorded service time; 0 when it was not recorded.
	APINs   int64
	ThinkNs int64 // recorded think time before it; 0 when it was not recorded
	TTFTNs  int64 // recorded time to first token; 0 when it was not recorded
	In      int64 // prompt tokens
	Out     int64 // output tokens
	Model   int   // index in Trace.Models
	// Outer is the place in a Weka trace's list of requests and sub-agents, from 1, Inner that in
	// the sub-agent's own list; 0 for none, and both in traces of any other form.
	Outer, Inner int
	// Blocks are the identities of the prompt's blocks from its start. It may be one block
	// longer than In/BlockSize when the last block is partial. Treat as read-only: turns
	// share memory.
	Blocks []uint32
}

// EndNs is the recorded end of the turn, nanoseconds since the trace's start.
func (t *Turn) EndNs() int64 { return t.StartNs + t.APINs }
