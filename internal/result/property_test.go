package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// anyRequest draws a request that contradicts itself nowhere.
func anyRequest(t *rapid.T, seq int, w record.Window) *record.Request {
	at := rapid.Int64Range(0, w.EndNs).Draw(t, "queued")
	step := func(name string) int64 { return rapid.Int64Range(0, 20*sec).Draw(t, name) }
	maybe := func(name string, v int64) int64 {
		if rapid.IntRange(0, 9).Draw(t, name) == 0 {
			return record.Unknown
		}
		return v
	}
	q := &record.Request{
		Seq: uint64(seq), Lane: rapid.IntRange(0, 4).Draw(t, "lane"), Play: rapid.IntRange(0, 3).Draw(t, "play"),
		Trace: fmt.Sprint("t", rapid.IntRange(0, 15).Draw(t, "trace")), Depth: rapid.IntRange(0, 2).Draw(t, "depth"),
		Phase:  rapid.SampledFrom([]record.Phase{record.Profiling, record.Profiling, record.Profiling, record.Primer, record.Pressure, record.Calibrate}).Draw(t, "phase"),
		Start:  rapid.SampledFrom([]string{"snapshot", "recycled"}).Draw(t, "start"),
		WantIn: rapid.Int64Range(1, 1e6).Draw(t, "in"), WantOut: rapid.Int64Range(1, 1e5).Draw(t, "out"),
	}
	sent := at + step("send")
	first := sent + step("ttft")
	last := first + step("decode")
	end := last + step("close")
	q.Times = record.Times{Intended: at, Queued: at, Sent: sent, Headers: maybe("headers", sent), FirstToken: first, FirstVisible: maybe("visible", first), LastToken: last, End: end}
	q.PromptTokens, q.OutputTokens, q.ReasoningTokens = maybe("prompt", q.WantIn), maybe("output", q.WantOut), record.Unknown
	q.Hits = record.UnknownHits
	q.CeilingTokens = rapid.Int64Range(0, q.WantIn).Draw(t, "ceiling")
	if rapid.Bool().Draw(t, "hits") {
		d := rapid.Int64Range(0, q.WantIn).Draw(t, "device")
		h := rapid.Int64Range(0, q.WantIn-d).Draw(t, "host")
		q.Hits = record.Hits{Device: d, Host: h, Storage: 0, Total: d + h}
	}
	if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
		q.Failure = &record.Failure{Class: rapid.SampledFrom([]record.Class{record.FailStatus, record.FailCancelled, record.FailContextOverflow, record.FailNoTokens}).Draw(t, "class")}
	}
	return q
}

// TestAnyRun: whatever consistent records a run holds, its result is defined where it says so,
// adds up, and is valid exactly when nothing speaks against it.
func TestAnyRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := meta()
		m.Window = record.Window{StartNs: 100 * sec, EndNs: rapid.Int64Range(101, 1500).Draw(t, "end") * sec}
		m.Virtual = rapid.Bool().Draw(t, "virtual")
		var qs []*record.Request
		for i := range rapid.IntRange(0, 150).Draw(t, "requests") {
			qs = append(qs, anyRequest(t, i+1, m.Window))
		}
		r, err := derive(&record.Bundle{Dir: "b", State: record.Complete, Meta: m}, each(qs), each[record.Sample](nil))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := r.JSON() // fails on NaN and Inf
		if err != nil {
			t.Fatal(err)
		}
		var back Result
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if again, _ := back.JSON(); !bytes.Equal(raw, again) {
			t.Fatal("result.json does not read back as it is")
		}
		if r.Valid != (len(r.Reasons) == 0) {
			t.Fatalf("valid %v with reasons %v", r.Valid, r.Reasons)
		}
		c := r.Requests
		if c.OK+c.Failed+c.Cut != c.Sent {
			t.Fatalf("%+v does not add up", c)
		}
		naive(t, r, qs)
		for name, v := range map[string]*float64{"error rate": c.ErrorRate, "coverage": r.Window.Coverage, "device": r.Hits.Device, "host": r.Hits.Host, "total": r.Hits.Total, "ceiling": r.Hits.Ceiling} {
			if v != nil && (*v < 0 || *v > 1) {
				t.Fatalf("%s is %v", name, *v)
			}
		}
		if v := r.Throughput.Window.Total; v != nil && r.Intervals.Total != nil && (*v < r.Intervals.Total[0]-1e-6**v || *v > r.Intervals.Total[1]+1e-6**v) {
			t.Fatalf("%v tok/s inside the window, interval %v", *v, *r.Intervals.Total)
		}
	})
}

