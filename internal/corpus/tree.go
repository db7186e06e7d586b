package corpus

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteTree draws a trace as text: its streams under the turns of the root that spawned them,
// with their times and where they are joined.
func WriteTree(w io.Writer, t *Trace) error {
	p := &treePrinter{w: w, t: t}
	root := &t.Streams[0]
	turns := 0
	for i := range t.Streams {
		turns += len(t.Streams[i].Turns)
	}
	p.printf("%s: %d streams, %d turns, block size %d, models %s\n", t.ID, len(t.Streams), turns, t.BlockSize, strings.Join(t.Models, ", "))
	if !t.LengthsOnly {
		h := t.InfiniteHits()
		p.printf("infinite cache: %d of %d blocks, %.4f\n", h.HitBlocks, h.TotalBlocks, h.Rate)
	}
	if t.DroppedTurns > 0 {
		p.printf("dropped: %d turns of sub-agents that no turn of the root precedes\n", t.DroppedTurns)
	}
	p.printf("\n%s  %s\n", root.ID, p.span(0))
	p.stream(0, "")
	return p.err
}

type treePrinter struct {
	w   io.Writer
	t   *Trace
	err error
}

func (p *treePrinter) printf(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}

// stream draws the turns of a stream that matter for the tree, and below them its children.
func (p *treePrinter) stream(i int, indent string) {
	s := &p.t.Streams[i]
	spawns := map[int][]int{}
	joins := map[int][]int{}
	for c := range p.t.Streams {
		if ch := &p.t.Streams[c]; ch.Parent == i {
			spawns[ch.Spawn] = append(spawns[ch.Spawn], c)
			if ch.Join != Unbound {
				joins[ch.Join] = append(joins[ch.Join], c)
			}
		}
	}
	for k := 0; k < len(s.Turns); k++ {
		// Runs of turns without spawns and joins are one line.
		end := k
		for end < len(s.Turns) && len(spawns[end]) == 0 && len(joins[end]) == 0 {
			end++
		}
		if end-k > 1 {
			a, b := &s.Turns[k], &s.Turns[end-1]
			p.printf("%s├─ turns %d..%d  %s..%s  in %d..%d\n", indent, k, end-1, clock(a.StartNs), clock(b.EndNs()), a.In, b.In)
			k = end - 1
			continue
		}
		u := &s.Turns[k]
		p.printf("%s├─ turn %d  %s  in %d out %d%s\n", indent, k, clock(u.StartNs), u.In, u.Out, p.waits(joins[k]))
		for _, c := range spawns[k] {
			ch := &p.t.Streams[c]
			join := "background"
			if ch.Join != Unbound {
				join = fmt.Sprintf("joins turn %d", ch.Join)
			}
			label := ""
			if ch.Label != "" {
				label = " " + ch.Label
			}
			p.printf("%s│  ├─ %s  %s%s  %s  %s\n", indent, strings.TrimPrefix(ch.ID, p.t.ID), ch.Kind, label, p.span(c), join)
			p.children(c, indent+"│  │  ")
		}
	}
}

func (p *treePrinter) children(i int, indent string) {
	for c := range p.t.Streams {
		if p.t.Streams[c].Parent == i {
			p.stream(i, indent)
			return
		}
	}
}

func (p *treePrinter) waits(list []int) string {
	if len(list) == 0 {
		return ""
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = strings.TrimPrefix(p.t.Streams[c].ID, p.t.ID)
	}
	return "  waits for " + strings.Join(names, ", ")
}

func (p *treePrinter) span(i int) string {
	s := &p.t.Streams[i]
	var in, out int64
	for k := range s.Turns {
		in += s.Turns[k].In
		out += s.Turns[k].Out
	}
	return fmt.Sprintf("%s..%s  %d turns, in %d, out %d", clock(s.StartNs), clock(s.EndNs), len(s.Turns), in, out)
}

// clock writes a recorded time as +h:mm:ss.mmm.
func clock(ns int64) string {
	d := time.Duration(ns).Round(time.Millisecond)
	h := d / time.Hour
	m := d % time.Hour / time.Minute
	s := d % time.Minute
	if h > 0 {
		return fmt.Sprintf("%d:%02d:%06.3f", h, m, s.Seconds())
	}
	return fmt.Sprintf("%d:%06.3f", m, s.Seconds())
}
