// Package client sends the requests of a replay over HTTP and measures what came back: a
// replay.Target with honest timestamps.
//
// Its contract: whatever happens to a request, exactly one record arrives, in bounded time,
// with the eight instants of record.Times on the driver's clock and, when it failed, a class
// that says whose fault it was. Nothing is hidden: there is no cap on connections, no retry
// except the one that record.Request.Resent counts, no instant that was made up. What the
// client itself adds to its numbers is measured in every run (Health) and bounded by a
// calibration against a server that writes its own send times (Calibrate).
//
// What decides is free of clocks and connections: http1 decodes a response, eventStream
// splits it into events, frame reads an event, answer makes the record. The transports around
// it only move bytes and take the time right after the read that brought them.
package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// A Body is the body of one request. Open may be called again for a request that is sent a
// second time; every reader gives the same Len bytes. A reader that is an io.Closer is closed.
type Body interface {
	Len() int64
	Open() io.Reader
}

// Bodies makes the body of a request. It is called once a request, from many goroutines.
type Bodies interface {
	Body(*replay.Request) (Body, error)
}

// BodiesFunc is a Bodies made of a function.
type BodiesFunc func(*replay.Request) (Body, error)

// Body calls f.
func (f BodiesFunc) Body(q *replay.Request) (Body, error) { return f(q) }

// Protocol is how HTTP is spoken.
type Protocol string

const (
	HTTP1 Protocol = "http/1.1" // the default
	HTTP2 Protocol = "h2"       // HTTP/2 over TLS
	H2C   Protocol = "h2c"      // HTTP/2 without TLS, from the first byte
)

// Spread says how requests are spread over several base URLs. Every choice is a function of
// the request alone, so that it is the same in every run.
type Spread string

const (
	SpreadTree         Spread = "tree"         // a whole tree to one URL; the default
	SpreadConversation Spread = "conversation" // a stream to one URL
	SpreadRequest      Spread = "request"      // each request to the next URL
)

// Timeouts bound every phase of a request. A zero field takes its default; there is no way to
// wait for ever. How long a first token takes depends on everything that waits in front of it, so
// its limit is long: a run whose requests all wait in vain is ended by its watchdog
// (replay.Watchdog), long before.
type Timeouts struct {
	Connect time.Duration // name, connection and TLS; default 30 s
	Headers time.Duration // from sent to the response head; default 6 h
	First   time.Duration // from sent to the first token; default 6 h
	Stream  time.Duration // from one token to the next; default 10 min
	Total   time.Duration // from sent to the end; default 8 h
	Idle    time.Duration // how long an idle connection is kept; default 60 s
}

// Config says where and how to send.
type Config struct {
	URLs     []string // base URLs: http://host:port, with a path in front of the endpoint's when there is one
	Endpoint Endpoint
	Path     string // instead of the endpoint's own path
	Model    string // name of the model in the records; the body's model is the body's affair
	Bodies   Bodies
	Clock    replay.Clock // nil begins one now

	Protocol Protocol
	TLS      *tls.Config // nil takes the system's roots
	Spread   Spread

	APIKey string      // sent as a bearer token, and as x-api-key to Messages
	Header http.Header // further headers of every request

	// SessionHeaders are names of headers that carry the identity of the conversation, such
	// as X-Correlation-ID, X-SMG-Routing-Key, X-Session-ID or X-Dynamo-Session-ID;
	// ParentHeader, such as X-Dynamo-Parent-Session-ID, carries the identity of the parent
	// conversation for sub-agents.
	SessionHeaders []string
	ParentHeader   string
	RunID          string // goes into the identities, so that runs do not share sessions

	Timeouts Timeouts
	Gzip     bool // accept gzip; a compressed answer is read either way

	InFlight int  // most requests in flight at once that are planned; 0 is unknown
	Chunks   bool // keep the time of every content frame
	Wire     bool // keep how every request went over its connection

	// OverflowTexts are texts in an error that mean that the prompt is too long, besides
	// those that are built in.
	OverflowTexts []string

	// Count, when set, counts the tokens of what a request said, to check the server's usage:
	// for every CountEvery-th request (by Seq), one after the other, off the readers' path.
	Count      func(content, reasoning []byte) int64
	CountEvery uint64

	roomFor  int   // requests at once, in place of what the machine has room for
	blocking bool  // a goroutine a connection where a poller could read, to measure against
	unparked bool  // pollers block in system calls, as where the runtime cannot wait for them
	busyRate int64 // events a second from which a poller naps between reads; 0 is the default
}

