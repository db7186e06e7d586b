package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

const (
	ms  = int64(1e6)
	sec = int64(1e9)
)

// cliff derives, through real bundles, the results of a server whose cache falls off without
// offload: a closed form, not a simulation, so that pages have something true to shape to show.
func cliff(t testing.TB, offload string, concs ...int) []*result.Result {
	t.Helper()
	var out []*result.Result
	for _, c := range concs {
		out = append(out, derive(t, cliffPoint(offload, c), nil))
	}
	return out
}

func cliffPoint(offload string, conc int) *spec.Point {
	p := &spec.Point{
		Key: "glm5.2-fp8-b200-sglang", Model: "zai-org/GLM-5.2", ModelPrefix: "glm5.2", Runner: "b200-dgxc", Precision: "fp8", Framework: "sglang",
		Scenario: spec.AgenticCoding, Conc: conc, Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
		Offload: spec.Offload{Mode: "none"}, SpecDecoding: "none", DurationNs: 900 * sec,
	}
	if offload != "none" {
		p.Offload = spec.Offload{Mode: offload, Backend: spec.Component{Name: "hicache"}, BudgetGB: 2399}
	}
	return p
}

func derive(t testing.TB, p *spec.Point, change func(*record.Meta, []*record.Request) []*record.Request) *result.Result {
	t.Helper()
	r, _ := deriveAt(t, filepath.Join(t.TempDir(), "b"), p, change)
	return r
}

