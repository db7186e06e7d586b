package knee

import (
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/replay"
)

// naive is an LRU cache of blocks, as one would write it: a list, the newest in front.
type naive struct {
	capacity, held int64 // tokens
	order          *list.List
	at             map[string]*list.Element
}

type entry struct {
	key    string
	tokens int64
}

func newNaive(capacity int64) *naive {
	return &naive{capacity: capacity, order: list.New(), at: map[string]*list.Element{}}
}

// keys name the blocks of a prompt by all that comes before them, before the salt within the
// trace and after it within the tree.
func keys(q *replay.Request) []string {
	var out []string
	path := q.Trace.ID
	for i, b := range q.Trace.Streams[q.Stream].Turns[q.Turn].Blocks {
		if i == q.Shared {
			path += "|" + q.Tree
		}
		path += fmt.Sprint("/", b)
		out = append(out, path)
	}
	return out
}

// look returns the tokens of the leading run that is held, and touches the prompt from its
// last block to its first.
func (n *naive) look(q *replay.Request) (found int64) {
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	ks := keys(q)
	for _, k := range ks {
		if n.at[k] == nil {
			break
		}
		found += q.Trace.BlockSize
	}
	for i := len(ks) - 1; i >= 0; i-- {
		if e := n.at[ks[i]]; e != nil {
			n.order.MoveToFront(e)
			continue
		}
		n.at[ks[i]] = n.order.PushFront(entry{ks[i], q.Trace.BlockSize})
		n.held += q.Trace.BlockSize
	}
	for n.held > n.capacity {
		e := n.order.Back()
		n.order.Remove(e)
		delete(n.at, e.Value.(entry).key)
		n.held -= e.Value.(entry).tokens
	}
	return min(found, t.In)
}

// drawPrompts makes requests over a few traces and trees whose prompts extend, share and cut
// each other.
func drawPrompts(t *rapid.T) (*corpus.Corpus, []replay.Request) {
	c := &corpus.Corpus{}
	var qs []replay.Request
	for i := range rapid.IntRange(1, 3).Draw(t, "traces") {
		c.Traces = append(c.Traces, &corpus.Trace{
			ID: fmt.Sprint("t", i), BlockSize: rapid.SampledFrom([]int64{8, 16, 24}).Draw(t, "block size"),
			Streams: make([]corpus.Stream, 1),
		})
	}
	var made [][]uint32
	for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
		tr := c.Traces[rapid.IntRange(0, len(c.Traces)-1).Draw(t, "trace")]
		var blocks []uint32
		if len(made) > 0 && rapid.IntRange(0, 4).Draw(t, "extends") > 0 {
			from := made[rapid.IntRange(max(0, len(made)-6), len(made)-1).Draw(t, "which")]
			blocks = append(blocks, from[:rapid.IntRange(0, len(from)).Draw(t, "keep")]...)
		}
		for range rapid.IntRange(0, 5).Draw(t, "new") {
			blocks = append(blocks, rapid.Uint32Range(1, 6).Draw(t, "block"))
		}
		made = append(made, blocks)
		lack := int64(0)
		if len(blocks) > 0 {
			lack = rapid.Int64Range(-10, tr.BlockSize-1).Draw(t, "lack")
		}
		s := &tr.Streams[0]
		s.Turns = append(s.Turns, corpus.Turn{In: int64(len(blocks))*tr.BlockSize - lack, Blocks: blocks})
		qs = append(qs, replay.Request{
			Seq: uint64(i + 1), Trace: tr, Turn: len(s.Turns) - 1,
			Tree:   fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "tree")),
			Shared: rapid.IntRange(0, 4).Draw(t, "shared"),
		})
	}
	return c, qs
}

func TestStackEqualsNaiveLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, qs := drawPrompts(t)
		s := newStack(c)
		ceiling := int64(0)
		for i := range qs {
			ceiling += s.touch(&qs[i], int64(i), true, func(int64, int64) {})
		}
		hits := s.hits()
		total := int64(0)
		for capacity := int64(0); capacity <= int64(len(hits)+3)*s.unit; capacity += s.unit {
			n, want := newNaive(capacity), int64(0)
			for i := range qs {
				want += n.look(&qs[i])
			}
			got := hits[min(capacity/s.unit, int64(len(hits))-1)]
			if got != want {
				t.Fatalf("capacity %d: %d tokens found, a naive LRU finds %d", capacity, got, want)
			}
			if got < total || got > ceiling {
				t.Fatalf("capacity %d finds %d tokens, less than a smaller one (%d) or more than the ceiling (%d)", capacity, got, total, ceiling)
			}
			total = got
		}
		if total != ceiling {
			t.Fatalf("the largest capacity finds %d tokens, the ceiling is %d", total, ceiling)
		}
	})
}

