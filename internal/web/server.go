package web

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
)

// Handler serves the pages and the API of a store. It only reads.
type Handler struct {
	store *store.Store
	mux   *http.ServeMux
}

// NewHandler makes the handler of a store.
func NewHandler(s *store.Store) *Handler {
	h := &Handler{store: s, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /{$}", h.index)
	h.mux.HandleFunc("GET /run/{id}", h.run)
	h.mux.HandleFunc("GET /compare", h.compare)
	h.mux.HandleFunc("GET /api/results", h.apiResults)
	h.mux.HandleFunc("GET /api/compare", h.apiCompare)
	h.mux.HandleFunc("GET /api/results/{id}", h.apiResult)
	h.mux.HandleFunc("GET /api/results/{id}/timeline", h.apiTimeline)
	h.mux.HandleFunc("GET /api/results/{id}/requests/{seq}", h.apiRequest)
	h.mux.HandleFunc("GET /api/frontier", h.apiFrontier)
	h.mux.HandleFunc("GET /api/axes", h.apiAxes)
	h.mux.HandleFunc("GET /api/choices", h.apiChoices)
	h.mux.HandleFunc("GET /export.csv", h.exportCSV)
	h.mux.HandleFunc("GET /frontier.svg", h.frontierSVG)
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policy+"; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	_, pattern := h.mux.Handler(r)
	if pattern == "" && (r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/")) {
		h.apiNowhere(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// apiNowhere answers as the mux would, where nothing listens or not with that method, in JSON.
func (h *Handler) apiNowhere(w http.ResponseWriter, r *http.Request) {
	a := answer{head: http.Header{}}
	h.mux.ServeHTTP(&a, r)
	if allow := a.head.Get("Allow"); a.code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		h.apiFail(w, a.code, fmt.Errorf("%s does not answer to %s, only to %s", r.URL.Path, r.Method, allow))
		return
	}
	h.apiFail(w, http.StatusNotFound, fmt.Errorf("there is no %s", r.URL.Path))
}

// answer keeps the head of an answer and drops its body.
type answer struct {
	head http.Header
	code int
}

func (a *answer) Header() http.Header         { return a.head }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return len(b), nil }

// query is the state of a page: everything in it stands in the URL.
type query struct {
	values url.Values
	filter store.Filter
	x, y   *frontier.Axis
	all    bool // every series, not only the first few
}

// facets are the parameters that filter, with the fields of the store behind them.
var facets = []struct{ name, label string }{
	{"sweep", "Sweep"}, {"config", "Config"}, {"model", "Model"}, {"hw", "Hardware"}, {"engine", "Engine"}, {"prec", "Precision"}, {"offload", "Offload"},
}

func parseQuery(v url.Values) (*query, error) {
	q := &query{values: v}
	for name := range v {
		known := name == "x" || name == "y" || name == "valid" || name == "all" || slices.ContainsFunc(facets, func(f struct{ name, label string }) bool { return f.name == name })
		if !known {
			return nil, fmt.Errorf("unknown parameter %q; there are x, y, valid, all, sweep, config, model, hw, engine, prec, offload", name)
		}
	}
	q.filter = store.Filter{Sweeps: v["sweep"], Configs: v["config"], Models: v["model"], Hardware: v["hw"], Engines: v["engine"],
		Precision: v["prec"], Offload: v["offload"]}
	for name, to := range map[string]*bool{"valid": &q.filter.ValidOnly, "all": &q.all} {
		text := v.Get(name)
		if text == "" {
			continue
		}
		on, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%s=%s is neither 1 nor 0", name, text)
		}
		*to = on
	}
	for _, a := range []struct {
		name, def string
		to        **frontier.Axis
	}{{"x", frontier.DefaultX, &q.x}, {"y", frontier.DefaultY, &q.y}} {
		name := v.Get(a.name)
		if name == "" {
			name = a.def
		}
		axis, err := frontier.ByName(name)
		if err != nil {
			return nil, err
		}
		*a.to = axis
	}
	return q, nil
}

// toggled is the URL with one value of a facet switched.
func (q *query) toggled(name, value string) string {
	v := url.Values{}
	for k, list := range q.values {
		v[k] = slices.Clone(list)
	}
	if i := slices.Index(v[name], value); i >= 0 {
		v[name] = slices.Delete(v[name], i, i+1)
		if len(v[name]) == 0 {
			delete(v, name)
		}
	} else {
		v[name] = append(v[name], value)
	}
	return pageURL(v)
}

func pageURL(v url.Values) string {
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

type indexPage struct {
	shell
	Groups  []groupView
	Facets  []facetView
	Axes    []axisChoice
	Shown   int
	Total   int
	Empty   bool
	Nothing bool
	Invalid facetValue // the switch that leaves out what is not valid
	Query   string
	Path    string
	Hidden  []hiddenValue // filters, kept when the form is sent
}

type hiddenValue struct{ Name, Value string }

type facetView struct {
	Label  string
	Values []facetValue
	Any    bool // at least one value is chosen
}

type facetValue struct {
	Text, URL string
	Runs      int
	On        bool
}

type axisChoice struct {
	Name, Label string
	Options     []axisOption
}

type axisOption struct {
	Value, Label string
	On           bool
}

func (h *Handler) index(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		h.fail(w, http.StatusBadRequest, err)
		return
	}
	entries, err := h.store.Query(r.Context(), q.filter)
	if err != nil {
		h.fail(w, http.StatusInternalServerError, err)
		return
	}
	choices, err := h.store.Choices(r.Context())
	if err != nil {
		h.fail(w, http.StatusInternalServerError, err)
		return
	}
	p := indexPage{shell: newShell("Weir"), Shown: len(entries), Path: h.store.Path(), Query: r.URL.RawQuery}
	for _, c := range choices.Models {
		p.Total += c.Runs
	}
	p.Empty, p.Nothing = p.Total == 0, p.Total > 0 && len(entries) == 0
	p.Facets = facetViews(q, choices)
	p.Axes = axisChoices(q)
	p.Invalid = facetValue{Text: "valid only", URL: q.toggled("valid", "1"), On: q.filter.ValidOnly}
	for _, name := range []string{"sweep", "config", "model", "hw", "engine", "prec", "offload", "valid", "all"} {
		for _, v := range q.values[name] {
			p.Hidden = append(p.Hidden, hiddenValue{name, v})
		}
	}
	var run func(*result.Result) string
	if len(q.filter.Sweeps) > 1 { // sweeps that were chosen to be compared are no repeats
		sweep := map[string]string{}
		for _, e := range entries {
			sweep[e.Result.ID] = e.Sweep
		}
		run = func(r *result.Result) string { return sweep[r.ID] }
	}
	groups, of := frontier.Groups(resultsOf(entries))
	for i, g := range groups {
		p.Groups = append(p.Groups, viewGroup(g, of[g], viewOptions{x: q.x, y: q.y, anchor: fmt.Sprintf("g%d", i+1), run: run,
			all: q.all, showAll: q.toggled("all", "1"),
			point: func(id string) string { return "/run/" + id }}))
	}
	h.page(w, http.StatusOK, "index", p)
}

func resultsOf(es []store.Entry) []*result.Result {
	out := make([]*result.Result, len(es))
	for i := range es {
		out[i] = es[i].Result
	}
	return out
}

func facetViews(q *query, c store.Choices) []facetView {
	lists := [][]store.Choice{c.Sweeps, c.Configs, c.Models, c.Hardware, c.Engines, c.Precision, c.Offload}
	var out []facetView
	for i, f := range facets {
		v := facetView{Label: f.label}
		for _, ch := range lists[i] {
			on := slices.Contains(q.values[f.name], ch.Value)
			v.Any = v.Any || on
			text := ch.Value
			if text == "" {
				text = "(none)"
			}
			v.Values = append(v.Values, facetValue{Text: text, URL: q.toggled(f.name, ch.Value), Runs: ch.Runs, On: on})
		}
		if len(v.Values) > 1 || v.Any {
			out = append(out, v)
		}
	}
	return out
}

func axisChoices(q *query) []axisChoice {
	out := []axisChoice{{Name: "x", Label: "Across"}, {Name: "y", Label: "Up"}}
	for i, on := range []*frontier.Axis{q.x, q.y} {
		for _, a := range frontier.Axes {
			out[i].Options = append(out[i].Options, axisOption{a.Name, a.Label, a == on})
		}
	}
	return out
}

type errorPage struct {
	shell
	Code int
	Text string
}

// fail answers with a sentence.
func (h *Handler) fail(w http.ResponseWriter, code int, err error) {
	h.page(w, code, "error", errorPage{shell: newShell("Weir: " + http.StatusText(code)), Code: code, Text: err.Error()})
}

func (h *Handler) page(w http.ResponseWriter, code int, name string, data any) {
	var buf bytes.Buffer
	if err := pages.ExecuteTemplate(&buf, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	w.Write(buf.Bytes())
}

func (h *Handler) frontierSVG(w http.ResponseWriter, r *http.Request) {
	rs, q, ok := h.selected(w, r)
	if !ok {
		return
	}
	groups, of := frontier.Groups(rs)
	if len(groups) != 1 {
		h.fail(w, http.StatusBadRequest, fmt.Errorf("a picture shows one model under one load; the filter selects %d, so add &model=", len(groups)))
		return
	}
	v := viewGroup(groups[0], of[groups[0]], viewOptions{x: q.x, y: q.y, anchor: "g1"})
	w.Header().Set("Content-Type", "image/svg+xml")
	fmt.Fprint(w, chart.Standalone(string(v.Frontier)))
}

func (h *Handler) selected(w http.ResponseWriter, r *http.Request) ([]*result.Result, *query, bool) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		h.apiFail(w, http.StatusBadRequest, err)
		return nil, nil, false
	}
	es, err := h.store.Query(r.Context(), q.filter)
	if err != nil {
		h.apiFail(w, http.StatusInternalServerError, err)
		return nil, nil, false
	}
	return resultsOf(es), q, true
}