// overflowTexts are what servers say when a prompt is too long: the first four are those of
// AIPerf's AGENTX_CONTEXT_OVERFLOW_SUBSTRINGS (2026-07), then llama.cpp and TensorRT-LLM.
var overflowTexts = []string{
	"context length", "maximum context", "context_length_exceeded", "prompt is too long",
	"context size", "context window", "max_seq_len", "max_input_len",
}

// maxFixed is how long the configured headers may be together, bytes.
const maxFixed = 16 << 10

// A Target is a replay.Target over HTTP.
type Target struct {
	cfg      Config
	clock    replay.Clock
	hosts    []*host
	overflow []string
	limits   answerLimits
	tls      *tls.Config
	fixed    string // the headers that every request has, as written
	dialer   net.Dialer

	room   int    // requests that can be in flight at once
	roomOf string // for what there is no more

	stampFd    int // keeps the kernel noting arrivals
	pollers    []*poller
	nextPoller atomic.Uint64

	h2mu    sync.Mutex
	h2blind atomic.Bool          // a connection no longer knows what it sends
	h2out   map[string]*h2Stream // requests whose head is looked out for, by X-Request-ID

	health    health
	onFirst   func(seq uint64)
	lastToken atomic.Int64
	probe     func(lane int, data []byte, at int64) // sees every event, to calibrate

	sink    func(*record.Request)
	ended   outbox
	mu      sync.Mutex
	flying  map[*exchange]struct{}
	closed  bool
	stopped chan struct{} // the last request ended after Close
	gone    chan struct{} // everything ended
}

