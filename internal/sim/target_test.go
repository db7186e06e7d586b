package sim

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

func plain(tp int) spec.Parallel { return spec.Parallel{TP: tp, PP: 1, EP: 1, DCP: 1, PCP: 1} }

// glm is GLM-5.2 with fp8 KV and MTP on eight B200, with the pools in tokens.
func glm(t testing.TB, device, host int64) Config {
	t.Helper()
	m, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	g, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Model: m, GPU: g, Parallel: plain(8), WeightPrecision: "fp4", KVDType: "fp8",
		KVBytesPerToken: 55_800, DeviceTokens: device, HostTokens: host, WritePolicy: "write_back",
		DraftTokens: 3, AcceptPPM: 2_990_000,
	}
}

// agent is a trace of one stream whose prompt grows by blocks blocks a turn.
func agent(id string, turns int, first, blocks, out int64) *corpus.Trace {
	t := &corpus.Trace{ID: id, BlockSize: 64, Models: []string{"m"}}
	s := corpus.Stream{ID: id, Parent: corpus.Unbound, Join: corpus.Unbound, SystemTokens: 20 * 64}
	n := first
	for i := range turns {
		turn := corpus.Turn{StartNs: int64(i) * 10e9, APINs: 4e9, In: n*64 + 17, Out: out}
		for b := range n {
			turn.Blocks = append(turn.Blocks, uint32(b))
		}
		s.Turns = append(s.Turns, turn)
		n += blocks
	}
	t.Streams = []corpus.Stream{s}
	return t
}

// play sends every trace on its own lane, turn after turn, each gap after the turn before,
// and returns the records in the order in which they came.
func play(t testing.TB, e replay.VirtualTarget, traces []*corpus.Trace, plays int, gap int64) []*record.Request {
	t.Helper()
	type wake struct {
		at         int64
		lane, turn int
		play       int
	}
	var due []wake
	var got []*record.Request
	var now int64
	pending := map[uint64]wake{}
	e.Start(func(r *record.Request) {
		if r.Times.End > now {
			t.Fatalf("an outcome of %d came at %d", r.Times.End, now)
		}
		got = append(got, r)
		w := pending[r.Seq]
		delete(pending, r.Seq)
		if w.turn+1 < len(traces[w.lane].Streams[0].Turns) {
			due = append(due, wake{now + gap, w.lane, w.turn + 1, w.play})
		} else if w.play+1 < plays {
			due = append(due, wake{now + gap, w.lane, 0, w.play + 1})
		}
	})
	for l := range traces {
		due = append(due, wake{int64(l) * 1e6, l, 0, 0})
	}
	var seq uint64
	for range 1_000_000 {
		first := -1
		for i := range due {
			if first < 0 || due[i].at < due[first].at {
				first = i
			}
		}
		at, ok := e.Next()
		if first < 0 && !ok {
			return got
		}
		if ok && (first < 0 || at <= due[first].at) {
			now = at
			e.Advance(at)
			continue
		}
		w := due[first]
		due = append(due[:first], due[first+1:]...)
		now = w.at
		e.Advance(now)
		seq++
		pending[seq] = w
		e.Send(replay.Request{
			Seq: seq, Phase: record.Profiling, Lane: w.lane, Play: w.play, Tree: fmt.Sprintf("%d.%d", w.lane, w.play),
			Trace: traces[w.lane], Turn: w.turn, MaxOut: traces[w.lane].Streams[0].Turns[w.turn].Out, Intended: now, Queued: now,
		})
	}
	t.Fatal("the simulation does not end")
	return nil
}

func agents(n, turns int) (ts []*corpus.Trace) {
	for i := range n {
		ts = append(ts, agent(fmt.Sprintf("t%d", i), turns, 200+int64(i)*7, 5+int64(i)%3, 40+int64(i)*3))
	}
	return ts
}

func rate(rs []*record.Request) (device, host float64) {
	var in, d, h int64
	for _, r := range rs {
		in += r.PromptTokens
		d += r.Hits.Device
		h += r.Hits.Host
	}
	return float64(d) / float64(in), float64(h) / float64(in)
}

