package plan

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// anyPoint draws a point that names known facts; its numbers need not make sense together.
func anyPoint(t *rapid.T) *spec.Point {
	set := facts.Embedded()
	m := rapid.SampledFrom(set.Models).Draw(t, "model")
	var precisions []string
	for _, p := range []string{"fp4", "fp8", "bf16", "int4"} {
		if m.WeightBytes[p] > 0 {
			precisions = append(precisions, p)
		}
	}
	node := rapid.SampledFrom(set.Nodes).Draw(t, "node")
	parallel := func(what string) spec.Parallel {
		return spec.Parallel{
			TP: rapid.SampledFrom([]int{1, 2, 4, 8, 16}).Draw(t, what+"tp"), PP: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, what+"pp"),
			EP: rapid.SampledFrom([]int{1, 4, 8, 32}).Draw(t, what+"ep"), PCP: rapid.SampledFrom([]int{1, 1, 8}).Draw(t, what+"pcp"),
			DCP: rapid.SampledFrom([]int{1, 1, 8}).Draw(t, what+"dcp"), DPAttn: rapid.Bool().Draw(t, what+"dp"),
		}
	}
	p := &spec.Point{
		Key: "any", Model: m.Name, ModelPrefix: m.Prefixes[0], Precision: rapid.SampledFrom(precisions).Draw(t, "precision"),
		Framework:    rapid.SampledFrom([]string{"sglang", "vllm", "trt", "atom", "dynamo-sglang"}).Draw(t, "framework"),
		Image:        rapid.SampledFrom([]string{"x:v0.5.16", "x:v0.5.8", "x:latest"}).Draw(t, "image"),
		Runner:       node.Runners[0],
		Conc:         rapid.IntRange(0, 4096).Draw(t, "conc"),
		SpecDecoding: rapid.SampledFrom([]string{"none", "mtp", ""}).Draw(t, "spec"),
		Offload:      spec.Offload{Mode: rapid.SampledFrom([]string{"none", "dram", "dram"}).Draw(t, "mode"), BudgetGB: rapid.SampledFrom([]int64{0, 1, 599, 2399, 1 << 40}).Draw(t, "budget")},
	}
	if rapid.Bool().Draw(t, "multinode") {
		p.Multinode, p.Disagg = true, rapid.Bool().Draw(t, "disagg")
		p.Prefill = &spec.Worker{Parallel: parallel("p"), Workers: rapid.IntRange(1, 6).Draw(t, "pw")}
		p.Decode = &spec.Worker{Parallel: parallel("d"), Workers: rapid.IntRange(0, 6).Draw(t, "dw")}
	} else {
		u := parallel("u")
		p.Unified = &u
	}
	if p.Offload.Mode == "dram" {
		switch rapid.IntRange(0, 3).Draw(t, "size") {
		case 1:
			p.Weir.HostRatioPPM = rapid.SampledFrom([]int64{1, 750_000, 2_000_000, 1 << 50}).Draw(t, "ratio")
		case 2:
			p.Weir.HostBytesPerRank = rapid.SampledFrom([]int64{1, 5e8, 135e9, 299e9, 1 << 60}).Draw(t, "bytes")
		}
	}
	p.Weir.MemFractionPPM = rapid.SampledFrom([]int64{0, 1, 500_000, 850_000, 1_000_000}).Draw(t, "fraction")
	p.Weir.KVDType = rapid.SampledFrom([]string{"", "fp8", "bf16", "fp4"}).Draw(t, "kv")
	p.Weir.PageSize = rapid.SampledFrom([]int64{0, 1, 64, 1 << 20}).Draw(t, "page")
	return p
}