// New checks a configuration, raises the file limit and returns a target. It refuses a
// configuration that cannot hold the planned number of requests in flight.
func New(cfg Config) (*Target, error) {
	if cfg.Bodies == nil {
		return nil, errors.New("client: no Bodies")
	}
	if len(cfg.URLs) == 0 {
		return nil, errors.New("client: no base URL; give one such as http://127.0.0.1:8000")
	}
	if cfg.Clock == nil {
		cfg.Clock = replay.NewClock()
	}
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	t := &Target{cfg: cfg, clock: cfg.Clock, flying: map[*exchange]struct{}{}, h2out: map[string]*h2Stream{}, stopped: make(chan struct{}), gone: make(chan struct{}),
		limits: answerLimits{frame: 64 << 20, whole: 64 << 20}}
	for _, s := range append(overflowTexts[:len(overflowTexts):len(overflowTexts)], cfg.OverflowTexts...) {
		t.overflow = append(t.overflow, strings.ToLower(s))
	}
	t.tls = cfg.TLS
	if t.tls == nil {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, h := range cfg.fixedHeaders() {
		t.fixed += h[0] + ": " + h[1] + "\r\n"
	}
	if len(t.fixed) > maxFixed {
		return nil, fmt.Errorf("client: the headers take %d bytes; at most %d are sent", len(t.fixed), maxFixed)
	}
	for _, u := range cfg.URLs {
		h, err := newHost(u, &cfg)
		if err != nil {
			return nil, err
		}
		if cfg.Protocol != HTTP1 {
			h.h2 = t.newH2(h)
		}
		t.hosts = append(t.hosts, h)
	}
	if err := cfg.Fits(&Plan{Units: cfg.InFlight}); err != nil {
		return nil, err
	}
	m, err := thisMachine()
	if err != nil {
		return nil, err
	}
	if cfg.Protocol != HTTP1 { // how many requests share a connection is the server's to say
		m.files = math.MaxInt64
	}
	if t.room, t.roomOf = cfg.room(m, false); cfg.roomFor > 0 {
		t.room = cfg.roomFor
	}
	t.stampFd = keepStamps()
	if cfg.Protocol == HTTP1 && !cfg.blocking && slices.ContainsFunc(t.hosts, func(h *host) bool { return !h.secure }) {
		if err := t.poll(); err != nil {
			closeStamps(t.stampFd)
			return nil, fmt.Errorf("client: making a poller: %w", err)
		}
	}
	return t, nil
}

func (c *Config) defaults() error {
	for _, d := range []struct {
		v    *time.Duration
		def  time.Duration
		name string
	}{
		{&c.Timeouts.Connect, 30 * time.Second, "Connect"},
		{&c.Timeouts.Headers, 6 * time.Hour, "Headers"},
		{&c.Timeouts.First, 6 * time.Hour, "First"},
		{&c.Timeouts.Stream, 10 * time.Minute, "Stream"},
		{&c.Timeouts.Total, 8 * time.Hour, "Total"},
		{&c.Timeouts.Idle, time.Minute, "Idle"},
	} {
		if *d.v < 0 {
			return fmt.Errorf("client: timeout %s is %v; it must not be negative", d.name, *d.v)
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	switch c.Protocol {
	case "":
		c.Protocol = HTTP1
	case HTTP1, HTTP2, H2C:
	default:
		return fmt.Errorf("client: protocol %q is unknown; known are %s, %s, %s", c.Protocol, HTTP1, HTTP2, H2C)
	}
	switch c.Spread {
	case "":
		c.Spread = SpreadTree
	case SpreadTree, SpreadConversation, SpreadRequest:
	default:
		return fmt.Errorf("client: spread %q is unknown; known are %s, %s, %s", c.Spread, SpreadTree, SpreadConversation, SpreadRequest)
	}
	if int(c.Endpoint) >= len(endpoints) {
		return fmt.Errorf("client: endpoint %d is unknown", c.Endpoint)
	}
	return checkHeaders(c)
}

// Start gives the target the sink for outcomes.
func (t *Target) Start(sink func(*record.Request)) {
	t.sink = sink
	t.lastToken.Store(record.Never)
	t.health.begin(t.gone)
	t.ended.init()
	go t.ended.run(func(e ending) {
		if e.count {
			n := t.cfg.Count(e.content, e.reasoning)
			e.rec.LocalOutput = &n
		}
		sink(e.rec)
	})
}

// OnFirstToken makes the target tell when the first token of a request arrived.
func (t *Target) OnFirstToken(f func(seq uint64)) { t.onFirst = f }

// LastToken is when the last token of any request arrived, record.Never before the first.
func (t *Target) LastToken() int64 { return t.lastToken.Load() }

func (t *Target) tokenAt(at int64) {
	for {
		last := t.lastToken.Load()
		if at <= last || t.lastToken.CompareAndSwap(last, at) {
			return
		}
	}
}

// Send hands over one request. It does not block.
func (t *Target) Send(q replay.Request) {
	x := newExchange(t, q)
	t.mu.Lock()
	closed, full := t.closed, len(t.flying) >= t.room
	if !closed {
		t.flying[x] = struct{}{}
	}
	if !closed && !full {
		t.health.most.Store(max(t.health.most.Load(), int64(len(t.flying))))
	}
	t.mu.Unlock()
	if closed {
		x.rec.Times.End = t.clock.Now()
		x.rec.Failure = failure(record.FailClient, "the client was closed before the request was sent")
		go t.sink(x.rec)
		return
	}
	switch {
	case full:
		go x.turnAway()
	case t.cfg.Protocol != HTTP1:
		go x.runH2()
	case len(t.pollers) > 0 && !x.host.secure:
		go x.runWire()
	default:
		go x.run()
	}
}

// turnAway ends a request for which the machine has no room: it is not queued, since it would then
// be late by what nobody asked for.
func (x *exchange) turnAway() {
	x.refuse(record.FailClient, "%d requests are in flight and there is no room for more: %s; the request was not sent", x.t.room, x.t.roomOf)
	x.stop()
	x.t.finished(x)
}

// Cancel ends everything that is in flight. Requests sent afterwards are not touched.
func (t *Target) Cancel() {
	t.mu.Lock()
	all := make([]*exchange, 0, len(t.flying))
	for x := range t.flying {
		all = append(all, x)
	}
	t.mu.Unlock()
	for _, x := range all {
		x.cancel()
	}
}

// Close cancels what is in flight, waits for its outcomes and closes every connection.
func (t *Target) Close() error {
	t.mu.Lock()
	was := t.closed
	t.closed = true
	none := len(t.flying) == 0
	t.mu.Unlock()
	if was {
		return nil
	}
	t.Cancel()
	if !none {
		<-t.stopped
	}
	t.ended.close()
	for _, h := range t.hosts {
		h.closeIdle()
		h.closeWires()
		if h.h2 != nil {
			h.h2.CloseIdleConnections()
		}
	}
	close(t.gone)
	for _, p := range t.pollers {
		p.close()
	}
	closeStamps(t.stampFd)
	return nil
}

// InFlight is the number of requests in flight.
func (t *Target) InFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.flying)
}

// finished delivers the outcome of an exchange.
func (t *Target) finished(x *exchange) {
	t.mu.Lock()
	delete(t.flying, x)
	last := t.closed && len(t.flying) == 0
	t.mu.Unlock()
	e := ending{rec: x.rec}
	// The marks around a tool call are tokens without text, and ids have none at all.
	if x.ans.keep && x.rec.Failure == nil && !x.ans.called && len(x.ans.text)+len(x.ans.thoughts) > 0 {
		e.count, e.content, e.reasoning = true, x.ans.text, x.ans.thoughts
	}
	t.ended.put(e)
	if last {
		close(t.stopped)
	}
}

// host is one base URL.
type host struct {
	base    string // as configured
	url     *url.URL
	address string // host:port
	name    string // host without port, for TLS
	secure  bool
	request string // "POST /path HTTP/1.1\r\nHost: ...\r\n"
	idle    idleConns
	wires   idleWires
	h2      *http2.Transport
}

func newHost(base string, cfg *Config) (*host, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("client: base URL %q is not of the form http://host:port or https://host:port", base)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		bare := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // what is left out may be a secret
		return nil, fmt.Errorf("client: the base URL has user, query or fragment beside %s, which would not be sent; use the API key, headers or the path instead", bare)
	}
	h := &host{base: base, url: u, name: u.Hostname(), secure: u.Scheme == "https"}
	port := u.Port()
	if port == "" {
		port = "80"
		if h.secure {
			port = "443"
		}
	}
	h.address = net.JoinHostPort(h.name, port)
	if cfg.Protocol == H2C && h.secure || cfg.Protocol == HTTP2 && !h.secure {
		return nil, fmt.Errorf("client: protocol %s does not go with %s; use %s", cfg.Protocol, base,
			map[bool]Protocol{true: HTTP2, false: H2C}[h.secure])
	}
	path := cfg.Path
	if path == "" {
		path = cfg.Endpoint.Path()
	}
	if h.url, err = url.Parse(strings.TrimRight(base, "/") + "/" + strings.TrimLeft(path, "/")); err != nil {
		return nil, fmt.Errorf("client: path %q: %w", path, err)
	}
	h.request = "POST " + h.url.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n"
	return h, nil
}

