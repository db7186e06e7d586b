package client

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
	"golang.org/x/net/http2/hpack"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// spoken are the ways over which a goroutine reads a connection.
var spoken = []struct {
	name     string
	protocol Protocol
	secure   bool
}{{"http/1.1", HTTP1, false}, {"TLS", HTTP1, true}, {"h2", HTTP2, true}, {"h2c", H2C, false}}

// start serves a handler as one of spoken says and completes a configuration.
func start(t *testing.T, protocol Protocol, secure bool, h http.Handler) Config {
	cfg := Config{Protocol: protocol, blocking: true}
	if protocol == H2C {
		h = h2c.NewHandler(h, &http2.Server{})
	}
	s := httptest.NewUnstartedServer(h)
	if secure {
		s.EnableHTTP2 = protocol == HTTP2
		s.StartTLS()
		cfg.TLS = &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	cfg.URLs = []string{s.URL}
	return cfg
}

// A stallingClock lets the reader of a connection wait, once, just before it reads.
type stallingClock struct {
	replay.MonoClock
	armed atomic.Bool
	wait  func()
}

func (c *stallingClock) Now() int64 {
	if c.armed.Load() {
		pc, _, _, _ := runtime.Caller(1)
		if strings.Contains(runtime.FuncForPC(pc).Name(), "stampTCP") && c.armed.Swap(false) {
			at := c.MonoClock.Now()
			c.wait()
			return at
		}
	}
	return c.MonoClock.Now()
}

// TestDoubtOfGoroutines keeps the reader of a connection from reading while two tokens of a
// stream come 20 ms apart. The instant of the first is then wrong, and the record must say by
// how much; that of the second is exact. So it is over TLS and HTTP/2 too.
func TestDoubtOfGoroutines(t *testing.T) {
	material.RealTime(t)
	const apart = 20 * time.Millisecond
	for _, way := range spoken {
		t.Run(way.name, func(t *testing.T) {
			for try := 1; ; try++ {
				wrong, rec := stalledOnce(t, way.protocol, way.secure, apart)
				d := rec.Doubt
				if (wrong < apart*9/10 || d.Last != stampNoise) && try < 50 {
					continue // the second token came after the reader had gone on, or the end with the last one
				}
				if wrong < apart*9/10 {
					t.Fatalf("the reader was not stalled: %v", wrong)
				}
				if d.First < int64(apart) {
					t.Errorf("first token is %v late, doubt says at most %v", wrong, time.Duration(d.First))
				}
				if d.Last != stampNoise {
					t.Errorf("the last token came alone, and its doubt is %v", time.Duration(d.Last))
				}
				if d.TTFT() == record.Unknown || d.Sent < 0 {
					t.Errorf("doubt %+v", *d)
				}
				return
			}
		})
	}
}

func stalledOnce(t *testing.T, protocol Protocol, secure bool, apart time.Duration) (wrong time.Duration, rec *record.Request) {
	begun, written, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	clock := &stallingClock{MonoClock: replay.NewClock()}
	clock.wait = func() { <-written; time.Sleep(10 * time.Millisecond) }
	cfg := start(t, protocol, secure, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		flush := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"delta":{"role":"assistant"}}]}`+"\n\n")
		flush.Flush()
		<-begun
		time.Sleep(5 * time.Millisecond) // the reader is back at its socket
		clock.armed.Store(true)
		sent.Store(clock.MonoClock.Now())
		fmt.Fprint(w, token("a"))
		flush.Flush()
		time.Sleep(apart)
		fmt.Fprint(w, token("b"))
		flush.Flush()
		close(written)
		<-over
		fmt.Fprint(w, token("c"))
		flush.Flush()
		time.Sleep(5 * time.Millisecond)
		fmt.Fprint(w, doneEvent)
	}))
	cfg.Clock, cfg.Timeouts = clock, Timeouts{Headers: time.Minute}
	r := newRig(t, cfg)
	events := 0
	r.probe = func(int, []byte, int64) {
		switch events++; events {
		case 1:
			close(begun)
		case 3:
			close(over)
		}
	}
	rec = r.do(t, request(1))
	if rec.Failure != nil || rec.Frames != 3 {
		t.Fatalf("%+v", rec)
	}
	return time.Duration(rec.Times.FirstToken - sent.Load()), rec
}

// TestBoundsOverAll sends to a server that writes its own times over everything that is
// spoken: every request has a bound, and no instant is before the server's.
func TestBoundsOverAll(t *testing.T) {
	material.RealTime(t)
	for _, load := range []Load{{}, {TLS: true}, {Protocol: HTTP2}, {Protocol: H2C}} {
		t.Run(load.spoken(), func(t *testing.T) {
			url, stop, err := StartPace(t.Context(), nil, load.server())
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			load.Streams, load.TTFT, load.Gap, load.Tokens, load.For = 8, 4*time.Millisecond, 2*time.Millisecond, 6, 300*time.Millisecond
			m, h, err := calibrate(t.Context(), url, load, false)
			if err != nil {
				t.Fatal(err)
			}
			c := m.result()
			if err := c.Bad(); err != nil {
				t.Fatal(err)
			}
			n := uint64(c.Requests)
			if h.Unbounded != 0 || h.TTFT.N != n || h.ITL.N != n || h.Stamps != "kernel" || h.Events != n*6 {
				t.Errorf("of %d requests %d have no bound, %d and %d have one; stamps %s, %d events", n, h.Unbounded, h.TTFT.N, h.ITL.N, h.Stamps, h.Events)
			}
			if early := m.early.Load(); early > int64(time.Millisecond) {
				t.Errorf("an instant is %v before the server wrote the frame", time.Duration(early))
			}
		})
	}
}

// TestAnsweredBeforeWritten has answers come whole before the write of the request returns:
// the bound on the sending is then that nobody answers what was not sent.
func TestAnsweredBeforeWritten(t *testing.T) {
	x := &exchange{t: &Target{}, rec: &record.Request{}, out: newSending()}
	x.out.at, x.firstAt, x.begun = 1000, 5000, true
	x.ans.doubt = record.Doubt{First: 7, Last: 7}
	if x.sealDoubt(); x.rec.Doubt.Sent != 4000 {
		t.Errorf("the answer came 4000 ns after the sending began, doubt %+v", x.rec.Doubt)
	}
	x.out.wrote(3000)
	if x.sealDoubt(); x.rec.Doubt.Sent != 2000 {
		t.Errorf("the write took 2000 ns, doubt %+v", x.rec.Doubt)
	}
	x.out = newSending()
	x.out.at = 1000
	x.out.wrote(9000)
	if x.sealDoubt(); x.rec.Doubt.Sent != 4000 {
		t.Errorf("the write returned after the answer had begun, doubt %+v", x.rec.Doubt)
	}
}

// TestFrameScan cuts frames at random: what the scan sees is what was framed.
func TestFrameScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var wire, want bytes.Buffer
		wire.WriteString(h2Preface)
		fr := http2.NewFramer(&wire, nil)
		var ends int
		for range 1 + rng.IntN(6) {
			data := make([]byte, rng.IntN(40))
			for i := range data {
				data[i] = byte(rng.IntN(256))
			}
			switch rng.IntN(4) {
			case 0:
				fr.WriteDataPadded(3, false, data, make([]byte, rng.IntN(9)))
			case 1:
				fr.WritePing(false, [8]byte{})
				continue
			case 2:
				fr.WriteData(5, true, data) // another stream
				continue
			default:
				fr.WriteData(3, true, data)
				ends++
			}
			want.Write(data)
		}
		s := frameScan{skip: len(h2Preface)}
		var got bytes.Buffer
		seen := 0
		for p := wire.Bytes(); len(p) > 0; {
			n := 1 + rng.IntN(len(p))
			total := 0
			s.pass(p[:n], func(f *frameScan, part []byte, rest int) {
				if total += len(part); rest < 0 || rest > n-len(part) {
					t.Fatalf("%d bytes behind a part of %d in %d", rest, len(part), n)
				}
				if f.kind != http2.FrameData || f.stream != 3 {
					return
				}
				got.Write(f.content(part))
				if f.left == 0 && f.flags.Has(http2.FlagDataEndStream) {
					seen++
				}
			})
			p = p[n:]
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) || seen != ends {
			t.Fatalf("got %d bytes and %d ends, want %d and %d", got.Len(), seen, want.Len(), ends)
		}
	}
}

// TestHeadsOut cuts heads at random, with continuations, padding and priorities: the watch
// finds the stream of the request that is awaited.
func TestHeadsOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		target := &Target{clock: replay.NewClock(), h2out: map[string]*h2Stream{}}
		var wire, block bytes.Buffer
		wire.WriteString(h2Preface)
		fr := http2.NewFramer(&wire, nil)
		enc := hpack.NewEncoder(&block)
		var all []*h2Stream
		for i := range 1 + rng.IntN(4) {
			id := fmt.Sprintf("id-%d-%d", i, rng.IntN(100))
			all = append(all, target.await(id))
			block.Reset()
			enc.WriteField(hpack.HeaderField{Name: ":method", Value: "POST"})
			enc.WriteField(hpack.HeaderField{Name: "x-request-id", Value: id})
			enc.WriteField(hpack.HeaderField{Name: "x-long", Value: strings.Repeat("v", rng.IntN(50))})
			cut := rng.IntN(block.Len() + 1)
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes()[:cut], EndHeaders: cut == block.Len(),
				PadLength: uint8(rng.IntN(5)), Priority: http2.PriorityParam{Weight: uint8(rng.IntN(2))}})
			if cut < block.Len() {
				fr.WriteContinuation(uint32(2*i+1), true, block.Bytes()[cut:])
			}
			fr.WriteData(uint32(2*i+1), true, []byte("{}"))
		}
		w := target.watchH2(nullConn{}, nil, nil)
		for p := wire.Bytes(); len(p) > 0; {
			n := 1 + rng.IntN(len(p))
			w.Write(p[:n])
			p = p[n:]
		}
		for i, s := range all {
			if s.resent() {
				t.Fatalf("request %d went out once", i)
			}
			if w.streams[uint32(2*i+1)] != s || s.sent() == nil || s.sent().took.Load() < 0 {
				t.Fatalf("request %d was not found: %+v", i, s)
			}
			if s.begin(w, uint32(2*i+1), 1); !s.resent() {
				t.Fatalf("request %d went out twice", i)
			}
			target.letGo(s)
		}
		if len(w.streams) != 0 || len(target.h2out) != 0 {
			t.Fatalf("%d streams and %d requests are kept", len(w.streams), len(target.h2out))
		}
	}
}

// TestRecordWatch cuts TLS records at random: a read is told to hold one record alone exactly
// when it ended with the end of one and of no other.
func TestRecordWatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		var wire []byte
		ends := map[int]bool{}
		for range 1 + rng.IntN(6) {
			n := rng.IntN(300)
			wire = append(append(wire, 23, 3, 3, byte(n>>8), byte(n)), make([]byte, n)...)
			ends[len(wire)] = true
		}
		w := &recordWatch{}
		for at := 0; at < len(wire); {
			n := 1 + rng.IntN(len(wire)-at)
			want := 0
			for e := range ends {
				if e > at && e <= at+n {
					want++
				}
			}
			got := w.pass(wire[at : at+n])
			at += n
			if got != want || (w.have == 0) != ends[at] {
				t.Fatalf("%d records ended, want %d; at an end: %v, want %v", got, want, w.have == 0, ends[at])
			}
		}
	}
}

// nullConn takes everything.
type nullConn struct{ net.Conn }

func (nullConn) Write(p []byte) (int, error) { return len(p), nil }

// FuzzFrames: any bytes of a peer are followed without a fault, however they are cut.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x02\x00\x08\x00\x00\x00\x03\x09x"), uint8(3)) // more padding than payload
	f.Add([]byte("\x00\x00\x04\x01\x2c\x00\x00\x00\x01\xff\xff\xff\xff\x17\x03\x03\x00\x01x"), uint8(1))
	f.Fuzz(func(t *testing.T, wire []byte, cut uint8) {
		target := &Target{clock: replay.NewClock(), h2out: map[string]*h2Stream{}}
		w := target.watchH2(nullConn{}, nil, nil)
		w.out.skip = 0
		s := target.await("id")
		s.begin(w, 3, 1)
		w.streams[3] = s
		r := &recordWatch{}
		for p := wire; len(p) > 0; {
			n := min(int(cut)+1, len(p))
			w.Write(p[:n])
			got := 0
			w.in.pass(p[:n], func(f *frameScan, part []byte, rest int) {
				got += len(part)
				if c := f.content(part); len(c) > len(part) || rest < 0 {
					t.Fatalf("%d bytes of content in a part of %d, %d behind it", len(c), len(part), rest)
				}
				if f.stream == 3 {
					s.came(f, part, arrival{at: 1})
				}
			})
			if got > n {
				t.Fatalf("%d bytes in parts of %d", got, n)
			}
			r.pass(p[:n])
			p = p[n:]
		}
		for left := len(wire); left > 0; {
			n, _ := s.take(left, 2)
			if n <= 0 || n > left {
				t.Fatalf("took %d of %d", n, left)
			}
			left -= n
		}
	})
}
