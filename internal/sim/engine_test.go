package sim

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// held is what the requests inside a scheduler own of the device, tokens, beside the tree.
func held(s *sglang) (n int64) {
	for _, list := range [][]*job{s.running, s.inflight, s.expected, s.arrived} {
		for _, j := range list {
			n += j.owned
		}
	}
	if s.chunked != nil {
		n += s.chunked.owned
	}
	for _, p := range s.step.prefill {
		if p.j != s.chunked {
			n += p.j.owned
		}
	}
	return n
}

// conserved returns what is wrong with the memory of an engine, or "".
func conserved(c *Core) string {
	for i, r := range c.ranks {
		if bad := r.check(); bad != "" {
			return fmt.Sprintf("rank %d: %s", i, bad)
		}
		switch s := r.(type) {
		case *sglang:
			k := s.cache
			if own := held(s); k.free+k.evictable+k.protected+own != k.capacity {
				return fmt.Sprintf("rank %d: %d free + %d evictable + %d protected + %d owned is not the pool of %d",
					i, k.free, k.evictable, k.protected, own, k.capacity)
			}
		case *vllm:
			refs := map[int32]int32{}
			for _, list := range [][]*job{s.waiting, s.running, s.loading} {
				for _, j := range list {
					for _, b := range j.blocks {
						refs[b]++
					}
				}
			}
			for b := int32(1); b < int32(len(s.pool.blocks)); b++ {
				if s.pool.blocks[b].refs != refs[b] {
					return fmt.Sprintf("rank %d: block %d has %d users, %d requests use it", i, b, s.pool.blocks[b].refs, refs[b])
				}
			}
		}
	}
	return ""
}

// watched checks the memory of an engine after every step.
type watched struct {
	*Engine
	t interface{ Fatalf(string, ...any) }
}

func (w watched) Advance(t int64) {
	w.Engine.Advance(t)
	if bad := conserved(w.core); bad != "" {
		w.t.Fatalf("at %d: %s", t, bad)
	}
}

// randomTraces draws agents whose prompts share prefixes and sometimes fall back.
func randomTraces(t *rapid.T) (ts []*corpus.Trace) {
	for i := range rapid.IntRange(1, 12).Draw(t, "traces") {
		tr := &corpus.Trace{ID: fmt.Sprint("t", i), BlockSize: 64, Models: []string{"m"}}
		s := corpus.Stream{ID: tr.ID, Parent: corpus.Unbound, Join: corpus.Unbound, SystemTokens: 64 * rapid.Int64Range(0, 6).Draw(t, "system")}
		n := rapid.IntRange(1, 60).Draw(t, "first")
		blocks := make([]uint32, n)
		for b := range blocks {
			blocks[b] = uint32(b)
		}
		for k := range rapid.IntRange(1, 6).Draw(t, "turns") {
			s.Turns = append(s.Turns, corpus.Turn{
				StartNs: int64(k) * 1e9, In: int64(len(blocks))*64 + rapid.Int64Range(0, 63).Draw(t, "tail"),
				Out: rapid.Int64Range(1, 300).Draw(t, "out"), Blocks: blocks,
			})
			keep := rapid.IntRange(1, len(blocks)).Draw(t, "keep")
			if rapid.IntRange(0, 3).Draw(t, "grow") > 0 {
				keep = len(blocks)
			}
			blocks = append([]uint32{}, blocks[:keep]...)
			for range rapid.IntRange(0, 20).Draw(t, "more") {
				blocks = append(blocks, uint32(1000*(k+1)+len(blocks)))
			}
		}
		tr.Streams = []corpus.Stream{s}
		ts = append(ts, tr)
	}
	return ts
}