// each yields records as a bundle would.
func each[T any](list []*T) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// naive computes some numbers again in the plainest way.
func naive(t *rapid.T, r *Result, qs []*record.Request) {
	var ttft, per []float64
	var in, out, hits, of float64
	missing, ok := 0, 0
	first, last := int64(math.MaxInt64), int64(0)
	for _, q := range qs {
		if q.Phase != record.Profiling || q.Failure != nil {
			continue
		}
		ok++
		first, last = min(first, q.Times.Sent), max(last, q.Times.End)
		ttft = append(ttft, float64(q.Times.FirstToken-q.Times.Sent)/1e9)
		if q.OutputTokens > 0 {
			per = append(per, float64(q.Times.LastToken-q.Times.Sent)/1e9/float64(q.OutputTokens))
			out += float64(q.OutputTokens)
		} else {
			missing++
		}
		if q.PromptTokens > 0 {
			in += float64(q.PromptTokens)
			if q.Hits.Total >= 0 {
				hits += float64(q.Hits.Total)
				of += float64(q.PromptTokens)
			}
		}
	}
	same := func(name string, got *float64, want float64) {
		if got == nil || math.Abs(*got-want) > 1e-9*math.Max(1, math.Abs(want)) {
			t.Fatalf("%s = %v, plainly %v", name, got, want)
		}
	}
	quantile := func(v []float64, q float64) float64 {
		slices.Sort(v)
		at := q * float64(len(v)-1)
		i := int(at)
		if i+1 == len(v) {
			return v[i]
		}
		return v[i] + (v[i+1]-v[i])*(at-float64(i))
	}
	if len(ttft) >= 64 {
		same("ttft p90", r.Latency.TTFT.P90, quantile(ttft, .9))
	} else if r.Latency.TTFT.P90 != nil {
		t.Fatalf("p90 of %d", len(ttft))
	}
	if len(per) >= 64 {
		if p := quantile(per, .9); p > 0 {
			same("e2e_norm p90", r.Intvty.E2ENorm.P90, 1/p)
		}
	}
	if of > 0 {
		same("hit", r.Hits.Total, hits/of)
	}
	if ok > 0 && last > first && missing == 0 {
		same("output", r.Throughput.Edge.Output, out/(float64(last-first)/1e9))
	}
	if float64(missing) > .01*float64(ok) && r.Throughput.Edge.Output != nil {
		t.Fatalf("an output throughput although %d of %d requests did not say", missing, ok)
	}
}

// FuzzDerive derives from arbitrary lines: an error or a result, never a panic, never NaN.
func FuzzDerive(f *testing.F) {
	good, _ := json.Marshal(ok(1, sec, 200*ms, 10*ms, 51))
	f.Add(append(good, '\n'), []byte(`{"at":1,"source":"s","values":{"sglang:token_usage":0.5}}`))
	f.Add([]byte(`{"seq":1,"phase":"profiling","times":{"sent":0,"end":9223372036854775807,"first_token":1,"last_token":9223372036854775806},"output_tokens":9223372036854775807,"prompt_tokens":9223372036854775807}`), []byte("{}"))
	f.Add([]byte(`{"phase":"profiling","times":{"sent":-5,"end":-5}}`), []byte(`{"values":{"sglang:token_usage":1e308,"sglang:num_running_reqs":-1e308}}`))
	f.Fuzz(func(t *testing.T, requests, samples []byte) {
		b := &record.Bundle{Dir: "b", State: record.Complete, Meta: meta()}
		r, err := derive(b, record.ReadRequests(bytes.NewReader(requests), "requests"), record.ReadSamples(bytes.NewReader(samples), "samples"))
		if err != nil {
			return
		}
		if _, err := r.JSON(); err != nil {
			t.Fatalf("result is no JSON: %v", err)
		}
	})
}
