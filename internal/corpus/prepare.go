package corpus

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// FilterOptions choose traces and turns. Zero values choose all.
type FilterOptions struct {
	// MaxContext is the most tokens in and out of a turn. Traces with a larger turn are left
	// out whole, or with DropTurns their larger turns alone.
	MaxContext int64
	// DropTurns drops turns over MaxContext and keeps the others at their recorded times; the
	// clock moves only when the first turn of a trace is dropped.
	DropTurns      bool
	MinTurns       int  // traces with fewer turns are left out; counted after DropTurns
	NoChildren     bool // only roots are kept, as in the corpora without sub-agents
	DropDuplicates bool // of traces with equal content the first is kept
	Limit          int  // most traces, the first ones of those that are left
}

// A FilterReport counts what Filter left out.
type FilterReport struct {
	Traces          int   `json:"traces"`
	Kept            int   `json:"kept_traces"`
	OverContext     int   `json:"traces_over_context"`
	TooShort        int   `json:"traces_too_short"`
	Duplicates      int   `json:"duplicate_traces"`
	OverLimit       int   `json:"traces_over_limit"`
	Turns           int   `json:"turns"`
	DroppedTurns    int   `json:"dropped_turns"`
	DroppedStreams  int   `json:"dropped_streams"`
	LargestContext  int64 `json:"largest_context"`
	EmptiedByTurns  int   `json:"traces_without_a_turn_left"`
	ChildrenRemoved int   `json:"child_streams_removed"`
}

// Filter returns the traces and turns that opt chooses.
func (c *Corpus) Filter(opt FilterOptions) (*Corpus, *FilterReport, error) {
	rep := &FilterReport{Traces: len(c.Traces)}
	var kept []*Trace
	seen := map[string]bool{}
	for _, t := range c.Traces {
		turns := t.turns()
		rep.Turns += turns
		peak := t.peakContext()
		rep.LargestContext = max(rep.LargestContext, peak)
		if opt.NoChildren && len(t.Streams) > 1 {
			rep.ChildrenRemoved += len(t.Streams) - 1
			t = t.keep(func(at At) bool { return at.Stream == 0 })
		}
		if opt.MaxContext > 0 && peak > opt.MaxContext {
			if !opt.DropTurns {
				rep.OverContext++
				continue
			}
			streams, before := len(t.Streams), t.turns()
			t = t.under(opt.MaxContext)
			if t == nil {
				rep.EmptiedByTurns++
				rep.DroppedTurns += before
				continue
			}
			rep.DroppedTurns += before - t.turns()
			rep.DroppedStreams += max(0, streams-len(t.Streams))
		}
		if t.turns() < opt.MinTurns {
			rep.TooShort++
			continue
		}
		if opt.DropDuplicates {
			d := string(digest(t))
			if seen[d] {
				rep.Duplicates++
				continue
			}
			seen[d] = true
		}
		if opt.Limit > 0 && len(kept) >= opt.Limit {
			rep.OverLimit++
			continue
		}
		kept = append(kept, t)
	}
	rep.Kept = len(kept)
	if len(kept) == 0 {
		return nil, rep, fmt.Errorf("%s: the filter leaves none of %d traces; the largest turn has %d tokens in and out", c.Name, rep.Traces, rep.LargestContext)
	}
	return c.derive(kept, "filtered"), rep, nil
}

// under returns the trace without turns of more tokens, nil when its root has none left. A
// trace that the Weka form can hold becomes what it would be had it been recorded so: its
// streams are found again in what is left, as with the AgentX corpora whose requests were
// dropped at the source.
func (t *Trace) under(maxContext int64) *Trace {
	rec, err := flatten(t)
	if err != nil {
		return t.keep(func(at At) bool {
			u := &t.Streams[at.Stream].Turns[at.Turn]
			return u.In+u.Out <= maxContext
		})
	}
	over := func(r request) bool { return r.in+r.out > maxContext }
	if len(rec.requests) == 0 || len(slices.DeleteFunc(slices.Clone(rec.requests), over)) == 0 {
		return nil
	}
	rec.extra = "" // sums of what was
	first := over(rec.requests[0])
	rec.requests = slices.DeleteFunc(rec.requests, over)
	for i := range rec.agents {
		rec.agents[i].requests = slices.DeleteFunc(rec.agents[i].requests, over)
	}
	out, err := rec.build()
	if err != nil {
		return nil
	}
	if first {
		out.shift(out.Streams[0].Turns[0].StartNs)
	}
	return out
}

