package sim

import (
	"cmp"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// Fixed is an engine of constant speed: every task's first token comes after TTFT, each
// further one after ITL, whatever else runs; it caches nothing. It tests clients whose numbers
// must come out as given.
type Fixed struct {
	TTFT, ITL  int64 // nanoseconds
	ContextLen int64 // tokens of prompt and output, 1,048,576 when 0

	now    int64
	tasks  []*fixedTask
	events []Event
	count  Stats
}

type fixedTask struct {
	t     Task
	begin int64
	out   int64
}

func (f *Fixed) due(k *fixedTask) int64 { return k.begin + f.TTFT + k.out*f.ITL }

// Refusal says why a task cannot be served at all, nil when it can.
func (f *Fixed) Refusal(prompt, maxOut int64) *record.Failure {
	return refuse(prompt, maxOut, cmp.Or(f.ContextLen, 1<<20))
}

// Submit sends a task that is received at the given time.
func (f *Fixed) Submit(at int64, t Task) { f.tasks = append(f.tasks, &fixedTask{t: t, begin: at}) }

// Next is when the next token comes.
func (f *Fixed) Next() (t int64, ok bool) {
	if len(f.events) > 0 {
		return f.now, true
	}
	for _, k := range f.tasks {
		if d := f.due(k); !ok || d < t {
			t, ok = d, true
		}
	}
	return max(t, f.now), ok
}

// Advance moves to t and returns what happened, in order of time.
func (f *Fixed) Advance(t int64) []Event {
	hits := record.Hits{}
	f.tasks = slices.DeleteFunc(f.tasks, func(k *fixedTask) bool {
		for d := f.due(k); d <= t; d = f.due(k) {
			k.out++
			f.events = append(f.events, Event{Kind: Tokens, ID: k.t.ID, At: d, Tokens: 1, First: k.out == 1, Hits: hits})
			if k.out == k.t.MaxOut {
				f.events = append(f.events, Event{Kind: Ended, ID: k.t.ID, At: d, Tokens: k.out, Hits: hits})
				f.count.Requests++
				f.count.PromptTokens += k.t.Prompt
				f.count.PrefillTokens += k.t.Prompt
				f.count.OutputTokens += k.out
				return true
			}
		}
		return false
	})
	f.now = max(f.now, t)
	out := f.events
	f.events = nil
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return out
}

// Cancel ends one task.
func (f *Fixed) Cancel(id uint64) { f.cancel(func(k *fixedTask) bool { return k.t.ID == id }) }

// CancelAll ends every task.
func (f *Fixed) CancelAll() { f.cancel(func(*fixedTask) bool { return true }) }

func (f *Fixed) cancel(which func(*fixedTask) bool) {
	f.tasks = slices.DeleteFunc(f.tasks, func(k *fixedTask) bool {
		if !which(k) {
			return false
		}
		f.events = append(f.events, Event{Kind: Ended, ID: k.t.ID, At: f.now, Tokens: k.out, Failure: cancelled()})
		f.count.Requests++
		f.count.Failed++
		return true
	})
}

// Flush reports whether nothing runs; there is no cache.
func (f *Fixed) Flush() bool { return len(f.tasks) == 0 }

// Stats returns the counts of its one rank.
func (f *Fixed) Stats() []Stats {
	n := f.count
	n.Running = int64(len(f.tasks))
	return []Stats{n}
}
