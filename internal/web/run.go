package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
)

// runPage is the page of one run.
type runPage struct {
	shell
	Entry    store.Entry
	Result   *result.Result
	Name     string
	Siblings []sibling
	Trust    []trustRow
	Dists    []distRow
	Numbers  []numberRow
	Course   []template.HTML
	NoBundle string // why there is no timeline
	Origin   string // provenance as text
	JSON     string
}

type sibling struct {
	Conc int
	URL  string
	Here bool
	Runs int
}

type trustRow struct{ What, Found, Judgement string }

type distRow struct {
	Name, Unit string
	N          int64
	Cells      []cell // mean, p50, p75, p90, p95, p99, max
	Adjusted   cell   // p90 with failures as infinitely late
}

type numberRow struct{ Label, Value, Unit, Why string }

func (h *Handler) run(w http.ResponseWriter, r *http.Request) {
	e, ok := h.entry(w, r, h.fail)
	if !ok {
		return
	}
	series := frontier.SeriesOf(e.Result)
	p := runPage{Entry: e, Result: e.Result}
	p.Name = fmt.Sprintf("%s, %s", series.Name(), e.Result.Point.Agents())
	p.shell = newShell("Weir: " + frontier.ModelName(&e.Result.Point) + " on " + p.Name)
	p.Script = template.JS(runScript)

	kin, err := h.store.Query(r.Context(), store.Filter{Models: []string{frontier.ModelName(&e.Result.Point)}, Hardware: []string{series.Hardware}, Engines: []string{series.Engine}})
	if err != nil {
		h.fail(w, http.StatusInternalServerError, err)
		return
	}
	var repeats []*result.Result
	for _, k := range kin {
		if frontier.SeriesOf(k.Result) != series || frontier.GroupOf(k.Result) != frontier.GroupOf(e.Result) {
			continue
		}
		if k.Result.Point.Conc == e.Result.Point.Conc && k.Result.Valid {
			repeats = append(repeats, k.Result)
		}
		if n := len(p.Siblings); n > 0 && p.Siblings[n-1].Conc == k.Result.Point.Conc {
			p.Siblings[n-1].Runs++
			if k.Result.ID == e.Result.ID {
				p.Siblings[n-1].URL, p.Siblings[n-1].Here = "/run/"+k.Result.ID, true
			}
			continue
		}
		p.Siblings = append(p.Siblings, sibling{k.Result.Point.Conc, "/run/" + k.Result.ID, k.Result.ID == e.Result.ID, 1})
	}
	b, reqs, samples, err := readBundle(e.Bundle)
	if err != nil {
		p.NoBundle = err.Error()
	} else {
		p.Course = overTime(b.Meta, reqs, samples)
		p.Origin = origin(e.Result, b)
	}
	p.Trust = trust(e.Result, repeats)
	p.Dists = dists(e.Result)
	p.Numbers = numbers(e.Result)
	raw, err := e.Result.JSON()
	if err != nil {
		h.fail(w, http.StatusInternalServerError, err)
		return
	}
	p.JSON = strings.TrimSpace(string(raw))
	h.page(w, http.StatusOK, "run", p)
}

// entry finds the run that the path names, or answers with fail.
func (h *Handler) entry(w http.ResponseWriter, r *http.Request, fail func(http.ResponseWriter, int, error)) (store.Entry, bool) {
	e, err := h.store.Get(r.Context(), r.PathValue("id"))
	switch {
	case errors.Is(err, store.ErrNotFound):
		fail(w, http.StatusNotFound, err)
	case errors.Is(err, store.ErrAmbiguous):
		fail(w, http.StatusConflict, err)
	case err != nil:
		fail(w, http.StatusInternalServerError, err)
	default:
		return e, true
	}
	return e, false
}