func (t *Trace) turns() int {
	n := 0
	for i := range t.Streams {
		n += len(t.Streams[i].Turns)
	}
	return n
}

func (t *Trace) peakContext() int64 {
	var peak int64
	for i := range t.Streams {
		for k := range t.Streams[i].Turns {
			u := &t.Streams[i].Turns[k]
			peak = max(peak, u.In+u.Out)
		}
	}
	return peak
}

// keep returns a trace, its streams as they are, with the turns that want chooses, nil when its root has none left. A
// stream without turns goes, and so do its children. A child whose spawning turn is gone
// starts at the turn before it that is left; without one a recorded sub-agent is dropped, as
// when the trace had been recorded so, and another starts at the first. A join waits at the
// next turn that is left.
func (t *Trace) keep(want func(At) bool) *Trace {
	out := &Trace{ID: t.ID, BlockSize: t.BlockSize, Models: t.Models, LengthsOnly: t.LengthsOnly, Estimated: t.Estimated,
		DroppedTurns: t.DroppedTurns}
	place := make([]int, len(t.Streams)) // where a stream went
	left := make([][]int, len(t.Streams))
	extra := map[At]string{}
	for i := range t.Streams {
		s := t.Streams[i]
		place[i] = Unbound
		for k := range s.Turns {
			if want(At{i, k}) {
				left[i] = append(left[i], k)
			}
		}
		if len(left[i]) == 0 {
			if i == 0 {
				return nil
			}
			continue
		}
		if i > 0 {
			parent := place[s.Parent]
			if parent == Unbound {
				continue
			}
			before := left[s.Parent]
			spawn, found := slices.BinarySearch(before, s.Spawn)
			if !found {
				spawn--
			}
			if spawn < 0 {
				if s.Kind == SubAgent {
					out.DroppedTurns += len(left[i])
					continue
				}
				spawn = 0
			}
			if s.Join != Unbound {
				join, _ := slices.BinarySearch(before, s.Join)
				s.Join = join
				if join >= len(before) || join <= spawn {
					s.Join = Unbound
				}
			}
			s.Spawn, s.Parent = spawn, parent
		}
		place[i] = len(out.Streams)
		turns := make([]Turn, len(left[i]))
		for n, k := range left[i] {
			turns[n] = t.Streams[i].Turns[k]
			if e := t.Extra[At{i, k}]; e != "" {
				extra[At{place[i], n}] = e
			}
		}
		if e := t.Extra[At{i, Unbound}]; e != "" && len(left[i]) == len(s.Turns) {
			extra[At{place[i], Unbound}] = e
		}
		s.Turns = turns
		if s.Kind != SubAgent {
			s.StartNs, s.EndNs = turns[0].StartNs, turns[0].EndNs()
			for k := range turns {
				s.EndNs = max(s.EndNs, turns[k].EndNs())
			}
		}
		out.Streams = append(out.Streams, s)
	}
	if len(extra) > 0 {
		out.Extra = extra
	}
	if left[0][0] > 0 {
		out.shift(out.Streams[0].Turns[0].StartNs)
	}
	out.orderModels()
	return out
}

// shift moves the clock so that by becomes 0. What began before is kept and starts at 0.
func (t *Trace) shift(by int64) {
	for i := range t.Streams {
		s := &t.Streams[i]
		s.StartNs, s.EndNs = max(0, s.StartNs-by), max(0, s.EndNs-by)
		for k := range s.Turns {
			s.Turns[k].StartNs = max(0, s.Turns[k].StartNs-by)
		}
	}
}