// TestEveryEngineKeepsItsBooks plays random loads on random engines, with pools so small that
// everything happens, and checks after each step that blocks in use and free are the pool, that
// locks are released, that tiers stay within their capacity, and at the end that every request
// ended once, in order, with what was asked for.
func TestEveryEngineKeepsItsBooks(t *testing.T) {
	base := glm(t, 1, 0)
	rapid.Check(t, func(rt *rapid.T) {
		c := base
		c.Engine = rapid.SampledFrom([]string{"sglang", "vllm"}).Draw(rt, "engine")
		c.DeviceTokens = rapid.Int64Range(5_000, 30_000).Draw(rt, "device")
		c.HostTokens = rapid.SampledFrom([]int64{0, 3_000, 60_000}).Draw(rt, "host")
		c.WritePolicy = rapid.SampledFrom([]string{"write_through", "write_through_selective", "write_back"}).Draw(rt, "policy")
		c.SchedulePolicy = rapid.SampledFrom([]string{"fcfs", "lpm"}).Draw(rt, "order")
		c.PageSize = rapid.SampledFrom([]int64{1, 16, 64, 96, 128}).Draw(rt, "page")
		if c.Engine == "vllm" { // its books have an entry a block
			c.PageSize = max(16, c.PageSize)
		}
		c.ChunkedPrefill = rapid.SampledFrom([]int64{128, 1024, 8192}).Draw(rt, "chunk")
		c.MaxRunning = rapid.SampledFrom([]int64{2, 100}).Draw(rt, "running")
		if c.Engine == "sglang" && c.HostTokens > 0 && rapid.Bool().Draw(rt, "storage") {
			c.StorageTokens, c.StorageBandwidth = rapid.SampledFrom([]int64{5_000, 500_000}).Draw(rt, "stored"), 2e9
			c.PrefetchPolicy = rapid.SampledFrom([]string{"timeout", "best_effort", "wait_complete"}).Draw(rt, "prefetch")
		}
		c.KeepDoubles = rapid.Bool().Draw(rt, "doubles")
		c.Stream = rapid.Bool().Draw(rt, "stream")
		if rapid.Bool().Draw(rt, "draft") {
			c.DraftTokens, c.AcceptPPM = 3, 2_500_000
		} else {
			c.DraftTokens, c.AcceptPPM = 0, 0
		}
		if rapid.IntRange(0, 3).Draw(rt, "dp") == 0 {
			c.Parallel.TP, c.Parallel.DPAttn = 2, true
			c.Balance = rapid.SampledFrom([]string{"session", "round_robin"}).Draw(rt, "balance")
		}
		e, err := New(c)
		if err != nil {
			rt.Fatal(err)
		}
		traces := randomTraces(rt)
		rs := play(t, watched{e, rt}, traces, rapid.IntRange(1, 2).Draw(rt, "plays"), rapid.Int64Range(0, 3e9).Draw(rt, "gap"))
		seen := map[uint64]bool{}
		last := int64(0)
		for _, r := range rs {
			if seen[r.Seq] || r.Times.End < last {
				rt.Fatalf("request %d ended twice or out of order", r.Seq)
			}
			seen[r.Seq], last = true, r.Times.End
			if r.Failure != nil {
				if r.Failure.Class != record.FailStatus {
					rt.Fatalf("request %d failed with %+v", r.Seq, r.Failure)
				}
				continue
			}
			if r.OutputTokens != r.WantOut || r.Hits.Total >= r.PromptTokens || r.Hits.Total != r.Hits.Device+r.Hits.Host+r.Hits.Storage {
				rt.Fatalf("request %d: %d of %d tokens, hits %+v of %d", r.Seq, r.OutputTokens, r.WantOut, r.Hits, r.PromptTokens)
			}
		}
		for _, r := range e.core.ranks {
			if s, ok := r.(*sglang); ok { // copies to the host that are still under way hold locks
				s.cache.now = 1 << 62
				s.cache.settleWrites()
			}
			if n := r.stats(); n.DeviceUsed != 0 || n.Running != 0 || n.Waiting != 0 {
				rt.Fatalf("something is left when all is over: %+v", n)
			}
		}
		if _, ok := e.Next(); ok { // a copy to the host may still be under way
			rt.Fatal("an event is left when all is over")
		}
	})
}

// lockstep runs eight schedulers that share every sequence, as the ranks of plain TP do, and
// stops when one decides something else than the first.
type lockstep struct {
	*sglang
	others []*sglang
	t      testing.TB
}

func (l *lockstep) enqueue(j *job) {
	for _, o := range l.others {
		k := *j
		k.keys = append([]uint64{}, j.keys...)
		o.enqueue(&k)
	}
	l.sglang.enqueue(j)
}

func (l *lockstep) next(now int64) *plan {
	p := l.sglang.next(now)
	for _, o := range l.others {
		q := o.next(now)
		if len(q.prefill) != len(p.prefill) || q.steps != p.steps || q.loaded != p.loaded || q.staged != p.staged || q.load.ctx != p.load.ctx {
			l.t.Fatalf("at %d two ranks disagree: %+v and %+v", now, *p, *q)
		}
		for i := range q.prefill {
			if q.prefill[i].j.id != p.prefill[i].j.id || q.prefill[i].n != p.prefill[i].n {
				l.t.Fatalf("at %d two ranks prefill different requests", now)
			}
		}
	}
	return p
}