// readBundle reads all of a bundle.
func readBundle(dir string) (*record.Bundle, []*record.Request, []*record.Sample, error) {
	if dir == "" {
		return nil, nil, nil, errors.New("the store does not know where this run's bundle is")
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	var reqs []*record.Request
	for q, err := range b.Requests() {
		if err != nil {
			return nil, nil, nil, err
		}
		reqs = append(reqs, q)
	}
	var samples []*record.Sample
	for s, err := range b.Samples() {
		if err != nil {
			return nil, nil, nil, err
		}
		samples = append(samples, result.KeepGauges(s))
	}
	return b, reqs, samples, nil
}

func (h *Handler) apiTimeline(w http.ResponseWriter, r *http.Request) {
	e, ok := h.entry(w, r, h.apiFail)
	if !ok {
		return
	}
	b, reqs, _, err := readBundle(e.Bundle)
	if err != nil {
		h.apiFail(w, http.StatusNotFound, err)
		return
	}
	h.json(w, http.StatusOK, newTimeline(b.Meta.Window, reqs))
}

func (h *Handler) apiRequest(w http.ResponseWriter, r *http.Request) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		h.apiFail(w, http.StatusBadRequest, fmt.Errorf("the number of a request is an integer from 1, not %q", r.PathValue("seq")))
		return
	}
	e, ok := h.entry(w, r, h.apiFail)
	if !ok {
		return
	}
	b, err := record.OpenBundle(e.Bundle)
	if err != nil {
		h.apiFail(w, http.StatusNotFound, err)
		return
	}
	for q, err := range b.Requests() {
		if err != nil {
			h.apiFail(w, http.StatusInternalServerError, err)
			return
		}
		if q.Seq == seq {
			h.json(w, http.StatusOK, q)
			return
		}
	}
	h.apiFail(w, http.StatusNotFound, fmt.Errorf("the run has no request %d", seq))
}

// trust lists what tells how far to trust the run.
func trust(r *result.Result, repeats []*result.Result) []trustRow {
	var rows []trustRow
	add := func(what, found, judgement string) { rows = append(rows, trustRow{what, found, judgement}) }

	n := r.Latency.E2EPerToken.N
	var held []string
	for _, f := range []struct {
		name  string
		floor int64
	}{{"p50", result.Floors.P50}, {"p75", result.Floors.P75}, {"p90", result.Floors.P90}, {"p95", result.Floors.P95}, {"p99", result.Floors.P99}} {
		if n < f.floor {
			held = append(held, fmt.Sprintf("%s needs %d", f.name, f.floor))
		}
	}
	if len(held) == 0 {
		add("Samples", fmt.Sprint(n), "enough for every percentile")
	} else {
		add("Samples", fmt.Sprint(n), "withheld: "+strings.Join(held, ", "))
	}
	y, err := frontier.ByName(frontier.DefaultY)
	if err == nil {
		var vals []float64
		for _, k := range repeats {
			if v := y.Has(k); v != nil {
				vals = append(vals, *v)
			}
		}
		if len(vals) < 2 {
			add("Repeats", "none", "one run has no interval")
		} else if e := frontier.NewEstimate(vals); e.Level > 0 {
			add("Repeats", fmt.Sprintf("%d runs", e.N), fmt.Sprintf("%s %s to %s with %.1f %% confidence", y.Label, number(y, e.Low, 3), number(y, e.High, 3), 100*e.Level))
		} else {
			add("Repeats", fmt.Sprintf("%d runs", e.N), fmt.Sprintf("%s from %s to %s; an interval at 95 %% needs six", y.Label, number(y, e.Low, 3), number(y, e.High, 3)))
		}
	}
	switch c := r.Client; {
	case r.Virtual:
		add("Client", "virtual clock", "the client has no error of its own")
	case c.TTFTBoundS != nil || c.ITLBoundS != nil:
		add("Client", "TTFT within "+msText(c.TTFTBoundS)+", ITL within "+msText(c.ITLBoundS), "longest collector pause "+msText(c.GCPauseS))
	default:
		add("Client", "not calibrated", "send lag p90 "+msText(r.Latency.SendLag.P90))
	}
	if len(r.ControlOf) > 0 {
		add("Control", "added by the sweep", "the same without offload, beside "+strings.Join(r.ControlOf, ", "))
	}
	if r.Simulated {
		add("Simulation", "no real engine answered", cmp.Or(simulation(r), "no stated error"))
	}
	obs := "nobody looked"
	if r.GPUs.Observed != nil {
		obs = fmt.Sprintf("%d observed", *r.GPUs.Observed)
	}
	add("GPUs", fmt.Sprintf("%d declared", r.GPUs.Declared), obs)
	declared := r.Point.Offload.Mode
	if declared == "" {
		declared = "none"
	}
	add("Offload", declared+" declared", "host tier served "+percent(r.Hits.Host)+" of the prompt tokens")
	how := "planned"
	if r.Pools.Observed {
		how = "by the engine's " + r.Pools.From
		if r.Pools.From == "" { // derived before it was kept
			how = "observed"
		}
		if d := r.Pools.DeviceOff; d != nil {
			how += fmt.Sprintf(", %+.2f %% against the plan", 100**d)
		}
	}
	add("Pools", tokensText(r.Pools.DeviceTokens)+" on device, "+tokensText(r.Pools.HostTokens)+" in host memory", how)
	if d := r.Devices; d != nil {
		text := func(v *float64, unit string) string {
			if v == nil {
				return "unknown"
			}
			return frontier.Three(*v) + " " + unit
		}
		add("Power", fmt.Sprintf("%s mean over %d GPUs, %s at most", text(d.PowerMean, "W"), d.Count, text(d.PowerMax, "W")),
			text(d.OutputPerJ, "output tokens per joule")+", "+text(d.TotalPerJ, "in all"))
	}
	if d := r.Tokens.Drift; d != nil {
		add("Prompts", fmt.Sprintf("%+.2f %% against the trace", 100**d), "counted by the server")
	}
	if c := r.Window.Coverage; c != nil {
		add("Window", fmt.Sprintf("%.0f s planned", *r.Window.PlannedS), "tokens until "+percent(c)+" of it")
	}
	add("Requests", fmt.Sprintf("%d succeeded, %d failed", r.Requests.OK, r.Requests.Failed), fmt.Sprintf("%d cut at the end, %d in warm-up, %d sent twice", r.Requests.Cut, r.Requests.Warmup, r.Requests.Resent))
	for _, f := range r.Warnings {
		add("Warning", f.Text, "")
	}
	return rows
}

