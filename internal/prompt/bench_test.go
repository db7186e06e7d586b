package prompt

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
)

// longTrace is one stream whose last turn has in tokens, in blocks of 64, after turns that each
// add a share of it.
func longTrace(in int64, turns int) *corpus.Trace {
	blocks := make([]uint32, in/64)
	for i := range blocks {
		blocks[i] = uint32(i + 1)
	}
	s := corpus.Stream{ID: "long", SystemTokens: 16384}
	for k := 1; k <= turns; k++ {
		n := 16384 + (in-16384)*int64(k)/int64(turns)
		s.Turns = append(s.Turns, corpus.Turn{In: n, Out: 300, Blocks: blocks[:n/64]})
	}
	return &corpus.Trace{ID: "long", BlockSize: 64, Streams: []corpus.Stream{s}}
}

func benchBody(b *testing.B, in int64, turns int, e Endpoint) {
	tr := longTrace(in, turns)
	bl := mustBuilder(b, Options{Models: []string{"m"}, Salt: FirstTurnPrefix})
	q := Request{Trace: tr, Turn: turns - 1, Salt: Salt(1, "long", 0, 0), MaxOut: 100}
	y, err := bl.Body(e, q)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(y.Len())
	b.ReportAllocs()
	for b.Loop() {
		y, err := bl.Body(e, q)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := y.Open().(*Reader).WriteTo(io.Discard); err != nil || n != y.Len() {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkChat230kTokens(b *testing.B) { benchBody(b, 230_000, 80, EndpointChat) }
func BenchmarkChat1MTokens(b *testing.B)   { benchBody(b, 1_000_000, 200, EndpointChat) }
func BenchmarkIDs230kTokens(b *testing.B)  { benchBody(b, 230_000, 80, EndpointCompletionsIDs) }

// BenchmarkSend sends a body of 230,000 tokens through net/http to a server on the loopback
// that reads it.
func BenchmarkSend230kTokens(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != r.ContentLength {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer srv.Close()
	tr := longTrace(230_000, 80)
	bl := mustBuilder(b, Options{Models: []string{"m"}})
	b.ReportAllocs()
	for b.Loop() {
		y, err := bl.Chat(Request{Trace: tr, Turn: 79})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(y.Len())
		post(b, srv, y)
	}
}

// post sends a body as the client does: with its length known and a way to send it again.
func post(tb testing.TB, srv *httptest.Server, y *Body) {
	tb.Helper()
	req, err := http.NewRequest(http.MethodPost, srv.URL, y.Open())
	if err != nil {
		tb.Fatal(err)
	}
	req.ContentLength = y.Len()
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(y.Open()), nil }
	resp, err := srv.Client().Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		tb.Fatalf("server read %s", resp.Status)
	}
}

// BenchmarkPlan plans every turn of a stream of 200 turns up to 1,000,000 tokens.
func BenchmarkPlan(b *testing.B) {
	tr := longTrace(1_000_000, 200)
	for i := range tr.Streams[0].Turns { // no shared memory: every block is compared
		t := &tr.Streams[0].Turns[i]
		t.Blocks = append([]uint32{}, t.Blocks...)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := planStream(tr, 0, 4, overhead{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMemoryInFlight measures what a prompt of 1,000,000 tokens holds while it is being read:
// less than 1 MB, the buffer of the transport included.
func TestMemoryInFlight(t *testing.T) {
	tr := longTrace(1_000_000, 200)
	b := mustBuilder(t, Options{Models: []string{"m"}, Salt: FirstTurnPrefix})
	q := Request{Trace: tr, Turn: 199, Salt: "[rid:0]"}
	if _, err := b.Chat(q); err != nil { // the stream's plan, shared by all its requests
		t.Fatal(err)
	}
	const flights = 32
	before := heap()
	var open [flights]io.Reader
	var buf [flights][]byte
	for i := range open {
		y, err := b.Chat(q)
		if err != nil {
			t.Fatal(err)
		}
		open[i], buf[i] = y.Open(), make([]byte, 32<<10)
		for range 100 { // half of it
			if _, err := io.ReadFull(open[i], buf[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := (heap() - before) / flights
	t.Logf("%d bytes in flight for a body of %d bytes, %d tokens", each, open[0].(*Reader).Body.Len(), open[0].(*Reader).Body.Tokens())
	if each >= 1<<20 {
		t.Errorf("%d bytes in flight", each)
	}
	runtime.KeepAlive(open)
	runtime.KeepAlive(buf)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
