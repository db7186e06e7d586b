package corpus

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// WriteWeka writes a trace in the Weka form. Reading it back gives the same trace: streams
// that were found in a flat list are written flat and found again.
//
// The form has one level of sub-agents below the root; a trace with more is refused.
func WriteWeka(w io.Writer, t *Trace) error {
	out := bufio.NewWriterSize(w, 1<<16)
	if err := writeWeka(out, t); err != nil {
		return err
	}
	return out.Flush()
}

// An entry is an element of the list of a Weka trace.
type wekaEntry struct {
	t      int64
	place  int // among entries of one time: root turns before what they spawn
	stream int
	turn   int // Unbound for a sub-agent
}

func writeWeka(w *bufio.Writer, t *Trace) error {
	var entries []wekaEntry
	inner := map[int][]At{} // requests of a sub-agent, its own and those of chains found in it
	owner := map[string]int{}
	for i := range t.Streams {
		s := &t.Streams[i]
		if s.Depth > 1 || i > 0 && s.Parent != 0 {
			return fmt.Errorf("trace %s: stream %s is %d levels deep: the Weka form has one level of sub-agents", t.ID, s.ID, s.Depth)
		}
		if s.Kind == SubAgent {
			owner[s.ID] = i
			entries = append(entries, wekaEntry{t: s.StartNs, place: 2*s.Spawn + 1, stream: i, turn: Unbound})
		}
		in := Unbound
		if name, found := strings.CutPrefix(s.ID, t.ID+"::sa:"); found {
			if j, ok := owner[s.ID]; ok {
				in = j
			} else {
				for id, j := range owner {
					if strings.HasPrefix(name, strings.TrimPrefix(id, t.ID+"::sa:")+":") {
						in = j
					}
				}
			}
		}
		for k := range s.Turns {
			switch {
			case in != Unbound:
				inner[in] = append(inner[in], At{i, k})
			case i == 0:
				entries = append(entries, wekaEntry{t: s.Turns[k].StartNs, place: 2 * k, stream: i, turn: k})
			default:
				entries = append(entries, wekaEntry{t: s.Turns[k].StartNs, place: 2*s.Spawn + 1, stream: i, turn: k})
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b wekaEntry) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.place, b.place))
	})

	b := make([]byte, 0, 1<<16)
	b = append(b, `{"id":`...)
	b = appendString(b, t.ID)
	b = append(b, `,"models":[`...)
	for i, m := range t.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m)
	}
	b = append(b, `],"block_size":`...)
	b = strconv.AppendInt(b, t.BlockSize, 10)
	b = append(b, `,"hash_id_scope":"local","tool_tokens":0,"system_tokens":`...)
	b = strconv.AppendInt(b, t.Streams[0].SystemTokens, 10)
	b = append(b, `,"requests":[`...)
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		if e.turn != Unbound {
			b = appendRequest(b, t, At{e.stream, e.turn})
		} else {
			b = appendAgent(b, t, e.stream, inner[e.stream])
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	b = append(b, ']')
	if extra := t.Extra[At{Unbound, Unbound}]; extra != "" {
		b = append(b, ',')
		b = append(b, extra...)
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

func appendAgent(b []byte, t *Trace, stream int, requests []At) []byte {
	s := &t.Streams[stream]
	slices.SortStableFunc(requests, func(x, y At) int {
		return cmp.Compare(t.Streams[x.Stream].Turns[x.Turn].StartNs, t.Streams[y.Stream].Turns[y.Turn].StartNs)
	})
	b = append(b, `{"t":`...)
	b = append(b, seconds(s.StartNs)...)
	b = append(b, `,"type":"subagent","agent_id":`...)
	b = appendString(b, strings.TrimPrefix(s.ID, t.ID+"::sa:"))
	b = append(b, `,"subagent_type":`...)
	b = appendString(b, s.Label)
	b = append(b, `,"duration_ms":`...)
	b = append(b, milliseconds(s.EndNs-s.StartNs)...)
	b = append(b, ',')
	if extra := t.Extra[At{stream, Unbound}]; extra != "" {
		b = append(b, extra...)
	} else {
		b = append(b, plainAgent...)
	}
	b = append(b, `,"models":[`...)
	var models []int
	for _, at := range requests {
		if m := t.Streams[at.Stream].Turns[at.Turn].Model; !slices.Contains(models, m) {
			if len(models) > 0 {
				b = append(b, ',')
			}
			b = appendString(b, t.Models[m])
			models = append(models, m)
		}
	}
	b = append(b, `],"tool_tokens":0,"system_tokens":`...)
	b = strconv.AppendInt(b, s.SystemTokens, 10)
	b = append(b, `,"requests":[`...)
	for i, at := range requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRequest(b, t, at)
	}
	return append(b, "]}"...)
}

func appendRequest(b []byte, t *Trace, at At) []byte {
	u := &t.Streams[at.Stream].Turns[at.Turn]
	b = append(b, `{"t":`...)
	b = append(b, seconds(u.StartNs)...)
	typ := "n"
	if u.TTFTNs > 0 {
		typ = "s"
	}
	b = append(b, `,"type":"`+typ+`","model":`...)
	b = appendString(b, t.Models[u.Model])
	b = append(b, `,"in":`...)
	b = strconv.AppendInt(b, u.In, 10)
	b = append(b, `,"out":`...)
	b = strconv.AppendInt(b, u.Out, 10)
	b = append(b, `,"hash_ids":[`...)
	for i, id := range u.Blocks {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	b = append(b, "],"...)
	if extra := t.Extra[at]; extra != "" {
		b = append(b, extra...)
	} else {
		b = append(b, plainRequest...)
	}
	if u.APINs > 0 {
		b = append(b, `,"api_time":`...)
		b = append(b, seconds(u.APINs)...)
	}
	if u.TTFTNs > 0 {
		b = append(b, `,"ttft":`...)
		b = append(b, seconds(u.TTFTNs)...)
	}
	if u.ThinkNs > 0 {
		b = append(b, `,"think_time":`...)
		b = append(b, seconds(u.ThinkNs)...)
	}
	return append(b, '}')
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

// WriteWekaDir writes every trace of c into a file of its own, named after the trace. The
// directory is made if need be and must hold no trace yet.
func WriteWekaDir(dir string, c *Corpus) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isTraceName(e.Name()) {
			return fmt.Errorf("%s already holds %s: want a directory without traces, so that two corpora don't mix", dir, e.Name())
		}
	}
	names := map[string]string{}
	for _, t := range c.Traces {
		name := fileName(t.ID)
		if other, ok := names[name]; ok {
			return fmt.Errorf("traces %q and %q would both be written to %s", other, t.ID, name)
		}
		names[name] = t.ID
		if err := writeFile(filepath.Join(dir, name), func(w io.Writer) error { return WriteWeka(w, t) }); err != nil {
			return err
		}
	}
	return nil
}

// fileName makes a trace's id a name of a file.
func fileName(id string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, id)
	return strings.TrimLeft(safe, ".") + ".json"
}

// writeFile writes a file under another name and renames it when it is whole.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
