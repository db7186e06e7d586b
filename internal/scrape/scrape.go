// Package scrape reads the metrics of servers while a point runs and says what they mean.
//
// A Scraper asks every endpoint at a fixed interval, each on its own, and hands over samples: a
// baseline before the load, then what changed, and a final one after it. It stands beside the
// load and never in its way: an endpoint that is slow, huge, malformed or dying costs its own
// samples and is reported, by URL and with its last error.
//
// View, Counters and Gauges are the pure side: they turn samples, in the order in which they
// came, into the quantities that package engine names.
package scrape

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// Defaults of Options.
const (
	DefaultEvery   = time.Second
	DefaultTimeout = 10 * time.Second
	DefaultLimit   = 64 << 20 // bytes
)

// Options configure a Scraper.
type Options struct {
	// URLs of the endpoints; see Endpoint for the forms that are taken.
	URLs    []string
	Every   time.Duration // 0 is DefaultEvery
	Timeout time.Duration // of one scrape; 0 is DefaultTimeout
	Limit   int64         // longest answer in bytes; 0 is DefaultLimit
	// Require are the families, without _total, that must be on one of the endpoints at the
	// baseline; spellings of one are separated by a bar.
	Require []string
	Header  http.Header
	TLS     *tls.Config
	// Protocols are the versions of HTTP that are spoken; nil is HTTP/1.1.
	Protocols *http.Protocols
	// Now is the time since the run's epoch in nanoseconds.
	Now func() int64
	// Write takes every sample, one at a time and never from the goroutine that loads. What a sample
	// other than the first of its endpoint brings stands in Changed, which is valid until Write returns.
	Write func(*record.Sample) error
}

// A Scraper scrapes until it is stopped.
type Scraper struct {
	o         Options
	endpoints []*endpoint
	ctx       context.Context // until Stop
	cancel    context.CancelFunc
	running   sync.WaitGroup
	mu        sync.Mutex // guards Write and writeErr
	writeErr  error
}

// Report is how one endpoint did.
type Report struct {
	URL      string `json:"url"`
	Scrapes  int64  `json:"scrapes"`
	Failed   int64  `json:"failed"`
	Late     int64  `json:"late"` // scrapes that were due while one was under way
	Series   int    `json:"series"`
	Bytes    int64  `json:"bytes"`      // of the last answer
	MaxLagNs int64  `json:"max_lag_ns"` // longest scrape
	Error    string `json:"error,omitempty"`
	// Simulated is what a simulated engine says of itself in simhttp.SimulatedHeader; empty of others.
	Simulated string `json:"simulated,omitempty"`
}

// Endpoint brings a URL into the form that is scraped: http:// in front where there is no
// scheme, /metrics behind where there is no path.
func Endpoint(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not the URL of a metrics endpoint: write http://HOST:PORT/metrics", s)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(u.Path, "metrics") {
		u.Path = strings.TrimSuffix(u.Path, "/v1") + "/metrics"
	}
	return u.String(), nil
}

