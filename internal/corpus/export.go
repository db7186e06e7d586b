package corpus

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// WriteWekaLines writes every trace of c on a line of one file. The name tells the
// compression: .gz, .zst or none.
func WriteWekaLines(name string, c *Corpus) error {
	return writeCompressed(name, func(w io.Writer) error {
		for _, t := range c.Traces {
			if err := WriteWeka(w, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteMooncake writes c as Mooncake lines. A stream is a session, and ids are unique in the
// file, as the form asks for. With members every line carries what the form has no place for
// in a member "weir", which other tools pass over: then reading the file gives the same corpus.
//
// Mooncake readers take the block size from their own settings: it is printed by stats.
func WriteMooncake(name string, c *Corpus, members bool) error {
	return writeCompressed(name, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		base := uint64(0)
		for _, t := range c.Traces {
			next, err := writeMooncakeTrace(out, t, base, members)
			if err != nil {
				return err
			}
			base = next
		}
		return out.Flush()
	})
}

func writeMooncakeTrace(w *bufio.Writer, t *Trace, base uint64, members bool) (uint64, error) {
	top := uint64(0)
	for i := range t.Streams {
		for k := range t.Streams[i].Turns {
			for _, id := range t.Streams[i].Turns[k].Blocks {
				top = max(top, uint64(id)+1)
			}
		}
	}
	fresh := base + top
	b := make([]byte, 0, 1<<16)
	for _, at := range t.InTime() {
		s := &t.Streams[at.Stream]
		u := &s.Turns[at.Turn]
		b = append(b[:0], `{"timestamp":`...)
		b = append(b, milliseconds(u.StartNs)...)
		b = append(b, `,"session_id":`...)
		b = appendString(b, s.ID)
		b = append(b, `,"input_length":`...)
		b = strconv.AppendInt(b, u.In, 10)
		b = append(b, `,"output_length":`...)
		b = strconv.AppendInt(b, u.Out, 10)
		tail := int64(0)
		if !t.LengthsOnly {
			b = append(b, `,"hash_ids":[`...)
			b = appendIDs(b, u.Blocks, base)
			// The form counts a last block that isn't full; it is nobody else's.
			if int64(len(u.Blocks))*t.BlockSize < u.In {
				if len(u.Blocks) > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendUint(b, fresh, 10)
				fresh++
				tail = 1
			}
			b = append(b, ']')
		}
		if members {
			e := extension{trace: t.ID, kind: s.Kind.String(), label: s.Label, model: t.Models[u.Model],
				stream: int64(at.Stream), parent: int64(s.Parent), depth: int64(s.Depth), spawn: int64(s.Spawn), join: int64(s.Join),
				system: s.SystemTokens, blockSize: t.BlockSize, base: int64(base), start: s.StartNs, end: s.EndNs,
				t: u.StartNs, api: u.APINs, think: u.ThinkNs, ttft: u.TTFTNs, dropped: int64(t.DroppedTurns), tail: tail}
			if t.LengthsOnly {
				e.lengthsOnly = 1
			}
			if t.Estimated {
				e.estim = 1
			}
			b = e.append(b)
		}
		b = append(b, "}\n"...)
		if _, err := w.Write(b); err != nil {
			return 0, err
		}
	}
	return fresh, nil
}

// writeCompressed writes a file, compressed as its name says.
func writeCompressed(name string, write func(io.Writer) error) error {
	return writeFile(name, func(w io.Writer) error {
		var z io.WriteCloser
		switch filepath.Ext(name) {
		case ".gz":
			z = gzip.NewWriter(w)
		case ".zst":
			enc, err := zstd.NewWriter(w)
			if err != nil {
				return err
			}
			z = enc
		default:
			return write(w)
		}
		if err := write(z); err != nil {
			z.Close()
			return err
		}
		return z.Close()
	})
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
		if IsTraceFile(e.Name()) {
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