func TestFenwick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fenwick
		var plain []int64
		for range rapid.IntRange(1, 40).Draw(t, "n") {
			v := rapid.Int64Range(0, 100).Draw(t, "v")
			if f.append(v) != len(plain) {
				t.Fatal("wrong index")
			}
			plain = append(plain, v)
			i, d := rapid.IntRange(0, len(plain)-1).Draw(t, "i"), rapid.Int64Range(-50, 50).Draw(t, "d")
			f.add(i, d)
			plain[i] += d
			sum := int64(0)
			for k, v := range plain {
				if got := f.sum(k); got != sum {
					t.Fatalf("sum of %d is %d, want %d", k, got, sum)
				}
				sum += v
			}
			if f.total != sum {
				t.Fatalf("total %d, want %d", f.total, sum)
			}
		}
	})
}

// TestRecordedKnee plays the recorded runs and looks at the story that the seed reference tells:
// near the ceiling at low concurrency, collapse past the pool, recovery with a larger one.
func TestRecordedKnee(t *testing.T) {
	c, err := corpus.Load(material.Path(t, "traces", "weka"), corpus.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	curves, err := Compute(context.Background(), c, Config{Options: replay.InferenceX(0, time.Hour)}, []int{1, 2, 4, 8, 16, 32, 64, 128})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("eight curves in %v", time.Since(start))
	for _, v := range curves {
		var row strings.Builder
		for _, capacity := range []int64{500_000, 1_000_000, 1_700_000, 3_300_000, 7_000_000, 20_000_000} {
			r, _ := v.HitRate(capacity)
			fmt.Fprintf(&row, " %.3f", r)
		}
		ceil, _ := v.Ceiling()
		t.Logf("c %3d: %5d requests, hit%s, ceiling %.3f, needs %d, working set %d peak %d, distinct %d",
			v.Concurrency, v.Requests, row.String(), ceil, v.Needs(), v.WorkingSetTokens, v.WorkingSetPeak, v.DistinctTokens)
		last := 0.0
		for capacity := int64(0); capacity < 1<<26; capacity = capacity*5/4 + 1000 {
			r, ok := v.HitRate(capacity)
			if !ok || r < last || r > ceil {
				t.Fatalf("concurrency %d: hit rate %v at %d tokens after %v under a ceiling of %v", v.Concurrency, r, capacity, last, ceil)
			}
			last = r
		}
		if !v.Near(v.Needs()) || v.Near(v.Needs()-64) {
			t.Errorf("concurrency %d: %d tokens are not the least that is needed", v.Concurrency, v.Needs())
		}
	}
}

// Progress begins at 0 for every concurrency, never falls and comes near the whole.
func TestProgressRises(t *testing.T) {
	c, err := corpus.Generate(corpus.GenerateOptions{Traces: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	last, share, reports := map[int]int64{}, map[int]float64{}, 0
	o := replay.InferenceX(0, time.Hour)
	cfg := Config{Options: o, Progress: func(p Progress) {
		n, sent := p.Concurrency, p.Requests
		mu.Lock()
		defer mu.Unlock()
		before, begun := last[n]
		if begun != (sent > 0) || begun && sent <= before {
			t.Errorf("concurrency %d: %d requests after %d", n, sent, before)
		}
		if p.Share < share[n] || p.Share > 1 {
			t.Errorf("concurrency %d: a share of %v after %v", n, p.Share, share[n])
		}
		last[n], share[n] = sent, p.Share
		reports++
	}}
	curves, err := Compute(context.Background(), c, cfg, []int{2, 64})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range curves {
		if sent, ok := last[v.Concurrency]; !ok || v.Requests > sent+progressEvery {
			t.Errorf("concurrency %d: %d of %d requests were told", v.Concurrency, sent, v.Requests)
		}
	}
	if share[64] < 0.9 {
		t.Errorf("64 agents were last told to be at %v", share[64])
	}
	if reports < 3 {
		t.Errorf("only %d reports", reports)
	}
}