// New makes a Scraper that has not asked anybody yet. Of equal URLs one is kept.
func New(o Options) (*Scraper, error) {
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	s := &Scraper{o: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var seen []string
	for _, raw := range o.URLs {
		u, err := Endpoint(raw)
		if err != nil {
			return nil, err
		}
		if slices.Contains(seen, u) {
			continue
		}
		seen = append(seen, u)
		s.endpoints = append(s.endpoints, &endpoint{url: u, report: Report{URL: u}, client: &http.Client{
			Transport: &http.Transport{TLSClientConfig: o.TLS, Protocols: o.Protocols, MaxIdleConnsPerHost: 1, DisableCompression: true, ReadBufferSize: 64 << 10},
		}})
	}
	return s, nil
}

// A MissingError says which required family no endpoint has.
type MissingError struct{ text string }

func (e *MissingError) Error() string { return e.text }

// Baseline scrapes every endpoint once, all at the same time. It fails when a required family
// is on none of them, or when ctx ends.
func (s *Scraper) Baseline(ctx context.Context) error {
	s.all(ctx, "")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, f := range s.o.Require {
		if !slices.ContainsFunc(s.endpoints, func(e *endpoint) bool { return e.has(f) }) {
			var urls []string
			for _, e := range s.endpoints {
				u := e.url
				if r := e.snapshot(); r.Error != "" {
					u += " (" + r.Error + ")"
				}
				urls = append(urls, u)
			}
			return &MissingError{fmt.Sprintf("the required metric %s is on none of the endpoints %s", strings.ReplaceAll(f, "|", " or "), strings.Join(urls, ", "))}
		}
	}
	return nil
}

func (s *Scraper) all(ctx context.Context, mark record.Phase) {
	var wg sync.WaitGroup
	for _, e := range s.endpoints {
		wg.Go(func() { s.once(ctx, e, mark) })
	}
	wg.Wait()
}

// Start begins to scrape at the interval.
func (s *Scraper) Start() {
	for i, e := range s.endpoints {
		s.running.Go(func() { s.loop(e, s.o.Every*time.Duration(i)/time.Duration(len(s.endpoints))) })
	}
}

// Mark scrapes all endpoints now, beside the interval, and returns at once: a phase begins. It
// is not to be called after Stop.
func (s *Scraper) Mark(phase record.Phase) {
	for _, e := range s.endpoints {
		s.running.Go(func() { s.once(s.ctx, e, phase) })
	}
}

// MarkAndWait is Mark that returns when every endpoint has answered or failed, or ctx has ended.
func (s *Scraper) MarkAndWait(ctx context.Context, phase record.Phase) {
	left := make(chan struct{}, len(s.endpoints))
	for _, e := range s.endpoints {
		s.running.Go(func() {
			s.once(s.ctx, e, phase)
			left <- struct{}{}
		})
	}
	for range s.endpoints {
		select {
		case <-left:
		case <-ctx.Done():
			return
		}
	}
}

// Stop ends the scraping, takes a final sample of every endpoint, and says how they did. The
// error is one of Write.
func (s *Scraper) Stop(ctx context.Context) ([]Report, error) {
	s.cancel()
	s.running.Wait()
	s.all(ctx, "")
	out := s.Reports()
	for _, e := range s.endpoints {
		e.client.CloseIdleConnections()
		e.mu.Lock()
		e.plain.close()
		e.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return out, s.writeErr
}

// Views are what every endpoint said last; one that never answered says nothing.
func (s *Scraper) Views() []View {
	out := make([]View, len(s.endpoints))
	for i, e := range s.endpoints {
		e.mu.Lock()
		values := map[string]float64{}
		for name, c := range e.page.cells {
			if !math.IsNaN(c.said) {
				values[name] = c.said
			}
		}
		e.mu.Unlock()
		out[i] = Read(&record.Sample{Values: values})
	}
	return out
}

// Reports are how the endpoints did so far.
func (s *Scraper) Reports() []Report {
	out := make([]Report, len(s.endpoints))
	for i, e := range s.endpoints {
		out[i] = e.snapshot()
	}
	return out
}

// maxEvery is the longest interval at which an endpoint that fails is asked again.
const maxEvery = 30 * time.Second

// failuresBefore is how many failures in a row an endpoint may have at the full rate.
const failuresBefore = 3

func (s *Scraper) loop(e *endpoint, offset time.Duration) {
	next := time.Now().Add(offset)
	t := time.NewTimer(offset)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		bad := s.once(s.ctx, e, "")
		every := s.o.Every
		if bad > failuresBefore {
			every = max(every, min(maxEvery, every<<min(bad-failuresBefore, 8)))
		}
		for next = next.Add(every); time.Until(next) < 0; next = next.Add(every) {
			e.late()
		}
		t.Reset(time.Until(next))
	}
}

// endpoint is one URL. The lock is held during a scrape, so two of one endpoint never overlap.
type endpoint struct {
	url     string
	client  *http.Client
	plain   *plain // nil when client asks
	plainOf string // the URL that plain asks, or that it was not for

	mu       sync.Mutex
	page     page
	whole    bool // a whole sample was written
	bad      int  // failures in a row
	tried    bool // the other path of metrics was tried
	from     string
	size     int
	spare    []byte // for the next answer
	reportMu sync.Mutex
	report   Report
}

func (e *endpoint) snapshot() Report {
	e.reportMu.Lock()
	defer e.reportMu.Unlock()
	return e.report
}

func (e *endpoint) late() {
	e.reportMu.Lock()
	defer e.reportMu.Unlock()
	e.report.Late++
}

// has tells whether an endpoint publishes a family in one of its spellings: with a series, or
// by its type alone where nothing was counted yet.
func (e *endpoint) has(spellings string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for family := range strings.SplitSeq(spellings, "|") {
		is := func(name string) bool { return name == family || name == family+"_total" || name == family+"_count" }
		for s := range e.page.cells {
			if name, _, _ := strings.Cut(s, "{"); is(name) {
				return true
			}
		}
		for name, f := range e.page.families {
			if f.Type != "" && is(name) {
				return true
			}
		}
	}
	return false
}

// once scrapes an endpoint and writes a sample. It returns the failures in a row.
func (s *Scraper) once(ctx context.Context, e *endpoint, mark record.Phase) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := s.o.Now()
	sample := &record.Sample{At: asked, Source: e.url, Mark: mark}
	body, at, err := s.get(ctx, e)
	if err != nil && ctx.Err() != nil {
		return e.bad // stopped, not failed
	}
	if at > 0 {
		sample.At = at
	}
	var c *change
	if err == nil {
		before := e.page.body
		if c, err = e.page.update(body); err != nil {
			before, err = body, fmt.Errorf("not Prometheus text: %w", err)
		}
		e.spare = before
	}
	sample.LagNs = s.o.Now() - asked
	e.reportMu.Lock()
	r := &e.report
	r.Scrapes++
	r.MaxLagNs = max(r.MaxLagNs, sample.LagNs)
	if err != nil {
		e.bad++
		r.Failed++
		r.Error = err.Error()
		sample.Error = r.Error
	} else {
		e.bad = 0
		r.Series, r.Bytes = len(e.page.cells), int64(len(body))
		sample.Changed, sample.Families, sample.Delta = c.values, c.families, e.whole
		if !e.whole {
			sample.Spread()
		}
		e.whole = true
	}
	e.reportMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr == nil && s.o.Write != nil {
		s.writeErr = s.o.Write(sample)
	}
	return e.bad
}