func (l *lockstep) finish(now, steps int64) {
	l.sglang.finish(now, steps)
	for _, o := range l.others {
		o.finish(now, steps)
		o.take()
	}
}

func (l *lockstep) giveUp() {
	l.sglang.giveUp()
	for _, o := range l.others {
		o.giveUp()
		o.take()
	}
}

// TestOneRankStandsForEight checks that simulating one rank of plain TP gives the records that
// eight ranks with a cache each give.
func TestOneRankStandsForEight(t *testing.T) {
	run := func(eight bool) []byte {
		c := glm(t, 90_000, 150_000)
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if eight {
			l := &lockstep{sglang: e.core.ranks[0].(*sglang), t: t}
			for range 7 {
				r, err := newScheduler(&e.core.c, e.core.model)
				if err != nil {
					t.Fatal(err)
				}
				l.others = append(l.others, r.(*sglang))
			}
			e.core.ranks[0] = l
		}
		b, err := json.Marshal(play(t, e, agents(24, 8), 2, 5e9))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if d := cmp.Diff(string(run(false)), string(run(true))); d != "" {
		t.Error(d)
	}
}

// TestStorageTier checks that prompts that neither device nor host hold are brought back from
// storage, and counted there, unless nobody waits for them.
func TestStorageTier(t *testing.T) {
	run := func(policy string) (host, stored float64) {
		c := glm(t, 60_000, 120_000)
		c.WritePolicy = "write_through"
		c.StorageTokens, c.StorageBandwidth, c.PrefetchPolicy = 2_000_000, 4e9, policy
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		var in, s int64
		rs := play(t, watched{e, t}, agents(24, 12), 1, 30e9)
		for _, r := range rs {
			in += r.PromptTokens
			s += r.Hits.Storage
		}
		_, h := rate(rs)
		return h, float64(s) / float64(in)
	}
	if _, s := run("wait_complete"); s < 0.4 {
		t.Errorf("%.3f of the prompts came from storage although every request waits for it", s)
	}
	if _, s := run("timeout"); s < 0.3 {
		t.Errorf("%.3f of the prompts came from storage within the timeout", s)
	}
	if _, s := run("best_effort"); s > 0.2 {
		t.Errorf("%.3f of the prompts came from storage although no request waits for it", s)
	}
}

// TestVLLMHostTier checks the cliff on the other engine: hits fall when prompts outgrow the
// blocks, and come back with the native offload.
func TestVLLMHostTier(t *testing.T) {
	traces := agents(24, 12)
	run := func(device, host int64) (float64, float64) {
		c := glm(t, device, host)
		c.Engine, c.PageSize = "vllm", 16
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		return rate(play(t, e, traces, 1, 30e9))
	}
	if d, _ := run(1_000_000, 0); d < 0.85 {
		t.Errorf("hit rate %.3f in a pool that holds everything", d)
	}
	if d, _ := run(100_000, 0); d > 0.3 {
		t.Errorf("hit rate %.3f in a pool that holds a quarter", d)
	}
	if d, h := run(100_000, 600_000); d+h < 0.85 || h < 0.5 {
		t.Errorf("hit rate %.3f on the device and %.3f on the host with a host tier that holds everything", d, h)
	}
}

// TestVLLMPreemptsAndEnds checks that requests whose outputs do not fit together all end, some
// of them after they were preempted.
func TestVLLMPreemptsAndEnds(t *testing.T) {
	for _, engine := range []string{"vllm", "sglang"} {
		c := glm(t, 16_000, 0)
		c.Engine, c.DraftTokens, c.AcceptPPM = engine, 0, 0
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		var ts []*corpus.Trace
		for i := range 6 {
			ts = append(ts, agent(fmt.Sprint("t", i), 1, 25, 1, 8000))
		}
		rs := play(t, watched{e, t}, ts, 1, 1e9)
		for _, r := range rs {
			if !r.OK() || r.OutputTokens != 8000 {
				t.Errorf("%s: request %d: %d tokens, %+v", engine, r.Seq, r.OutputTokens, r.Failure)
			}
		}
		if n := e.core.Stats()[0].Retracted; n == 0 || len(rs) != 6 {
			t.Errorf("%s: %d requests ended after %d retractions", engine, len(rs), n)
		}
	}
}

var _ replay.VirtualTarget = watched{}
