package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readCSV reads tables of request lengths: BurstGPT (Timestamp in s, Request tokens, Response
// tokens, and others) and the Azure LLM inference traces (TIMESTAMP, ContextTokens,
// GeneratedTokens). The file becomes one trace of requests that start at their times.
//
// These tables say nothing about shared prefixes: the trace can load a server, and every
// question about caches is refused (NeedBlocks).
func readCSV(it *item, s *scanner, _ *LoadOptions) {
	buf := s.buf
	header, rest, _ := bytes.Cut(buf, []byte{'\n'})
	cols := splitHeader(string(header))
	col := func(name string) int { return slices.Index(cols, name) }
	tCol, inCol, outCol, modelCol := col("timestamp"), col("request tokens"), col("response tokens"), col("model")
	if inCol < 0 {
		inCol, outCol = col("contexttokens"), col("generatedtokens")
	}
	if tCol < 0 || inCol < 0 || outCol < 0 {
		it.fail(&FormatError{File: s.file, Line: 1, Col: 1, Msg: "the header lacks a column of timestamps, of tokens in, or of tokens out"})
		return
	}
	t := &Trace{ID: fileID(s.file), BlockSize: 64, LengthsOnly: true}
	models := map[string]int{}
	var start, last int64
	empty := 0
	line := 1
	for len(rest) > 0 {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\n'})
		line++
		text = bytes.TrimSuffix(text, []byte{'\r'})
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		cells := bytes.Split(text, []byte{','})
		bad := func(i int, format string, a ...any) {
			at := 1
			for _, c := range cells[:min(i, len(cells))] {
				at += len(c) + 1
			}
			it.fail(&FormatError{File: s.file, Line: line, Col: at, Field: cols[i], Msg: fmt.Sprintf(format, a...)})
		}
		if len(cells) != len(cols) {
			bad(0, "the row has %d columns, the header %d", len(cells), len(cols))
			return
		}
		at, err := stamp(string(bytes.Trim(cells[tCol], `" `)))
		if err != nil {
			bad(tCol, "%v", err)
			return
		}
		var n [2]int64
		for j, c := range []int{inCol, outCol} {
			n[j], err = strconv.ParseInt(string(bytes.TrimSpace(cells[c])), 10, 64)
			switch {
			case err != nil:
				bad(c, "want a whole number, found %.20q", cells[c])
				return
			case n[j] < 0:
				bad(c, "%d is negative", n[j])
				return
			case n[j] > maxTokens:
				bad(c, "%d is over the limit of %d", n[j], int64(maxTokens))
				return
			}
		}
		if line == 2 {
			start = at
		}
		if at-start < last {
			bad(tCol, "%s s is before the row above it at %s s: times must not decrease; sort the rows", seconds(at-start), seconds(last))
			return
		}
		last = at - start
		if n[0] == 0 || n[1] == 0 {
			empty++ // BurstGPT marks a failed request by a response of no tokens
			continue
		}
		name := "recorded"
		if modelCol >= 0 {
			name = string(bytes.Trim(cells[modelCol], `" `))
		}
		m, ok := models[name]
		if !ok {
			m = len(models)
			models[name] = m
			t.Models = append(t.Models, name)
		}
		st := Stream{ID: t.ID, Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound, StartNs: last, EndNs: last,
			Turns: []Turn{{StartNs: last, In: n[0], Out: n[1], Model: m}}}
		if len(t.Streams) > 0 {
			st.ID = fmt.Sprintf("%s::fa:%03d", t.ID, len(t.Streams)-1)
			st.Kind, st.Parent, st.Depth, st.Spawn = FlatAgent, 0, 1, 0
		}
		t.Streams = append(t.Streams, st)
	}
	if len(t.Streams) == 0 {
		it.fail(&FormatError{File: s.file, Msg: "the table has no request with tokens in and out"})
		return
	}
	// The clock starts with the first request that is kept.
	if first := t.Streams[0].StartNs; first > 0 {
		for i := range t.Streams {
			st := &t.Streams[i]
			st.StartNs, st.EndNs = st.StartNs-first, st.EndNs-first
			st.Turns[0].StartNs -= first
		}
	}
	if empty > 0 {
		it.notes = append(it.notes, fmt.Sprintf("%d rows with no tokens in or out left out", empty))
	}
	it.add(t)
}

// stamp reads a time in seconds, or a date with a time, as nanoseconds.
func stamp(text string) (int64, error) {
	if isNumber([]byte(text)) {
		ns, ok := decimal([]byte(text), 1_000_000_000)
		if !ok || ns < 0 || ns > maxSeconds*4*1_000_000_000 {
			return 0, fmt.Errorf("%s lies outside 0 to %d seconds", text, int64(maxSeconds*4))
		}
		return ns, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			if t.Year() < 1970 || t.Year() > 2200 {
				return 0, fmt.Errorf("the year %d is out of range", t.Year())
			}
			return t.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("want seconds or a date like 2023-11-16 18:15:46.68, found %.40q", text)
}

// NeedBlocks refuses a question about caches, named what, when the corpus can't answer it:
// when it holds traces that record lengths and no block identities.
func (c *Corpus) NeedBlocks(what string) error {
	var names []string
	for _, t := range c.Traces {
		if t.LengthsOnly {
			names = append(names, t.ID)
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
		names = names[:3]
	}
	return fmt.Errorf("%s: %s needs block identities, and %s%s record lengths only: which prompts share a prefix isn't known; use a corpus with hash_ids, or these traces for open-loop load",
		c.Name, what, strings.Join(names, ", "), more)
}
