package corpus

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteWeka writes a trace in the Weka form, on one line. Reading it back gives the same
// trace: streams that were found in a flat list are written flat and found again. A trace that
// the form can't hold, such as one with sub-agents of sub-agents, is refused.
func WriteWeka(w io.Writer, t *Trace) error {
	rec, err := flatten(t)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if err := rec.write(out); err != nil {
		return err
	}
	return out.Flush()
}

// flatten undoes build: it lays the turns of a trace out as a flat list with recorded
// sub-agents, in an order from which build finds the same streams again.
func flatten(t *Trace) (*recording, error) {
	rec := &recording{id: t.ID, blockSize: t.BlockSize, models: t.Models, systemTokens: t.Streams[0].SystemTokens,
		extra: t.Extra[At{Unbound, Unbound}]}
	refuse := func(format string, a ...any) error {
		return fmt.Errorf("trace %s: the Weka form can't hold it: %s", t.ID, fmt.Sprintf(format, a...))
	}
	if t.LengthsOnly {
		return nil, refuse("it records lengths only, no block ids")
	}
	type entry struct {
		t     int64
		place int // among entries of one time: a turn of the root before what it spawns
		at    At  // Turn is Unbound for a sub-agent
	}
	var entries []entry
	inner := map[int][]At{} // turns of a sub-agent and of the chains that were found in it
	agents := map[string]int{}
	for i := range t.Streams {
		s := &t.Streams[i]
		if s.Depth > 1 {
			return nil, refuse("stream %s is %d levels deep, and the form has one level of sub-agents", s.ID, s.Depth)
		}
		in := Unbound
		if s.Kind == SubAgent {
			agents[s.ID] = i
			entries = append(entries, entry{s.StartNs, 2*s.Spawn + 1, At{i, Unbound}})
			in = i
		} else if strings.HasPrefix(s.ID, t.ID+"::sa:") {
			for id, j := range agents {
				if strings.HasPrefix(s.ID, id+":") {
					in = j
				}
			}
		}
		for k := range s.Turns {
			switch {
			case in != Unbound:
				inner[in] = append(inner[in], At{i, k})
			case i == 0:
				entries = append(entries, entry{s.Turns[k].StartNs, 2 * k, At{i, k}})
			default:
				entries = append(entries, entry{s.Turns[k].StartNs, 2*s.Spawn + 1, At{i, k}})
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.place, b.place))
	})
	for outer, e := range entries {
		if e.at.Turn != Unbound {
			rec.requests = append(rec.requests, t.request(e.at, outer))
			continue
		}
		s := &t.Streams[e.at.Stream]
		a := agent{outer: outer, t: s.StartNs, id: strings.TrimPrefix(s.ID, t.ID+"::sa:"), label: s.Label,
			duration: s.EndNs - s.StartNs, systemTokens: s.SystemTokens, extra: t.Extra[e.at]}
		list := inner[e.at.Stream]
		slices.SortStableFunc(list, func(x, y At) int {
			return cmp.Compare(t.Streams[x.Stream].Turns[x.Turn].StartNs, t.Streams[y.Stream].Turns[y.Turn].StartNs)
		})
		for j, at := range list {
			a.requests = append(a.requests, t.request(at, j))
		}
		rec.agents = append(rec.agents, a)
	}
	again, err := rec.build()
	if err == nil && !bytes.Equal(digest(again), digest(t)) {
		err = refuse("its streams would not be found again in a flat list; a compiled file or Mooncake lines with Weir's members can hold it")
	}
	return rec, err
}

func (t *Trace) request(at At, outer int) request {
	u := &t.Streams[at.Stream].Turns[at.Turn]
	return request{outer: outer, t: u.StartNs, api: u.APINs, hasAPI: u.APINs > 0, think: u.ThinkNs, ttft: u.TTFTNs,
		in: u.In, out: u.Out, model: u.Model, blocks: u.Blocks, extra: t.Extra[at]}
}