func msText(s *float64) string {
	if s == nil {
		return "unknown"
	}
	return frontier.Three(1e3**s) + " ms"
}

func tokensText(n *int64) string {
	switch {
	case n == nil:
		return "unknown"
	case *n == 0:
		return "none"
	case *n >= 1e6:
		return frontier.Three(float64(*n)/1e6) + " M tokens"
	}
	return frontier.Three(float64(*n)) + " tokens"
}

func dists(r *result.Result) []distRow {
	five := func(v *float64, withheld bool) cell {
		if v == nil {
			if withheld {
				return cell{Text: "[ ]", Why: "withheld: too few samples"}
			}
			return cell{Text: "–"}
		}
		return cell{Text: frontier.Table(*v)}
	}
	row := func(name, unit string, d *result.Dist, adj *result.AdjustedDist) distRow {
		w := distRow{Name: name, Unit: unit, N: d.N, Cells: []cell{five(d.Mean, false)}}
		for _, v := range []*float64{d.P50, d.P75, d.P90, d.P95, d.P99} {
			w.Cells = append(w.Cells, five(v, d.N > 0))
		}
		w.Cells = append(w.Cells, five(d.Max, false))
		if adj != nil {
			w.Adjusted = five(adj.P90, adj.N > 0)
			if slices.Contains(adj.Unbounded, "p90") {
				w.Adjusted = cell{Text: "∞", Why: "p90 falls on a failed request"}
			}
		}
		return w
	}
	rate := func(name string, d *result.RateDist) distRow {
		return row(name, "tok/s/user", &result.Dist{N: d.N, P50: d.P50, P75: d.P75, P90: d.P90, P95: d.P95, P99: d.P99}, nil)
	}
	l := &r.Latency
	all := []distRow{
		row("Time to first token", "s", &l.TTFT, &r.Adjusted.TTFT),
		row("Time to first visible token", "s", &l.FirstVisible, nil),
		row("End-to-end latency", "s", &l.E2EL, &r.Adjusted.E2EL),
		row("Inter-token latency", "s", &l.ITL, &r.Adjusted.ITL),
		row("Full-response ITL", "s", &l.FullResponseITL, nil),
		row("E2E latency per output token", "s", &l.E2EPerToken, nil),
		row("Time between chunks", "s", &l.ChunkGap, nil),
		rate("End-to-end normalised interactivity", &r.Intvty.E2ENorm),
		rate("Interactivity (1/ITL)", &r.Intvty.Decode),
		rate("Full-response interactivity", &r.Intvty.FullResponse),
		row("Schedule lag", "s", &l.ScheduleLag, nil),
		row("Prompt tokens", "tokens", &r.Tokens.ISL, nil),
		row("Output tokens", "tokens", &r.Tokens.OSL, nil),
		row("Agent run, first turn to last", "s", &r.Jobs.Completion, nil),
		row("Wait for sub-agents", "s", &r.Jobs.JoinWait, nil),
		row("Wait at barriers", "s", &r.Jobs.BarrierWait, nil),
	}
	return slices.DeleteFunc(all, func(d distRow) bool { return d.N == 0 })
}