func deriveAt(t testing.TB, dir string, p *spec.Point, change func(*record.Meta, []*record.Request) []*record.Request) (*result.Result, string) {
	t.Helper()
	m := record.NewMeta()
	m.PointID = p.ID()
	m.Point, _ = json.Marshal(p)
	m.GPUs.Total = 8
	m.Simulated, m.Virtual = true, true
	m.Window = record.Window{StartNs: 100 * sec, EndNs: 1000 * sec}
	m.Corpus = record.Corpus{Name: "generated", Fingerprint: "c0ffee5eed01", Traces: 40}
	m.Semantics = "agentx-1"
	m.Engine.Name = "sim"
	m.Pools = record.Pools{DeviceTokens: 1_700_000, HostTokens: 0, DeviceBytes: record.Unknown, HostBytes: record.Unknown}

	const isl, osl = int64(60_000), int64(500)
	conc := p.Conc
	hold := math.Min(1, 17/float64(conc)) // share of the working set that the device holds
	dev := 0.962 * math.Pow(hold, 1.3)
	host := 0.0
	if p.Offload.Mode != "none" {
		host = math.Max(0, (0.962-dev)*0.97)
		m.Pools.HostTokens = 5_400_000
	}
	miss := 1 - dev - host
	prefill := float64(isl)*miss/60_000*float64(min(conc, 12)) + 0.08
	itl := 0.006 + 0.00035*float64(conc) + 0.0012*float64(conc)*miss
	var qs []*record.Request
	seq := 0
	for lane := range conc {
		at := 60*sec + int64(lane)*700*ms
		for turn := 0; at < 1000*sec; turn++ {
			seq++
			jit := 1 + 0.3*math.Sin(float64(seq)*1.7)
			ttft := int64(prefill * jit * 1e9)
			decode := int64(itl*jit*1e9) * (osl - 1)
			phase := record.Profiling
			if at < 100*sec {
				phase = record.Pressure
			}
			q := &record.Request{
				Seq: uint64(seq), Lane: lane, Play: turn / 12, Tree: fmt.Sprintf("%d.%d", lane, turn/12), Trace: fmt.Sprintf("trace_%03d", (lane*7+turn/12)%40),
				Stream: fmt.Sprintf("trace_%03d", (lane*7+turn/12)%40), Turn: turn % 12, Phase: phase, Start: "recycled", WantIn: isl, WantOut: osl,
				Times:        record.Times{Intended: at, Queued: at, Sent: at, Headers: at, FirstToken: at + ttft, FirstVisible: at + ttft, LastToken: at + ttft + decode, End: at + ttft + decode},
				PromptTokens: isl, OutputTokens: osl, ReasoningTokens: 0,
				Hits:          record.Hits{Device: int64(float64(isl) * dev), Host: int64(float64(isl) * host), Storage: 0, Total: int64(float64(isl)*dev) + int64(float64(isl)*host)},
				CeilingTokens: isl * 962 / 1000,
			}
			if turn < 12 {
				q.Start = "snapshot"
			}
			if turn%5 == 3 {
				q.Stream += "::sa:a1"
				q.Depth = 1
			}
			qs = append(qs, q)
			at = q.Times.End + 2*sec + int64(float64(sec)*jit)
		}
	}
	if change != nil {
		qs = change(m, qs)
	}
	w, err := record.CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for _, q := range qs {
		if err := w.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	for s := int64(0); s <= 1000; s += 10 {
		used := math.Min(1, float64(conc)/17) * math.Min(1, float64(s)/100)
		err := w.WriteSample(&record.Sample{At: s * sec, Source: "sim", Values: map[string]float64{
			"sglang:token_usage": used, "sglang:num_running_reqs": float64(conc) * 0.6, "sglang:num_queue_reqs": float64(conc) * 0.1,
			"sglang:hicache_host_used_tokens": host * 5e6 * float64(s) / 1000, "sglang:hicache_host_total_tokens": 5_400_000,
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := result.Finish(w)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func sweep(t testing.TB) []*result.Result {
	return append(cliff(t, "none", 1, 2, 4, 8, 16, 32, 64), cliff(t, "dram", 1, 2, 4, 8, 16, 32, 64)...)
}

func report(t testing.TB, rs []*result.Result) string {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteReport(&buf, rs, ReportOptions{Title: "quickstart", Command: "weir demo"}); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("WEIR_KEEP_PAGES"); dir != "" {
		name := strings.NewReplacer("/", "-").Replace(t.Name()) + ".html"
		if err := os.WriteFile(filepath.Join(dir, name), buf.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return buf.String()
}

// TestReport holds what a report must hold, and nothing from elsewhere.
func TestReport(t *testing.T) {
	page := report(t, sweep(t))
	for _, want := range []string{
		"with offload", "without it the cache falls off between 16 and 32 agents",
		"End-to-end normalised interactivity, p90 (tok/s/user)", "Throughput per GPU (tok/s/GPU)",
		"Prefix hit rate by tier", "host DRAM", "better →", "↑ better", "thin dotted: simulated", "weir demo",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("report lacks %q", want)
		}
	}
	if m := regexp.MustCompile(`(?:src|href)="(https?:|//)[^"]*"|url\(https?:|@import`).FindString(page); m != "" {
		t.Errorf("report loads %s", m)
	}
	if strings.Contains(page, " style=") {
		t.Error("inline style: the content policy would drop it")
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "NaN") {
		t.Error("a value was refused by the template or is NaN")
	}
	if page != report(t, sweep(t)) {
		t.Error("equal results give different reports")
	}
}

// TestReportOfNothing teaches.
func TestReportOfNothing(t *testing.T) {
	if page := report(t, nil); !strings.Contains(page, "weir demo") || !strings.Contains(page, "nothing to show") {
		t.Error("an empty report shows no command that would fill it")
	}
}

// TestColumnsLineUp: in every column of a report's tables the numbers have the same decimals, and
// every column has a head.
func TestColumnsLineUp(t *testing.T) {
	page := report(t, sweep(t))
	number := regexp.MustCompile(`^-?[0-9][0-9,]*(\.[0-9]+)?$`)
	grouped := regexp.MustCompile(`^-?[0-9]{1,3}(,[0-9]{3})*(\.[0-9]+)?$`)
	cells := regexp.MustCompile(`<t[dh][^>]*>(.*?)</t[dh]>`)
	tags := regexp.MustCompile(`<[^>]*>`)
	tables := regexp.MustCompile(`(?s)<table.*?</table>`).FindAllString(page, -1)
	if len(tables) < 2 {
		t.Fatalf("%d tables", len(tables))
	}
	for k, table := range tables {
		decimals, seen := map[int]int{}, 0
		for _, line := range regexp.MustCompile(`(?s)<tr.*?</tr>`).FindAllString(table, -1) {
			for i, m := range cells.FindAllStringSubmatch(line, -1) {
				text := strings.TrimSpace(tags.ReplaceAllString(m[1], ""))
				if strings.Contains(line, "<th") {
					if text == "" && !strings.Contains(line, "rowgroup") {
						t.Errorf("table %d: column %d has no head", k, i)
					}
					continue
				}
				if !number.MatchString(text) {
					continue
				}
				seen++
				_, frac, _ := strings.Cut(text, ".")
				if have, ok := decimals[i]; ok && have != len(frac) {
					t.Errorf("table %d: column %d holds %s, others have %d decimals", k, i, text, have)
				}
				decimals[i] = len(frac)
				if !grouped.MatchString(text) {
					t.Errorf("table %d: column %d holds %s without groups of thousands", k, i, text)
				}
			}
		}
		if seen < 14 {
			t.Errorf("table %d: %d numbers", k, seen)
		}
	}
	if !strings.Contains(page, "TTFT p90 s</th>") || !strings.Contains(page, ">frontier</th>") {
		t.Error("heads do not say what they are of")
	}
}
