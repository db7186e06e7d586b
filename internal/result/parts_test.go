package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// pdMeta is a disaggregated deployment of one prefill and two decode processes behind a router.
func pdMeta() *record.Meta {
	return &record.Meta{Window: record.Window{StartNs: 10e9, EndNs: 20e9}, Processes: []record.Process{
		{Name: "prefill-0", Role: "prefill", Metrics: []string{"http://p"}},
		{Name: "decode-0", Role: "decode", Metrics: []string{"http://d0"}},
		{Name: "decode-1", Role: "decode", Metrics: []string{"http://d1"}},
		{Name: "router", Role: "router", Metrics: []string{"http://r"}},
	}}
}

// pdSamples are what its endpoints say when counters stand at n times their step; prefill has two ranks of data
// parallelism, each of two tensor ranks that repeat each other.
func pdSamples(n float64) map[string]map[string]float64 {
	p := map[string]float64{
		`sglang:prompt_tokens_total{engine_type="prefill"}`:                              1000 * n,
		`sglang:cached_tokens_total{engine_type="prefill",cache_source="device"}`:        300 * n,
		`sglang:cached_tokens_total{engine_type="prefill",cache_source="host"}`:          100 * n,
		`sglang:generation_tokens_total{engine_type="prefill"}`:                          10 * n,
		`sglang:num_transfer_failed_reqs_total{engine_type="prefill",dp_rank="0"}`:       n,
		`sglang:kv_transfer_latency_ms_bucket{engine_type="prefill",dp_rank="0",le="5"}`: 10 * n,
	}
	for rank, tensor := range []string{"0", "0", "2", "2"} {
		labels := fmt.Sprintf(`{engine_type="prefill",dp_rank="%s",tp_rank="%d"}`, map[string]string{"0": "0", "2": "1"}[tensor], rank)
		p["sglang:max_total_num_tokens"+labels] = 5000
		p["sglang:num_running_reqs"+labels] = float64(1 + rank/2) // 1 at rank 0, 2 at rank 1
		p["sglang:num_prefill_bootstrap_queue_reqs"+labels] = 3
		p["sglang:num_prefill_inflight_queue_reqs"+labels] = 4
		p["sglang:evicted_tokens_total"+labels] = 7 * n
		p["sglang:kv_transfer_latency_ms_count"+labels] = 10 * n
		p["sglang:kv_transfer_latency_ms_sum"+labels] = 40 * n
		p["sglang:kv_transfer_total_mb_count"+labels] = 10 * n
		p["sglang:kv_transfer_total_mb_sum"+labels] = 20 * n
	}
	d := map[string]float64{
		`sglang:prompt_tokens_total{engine_type="decode"}`:            1000 * n,
		`sglang:generation_tokens_total{engine_type="decode"}`:        500 * n,
		`sglang:num_decode_prealloc_queue_reqs{engine_type="decode"}`: 1,
		`sglang:num_decode_transfer_queue_reqs{engine_type="decode"}`: 2,
		`sglang:num_retracted_requests_total{engine_type="decode"}`:   n,
		`sglang:max_total_num_tokens{engine_type="decode"}`:           9000,
		`sglang:spec_accept_length{engine_type="decode"}`:             2.5,
	}
	return map[string]map[string]float64{"http://p": p, "http://d0": d, "http://d1": d, "http://r": {
		`smg_router_requests_total`: 20 * n, `smg_worker_requests_active{worker="a"}`: 3, `smg_worker_requests_active{worker="b"}`: 4,
	}}
}

func partsOf(m *record.Meta, samples func(float64) map[string]map[string]float64, sources ...string) Server {
	g := newGauges(m)
	for i := range 4 {
		for _, s := range sources {
			g.add(&record.Sample{At: int64(i+1) * 5e9, Source: s, Values: samples(float64(i))[s]})
		}
	}
	return g.server()
}

