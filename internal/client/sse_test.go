package client

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gathered is a sink that keeps copies of all it gets.
type gathered struct{ names, data []string }

func (g *gathered) event(name, data []byte) error {
	g.names = append(g.names, string(name))
	g.data = append(g.data, string(data))
	return nil
}

// split feeds a stream in the pieces that next gives the lengths of, each piece in memory of
// its own that is overwritten afterwards.
func split(t testing.TB, stream []byte, next func() int) (events, tail gathered) {
	s := eventStream{limit: 1 << 20}
	for len(stream) > 0 {
		n := min(max(next(), 1), len(stream))
		piece := bytes.Clone(stream[:n])
		stream = stream[n:]
		if err := s.feed(piece, &events); err != nil {
			t.Fatal(err)
		}
		for i := range piece {
			piece[i] = '#'
		}
	}
	if err := s.finish(&tail); err != nil {
		t.Fatal(err)
	}
	return events, tail
}

func TestEventCorpus(t *testing.T) {
	raw, err := os.ReadFile("testdata/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Stream        string
		Events, Names, Tail []string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 30 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		for size := 1; size <= len(c.Stream)+1; size++ {
			got, tail := split(t, []byte(c.Stream), func() int { return size })
			if !slices.Equal(got.data, c.Events) && len(got.data)+len(c.Events) > 0 {
				t.Errorf("%s, %d bytes at a time: events %q, want %q", c.Name, size, got.data, c.Events)
			}
			if c.Names != nil && !slices.Equal(got.names, c.Names) {
				t.Errorf("%s, %d bytes at a time: types %q, want %q", c.Name, size, got.names, c.Names)
			}
			if !slices.Equal(tail.data, c.Tail) && len(tail.data)+len(c.Tail) > 0 {
				t.Errorf("%s, %d bytes at a time: tail %q, want %q", c.Name, size, tail.data, c.Tail)
			}
		}
		naive, naiveTail := naiveEvents(c.Stream)
		if !slices.Equal(naive.data, c.Events) && len(c.Events) > 0 || len(naiveTail) > 0 != (len(c.Tail) > 0) {
			t.Errorf("%s: the naive parser says %q and %q", c.Name, naive.data, naiveTail)
		}
	}
}

// naiveEvents reads a whole stream as the standard's text says, with none of the parser's
// shortcuts. tail is what the last blank line is missing for.
func naiveEvents(stream string) (events gathered, tail []string) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	var data []string
	name := ""
	for i, line := range lines {
		if line == "" && i < len(lines)-1 {
			if data != nil {
				events.event([]byte(name), []byte(strings.Join(data, "\n")))
			}
			data, name = nil, ""
			continue
		}
		field, value, colon := strings.Cut(line, ":")
		if colon && field == "" {
			continue
		}
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	if data != nil {
		tail = []string{strings.Join(data, "\n")}
	}
	return events, tail
}

var streamPieces = []string{"\n", "\n", "\r", "\r\n", "\n\n", "data", "data:", "data: ", ":", " ", "event: ", "event", "id: 7", "\ufeff",
	"x", "a longer piece of text", "[DONE]", `{"choices":[]}`, "\x00", "ü", "\u2028", ": comment"}

func TestEventsAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.SampledFrom(streamPieces), 0, 60).Draw(t, "pieces"), "")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 20).Draw(t, "sizes")
		compareNaive(t, stream, sizes)
	})
}

func compareNaive(t rapid.TB, stream string, sizes []int) {
	i := 0
	s := eventStream{limit: 1 << 20}
	var got, tail gathered
	for rest := []byte(stream); len(rest) > 0; i++ {
		n := min(sizes[i%len(sizes)], len(rest))
		s.feed(bytes.Clone(rest[:n]), &got)
		rest = rest[n:]
	}
	s.finish(&tail)
	want, wantTail := naiveEvents(stream)
	if !slices.Equal(got.data, want.data) || !slices.Equal(got.names, want.names) {
		t.Fatalf("stream %q in %v: %q, the naive parser has %q", stream, sizes, got, want)
	}
	if !slices.Equal(tail.data, wantTail) {
		t.Fatalf("stream %q in %v: tail %q, the naive parser has %q", stream, sizes, tail.data, wantTail)
	}
}

func FuzzEventStream(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\n: c\rdata:d\r\r", uint64(1))
	f.Add("\ufeffevent: error\ndata\n\n", uint64(2))
	f.Fuzz(func(t *testing.T, stream string, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sizes := make([]int, 8)
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(12)
		}
		compareNaive(t, stream, sizes)
	})
}

func TestFrameLimit(t *testing.T) {
	for name, stream := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", 2000) + "\n\n",
		"many lines": strings.Repeat("data: xxxx\n", 400) + "\n",
		"no end":     strings.Repeat("x", 2000),
	} {
		s := eventStream{limit: 1000}
		var err error
		for i := 0; i < len(stream) && err == nil; i += 100 {
			err = s.feed([]byte(stream[i:min(i+100, len(stream))]), &gathered{})
		}
		if err != errFrameTooLong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkEvents parses a read that holds one frame, as most reads do.
func BenchmarkEvents(b *testing.B) {
	for name, frames := range map[string]int{"one-frame": 1, "ten-frames": 10} {
		b.Run(name, func(b *testing.B) {
			p := []byte(strings.Repeat(token("hello"), frames))
			s := eventStream{limit: 1 << 20}
			var sink countingSink
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				s.feed(p, &sink)
			}
		})
	}
}

type countingSink int

func (c *countingSink) event(_, _ []byte) error { *c++; return nil }
