package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client/pace"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// roleEnv makes the test binary a server instead, so that a benchmark's server is a process
// of its own.
const roleEnv = "WEIR_CLIENT_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	o := pace.Options{TLS: slices.Contains(os.Args, "--tls"), H2: slices.Contains(os.Args, "--h2")}
	fmt.Println(ListenPrefix + o.Scheme() + "://" + l.Addr().String())
	if role == "pace" {
		o.Serve(l)
	} else {
		hold(l)
	}
}

// server starts this binary in a role and returns its base URL.
func server(b *testing.B, role string, o pace.Options) string {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv(roleEnv, role)
	url, stop, err := StartPace(b.Context(), []string{self}, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
	return url
}

// BenchmarkTimestamps holds clients against a server that writes its own send times, the two
// sharing this machine's processors: the poller, a goroutine a connection, net/http with a
// goroutine a stream, and Weir over TLS, h2 and h2c. For what a run uses it first calibrates,
// against a server of its own, as a run would, and reports how many of the errors the bound
// covers. Run it with -benchtime 1x
// and nothing else running.
func BenchmarkTimestamps(b *testing.B) {
	for _, streams := range []int{1, 10, 100, 500, 1000} {
		for _, way := range []string{"poller", "goroutine", "nethttp", "tls", "h2", "h2c"} {
			b.Run(fmt.Sprintf("%s/streams=%d", way, streams), func(b *testing.B) {
				load := Load{Streams: streams, TTFT: 50 * time.Millisecond, Gap: 10 * time.Millisecond, Tokens: 200, For: 8 * time.Second}
				switch way {
				case "tls":
					load.TLS = true
				case "h2", "h2c":
					load.Protocol = Protocol(way)
				}
				var before *Calibration
				if way != "goroutine" && way != "nethttp" {
					short := load
					short.For = 3 * time.Second
					var err error
					if before, err = Calibrate(b.Context(), server(b, "pace", load.server()), short); err != nil {
						b.Fatal(err)
					}
				}
				url := server(b, "pace", load.server())
				for b.Loop() {
					var m *meter
					var h Health
					var err error
					cpu := processCPU()
					if way == "nethttp" {
						m, err = plainCalibrate(b.Context(), url, load)
					} else {
						m, h, err = calibrate(b.Context(), url, load, way == "goroutine")
					}
					cpu = processCPU() - cpu
					if err != nil {
						b.Fatal(err)
					}
					c := m.result()
					if err := c.Bad(); err != nil {
						b.Fatal(err)
					}
					ms := func(ns int64, unit string) { b.ReportMetric(float64(ns)/1e6, unit) }
					ms(c.TTFTError.P50, "ttft-err-p50-ms")
					ms(c.TTFTError.P99, "ttft-err-p99-ms")
					ms(c.OverPlan.P50, "over-plan-p50-ms")
					ms(c.OverPlan.P99, "over-plan-p99-ms")
					ms(c.Gap.P99, "gap-p99-ms")
					ms(c.ServerGap.P99, "server-gap-p99-ms")
					ms(c.ITLError.P99, "itl-err-p99-ms")
					b.ReportMetric(float64(cpu)/float64(max(c.Gap.N, 1)), "cpu-ns/frame")
					b.ReportMetric(float64(c.Gap.N), "frames")
					if before != nil {
						bound := before.Bound(h)
						ms(bound.TTFT, "ttft-bound-ms")
						ms(bound.ITL, "itl-bound-ms")
						b.ReportMetric(100*m.ttft.share(bound.TTFT), "ttft-covered-%")
						b.ReportMetric(100*m.itl.share(bound.ITL), "itl-covered-%")
					}
				}
			})
		}
	}
}

// plainTarget is the client that anybody would write: net/http, a goroutine a stream.
type plainTarget struct {
	clock replay.Clock
	url   string
	plan  string
	probe func(lane int, data []byte, at int64)
	http  http.Client
	sink  func(*record.Request)
}

func (p *plainTarget) Start(sink func(*record.Request)) { p.sink = sink }
func (p *plainTarget) Cancel()                          {}

func (p *plainTarget) Send(q replay.Request) {
	go func() {
		rec := replay.NewRecord(&q)
		if err := p.do(&q, rec); err != nil {
			rec.Failure = failure(record.FailClient, err.Error())
		}
		p.sink(rec)
	}()
}

func (p *plainTarget) do(q *replay.Request, rec *record.Request) error {
	req, err := http.NewRequest("POST", p.url+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set(pace.Header, p.plan)
	rec.Times.Sent = p.clock.Now()
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		at := p.clock.Now()
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		if rec.Times.FirstToken == record.Never {
			rec.Times.FirstToken = at
		}
		rec.Times.LastToken = at
		p.probe(q.Lane, data, at)
	}
	return lines.Err()
}

func plainCalibrate(ctx context.Context, url string, load Load) (*meter, error) {
	clock := replay.NewClock()
	m := newMeter(load, clock)
	plan := pace.Plan{TTFT: load.TTFT, Gap: load.Gap, Tokens: load.Tokens}
	t := &plainTarget{clock: clock, url: url, plan: plan.String(), probe: m.event,
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: load.Streams, DisableCompression: true}}}
	if err := m.drive(ctx, t); err != nil {
		return nil, err
	}
	t.http.CloseIdleConnections()
	return m, nil
}