// get asks an endpoint and returns its answer and the instant of its first byte.
func (s *Scraper) get(ctx context.Context, e *endpoint) ([]byte, int64, error) {
	until := time.Now().Add(s.o.Timeout)
	if e.from == "" {
		e.from = e.url
	}
	body, at, err := s.fetch(ctx, until, e, e.from)
	if err == nil && !looksLikeText(body) {
		err = errors.New("not Prometheus text but JSON or HTML")
	}
	if err != nil && !e.tried && !e.whole && ctx.Err() == nil && time.Now().Before(until) {
		// TensorRT-LLM answers /metrics with JSON and has its Prometheus text elsewhere.
		e.tried = true
		if u, ok := strings.CutSuffix(e.url, "/metrics"); ok && !strings.HasSuffix(u, "/prometheus") {
			if b, t, err2 := s.fetch(ctx, until, e, u+"/prometheus/metrics"); err2 == nil && looksLikeText(b) {
				e.from = u + "/prometheus/metrics"
				return b, t, nil
			}
		}
	}
	if err != nil && !time.Now().Before(until) {
		err = fmt.Errorf("no whole answer within %s", s.o.Timeout)
	}
	return body, at, err
}

func looksLikeText(b []byte) bool {
	for _, c := range b {
		switch c {
		case ' ', '\n', '\r', '\t':
		case '{', '[', '<':
			return false
		default:
			return true
		}
	}
	return true
}

// fetch asks a URL and returns its answer and the instant of its first byte.
func (s *Scraper) fetch(ctx context.Context, until time.Time, e *endpoint, u string) ([]byte, int64, error) {
	if e.plainOf != u {
		e.plain.close()
		if e.plain, e.plainOf = nil, u; s.o.Protocols == nil {
			e.plain = newPlain(u, s.header())
		}
	}
	if e.plain != nil {
		resp, done, err := e.plain.ask(ctx, until)
		if err == nil {
			body, at, err := s.body(e, resp)
			done(err == nil)
			return body, at, err
		}
		if !errors.Is(err, errElse) {
			return nil, 0, err
		}
		e.plain = nil
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header = s.header()
	resp, err := e.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, 0, err
	}
	defer resp.Body.Close()
	return s.body(e, resp)
}

// header is what a request for a page has.
func (s *Scraper) header() http.Header {
	h := http.Header{}
	for k, v := range s.o.Header {
		h[k] = v
	}
	h.Set("Accept", "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5")
	return h
}

// body reads an answer behind its head.
func (s *Scraper) body(e *endpoint, resp *http.Response) ([]byte, int64, error) {
	at := s.o.Now()
	if mark := resp.Header.Get(simhttp.SimulatedHeader); mark != "" {
		e.reportMu.Lock()
		e.report.Simulated = mark
		e.reportMu.Unlock()
	}
	if resp.StatusCode != http.StatusOK {
		return nil, at, fmt.Errorf("HTTP status %s", resp.Status)
	}
	var from io.Reader = resp.Body
	switch coding := strings.ToLower(resp.Header.Get("Content-Encoding")); coding {
	case "", "identity":
	case "gzip", "x-gzip": // from a server or a proxy that compresses unasked
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, at, fmt.Errorf("the answer is called gzip and is not: %w", err)
		}
		from = z // it reads the body to its end
	default:
		return nil, at, fmt.Errorf("the answer is coded as %.40q, which was not asked for: have the server or the proxy before it send it as it is", coding)
	}
	body := e.spare[:0]
	if e.spare = nil; cap(body) <= e.size {
		body = make([]byte, 0, max(4096, e.size+e.size/8))
	}
	if n := resp.ContentLength; n > s.o.Limit {
		return nil, at, fmt.Errorf("the answer has %d bytes, limit %d", n, s.o.Limit)
	}
	for {
		if len(body) == cap(body) {
			body = slices.Grow(body, len(body))
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > s.o.Limit {
			return nil, at, fmt.Errorf("the answer has more than %d bytes", s.o.Limit)
		}
		if err == io.EOF {
			e.size = len(body)
			return body, at, nil
		}
		if err != nil {
			return nil, at, fmt.Errorf("the answer broke off after %d bytes: %w", len(body), err)
		}
	}
}
