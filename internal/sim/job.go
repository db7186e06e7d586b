package sim

import "github.com/weirbench/weir/internal/record"

const ppm = 1_000_000

// A job is one request inside an engine.
type job struct {
	id      uint64 // order of arrival
	session uint64 // what a router keeps together
	prompt  int64
	maxOut  int64
	arrived int64 // when it was queued
	first   int64 // when its first token was there, record.Never before

	// keys are the identities of its pages, first those of the prompt. Pages that hold an
	// output token are only its own; they are added when they are needed.
	keys []uint64
	own  uint64 // identity that its own pages are made of

	out   int64 // tokens generated
	carry int64 // accepted tokens not yet whole, parts per million
	fill  int64 // tokens that need keys and values before it can decode
	have  int64 // tokens that have them

	at    *node // deepest node of the tree that it holds
	held  int64 // tokens of the tree that it holds
	owned int64 // device tokens that only it holds

	// Of vLLM: chained hashes of its pages, blocks that it uses, and how many of them are
	// findable and were sent to the host.
	hashes        []uint64
	blocks        []int32
	named, stored int64
	hostBlocks    []uint64 // hashes on their way from the host until loadEnd
	loadEnd       int64

	match       int64  // tokens found in the cache when the queue was last sorted
	asked       bool   // storage was asked for it
	fetch       *fetch // what storage is bringing
	fromStorage int64  // tokens that it brought

	unsent   int64 // cached tokens that the decode engine still needs
	sent     int64 // tokens given to the link
	computed int64 // when its prompt was complete and only the link was left
	counted  bool  // hits are counted once, at the first chunk
	hits     record.Hits

	output  func(page int) uint64 // identity of a page with output tokens, nil for the job's own
	failure *record.Failure
}

// ended is the event of its end.
func (j *job) ended(now int64) Event {
	return Event{Kind: Ended, ID: j.id, At: now, Tokens: j.out, Hits: j.hits, Failure: j.failure}
}

// ownPage is the identity of a page that no other request has.
func ownPage(own uint64, i int) uint64 { return 3<<62 | own<<28&(1<<62-1) | uint64(i)&(1<<28-1) }

// pages returns the identities of the first n pages of prompt and output.
func (j *job) pages(n int64) []uint64 {
	for i := len(j.keys); i < int(n); i++ {
		if j.output != nil {
			j.keys = append(j.keys, j.output(i))
		} else {
			j.keys = append(j.keys, ownPage(j.own, i))
		}
	}
	return j.keys[:n]
}

// stepsLeft is the number of decode steps until its last token.
func (j *job) stepsLeft(accept int64) int64 {
	need := (j.maxOut-j.out)*ppm - j.carry
	return max(0, (need+accept-1)/accept)
}

// outAfter is what out will be after so many more steps.
func (j *job) outAfter(steps, accept int64) int64 {
	return min(j.maxOut, j.out+(j.carry+steps*accept)/ppm)
}

func (j *job) advance(steps, accept int64) (tokens int64) {
	before := j.out
	j.out = j.outAfter(steps, accept)
	j.carry = (j.carry + steps*accept) % ppm
	j.have = j.prompt + j.out - 1 // the last token has no keys and values yet
	return j.out - before
}
