// Package replay decides when to send what: phases, lanes, trees, timers, joins and barriers,
// as a state machine without a clock, a network or a goroutine.
//
// The machine has three entries: what is due at a time, when to be woken next, and the outcome
// of a request at a time. The real driver sleeps and calls; the virtual driver jumps to the
// next event of machine or target, whichever is first. Both run the same machine and produce
// the same records.
//
// Times are nanoseconds since the run's epoch.
package replay

import (
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

// A Request is one request that the machine wants sent now.
type Request struct {
	Seq                   uint64 // unique in the run, from 1, in order of dispatch
	Phase                 record.Phase
	Lane                  int
	Play                  int           // trees this lane has played before this one
	Tree                  string        // identity of the live play: "<lane>.<play>"
	Salt                  string        // text that makes this tree's prompts its own; see prompt.Salt
	Trace                 *corpus.Trace // recorded run
	Stream                int           // index in Trace.Streams
	Turn                  int           // index in Stream.Turns
	MaxOut                int64         // tokens to ask for
	Intended              int64         // when the schedule wanted it sent
	Queued                int64         // when the machine handed it over
	Snapshot              bool          // the tree began inside the trace, not at turn 0
	Ceiling               int64         // prompt tokens that an infinite cache would find
	Shared                int           // leading blocks before the salt: the same in every play of the trace
	JoinWait, BarrierWait int64         // waits behind joins and barriers, nanoseconds
}

// A Target accepts requests and reports what happened to them. client.Target does so over
// HTTP, sim.Target in virtual time.
//
// Send does not block and does not fail: whatever happens to the request, exactly one outcome
// arrives later, through the sink that the driver gave, never from inside Send.
type Target interface {
	// Start gives the target the sink for outcomes. It is called once, before any Send.
	// The sink may be called from any goroutine.
	Start(sink func(*record.Request))
	Send(Request)
	// Cancel asks for the end of everything in flight; outcomes still arrive, with
	// record.FailCancelled for what was cut.
	Cancel()
}

// A VirtualTarget is a Target whose time is driven from outside. Advance never calls the
// sink with a time beyond t, and the outcomes of one instant arrive in order of Seq.
type VirtualTarget interface {
	Target
	// Next is the time of its next event; ok is false when it has none until something is sent.
	Next() (t int64, ok bool)
	// Advance moves its clock to t, which must not lie beyond Next when Next is ok, and calls
	// the sink for what ended.
	Advance(t int64)
}

// A FirstTokenTarget also tells when the first token of a request arrives, which a limit on
// requests in prefill needs. OnFirstToken is called once, before any Send; what it is given
// may be called from any goroutine, never from inside Send.
type FirstTokenTarget interface {
	Target
	OnFirstToken(func(seq uint64))
}

// NewRecord begins the record of a request: identity filled in, every time but Intended and
// Queued Never, every count Unknown.
func NewRecord(q *Request) *record.Request {
	s := &q.Trace.Streams[q.Stream]
	t := &s.Turns[q.Turn]
	start := "recycled"
	if q.Snapshot {
		start = "snapshot"
	}
	return &record.Request{
		Seq: q.Seq, Lane: q.Lane, Play: q.Play, Tree: q.Tree,
		Trace: q.Trace.ID, Stream: s.ID, Depth: s.Depth, Turn: q.Turn, Outer: t.Outer, Inner: t.Inner,
		Phase: q.Phase, Start: start, WantIn: t.In, WantOut: q.MaxOut,
		Times: record.Times{
			Intended: q.Intended, Queued: q.Queued,
			Sent: record.Never, Headers: record.Never, FirstToken: record.Never,
			FirstVisible: record.Never, LastToken: record.Never, End: record.Never,
		},
		PromptTokens: record.Unknown, OutputTokens: record.Unknown, ReasoningTokens: record.Unknown,
		Hits: record.UnknownHits, CeilingTokens: q.Ceiling,
		JoinWait: q.JoinWait, BarrierWait: q.BarrierWait,
	}
}
