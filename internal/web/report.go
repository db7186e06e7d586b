// Package web shows results: a report that is one file and opens without a network, and the
// same pages from a store over HTTP with an API beside them.
//
// Pages are rendered here and figures drawn by package chart, so that a page works without
// script and prints; the script adds only hovering, keys and the timeline. Nothing is loaded
// from elsewhere and the content policy of a page says so.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

//go:embed static templates
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"inc": func(i int) int { return i + 1 },
}).ParseFS(files, "templates/*.tmpl"))

// asset is the text of an embedded file; a missing one is a fault of the build.
func asset(name string) string {
	b, err := files.ReadFile("static/" + name)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var (
	style  = chart.CSS() + asset("weir.css")
	script = asset("weir.js")
	// runScript is the script of a run's page, which has the timeline.
	runScript = script + asset("timeline.js")
	// policy lets a page run its own style and script, known by their hashes, and nothing else.
	policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s' 'sha256-%s'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'",
		hash64(style), hash64(script), hash64(runScript))
)

func hash64(s string) string {
	h := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(h[:])
}

// ReportOptions are what a report says beside its results.
type ReportOptions struct {
	Title string // name of the sweep
	// Command is the command line that made the results, shown to be run again.
	Command string
	// X and Y name the axes of the frontier; empty takes the defaults.
	X, Y string
}

// shell is what every page has around its content.
type shell struct {
	Title  string
	Policy string
	Style  template.CSS
	Script template.JS
	Report bool
}

func newShell(title string) shell {
	return shell{Title: title, Policy: policy, Style: template.CSS(style), Script: template.JS(script)}
}

type reportPage struct {
	shell
	Command     string
	Groups      []groupView
	Runs        int
	Invalid     int
	Simulated   bool
	Definitions string
	CSV, JSON   template.URL
	Empty       bool
}

// WriteReport writes results as one HTML file that needs nothing else. Equal results and
// options give equal bytes.
func WriteReport(w io.Writer, rs []*result.Result, o ReportOptions) error {
	if o.X == "" {
		o.X = frontier.DefaultX
	}
	if o.Y == "" {
		o.Y = frontier.DefaultY
	}
	x, err := frontier.ByName(o.X)
	if err != nil {
		return err
	}
	y, err := frontier.ByName(o.Y)
	if err != nil {
		return err
	}
	if o.Title == "" {
		o.Title = "Weir report"
	}
	p := reportPage{shell: newShell(o.Title), Command: o.Command, Runs: len(rs), Definitions: result.Definitions, Empty: len(rs) == 0}
	p.Report = true
	groups, of := frontier.Groups(rs)
	for i, g := range groups {
		p.Groups = append(p.Groups, viewGroup(g, of[g], viewOptions{x: x, y: y, anchor: fmt.Sprintf("g%d", i+1)}))
	}
	for _, r := range rs {
		if !r.Valid {
			p.Invalid++
		}
		p.Simulated = p.Simulated || r.Simulated
	}
	table, err := CSV(rs)
	if err != nil {
		return err
	}
	p.CSV = template.URL("data:text/csv;base64," + base64.StdEncoding.EncodeToString(table))
	raw, err := jsonLines(rs)
	if err != nil {
		return err
	}
	p.JSON = template.URL("data:application/jsonl;base64," + base64.StdEncoding.EncodeToString(raw))
	var buf bytes.Buffer
	if err := pages.ExecuteTemplate(&buf, "report", p); err != nil {
		return err
	}
	_, err = w.Write(buf.Bytes())
	return err
}

func jsonLines(rs []*result.Result) ([]byte, error) {
	var out bytes.Buffer
	for _, r := range rs {
		raw, err := r.JSON()
		if err != nil {
			return nil, err
		}
		if err := json.Compact(&out, raw); err != nil {
			return nil, err
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// CSV is one line a run with every axis, all digits. A number that is not known is empty.
func CSV(rs []*result.Result) ([]byte, error) {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	line := []string{"id", "point_id", "config", "model", "hardware", "engine", "precision", "topology", "gpus", "offload", "spec_decoding",
		"scenario", "corpus", "seed", "repeat", "simulated", "measured_at", "definitions", "valid", "invalid_reasons", "requests_ok", "requests_failed"}
	for _, a := range frontier.Axes {
		line = append(line, a.Name)
	}
	if err := w.Write(line); err != nil {
		return nil, err
	}
	for _, r := range rs {
		s := frontier.SeriesOf(r)
		var why []string
		for _, f := range r.Reasons {
			why = append(why, string(f.Code))
		}
		line = []string{r.ID, r.PointID, r.Point.Key, r.Point.Model, s.Hardware, s.Engine, s.Precision, s.Topology, fmt.Sprint(s.GPUs), s.Offload, s.Spec,
			string(r.Point.Scenario), r.Corpus.Fingerprint, fmt.Sprint(r.Seed), fmt.Sprint(r.Repeat), fmt.Sprint(r.Simulated), r.MeasuredAt, r.Definitions,
			fmt.Sprint(r.Valid), strings.Join(why, " "), fmt.Sprint(r.Requests.OK), fmt.Sprint(r.Requests.Failed)}
		for _, a := range frontier.Axes {
			if v := a.Has(r); v != nil {
				line = append(line, fmt.Sprint(*v))
			} else {
				line = append(line, "")
			}
		}
		if err := w.Write(line); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return buf.Bytes(), w.Error()
}
