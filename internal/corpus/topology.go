package corpus

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// build turns a recording into a trace: it finds the streams, where each is spawned and which
// turn waits for it.
func (rec *recording) build() (*Trace, error) {
	t := &Trace{ID: rec.id, BlockSize: rec.blockSize}
	models := make([]int, len(rec.models))
	for i := range models {
		models[i] = Unbound
	}

	reqs := make([]*request, len(rec.requests))
	for i := range rec.requests {
		reqs[i] = &rec.requests[i]
	}
	slices.SortFunc(reqs, byTime)
	if len(reqs) == 0 {
		return nil, &FormatError{File: rec.file, Field: "requests",
			Msg: fmt.Sprintf("trace %q has no request of its own, only sub-agents", rec.id)}
	}
	main, workers := rec.split(reqs)

	t.Streams = append(t.Streams, Stream{
		ID: t.ID, Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound,
		SystemTokens: rec.toolTokens + rec.systemTokens,
	})
	turns := [][]*request{main}
	agents := map[int]int{} // place of the sub-agent that a stream is of, by stream
	extra := map[At]string{}
	if rec.extra != "" {
		extra[At{Unbound, Unbound}] = rec.extra
	}

	for i := range rec.agents {
		a := &rec.agents[i]
		spawn := lastBefore(main, a.outer)
		if spawn == Unbound || len(a.requests) == 0 {
			t.DroppedTurns += len(a.requests)
			continue
		}
		own := make([]*request, len(a.requests))
		for j := range a.requests {
			own[j] = &a.requests[j]
		}
		slices.SortFunc(own, byTime)
		end := a.t
		if a.duration != Unbound {
			end += a.duration
		} else {
			for _, r := range own {
				end = max(end, r.end())
			}
		}
		join := firstAfter(main, a.outer, end)
		inner, nested := splitChains(own)
		id := t.ID + "::sa:" + a.id
		if a.extra != "" {
			extra[At{len(t.Streams), Unbound}] = a.extra
		}
		agents[len(t.Streams)] = a.outer
		t.Streams = append(t.Streams, Stream{
			ID: id, Kind: SubAgent, Parent: 0, Depth: 1, Spawn: spawn, Join: join,
			StartNs: a.t, EndNs: end, Label: a.label,
			SystemTokens: a.toolTokens + a.systemTokens,
		})
		turns = append(turns, inner)
		for _, n := range nested {
			agents[len(t.Streams)] = a.outer
			t.Streams = append(t.Streams, Stream{
				ID: id + ":" + n.name, Kind: n.kind, Parent: 0, Depth: 1, Spawn: spawn, Join: join,
				StartNs: n.reqs[0].t, EndNs: latestEnd(n.reqs),
				SystemTokens: provenPrefix(a.toolTokens+a.systemTokens, rec.blockSize, n.base, n.reqs),
			})
			turns = append(turns, n.reqs)
		}
	}

	for _, w := range workers {
		end := latestEnd(w.reqs)
		first := w.reqs[0].outer
		spawn, join := max(lastBefore(main, first), 0), firstAfter(main, first, end)
		switch {
		case rec.apart:
			spawn, join = 0, Unbound
		case join <= spawn:
			join = Unbound // a turn can't wait for what it starts
		}
		t.Streams = append(t.Streams, Stream{
			ID: t.ID + "::" + w.name, Kind: w.kind, Parent: 0, Depth: 1, Spawn: spawn, Join: join,
			StartNs: w.reqs[0].t, EndNs: end,
			SystemTokens: provenPrefix(rec.toolTokens+rec.systemTokens, rec.blockSize, w.base, w.reqs),
		})
		turns = append(turns, w.reqs)
	}

	// Models are numbered by first appearance, the root's first.
	for i := range t.Streams {
		s := &t.Streams[i]
		s.Turns = make([]Turn, len(turns[i]))
		for k, r := range turns[i] {
			if models[r.model] == Unbound {
				models[r.model] = len(t.Models)
				t.Models = append(t.Models, rec.models[r.model])
			}
			s.Turns[k] = Turn{
				StartNs: r.t, APINs: r.api, ThinkNs: r.think, TTFTNs: r.ttft,
				In: r.in, Out: r.out, Model: models[r.model], Blocks: r.blocks[:len(r.blocks)+r.partial],
			}
			if outer, inner := agents[i]; rec.placed && inner {
				s.Turns[k].Outer, s.Turns[k].Inner = outer+1, r.outer+1
			} else if rec.placed {
				s.Turns[k].Outer = r.outer + 1
			}
			if r.extra != "" {
				extra[At{i, k}] = r.extra
			}
		}
		shareBlocks(s.Turns)
	}
	if len(extra) > 0 {
		t.Extra = extra
	}
	root := &t.Streams[0]
	root.StartNs = root.Turns[0].StartNs
	root.EndNs = latestEnd(main)
	return t, nil
}