// hold takes requests in full, says a token, and another every few seconds.
func hold(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			r := bufio.NewReaderSize(c, 4<<10)
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			n, err := io.Copy(io.Discard, q.Body)
			if err != nil {
				return
			}
			fmt.Fprintf(c, sseHead+"%s", chunk(fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%d\"}}]}\n\n", n)))
			for range 1000 {
				time.Sleep(3 * time.Second)
				if _, err := io.WriteString(c, chunk(token("x"))); err != nil {
					return
				}
			}
		}()
	}
}

// BenchmarkHold has a thousand prompts of 230,000 tokens in flight, each of its own tree, and
// reports the memory of this process. Run it with -benchtime 1x.
func BenchmarkHold(b *testing.B) {
	const lanes, tokens, block = 1000, 230_000, 64
	url := server(b, "hold", pace.Options{})
	tr := &corpus.Trace{ID: "hold", BlockSize: block, Models: []string{"m"},
		Streams: []corpus.Stream{{ID: "hold", Parent: corpus.Unbound, Turns: make([]corpus.Turn, lanes)}}}
	for i := range tr.Streams[0].Turns {
		blocks := make([]uint32, tokens/block)
		for k := range blocks {
			blocks[k] = uint32(k)
		}
		tr.Streams[0].Turns[i] = corpus.Turn{In: tokens / block * block, Out: 1000, Blocks: blocks}
	}
	builder, err := prompt.New(prompt.Default(), prompt.Options{Models: []string{"m"}, Salt: prompt.FirstTurnPrefix})
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	before := residentBytes(b)
	for b.Loop() {
		var mu sync.Mutex
		tokensSeen, bytesSent := map[uint64]bool{}, int64(0)
		t, err := New(Config{URLs: []string{url}, InFlight: lanes,
			Bodies: BodiesFunc(func(q *replay.Request) (Body, error) {
				body, err := builder.Chat(prompt.Request{Trace: q.Trace, Stream: 0, Turn: q.Turn, Salt: q.Salt, MaxOut: q.MaxOut})
				if err == nil {
					mu.Lock()
					bytesSent += body.Len()
					mu.Unlock()
				}
				return body, err
			})})
		if err != nil {
			b.Fatal(err)
		}
		failed := 0
		t.Start(func(r *record.Request) {
			if r.Failure == nil || r.Failure.Class != record.FailCancelled {
				failed++
			}
		})
		all := make(chan struct{})
		t.OnFirstToken(func(seq uint64) {
			mu.Lock()
			defer mu.Unlock()
			if tokensSeen[seq] = true; len(tokensSeen) == lanes {
				close(all)
			}
		})
		begin := time.Now()
		for i := range lanes {
			t.Send(replay.Request{Seq: uint64(i + 1), Lane: i, Tree: fmt.Sprintf("%d.0", i), Salt: fmt.Sprintf("salt-%d", i), Trace: tr, Turn: i, MaxOut: 1000})
		}
		peak := int64(0)
		timeout := time.After(5 * time.Minute)
	wait:
		for {
			select {
			case <-all:
				break wait
			case <-time.After(20 * time.Millisecond):
				peak = max(peak, residentBytes(b))
			case <-timeout:
				b.Fatalf("%d of %d prompts were answered", len(tokensSeen), lanes)
			}
		}
		took := time.Since(begin)
		if n := t.InFlight(); n != lanes {
			b.Fatalf("%d in flight, want %d", n, lanes)
		}
		held := residentBytes(b)
		t.Close()
		if failed > 0 {
			b.Fatalf("%d failed", failed)
		}
		b.ReportMetric(float64(max(peak, held))/1e6, "peak-MB")
		b.ReportMetric(float64(held)/1e6, "held-MB")
		b.ReportMetric(float64(before)/1e6, "before-MB")
		b.ReportMetric(float64(bytesSent)/1e9, "sent-GB")
		b.ReportMetric(took.Seconds(), "s-to-all-first-tokens")
	}
}

// residentBytes is the memory of this process that is in RAM.
func residentBytes(b *testing.B) int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	var size, resident int64
	fmt.Sscan(string(raw), &size, &resident)
	return resident * int64(os.Getpagesize())
}