// choose gives the base URL of a request.
func (t *Target) choose(q *replay.Request) *host {
	n := uint64(len(t.hosts))
	if n == 1 {
		return t.hosts[0]
	}
	var k uint64
	switch t.cfg.Spread {
	case SpreadTree:
		k = uint64(q.Lane) + uint64(q.Play)
	case SpreadConversation:
		k = uint64(q.Lane) + uint64(q.Play) + uint64(q.Stream)
	case SpreadRequest:
		k = q.Seq - 1
	}
	return t.hosts[k%n]
}

// An ending is an outcome on its way to the sink, with its text when that is to be counted.
type ending struct {
	rec                *record.Request
	count              bool
	content, reasoning []byte
}

// outbox delivers outcomes one after the other, in the order in which they ended, so that a
// slow sink never holds up a reader.
type outbox struct {
	mu    sync.Mutex
	more  sync.Cond
	queue []ending
	over  bool
	gone  chan struct{}
}

func (o *outbox) init() {
	o.more.L = &o.mu
	o.gone = make(chan struct{})
}

func (o *outbox) put(e ending) {
	o.mu.Lock()
	o.queue = append(o.queue, e)
	o.mu.Unlock()
	o.more.Signal()
}

func (o *outbox) run(deliver func(ending)) {
	defer close(o.gone)
	var batch []ending
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.over {
			o.more.Wait()
		}
		batch, o.queue = o.queue, batch[:0]
		o.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, e := range batch {
			deliver(e)
		}
		clear(batch)
	}
}

func (o *outbox) close() {
	if o.gone == nil {
		return
	}
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.more.Signal()
	<-o.gone
}