// TestParts: a disaggregated deployment by role, by endpoint and by rank. Repeated ranks count once,
// what a role repeats of another is left out, and the roles add up to the whole.
func TestParts(t *testing.T) {
	s := partsOf(pdMeta(), pdSamples, "http://r", "http://d1", "http://d0", "http://p")
	if len(s.ByRole) != 3 || len(s.ByEndpoint) != 4 {
		t.Fatalf("%d roles, %d endpoints", len(s.ByRole), len(s.ByEndpoint))
	}
	num := func(name string, got *int64, want int64) {
		t.Helper()
		if got == nil || *got != want {
			t.Errorf("%s: %v, want %d", name, show(got), want)
		}
	}
	p, d, r := s.ByRole["prefill"], s.ByRole["decode"], s.ByRole["router"]
	num("prefill pool", p.DevicePool, 10000)
	want(t, "prefill running", p.RunningMean, 3)
	want(t, "bootstrap", p.BootstrapMean, 6)
	want(t, "inflight", p.InflightMax, 8)
	num("prompt", p.Prompt, 2000)
	num("device hits", p.HitDevice, 600)
	num("host hits", p.HitHost, 200)
	num("evicted", p.Evicted, 28)
	num("failed", p.TransferFailed, 2)
	if p.Output != nil || d.Prompt != nil || d.HitPrompt != nil {
		t.Error("a role has what it repeats of the other")
	}
	if p.Transfer == nil || p.Transfer.N != 40 || d.Transfer != nil {
		t.Fatalf("transfers %+v, %+v", p.Transfer, d.Transfer)
	}
	num("transferred", p.Transfer.Bytes, 80<<20)
	want(t, "transfer time", p.Transfer.Time.Mean, 0.004)
	want(t, "transfer time at most", p.Transfer.Time.P50.High, 0.005)
	num("decode pool", d.DevicePool, 18000)
	num("output", d.Output, 2000)
	num("retracted", d.Retracted, 4)
	want(t, "prealloc", d.PreallocMean, 2)
	want(t, "transfer queue", d.TransferMean, 4)
	want(t, "accepted", d.AcceptMean, 2.5)
	num("routed", r.Router.Requests, 40)
	want(t, "active", r.Router.ActiveMean, 7)
	if p.Endpoints != 1 || p.Ranks != 2 || d.Endpoints != 2 || d.Ranks != 0 {
		t.Errorf("prefill %d endpoints of %d ranks, decode %d of %d", p.Endpoints, p.Ranks, d.Endpoints, d.Ranks)
	}
	for _, x := range []struct {
		name string
		all  *int64
		part func(*Part) *int64
	}{
		{"prompt", s.Counters.Prompt, func(p *Part) *int64 { return p.Prompt }}, {"output", s.Counters.Output, func(p *Part) *int64 { return p.Output }},
		{"evicted", s.Counters.Evicted, func(p *Part) *int64 { return p.Evicted }}, {"retracted", s.Counters.Retracted, func(p *Part) *int64 { return p.Retracted }},
		{"hits", s.Counters.Hit, func(p *Part) *int64 { return p.Hit }},
	} {
		roles, endpoints := int64(0), int64(0)
		for _, p := range s.ByRole {
			if n := x.part(p); n != nil {
				roles += *n
			}
		}
		for i := range s.ByEndpoint {
			if n := x.part(&s.ByEndpoint[i].Part); n != nil {
				endpoints += *n
			}
		}
		if x.all == nil || roles != *x.all || endpoints != *x.all {
			t.Errorf("%s: %v in all, %d by role, %d by endpoint", x.name, show(x.all), roles, endpoints)
		}
	}
	e := s.ByEndpoint[2]
	if e.Endpoint != "http://p" || e.Name != "prefill-0" || e.Role != "prefill" || len(e.ByRank) != 2 || e.ByRank[1].Rank != "1" {
		t.Fatalf("endpoint %+v", e)
	}
	want(t, "rank 0 running", e.ByRank[0].RunningMean, 1)
	want(t, "rank 1 running", e.ByRank[1].RunningMean, 2)
	num("rank pool", e.ByRank[1].DevicePool, 5000)
	num("rank evicted", e.ByRank[1].Evicted, 14)
	if k := e.ByRank[1].Transfer; k == nil || k.N != 20 || k.Time.P50 != nil {
		t.Errorf("transfers of a rank %+v", k)
	}
	if e.ByRank[0].Prompt != nil {
		t.Error("a rank has what the endpoint counts for all")
	}
}

