package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirbench/weir/internal/client/pace"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// A Load is what a calibration puts on the client: so many streams at a time, each answered
// after TTFT with Tokens tokens that are Gap apart, for a time.
type Load struct {
	Streams int           `json:"streams"`
	TTFT    time.Duration `json:"ttft_ns"`
	Gap     time.Duration `json:"gap_ns"`
	Tokens  int           `json:"tokens"`
	For     time.Duration `json:"for_ns"`

	Protocol Protocol `json:"protocol,omitempty"` // empty is HTTP1
	TLS      bool     `json:"tls,omitempty"`      // of HTTP1; HTTP2 has it, H2C has not
}

// server is what a pace server must speak for the load.
func (l Load) server() pace.Options {
	return pace.Options{TLS: l.TLS || l.Protocol == HTTP2, H2: l.Protocol == HTTP2 || l.Protocol == H2C}
}

// spoken names what the load is sent over.
func (l Load) spoken() string {
	switch {
	case l.Protocol == HTTP2 || l.Protocol == H2C:
		return string(l.Protocol)
	case l.TLS:
		return "TLS"
	}
	return string(HTTP1)
}

// EventsPerSecond is the rate of content frames that the load asks for.
func (l Load) EventsPerSecond() float64 {
	each := l.TTFT + time.Duration(l.Tokens-1)*l.Gap
	if each <= 0 {
		return 0
	}
	return float64(l.Streams) * float64(l.Tokens) / each.Seconds()
}

// A Calibration is how far the client's numbers were from those of a server on the same
// machine that writes its own send times.
type Calibration struct {
	Load     Load      `json:"load"`
	When     time.Time `json:"when"`
	CPUs     int       `json:"cpus"`
	Requests int       `json:"requests"`
	Failed   int       `json:"failed"`

	// TTFTError is, request by request, the distance between the client's TTFT and the
	// server's: from the request read to the first token written. ITLError is that of the
	// mean gap between tokens. Both hold the loop-back network and the server's own wait
	// for a processor, so they are larger than what the client alone adds.
	TTFTError Quantiles `json:"ttft_error"`
	ITLError  Quantiles `json:"itl_error"`
	// OverPlan is the client's TTFT less the planned one: the server's lateness is in it.
	OverPlan Quantiles `json:"ttft_over_plan"`
	// TokenDelay is from the instant the server wrote a frame to the client's instant of it.
	TokenDelay Quantiles `json:"token_delay"`
	// Gap is the time between the content frames of a stream as the client saw it,
	// ServerGap as the server sent it, ServerLate how late the server was.
	Gap        Quantiles `json:"gap"`
	ServerGap  Quantiles `json:"server_gap"`
	ServerLate Quantiles `json:"server_late"`

	Health Health `json:"health"`
}

// A Bound says how wrong a TTFT or an ITL of a run can be because of the client, nanoseconds.
type Bound struct {
	// TTFT and ITL hold for 99 of 100 requests, TTFT90 and ITL90 for nine of ten.
	TTFT   int64 `json:"ttft_p99_ns"`
	ITL    int64 `json:"itl_p99_ns"`
	TTFT90 int64 `json:"ttft_p90_ns"`
	ITL90  int64 `json:"itl_p90_ns"`
	// From says what it is made of.
	From string `json:"from"`
}

// Bound adds what the calibration saw to what a run measured of itself, percentile by
// percentile: the larger of two errors seldom meets the larger of the other, so the sums hold
// for more requests than their names say. Of under a thousand requests half as much again as the
// largest error stands for the percentile 99 of TTFT: the first one on a connection may be the one that is late.
func (c *Calibration) Bound(run Health) Bound {
	b := run.bound()
	b.TTFT += c.TTFTError.tail()
	b.ITL += c.ITLError.P99
	b.TTFT90 += c.TTFTError.P90
	b.ITL90 += c.ITLError.P90
	b.From = fmt.Sprintf("a calibration at %d streams and %.0f frames/s over %s on %s, and the run's own bounds",
		c.Load.Streams, c.Load.EventsPerSecond(), c.Load.spoken(), c.When.UTC().Format(time.DateOnly))
	return b
}

// beyond says in what a run asked more of the client than the calibration did: requests in flight
// at once, or content frames a second over its whole time. Empty when in neither.
func (c *Calibration) beyond(run *Health) string {
	rate := 0.0
	if s := run.Wall.Seconds(); s > 0 {
		rate = float64(run.Events) / s
	}
	if run.MostFlying <= int64(c.Load.Streams) && rate <= c.Load.EventsPerSecond() {
		return ""
	}
	return fmt.Sprintf("the run had up to %d requests in flight and %.0f frames/s, its calibration %d and %.0f",
		run.MostFlying, rate, c.Load.Streams, c.Load.EventsPerSecond())
}