// Anonymize returns a corpus of equal content under other names: trace and sub-agent names,
// models and block ids are numbered, and whatever the schema doesn't know is left out. Traces
// are ordered by their content, so their order tells nothing either. The fingerprint stays.
func (c *Corpus) Anonymize() *Corpus {
	sums := digests(c.Traces)
	order := make([]int, len(c.Traces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return bytes.Compare(sums[a], sums[b]) })
	out := make([]*Trace, len(order))
	models := map[string]string{}
	for n, i := range order {
		for _, m := range c.Traces[i].Models {
			if models[m] == "" {
				models[m] = fmt.Sprintf("model_%d", len(models)+1)
			}
		}
		out[n] = c.Traces[i].anonymous(fmt.Sprintf("trace_%05d", n+1), models)
	}
	d := c.derive(out, "anonymized")
	d.Notes = nil
	d.Skipped = slices.Repeat([]error{errAnonymous}, len(d.Skipped)) // they count, and say no name
	return d
}

var errAnonymous = errors.New("a broken trace")

func (t *Trace) anonymous(id string, models map[string]string) *Trace {
	out := &Trace{ID: id, BlockSize: t.BlockSize, LengthsOnly: t.LengthsOnly, Estimated: t.Estimated, DroppedTurns: t.DroppedTurns}
	for _, m := range t.Models {
		out.Models = append(out.Models, models[m])
	}
	numbers := newNumbering()
	agents := 0
	rename := map[string]string{}
	for i := range t.Streams {
		s := t.Streams[i]
		s.Label = ""
		switch {
		case i == 0:
			rename[s.ID], s.ID = id, id
		case s.Kind == SubAgent:
			agents++
			name := fmt.Sprintf("%s::sa:agent_%03d", id, agents)
			rename[s.ID], s.ID = name, name
		default:
			// A chain is named after the stream that it was found in: "<stream>:<kind>:<number>".
			longest := ""
			for old := range rename {
				if len(old) > len(longest) && len(s.ID) > len(old) && s.ID[:len(old)+1] == old+":" {
					longest = old
				}
			}
			s.ID = rename[longest] + s.ID[len(longest):]
		}
		turns := make([]Turn, len(s.Turns))
		var prev, prevNew []uint32
		for k, u := range s.Turns {
			keep := commonPrefix(prev, u.Blocks)
			ids := make([]uint32, len(u.Blocks))
			copy(ids, prevNew[:keep])
			for j, b := range u.Blocks[keep:] {
				ids[keep+j] = numbers.of(b) + 1
			}
			prev, prevNew = u.Blocks, ids
			u.Blocks = ids
			turns[k] = u
		}
		s.Turns = turns
		shareBlocks(s.Turns)
		out.Streams = append(out.Streams, s)
	}
	return out
}

// Reblock returns the corpus in blocks of another size, a multiple of each trace's own: a new
// block is so many old ones in a row. What is left over at the end of a prompt becomes tail.
func (c *Corpus) Reblock(size int64) (*Corpus, error) {
	out := make([]*Trace, len(c.Traces))
	for i, t := range c.Traces {
		if size <= 0 || size%t.BlockSize != 0 {
			return nil, fmt.Errorf("trace %s has blocks of %d tokens: they can be joined to blocks of a multiple of that, not of %d", t.ID, t.BlockSize, size)
		}
		n := int(size / t.BlockSize)
		d := *t
		d.BlockSize = size
		d.Streams = slices.Clone(t.Streams)
		table := map[string]uint32{}
		key := make([]byte, 0, 4*n)
		for j := range d.Streams {
			s := &d.Streams[j]
			s.Turns = slices.Clone(s.Turns)
			for k := range s.Turns {
				u := &s.Turns[k]
				ids := make([]uint32, len(u.Blocks)/n)
				for b := range ids {
					key = key[:0]
					for _, id := range u.Blocks[b*n : b*n+n] {
						key = append(key, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
					}
					v, ok := table[string(key)]
					if !ok {
						v = uint32(len(table)) + 1
						table[string(key)] = v
					}
					ids[b] = v
				}
				u.Blocks = ids
			}
			shareBlocks(s.Turns)
		}
		out[i] = &d
	}
	return c.derive(out, fmt.Sprintf("in blocks of %d", size)), nil
}

// byKey sorts indices by a number, then by index.
func byKey(n int, key func(i int) float64) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	return order
}