func (rec *recording) write(w *bufio.Writer) error {
	b := make([]byte, 0, 1<<16)
	b = append(b, `{"id":`...)
	b = appendString(b, rec.id)
	b = append(b, `,"models":[`...)
	for i, m := range rec.models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m)
	}
	b = append(b, `],"block_size":`...)
	b = strconv.AppendInt(b, rec.blockSize, 10)
	b = append(b, `,"hash_id_scope":"local","tool_tokens":`...)
	b = strconv.AppendInt(b, rec.toolTokens, 10)
	b = append(b, `,"system_tokens":`...)
	b = strconv.AppendInt(b, rec.systemTokens, 10)
	b = append(b, `,"requests":[`...)
	r, a := 0, 0
	for r < len(rec.requests) || a < len(rec.agents) {
		if r+a > 0 {
			b = append(b, ',')
		}
		if a == len(rec.agents) || r < len(rec.requests) && rec.requests[r].outer < rec.agents[a].outer {
			b = rec.appendRequest(b, &rec.requests[r])
			r++
		} else {
			b = rec.appendAgent(b, &rec.agents[a])
			a++
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	b = append(b, ']')
	if rec.extra != "" {
		b = append(b, ',')
		b = append(b, rec.extra...)
	}
	b = append(b, "}\n"...)
	_, err := w.Write(b)
	return err
}

// The members that the form asks for and that say nothing, where nothing was recorded.
const (
	plainRequest = `"input_types":[],"output_types":[],"stop":""`
	plainAgent   = `"status":"completed"`
)

func orPlain(b []byte, extra, plain string) []byte {
	if extra == "" {
		extra = plain
	}
	return append(b, extra...)
}

func (rec *recording) appendAgent(b []byte, a *agent) []byte {
	b = append(b, `{"t":`...)
	b = append(b, seconds(a.t)...)
	b = append(b, `,"type":"subagent","agent_id":`...)
	b = appendString(b, a.id)
	b = append(b, `,"subagent_type":`...)
	b = appendString(b, a.label)
	b = append(b, `,"duration_ms":`...)
	b = append(b, milliseconds(a.duration)...)
	b = append(b, ',')
	b = orPlain(b, a.extra, plainAgent)
	b = append(b, `,"models":[`...)
	var models []int
	for i := range a.requests {
		if m := a.requests[i].model; !slices.Contains(models, m) {
			if len(models) > 0 {
				b = append(b, ',')
			}
			b = appendString(b, rec.models[m])
			models = append(models, m)
		}
	}
	b = append(b, `],"tool_tokens":`...)
	b = strconv.AppendInt(b, a.toolTokens, 10)
	b = append(b, `,"system_tokens":`...)
	b = strconv.AppendInt(b, a.systemTokens, 10)
	b = append(b, `,"requests":[`...)
	for i := range a.requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = rec.appendRequest(b, &a.requests[i])
	}
	return append(b, "]}"...)
}

func (rec *recording) appendRequest(b []byte, r *request) []byte {
	b = append(b, `{"t":`...)
	b = append(b, seconds(r.t)...)
	typ := "n"
	if r.ttft > 0 {
		typ = "s"
	}
	b = append(b, `,"type":"`+typ+`","model":`...)
	b = appendString(b, rec.models[r.model])
	b = append(b, `,"in":`...)
	b = strconv.AppendInt(b, r.in, 10)
	b = append(b, `,"out":`...)
	b = strconv.AppendInt(b, r.out, 10)
	b = append(b, `,"hash_ids":[`...)
	b = appendIDs(b, r.blocks, 0)
	b = append(b, "],"...)
	b = orPlain(b, r.extra, plainRequest)
	if r.hasAPI {
		b = append(b, `,"api_time":`...)
		b = append(b, seconds(r.api)...)
	}
	if r.ttft > 0 {
		b = append(b, `,"ttft":`...)
		b = append(b, seconds(r.ttft)...)
	}
	if r.think > 0 {
		b = append(b, `,"think_time":`...)
		b = append(b, seconds(r.think)...)
	}
	return append(b, '}')
}

func appendIDs(b []byte, ids []uint32, base uint64) []byte {
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, base+uint64(id), 10)
	}
	return b
}

func milliseconds(ns int64) string {
	s := strconv.FormatInt(ns/1_000_000, 10)
	if frac := ns % 1_000_000; frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", frac), "0")
	}
	return s
}

// appendString writes a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}
