package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

type watchedCluster struct {
	*Cluster
	t interface{ Fatalf(string, ...any) }
}

func (w watchedCluster) Advance(t int64) {
	w.Cluster.Advance(t)
	for i, c := range w.cores {
		if bad := conserved(c); bad != "" {
			w.t.Fatalf("at %d engine %d: %s", t, i, bad)
		}
	}
}

// TestDisaggregated checks that a disaggregated cluster serves everything, that its time to
// first token holds prefill, transfer and the decode engine's admission, and that prefixes are
// found at prefill although decode keeps none.
func TestDisaggregated(t *testing.T) {
	p, d := glm(t, 300_000, 0), glm(t, 300_000, 0)
	k, err := NewCluster(ClusterConfig{Workers: []Config{p}, Decode: []Config{d}})
	if err != nil {
		t.Fatal(err)
	}
	one := agents(1, 6)
	pd := play(t, watchedCluster{k, t}, one, 1, 1e9)
	e, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	unified := play(t, e, one, 1, 1e9)
	if len(pd) != 6 {
		t.Fatalf("%d of 6 requests ended", len(pd))
	}
	model := k.cores[0].model
	for i, r := range pd {
		if !r.OK() || r.OutputTokens != r.WantOut || r.Hits != unified[i].Hits {
			t.Fatalf("request %d: %+v, hits %+v, unified %+v", r.Seq, r.Failure, r.Hits, unified[i].Hits)
		}
		tail := int64(float64(r.PromptTokens)*model.nicNs) + linkLatency
		extra := 2*k.c.ControlNs + k.c.RouterNs + tail
		got := r.Times.FirstToken - r.Times.Sent - (unified[i].Times.FirstToken - unified[i].Times.Sent)
		if got != extra {
			t.Errorf("request %d: its first token comes %d ns later than on one engine, want router, two messages and the whole prompt's transfer: %d", r.Seq, got, extra)
		}
	}
	if s := k.cores[1].Stats()[0]; s.PrefillTokens != 0 || s.DeviceEvictable != 0 {
		t.Errorf("the decode engine computed %d prompt tokens and keeps %d", s.PrefillTokens, s.DeviceEvictable)
	}
}

// TestDecodeRoomHoldsPrefillBack checks that a prefill engine waits for room on the decode side.
func TestDecodeRoomHoldsPrefillBack(t *testing.T) {
	p, d := glm(t, 300_000, 0), glm(t, 16_000, 0)
	d.DraftTokens, d.AcceptPPM, p.DraftTokens, p.AcceptPPM = 0, 0, 0, 0
	k, err := NewCluster(ClusterConfig{Workers: []Config{p}, Decode: []Config{d}})
	if err != nil {
		t.Fatal(err)
	}
	var ts []*corpus.Trace
	for i := range 4 { // each fills more than half of the decode engine
		ts = append(ts, agent(fmt.Sprint("t", i), 1, 130, 1, 400))
	}
	rs := play(t, watchedCluster{k, t}, ts, 1, 1e9)
	slices.SortFunc(rs, func(a, b *record.Request) int { return int(a.Times.FirstToken - b.Times.FirstToken) })
	for i, r := range rs {
		if !r.OK() {
			t.Fatal(r.Failure)
		}
		if i > 0 && r.Times.FirstToken < rs[i-1].Times.End {
			t.Errorf("request %d began at %d while another, until %d, filled the decode engine", r.Seq, r.Times.FirstToken, rs[i-1].Times.End)
		}
	}
}

// TestSharedLinkIsSlower checks that prefill engines that share a link wait for each other.
func TestSharedLinkIsSlower(t *testing.T) {
	run := func(link *Link) (last int64) {
		p, d := glm(t, 300_000, 0), glm(t, 900_000, 0)
		k, err := NewCluster(ClusterConfig{Workers: []Config{p, p, p, p}, Decode: []Config{d}, Link: link, Policy: "round_robin"})
		if err != nil {
			t.Fatal(err)
		}
		var ts []*corpus.Trace
		for i := range 4 {
			ts = append(ts, agent(fmt.Sprint("t", i), 1, 1500, 1, 2))
		}
		for _, r := range play(t, k, ts, 1, 1e9) {
			last = max(last, r.Times.FirstToken)
		}
		return last
	}
	own, shared := run(nil), run(&Link{})
	if shared <= own {
		t.Errorf("the last first token comes at %d with a link each and at %d with one for all", own, shared)
	}
}