// A verdict adds up, whatever the point.
func TestVerdictsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPoint(t)
		opt := Options{AsRecipe: rapid.Bool().Draw(t, "as recipe")}
		v, err := Compute(p, opt)
		if err != nil {
			if p.Offload.Mode == "dram" && strings.Contains(err.Error(), "available-cpu-dram-mib") {
				return
			}
			t.Fatal(err)
		}
		if (v.Status == Fits) != (len(v.Findings) == 0) {
			t.Fatalf("%s with findings %+v", v.Status, v.Findings)
		}
		for _, f := range v.Findings {
			if f.Reason == "" || f.Change == "" {
				t.Fatalf("%+v teaches nothing", f)
			}
		}
		for i := range v.Roles {
			addsUp(t, p, &v.Roles[i])
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
		if s := v.Explain(); strings.Contains(s, "%!") {
			t.Fatalf("broken format in\n%s", s)
		}
	})
}

func addsUp(t *rapid.T, p *spec.Point, r *Role) {
	d := &r.Device
	if d.Tokens < 0 || d.Tokens%r.PageSize != 0 || d.PoolBytes < 0 || d.PoolBytes > d.HBMBytes.N {
		t.Fatalf("device %+v", d)
	}
	if d.UniqueTokens != d.Tokens*r.AttnDP*r.DCP {
		t.Fatalf("unique %d of %d tokens at dp %d, dcp %d", d.UniqueTokens, d.Tokens, r.AttnDP, r.DCP)
	}
	var used int64
	for _, q := range d.Pools {
		if q.Bytes != q.Slots*q.BytesPerSlot {
			t.Fatalf("pool %+v", q)
		}
		if q.Name != "state" {
			used += q.Bytes
		}
	}
	if used > d.PoolBytes+d.Tokens { // a draft's share of DeepSeek-V4 is rounded up to a byte a token
		t.Fatalf("pools take %d of %d", used, d.PoolBytes)
	}
	n := &r.Node
	want := n.HostPoolBytes
	for _, it := range n.Other {
		want = satAdd(want, it.Bytes)
	}
	if n.TotalBytes != want {
		t.Fatalf("node %+v", n)
	}
	if h := r.Host; h != nil {
		var sum int64
		for _, q := range h.Pools {
			sum = satAdd(sum, q.Bytes)
		}
		for _, it := range h.Other {
			sum = satAdd(sum, it.Bytes)
		}
		if sum != h.Bytes || h.Flag == "" || h.Tokens < 0 || h.UniqueTokens < 0 || satMul(h.Bytes, int64(n.Ranks)) != n.HostPoolBytes {
			t.Fatalf("host %+v, node %+v", h, n)
		}
	} else if n.HostPoolBytes != 0 {
		t.Fatalf("no host tier but %+v", n)
	}
}

// What plan chooses is the largest: one step more is refused, one step less is not larger.
func TestChoiceIsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPoint(t)
		p.Offload.Mode, p.Weir.HostRatioPPM, p.Weir.HostBytesPerRank = "dram", 0, 0
		p.Framework = "sglang"
		v, err := Compute(p, Options{})
		if err != nil || v.Status != Fits {
			t.Skip("not sized")
		}
		r := v.Serving()
		q := *p
		switch {
		case strings.HasPrefix(r.Host.Flag, "--hicache-size ") && r.Host.Other == nil: // without the reserve of hybrid models
			q.Weir.HostBytesPerRank = (mustInt(t, strings.TrimPrefix(r.Host.Flag, "--hicache-size ")) + 1) * 1_000_000_000
		default:
			t.Skip("another setting")
		}
		w, err := Compute(&q, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if w.Status == Fits && w.Serving().Host.Bytes < r.Node.MemoryBytes.N {
			t.Fatalf("%s was chosen, but %s fits too", r.Host.Flag, w.Serving().Host.Flag)
		}
	})
}

func mustInt(t *rapid.T, s string) int64 {
	var n json.Number = json.Number(s)
	v, err := n.Int64()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A larger host tier never pins less or holds less.
func TestHostTierGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPoint(t)
		p.Offload.Mode, p.Weir.HostRatioPPM = "dram", 0
		a := rapid.Int64Range(1, 2000).Draw(t, "a") * 1_000_000_000
		b := rapid.Int64Range(1, 2000).Draw(t, "b") * 1_000_000_000
		a, b = min(a, b), max(a, b)
		host := func(n int64) *Host {
			q := *p
			q.Weir.HostBytesPerRank = n
			v, err := Compute(&q, Options{})
			if err != nil || v.Serving() == nil {
				return nil
			}
			return v.Serving().Host
		}
		x, y := host(a), host(b)
		if x != nil && y == nil { // the smaller may be below one step of the setting
			t.Fatalf("%d bytes give %v, %d bytes none", a, x, b)
		}
		if x != nil && (x.Bytes > y.Bytes || x.UniqueTokens > y.UniqueTokens) {
			t.Fatalf("%d bytes hold %d and pin %d, %d bytes %d and %d", a, x.UniqueTokens, x.Bytes, b, y.UniqueTokens, y.Bytes)
		}
	})
}