// bound is what a run measured of itself.
func (h *Health) bound() Bound {
	return Bound{TTFT: h.TTFT.P99, ITL: h.ITL.P99, TTFT90: h.TTFT.P90, ITL90: h.ITL.P90, From: "the run's own bounds"}
}

// Bad tells why the calibration cannot be used; nil when it can.
func (c *Calibration) Bad() error {
	switch {
	case c.Requests == 0:
		return errors.New("calibration: no request ended")
	case c.Failed > 0:
		return fmt.Errorf("calibration: %d of %d requests failed", c.Failed, c.Requests)
	}
	return nil
}

// manyRequests is how many a percentile 99 asks for.
const manyRequests = 100

// freshTargets is over how many clients, each with connections of its own, the short answers of a
// calibration go: a run of few requests has its first ones among them, which are the latest.
const freshTargets = 10

// Calibrate measures the client against the pace server at a base URL. Where the load has few
// requests in its time, which a few streams of long answers have, it goes on with answers of two
// tokens until there are enough of them for the tail of the error of TTFT.
func Calibrate(ctx context.Context, url string, load Load) (*Calibration, error) {
	m, h, err := calibrate(ctx, url, load, false)
	if err != nil {
		return nil, err
	}
	if missing := manyRequests - m.requests; missing > 0 && m.failed == 0 && m.requests > 0 {
		short := load
		short.Tokens, short.TTFT, short.Gap = min(load.Tokens, 2), min(load.TTFT, 20*time.Millisecond), min(load.Gap, 10*time.Millisecond)
		each := short.TTFT + time.Duration(short.Tokens)*short.Gap
		short.For = max(each, time.Millisecond) * time.Duration(missing/load.Streams/freshTargets+1)
		for range freshTargets {
			more, _, err := calibrate(ctx, url, short, false)
			if err != nil {
				return nil, err
			}
			m.requests += more.requests
			m.failed += more.failed
			m.ttft.add(&more.ttft)
		}
	}
	out := m.result()
	out.Health = h
	return out, nil
}

func calibrate(ctx context.Context, url string, load Load, blocking bool) (*meter, Health, error) {
	if load.Streams < 1 || load.Tokens < 1 || load.TTFT < 0 || load.Gap < 0 || load.For <= 0 {
		return nil, Health{}, fmt.Errorf("calibration: load %+v needs at least one stream, one token and some time", load)
	}
	plan := pace.Plan{TTFT: load.TTFT, Gap: load.Gap, Tokens: load.Tokens}
	each := load.TTFT + time.Duration(load.Tokens)*load.Gap
	clock := replay.NewClock()
	t, err := New(Config{
		URLs: []string{url}, Clock: clock, Model: "pace", InFlight: load.Streams, blocking: blocking, Protocol: load.Protocol,
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, // the server makes its certificate itself
		Header: http.Header{pace.Header: {plan.String()}},
		Bodies: BodiesFunc(func(*replay.Request) (Body, error) { return tiny{}, nil }),
		Timeouts: Timeouts{Connect: 10 * time.Second, Headers: each + 10*time.Second, First: each + 10*time.Second,
			Stream: load.Gap + 10*time.Second, Total: each + 30*time.Second},
	})
	if err != nil {
		return nil, Health{}, err
	}
	defer t.Close()
	m := newMeter(load, clock)
	t.probe = m.event
	if err := m.drive(ctx, t); err != nil {
		return nil, Health{}, err
	}
	return m, t.Health(), nil
}

// drive keeps the load's streams in flight through a target. Streams begin spread over the
// length of one, as they would be after a while.
func (m *meter) drive(ctx context.Context, t replay.Target) error {
	load, clock := m.load, m.clock
	each := load.TTFT + time.Duration(load.Tokens)*load.Gap
	ended := make(chan *record.Request, load.Streams)
	t.Start(func(r *record.Request) { ended <- r })
	var seq uint64
	started, flying, stopping := 0, 0, false
	send := func(lane int) {
		seq++
		flying++
		now := clock.Now()
		m.lanes[lane] = laneMeter{}
		t.Send(replay.Request{Seq: seq, Lane: lane, Tree: "pace", Trace: paceTrace, MaxOut: int64(load.Tokens), Intended: now, Queued: now})
	}
	over := time.NewTimer(load.For)
	defer over.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	begin := time.Now()
	due := func() time.Duration { return each * time.Duration(started) / time.Duration(load.Streams) }
	for !stopping || flying > 0 {
		select {
		case <-next.C:
			for ; started < load.Streams && time.Since(begin) >= due() && !stopping; started++ {
				send(started)
			}
			if started < load.Streams && !stopping {
				next.Reset(due() - time.Since(begin))
			}
		case r := <-ended:
			flying--
			m.ended(r)
			if !stopping {
				send(r.Lane)
			}
		case <-over.C:
			stopping = true
		case <-ctx.Done():
			t.Cancel()
			return ctx.Err()
		}
	}
	return nil
}