// TestRouterKeepsSessions compares policies over four engines: what keeps a session on one
// finds its prefix, what takes turns finds a quarter at best.
func TestRouterKeepsSessions(t *testing.T) {
	got := map[string]float64{}
	for _, policy := range RouterPolicies {
		c := glm(t, 400_000, 0)
		k, err := NewCluster(ClusterConfig{Workers: []Config{c, c, c, c}, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		d, _ := rate(play(t, k, agents(10, 9), 1, 2e9))
		got[policy] = d
	}
	if got["consistent_hashing"] < 0.8 || got["cache_aware"] < 0.8 || got["round_robin"] > 0.75 {
		t.Errorf("hit rates by policy: %v", got)
	}
}

// TestConsistentHashingMovesLittle checks that a worker that goes moves its own sessions only,
// and that sessions spread.
func TestConsistentHashingMovesLittle(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	all, _ := NewRouter("consistent_hashing", names)
	less, _ := NewRouter("consistent_hashing", names[:4])
	count := make([]int, 5)
	for s := range uint64(10_000) {
		w, v := all.Pick(s, nil), less.Pick(s, nil)
		count[w]++
		if w != 4 && w != v {
			t.Fatalf("session %d moved from %s to %s", s, names[w], names[v])
		}
	}
	for w, n := range count {
		if n < 1300 || n > 2800 {
			t.Errorf("worker %d has %d of 10000 sessions", w, n)
		}
	}
}

// TestCacheAwareBalances checks that a hot prefix does not pile up on one worker without end.
func TestCacheAwareBalances(t *testing.T) {
	r, _ := NewRouter("cache_aware", []string{"a", "b"})
	pages := []uint64{1, 2, 3, 4}
	for range 400 {
		r.Pick(0, pages)
	}
	l := r.Loads()
	if d := l[0] - l[1]; d > 140 || d < -140 {
		t.Errorf("loads are %v", l)
	}
}

// TestEveryClusterKeepsItsBooks is TestEveryEngineKeepsItsBooks for disaggregated clusters and
// routers, with cancellation in the middle of some.
func TestEveryClusterKeepsItsBooks(t *testing.T) {
	base := glm(t, 1, 0)
	rapid.Check(t, func(rt *rapid.T) {
		c := base
		c.PageSize = rapid.SampledFrom([]int64{16, 64}).Draw(rt, "page")
		c.DeviceTokens = rapid.Int64Range(8_000, 30_000).Draw(rt, "device")
		c.WritePolicy = rapid.SampledFrom([]string{"write_through", "write_back"}).Draw(rt, "write")
		host := rapid.SampledFrom([]int64{0, 30_000}).Draw(rt, "host")
		var cc ClusterConfig
		for range rapid.IntRange(1, 3).Draw(rt, "workers") {
			w := c
			w.HostTokens = host
			cc.Workers = append(cc.Workers, w)
		}
		for range rapid.IntRange(0, 2).Draw(rt, "decode") {
			d := c
			d.DeviceTokens = rapid.Int64Range(8_000, 30_000).Draw(rt, "room")
			cc.Decode = append(cc.Decode, d)
		}
		if rapid.Bool().Draw(rt, "link") {
			cc.Link = &Link{}
		}
		cc.Policy = rapid.SampledFrom(RouterPolicies).Draw(rt, "policy")
		k, err := NewCluster(cc)
		if err != nil {
			rt.Fatal(err)
		}
		rs := play(t, watchedCluster{k, rt}, randomTraces(rt), rapid.IntRange(1, 2).Draw(rt, "plays"), rapid.Int64Range(0, 3e9).Draw(rt, "gap"))
		for _, r := range rs {
			if r.Failure == nil && (r.OutputTokens != r.WantOut || r.Times.FirstToken < r.Times.Sent) {
				rt.Fatalf("request %d: %d of %d tokens, times %+v", r.Seq, r.OutputTokens, r.WantOut, r.Times)
			}
			if r.Failure != nil && r.Failure.Class != record.FailStatus {
				rt.Fatalf("request %d failed with %+v", r.Seq, r.Failure)
			}
		}
		for i, core := range k.cores {
			for _, r := range core.ranks {
				s := r.(*sglang)
				s.cache.now = 1 << 62
				s.cache.settleWrites()
				if n := r.stats(); !r.empty() || n.DeviceUsed != 0 {
					rt.Fatalf("something is left on engine %d when all is over: %+v", i, n)
				}
			}
		}
		for w, n := range k.router.Loads() {
			if n != 0 {
				rt.Fatalf("the router believes that %d requests run on worker %d", n, w)
			}
		}
	})
}

// TestClusterSameLoadSameRecords checks determinism over engines.
func TestClusterSameLoadSameRecords(t *testing.T) {
	run := func() string {
		p, d := glm(t, 100_000, 200_000), glm(t, 100_000, 0)
		k, err := NewCluster(ClusterConfig{Workers: []Config{p, p}, Decode: []Config{d}, Link: &Link{}, Policy: "cache_aware"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(play(t, k, agents(20, 6), 2, 1e9))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if d := cmp.Diff(run(), run()); d != "" {
		t.Error(d)
	}
}