// TestRecordsAreFilled checks that every request ends with all times in order, all counts, and
// hits that its prompt can have.
func TestRecordsAreFilled(t *testing.T) {
	e, err := New(glm(t, 100_000, 400_000))
	if err != nil {
		t.Fatal(err)
	}
	traces := agents(12, 10)
	rs := play(t, e, traces, 2, 2e9)
	if want := 12 * 10 * 2; len(rs) != want {
		t.Fatalf("%d of %d requests ended", len(rs), want)
	}
	for _, r := range rs {
		if !r.OK() {
			t.Fatalf("request %d failed: %+v", r.Seq, r.Failure)
		}
		tm := r.Times
		if !(tm.Queued <= tm.Sent && tm.Sent <= tm.Headers && tm.Headers < tm.FirstToken &&
			tm.FirstToken == tm.FirstVisible && tm.FirstToken < tm.LastToken && tm.LastToken <= tm.End) {
			t.Errorf("request %d has its times out of order: %+v", r.Seq, tm)
		}
		if r.PromptTokens != r.WantIn || r.OutputTokens != r.WantOut {
			t.Errorf("request %d: %d+%d tokens, asked for %d+%d", r.Seq, r.PromptTokens, r.OutputTokens, r.WantIn, r.WantOut)
		}
		h := r.Hits
		if h.Total != h.Device+h.Host+h.Storage || h.Total >= r.PromptTokens || h.Total%64 != 0 {
			t.Errorf("request %d has hits %+v of %d prompt tokens", r.Seq, h, r.PromptTokens)
		}
	}
	for _, r := range e.core.ranks {
		if bad := r.check(); bad != "" {
			t.Error(bad)
		}
		if n := r.stats(); n.DeviceUsed != 0 {
			t.Errorf("%d tokens are held when nothing runs", n.DeviceUsed)
		}
	}
}

// TestHostTierBringsHitsBack checks the cliff: prompts that outgrow the device pool are not
// found there, and are found again with a host pool.
func TestHostTierBringsHitsBack(t *testing.T) {
	traces := agents(24, 12) // 24 x about 16,000 tokens
	run := func(device, host int64) (float64, float64) {
		e, err := New(glm(t, device, host))
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
		t.Errorf("hit rate %.3f on the device and %.3f on the host with a host pool that holds everything", d, h)
	}
}

// TestSameLoadSameRecords checks that two runs give the same records to the byte.
func TestSameLoadSameRecords(t *testing.T) {
	run := func() []byte {
		c := glm(t, 150_000, 300_000)
		c.Parallel.DPAttn = true
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(play(t, e, agents(40, 6), 2, 1e9))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if d := cmp.Diff(string(run()), string(run())); d != "" {
		t.Error(d)
	}
}

// TestRefusals checks what cannot be served at all.
func TestRefusals(t *testing.T) {
	c := glm(t, 64_000, 0)
	c.ContextLen = 70_000
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	traces := []*corpus.Trace{agent("fits", 1, 100, 1, 10), agent("pool", 1, 1050, 1, 10), agent("context", 1, 1100, 1, 10)}
	want := map[string]record.Class{"pool": record.FailStatus, "context": record.FailContextOverflow}
	for _, r := range play(t, e, traces, 1, 1e9) {
		got := record.Class("")
		if r.Failure != nil {
			got = r.Failure.Class
		}
		if got != want[r.Trace] {
			t.Errorf("%s: %q, want %q", r.Trace, got, want[r.Trace])
		}
	}
}

// TestCancelEndsEverything checks that every request that is in flight ends as cancelled.
func TestCancelEndsEverything(t *testing.T) {
	e, err := New(glm(t, 100_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	e.Start(func(r *record.Request) {
		n++
		if r.Failure == nil || r.Failure.Class != record.FailCancelled {
			t.Errorf("request %d ended with %+v", r.Seq, r.Failure)
		}
	})
	for i, tr := range agents(20, 1) {
		e.Send(replay.Request{Seq: uint64(i + 1), Tree: fmt.Sprint(i), Trace: tr, MaxOut: 1000})
	}
	e.Advance(1e9)
	e.Cancel()
	at, ok := e.Next()
	if !ok || at != 1e9 {
		t.Fatalf("outcomes are due at %d, %v", at, ok)
	}
	e.Advance(at)
	if n != 20 {
		t.Errorf("%d of 20 ended", n)
	}
	if _, ok := e.Next(); ok {
		t.Error("something is left after the end")
	}
	if bad := e.core.ranks[0].check(); bad != "" {
		t.Error(bad)
	}
}