func (h *Handler) exportCSV(w http.ResponseWriter, r *http.Request) {
	rs, _, ok := h.selected(w, r)
	if !ok {
		return
	}
	b, err := CSV(rs)
	if err != nil {
		h.apiFail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="weir-results.csv"`)
	w.Write(b)
}

func (h *Handler) apiResults(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		h.apiFail(w, http.StatusBadRequest, err)
		return
	}
	es, err := h.store.Query(r.Context(), q.filter)
	if err != nil {
		h.apiFail(w, http.StatusInternalServerError, err)
		return
	}
	if es == nil {
		es = []store.Entry{}
	}
	h.json(w, http.StatusOK, es)
}

// apiCurve is one curve of /api/frontier.
type apiCurve struct {
	Group   frontier.Group  `json:"group"`
	Series  frontier.Series `json:"series"`
	Name    string          `json:"name"`
	Knee    *frontier.Knee  `json:"knee"`
	Points  []apiPoint      `json:"points"`
	Missing []apiMissing    `json:"missing"`
}

type apiPoint struct {
	Conc     int               `json:"conc"`
	X        frontier.Estimate `json:"x"`
	Y        frontier.Estimate `json:"y"`
	Frontier bool              `json:"frontier"`
	Valid    bool              `json:"valid"`
	Runs     []string          `json:"runs"`
}

type apiMissing struct {
	Conc int      `json:"conc"`
	Why  string   `json:"why"`
	Runs []string `json:"runs"`
}

func (h *Handler) apiFrontier(w http.ResponseWriter, r *http.Request) {
	rs, q, ok := h.selected(w, r)
	if !ok {
		return
	}
	ids := func(rs []*result.Result) []string {
		out := []string{}
		for _, r := range rs {
			out = append(out, r.ID)
		}
		return out
	}
	curves := []apiCurve{}
	groups, of := frontier.Groups(rs)
	for _, g := range groups {
		for _, c := range frontier.Curves(of[g], q.x, q.y) {
			a := apiCurve{Group: g, Series: c.Series, Name: c.Series.Name(), Points: []apiPoint{}, Missing: []apiMissing{}}
			if k, ok := frontier.KneeOf(&c); ok {
				a.Knee = &k
			}
			for _, p := range c.Points {
				a.Points = append(a.Points, apiPoint{p.Conc, p.X, p.Y, p.On, !p.Invalid, ids(p.Runs)})
			}
			for _, m := range c.Missing {
				a.Missing = append(a.Missing, apiMissing{m.Conc, m.Why, ids(m.Runs)})
			}
			curves = append(curves, a)
		}
	}
	h.json(w, http.StatusOK, map[string]any{"x": apiAxis(q.x), "y": apiAxis(q.y), "curves": curves})
}

func apiAxis(a *frontier.Axis) map[string]any {
	dir := "higher"
	if a.Better == frontier.Lower {
		dir = "lower"
	}
	return map[string]any{"name": a.Name, "label": a.Label, "unit": a.Unit, "better": dir, "share": a.Share}
}

func (h *Handler) apiAxes(w http.ResponseWriter, r *http.Request) {
	var out []map[string]any
	for _, a := range frontier.Axes {
		out = append(out, apiAxis(a))
	}
	h.json(w, http.StatusOK, out)
}

func (h *Handler) apiChoices(w http.ResponseWriter, r *http.Request) {
	c, err := h.store.Choices(r.Context())
	if err != nil {
		h.apiFail(w, http.StatusInternalServerError, err)
		return
	}
	h.json(w, http.StatusOK, c)
}