// paceTrace is the one-turn conversation of a calibration.
var paceTrace = &corpus.Trace{ID: "pace", BlockSize: 1, Models: []string{"pace"},
	Streams: []corpus.Stream{{ID: "pace", Parent: corpus.Unbound, Turns: make([]corpus.Turn, 1)}}}

type tiny struct{}

func (tiny) Len() int64      { return 2 }
func (tiny) Open() io.Reader { return strings.NewReader("{}") }

// A meter compares what the client noted with what the server wrote. Its lanes are written by
// the readers, one exchange a lane at a time.
type meter struct {
	load   Load
	clock  replay.Clock
	offset int64 // pace.Now() less the client's clock
	lanes  []laneMeter

	requests, failed         int
	ttft, itl, plan, delay   histogram
	gap, serverGap, serverLt histogram
	early                    atomic.Int64 // by how much an instant was before the server's at most
}

type laneMeter struct {
	frames              int64
	first, last         pace.Stamp
	clientFirst, client int64
}

func newMeter(load Load, clock replay.Clock) *meter {
	m := &meter{load: load, clock: clock, lanes: make([]laneMeter, load.Streams)}
	best := int64(1) << 62
	for range 20 {
		a := clock.Now()
		p := pace.Now()
		if b := clock.Now(); b-a < best {
			best, m.offset = b-a, p-a-(b-a)/2
		}
	}
	return m
}

// event takes one frame of a lane.
func (m *meter) event(lane int, data []byte, at int64) {
	s, ok := pace.ParseStamp(data)
	if !ok {
		return
	}
	l := &m.lanes[lane]
	delay := at + m.offset - s.Sent
	m.delay.observe(max(delay, 0))
	for old := m.early.Load(); -delay > old && !m.early.CompareAndSwap(old, -delay); old = m.early.Load() {
	}
	m.serverLt.observe(max(s.Sent-s.Due, 0))
	if l.frames == 0 {
		l.first, l.clientFirst = s, at
	} else {
		m.gap.observe(at - l.client)
		m.serverGap.observe(max(s.Sent-l.last.Sent, 0))
	}
	l.frames++
	l.last, l.client = s, at
}

// ended takes the outcome of a lane's request.
func (m *meter) ended(r *record.Request) {
	m.requests++
	l := m.lanes[r.Lane]
	if r.Failure != nil || l.frames != int64(m.load.Tokens) {
		m.failed++
		return
	}
	ttft := r.Times.FirstToken - r.Times.Sent
	m.ttft.observe(abs(ttft - (l.first.Sent - l.first.Read)))
	m.plan.observe(max(ttft-int64(m.load.TTFT), 0))
	if n := l.frames - 1; n > 0 {
		m.itl.observe(abs((r.Times.LastToken-r.Times.FirstToken)-(l.last.Sent-l.first.Sent)) / n)
	}
}

func abs(n int64) int64 { return max(n, -n) }

func (m *meter) result() *Calibration {
	return &Calibration{Load: m.load, When: time.Now(), CPUs: runtime.NumCPU(), Requests: m.requests, Failed: m.failed,
		TTFTError: m.ttft.quantiles(), ITLError: m.itl.quantiles(), OverPlan: m.plan.quantiles(), TokenDelay: m.delay.quantiles(),
		Gap: m.gap.quantiles(), ServerGap: m.serverGap.quantiles(), ServerLate: m.serverLt.quantiles()}
}

// ListenPrefix is what a pace server writes before its base URL on its first line of output.
const ListenPrefix = "listening on "

// StartPace starts a pace server as a process of its own, so that it takes nothing from the
// client but processor time, and returns its base URL. argv is a command that prints
// ListenPrefix and its URL and serves until it is killed, such as weir calibrate --serve; it is
// given --tls and --h2 where the server is to speak them. An empty one starts the server
// inside this process.
func StartPace(ctx context.Context, argv []string, o pace.Options) (url string, stop func(), err error) {
	if len(argv) == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		go o.Serve(l)
		return o.Scheme() + "://" + l.Addr().String(), func() { l.Close() }, nil
	}
	args := argv[1:len(argv):len(argv)]
	if o.TLS {
		args = append(args, "--tls")
	}
	if o.H2 {
		args = append(args, "--h2")
	}
	cmd := exec.CommandContext(ctx, argv[0], args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting the pace server: %w", err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	line, err := bufio.NewReader(io.LimitReader(out, 1000)).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), ListenPrefix)
	if err != nil || !ok {
		stop()
		return "", nil, fmt.Errorf("the pace server %s said %q instead of %q and its URL", argv[0], line, ListenPrefix)
	}
	return url, stop, nil
}