// TestPartsByMetrics: without a point, SGLang's metrics and the router's tell the roles; vLLM's tell
// none, and its ranks are its engines.
func TestPartsByMetrics(t *testing.T) {
	m := &record.Meta{Window: record.Window{StartNs: 10e9, EndNs: 20e9}}
	s := partsOf(m, pdSamples, "http://p", "http://d0", "http://r")
	if s.ByRole["prefill"] == nil || s.ByRole["decode"] == nil || s.ByRole["router"] == nil || s.ByEndpoint[0].Name != "" {
		t.Errorf("roles %v", s.ByRole)
	}
	vllm := func(n float64) map[string]map[string]float64 {
		v := map[string]float64{}
		for _, e := range []string{"0", "10", "2"} {
			l := `{engine="` + e + `"}`
			v["vllm:num_requests_running"+l] = 2
			v["vllm:num_preemptions_total"+l] = n
			v["vllm:nixl_bytes_transferred_sum"+l] = 1000 * n
			v["vllm:nixl_bytes_transferred_count"+l] = n
			v["vllm:nixl_xfer_time_seconds_sum"+l] = n / 2
			v["vllm:nixl_xfer_time_seconds_count"+l] = n
			v["vllm:nixl_num_kv_expired_reqs_total"+l] = n
			v["vllm:spec_decode_num_drafts_total"+l] = 10 * n
			v["vllm:spec_decode_num_accepted_tokens_total"+l] = 15 * n
		}
		return map[string]map[string]float64{"http://v": v}
	}
	s = partsOf(m, vllm, "http://v")
	if s.ByRole != nil || len(s.ByEndpoint) != 1 {
		t.Fatalf("%d roles, %d endpoints", len(s.ByRole), len(s.ByEndpoint))
	}
	e := s.ByEndpoint[0]
	if e.Ranks != 3 || e.ByRank[0].Rank != "0" || e.ByRank[1].Rank != "2" || e.ByRank[2].Rank != "10" {
		t.Errorf("ranks %+v", e.ByRank)
	}
	want(t, "running", e.RunningMean, 6)
	want(t, "rank running", e.ByRank[2].RunningMean, 2)
	want(t, "rank accepted", e.ByRank[2].AcceptMean, 2.5)
	if x := e.Transfer; x == nil || x.N != 6 || *x.Bytes != 6000 || *x.Expired != 6 || x.Speed != nil || *x.Time.Mean != 0.5 {
		t.Errorf("transfers %+v", e.Transfer)
	}
}

// TestPartsOmitted: one endpoint of one rank has no parts, and what is not known is not written; a
// result of before has none and is read and written as it was.
func TestPartsOmitted(t *testing.T) {
	unified := func(n float64) map[string]map[string]float64 {
		return map[string]map[string]float64{"u": {`sglang:num_running_reqs{engine_type="unified",tp_rank="0"}`: 1, `sglang:num_running_reqs{engine_type="unified",tp_rank="1"}`: 1}}
	}
	m := &record.Meta{Window: record.Window{StartNs: 10e9, EndNs: 20e9}}
	if s := partsOf(m, unified, "u"); s.ByRole != nil || s.ByEndpoint != nil {
		t.Errorf("parts of one endpoint: %v %v", s.ByRole, s.ByEndpoint)
	}
	first := ""
	for range 20 {
		raw, err := json.Marshal(partsOf(pdMeta(), pdSamples, "http://p", "http://d0", "http://d1", "http://r"))
		if err != nil {
			t.Fatal(err)
		}
		_, parts, _ := strings.Cut(string(raw), `"by_role"`)
		if strings.Contains(parts, ":null") {
			t.Fatalf("unknown numbers are written: %s", parts)
		}
		if first == "" {
			first = string(raw)
		}
		if first != string(raw) {
			t.Fatal("the same samples give other bytes")
		}
	}
	old := `{"samples":3,"device_kv_mean":0.5,"counters":{"engines":["sglang"],"resets":0,"prompt_tokens":5,"hit_tokens":2}}`
	var s Server
	if err := json.Unmarshal([]byte(old), &s); err != nil || s.ByRole != nil || *s.Counters.Prompt != 5 || *s.Counters.Hit != 2 {
		t.Errorf("an older result: %+v %v", s, err)
	}
}

func show(n *int64) any {
	if n == nil {
		return "unknown"
	}
	return *n
}

// BenchmarkFollow takes samples of twenty endpoints of eight ranks.
func BenchmarkFollow(b *testing.B) {
	g := newGauges(&record.Meta{})
	v := map[string]float64{}
	for r := range 8 {
		for _, name := range []string{"token_usage", "num_running_reqs", "num_queue_reqs", "max_total_num_tokens", "kv_used_tokens", "kv_evictable_tokens", "evicted_tokens_total", "num_prefill_inflight_queue_reqs"} {
			v[fmt.Sprintf(`sglang:%s{engine_type="prefill",dp_rank="%d",tp_rank="%d"}`, name, r, r)] = 1
		}
	}
	for i := 0; b.Loop(); i++ {
		g.add(&record.Sample{At: int64(i) * 5e7, Source: fmt.Sprint("http://", i%20), Values: v})
	}
}