// A found is a chain that was found beside the main one.
type found struct {
	name string // "fa:000", "wg:000_000" or "aux:000"
	kind Kind
	reqs []*request
	base *request // first request with blocks of the main chain
}

// split finds the agents of the flat list.
func (rec *recording) split(reqs []*request) (main []*request, workers []found) {
	if len(reqs) < 2 {
		return reqs, nil
	}
	return splitChains(reqs)
}

// splitChains separates the main chain from the others. reqs are sorted by byTime.
func splitChains(reqs []*request) (main []*request, workers []found) {
	preamble, rest := splitPreamble(reqs)
	d := detect(rest)
	if len(d.workers) == 0 {
		return reqs, nil
	}
	main = d.chains[d.main].requests
	var base *request
	for _, r := range main {
		if len(r.blocks) > 0 {
			base = r
			break
		}
	}
	for i, v := range d.classify() {
		f := found{kind: v.kind, reqs: d.chains[d.workers[i]].requests, base: base}
		n := fmt.Sprintf("%03d", i)
		switch {
		case v.kind == Aux:
			f.name = "aux:" + n
		case v.kind == WorkerGroup:
			f.name = fmt.Sprintf("wg:%03d_%03d", v.group, v.member)
		default:
			f.name = "fa:" + n
		}
		workers = append(workers, f)
	}
	if preamble != nil {
		main = append([]*request{preamble}, main...)
	}
	return main, workers
}

// lastBefore is the last turn that stands before an entry of the list.
func lastBefore(main []*request, outer int) int {
	last := Unbound
	for i, r := range main {
		if r.outer < outer {
			last = i
		}
	}
	return last
}

// firstAfter is the first turn behind an entry of the list that started when end had passed.
func firstAfter(main []*request, outer int, end int64) int {
	for i, r := range main {
		if r.outer > outer && r.t+epsilonNs >= end {
			return i
		}
	}
	return Unbound
}

func latestEnd(reqs []*request) int64 {
	end := reqs[0].t
	for _, r := range reqs {
		end = max(end, r.end())
	}
	return end
}

// provenPrefix is the length of the declared system prompt when the chain provably begins
// with it, else 0: a system prompt is never made up.
func provenPrefix(tokens, blockSize int64, base *request, reqs []*request) int64 {
	n := int((tokens + blockSize - 1) / blockSize)
	if n == 0 || base == nil || len(base.blocks) < n {
		return 0
	}
	for _, r := range reqs {
		if len(r.blocks) == 0 {
			continue
		}
		if len(r.blocks) >= n && slices.Equal(r.blocks[:n], base.blocks[:n]) {
			return tokens
		}
		return 0
	}
	return 0
}

// shareBlocks lays the block lists of consecutive turns that agree over each other.
func shareBlocks(turns []Turn) {
	for i := 0; i < len(turns); {
		longest := i
		j := i + 1
		for ; j < len(turns); j++ {
			a, b := turns[longest].Blocks, turns[j].Blocks
			n := min(len(a), len(b))
			if commonPrefix(a, b) < n {
				break
			}
			if len(b) > len(a) {
				longest = j
			}
		}
		// A clone: readers hand over lists that may be slices of something larger.
		all := slices.Clone(turns[longest].Blocks)
		for k := i; k < j; k++ {
			n := len(turns[k].Blocks)
			turns[k].Blocks = all[:n:n]
		}
		i = j
	}
}

// seconds writes nanoseconds as seconds without loss.
func seconds(ns int64) string {
	neg := ""
	if ns < 0 {
		neg, ns = "-", -ns
	}
	s := strconv.FormatInt(ns/1_000_000_000, 10)
	if frac := ns % 1_000_000_000; frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%09d", frac), "0")
	}
	return neg + s
}