// numbers are the axes that no distribution table shows.
func numbers(r *result.Result) []numberRow {
	var out []numberRow
	for _, a := range frontier.Axes {
		if a.Name == "conc" || slices.ContainsFunc(frontier.Percents, func(p string) bool { return strings.HasSuffix(a.Name, "_"+p) }) {
			continue
		}
		n := numberRow{Label: a.Label, Unit: a.Unit, Value: tableValue(a, r)}
		if a.Share {
			n.Unit = "%"
		}
		_, n.Why, _ = a.Value(r)
		out = append(out, n)
	}
	return out
}

// origin says where a run comes from, as text that can be copied and run.
func origin(r *result.Result, b *record.Bundle) string {
	var s strings.Builder
	m := b.Meta
	line := func(format string, a ...any) { fmt.Fprintf(&s, format+"\n", a...) }
	line("# run %s of point %s, seed %d, repeat %d", r.ID, m.PointID, m.Seed, m.Repeat)
	line("# corpus %s, %d traces, fingerprint %s", m.Corpus.Name, m.Corpus.Traces, m.Corpus.Fingerprint)
	line("# replay %s, recorded by weir %s, derived as %s", m.Semantics, m.Weir, r.Definitions)
	line("# engine %s %s, image %s", orUnknown(m.Engine.Name), m.Engine.Version, orUnknown(r.Point.Image))
	if r.MeasuredAt != "" {
		line("# measured at %s", r.MeasuredAt)
	}
	for _, p := range m.Processes {
		where := ""
		if p.Host != "" {
			where = " on " + p.Host
		}
		line("# %s%s", p.Role, where)
		for _, k := range slices.Sorted(maps.Keys(p.Env)) {
			line("export %s=%s", k, shellQuote(p.Env[k]))
		}
		args := make([]string, len(p.Argv))
		for i, a := range p.Argv {
			args[i] = shellQuote(a)
		}
		line("%s", strings.Join(args, " "))
	}
	line("weir derive %s", shellQuote(b.Dir))
	return strings.TrimRight(s.String(), "\n")
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// shellQuote quotes s for a POSIX shell where it needs it.
func shellQuote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r))
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// apiResult and its siblings answer with JSON.
func (h *Handler) apiResult(w http.ResponseWriter, r *http.Request) {
	if e, ok := h.entry(w, r, h.apiFail); ok {
		h.json(w, http.StatusOK, e)
	}
}

func (h *Handler) apiFail(w http.ResponseWriter, code int, err error) {
	h.json(w, code, map[string]string{"error": err.Error()})
}

func (h *Handler) json(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(b, '\n'))
}