// Slots follow the engine's algorithm as it stands, in exact arithmetic:
//
//	slots = size * 1e9 // size_per_token, or int(device * ratio); pages = slots // page + 1
func TestHicacheSlotsAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int64{1, 16, 64, 256}).Draw(t, "page")
		per := rapid.Int64Range(1, 1<<20).Draw(t, "bytes")
		device := rapid.Int64Range(1, 1<<32).Draw(t, "device tokens")
		setting := rapid.Int64Range(1, 1_000_000_000).Draw(t, "setting")
		ratio := rapid.Bool().Draw(t, "ratio")
		h := &hicache{b: &bench{p: &spec.Point{}, model: &facts.Model{Layers: []facts.Layers{{Kind: facts.MHA, Count: 1}}}}, page: page, byRatio: ratio, step: 1, counted: 1,
			r: &Role{Spread: Spread{AttnDP: 1, DCP: 1}, Device: Device{Tokens: device}}, shapes: []shape{{name: "kv", bytes: per, num: 1, den: 1}}}
		slots := new(big.Int)
		if ratio {
			slots.Mul(big.NewInt(device), big.NewInt(setting))
			slots.Div(slots, big.NewInt(1_000_000))
		} else {
			slots.Mul(big.NewInt(setting), big.NewInt(1_000_000_000))
			slots.Div(slots, big.NewInt(per))
		}
		slots.Div(slots, big.NewInt(page))
		slots.Add(slots, big.NewInt(1))
		slots.Mul(slots, big.NewInt(page))
		if got := h.size(setting).Tokens; slots.IsInt64() && got != slots.Int64() {
			t.Fatalf("%d slots, want %s", got, slots)
		}
	})
}

func TestArithmeticSaturates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, 1<<62).Draw(t, "a")
		b := rapid.Int64Range(0, 1<<62).Draw(t, "b")
		c := rapid.Int64Range(1, 1<<62).Draw(t, "c")
		want := new(big.Int).Div(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c))
		if !want.IsInt64() {
			want = big.NewInt(1<<63 - 1)
		}
		if got := mulDiv(a, b, c); got != want.Int64() {
			t.Fatalf("%d x %d / %d = %d, want %s", a, b, c, got, want)
		}
	})
}

func TestDecimals(t *testing.T) {
	for n, want := range map[int64]string{0: "0.00 GB", 1: "0.00 GB", 5_000_000: "0.01 GB", 994_999_999: "0.99 GB", 999_999_999: "1.00 GB", -2_940_160_000_000: "-2940.16 GB", -1 << 63: "-9223372036.85 GB"} {
		if GB(n) != want {
			t.Errorf("GB(%d) = %s, want %s", n, GB(n), want)
		}
	}
	if got := thousands(-1234567); got != "-1,234,567" {
		t.Error(got)
	}
	if got := thousands(999); got != "999" {
		t.Error(got)
	}
	if got := ppm(1_250_000); got != "1.25" {
		t.Error(got)
	}
}

// FuzzCompute plans whatever JSON says a point is.
func FuzzCompute(f *testing.F) {
	for _, p := range []*spec.Point{glm("cluster:b300-nv", 8, 2399), dsv4("cluster:gb300-nv", 4)} {
		b, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p spec.Point
		if json.Unmarshal(b, &p) != nil {
			return
		}
		v, err := Compute(&p, Options{})
		if err != nil {
			return
		}
		if v.Explain() == "" {
			t.Error("nothing explained")
		}
	})
}
