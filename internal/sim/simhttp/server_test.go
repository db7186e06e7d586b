package simhttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

func config(t testing.TB, device, host int64) sim.Config {
	t.Helper()
	m, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	g, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	return sim.Config{
		Model: m, GPU: g, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, WeightPrecision: "fp4", KVDType: "fp8",
		KVBytesPerToken: 55_800, DeviceTokens: device, HostTokens: host, WritePolicy: "write_back",
	}
}

// start serves on loopback until the test ends and returns the base URL.
func start(t testing.TB, o Options) string {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return material.Serve(t, s)
}

func fast(t testing.TB, device, host int64) Options {
	return Options{Config: config(t, device, host), Speed: 200}
}

// hang is when a test gives up waiting.
const hang = 2 * time.Minute

// until waits until the engine's numbers hold a text.
func until(t testing.TB, url, text string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		_, b := get(t, url+"/weir/stats")
		if strings.Contains(b, text) {
			return
		}
		if time.Since(begin) > hang {
			t.Fatalf("the engine never says %s: %s", text, b)
		}
	}
}

func post(t testing.TB, url, body string) (int, string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), hang)
	defer stop()
	q, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return r.StatusCode, string(b) + "\n" + err.Error()
	}
	return r.StatusCode, string(b)
}

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

type usage struct {
	Prompt  int64 `json:"prompt_tokens"`
	Out     int64 `json:"completion_tokens"`
	Details *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type reply struct {
	Choices []struct {
		Message struct{ Content, ReasoningContent string } `json:"message"`
		Delta   struct {
			Content string `json:"content"`
		} `json:"delta"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

func parse(t testing.TB, body string) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v in %.200s", err, body)
	}
	return r
}

// stream reads server-sent events into text, usage and whether [DONE] came.
func readStream(t testing.TB, body string) (text string, u *usage, done bool) {
	t.Helper()
	sc := bufio.NewScanner(strings.NewReader(body))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return text, u, true
		}
		r := parse(t, data)
		for _, c := range r.Choices {
			text += c.Delta.Content
		}
		if r.Usage != nil {
			u = r.Usage
		}
	}
	return text, u, false
}

func chatBody(text string, out int, extra string) string {
	return fmt.Sprintf(`{"model":"glm-5.2","messages":[{"role":"user","content":%q}],"max_tokens":%d%s}`, text, out, extra)
}

// TestPromptsCountExactly checks that a prompt of Weir is, to this server, as many tokens as the
// trace recorded, in every form of request.
func TestPromptsCountExactly(t *testing.T) {
	u := start(t, fast(t, 500_000, 0))
	tr := &corpus.Trace{ID: "t", BlockSize: 64, Models: []string{"m"}}
	s := corpus.Stream{ID: "t", Parent: corpus.Unbound, Join: corpus.Unbound, SystemTokens: 300}
	for i, in := range []int64{64 * 9, 64*11 + 17, 64*20 + 63} {
		turn := corpus.Turn{In: in, Out: 40 + int64(i)*30}
		for b := range in / 64 {
			turn.Blocks = append(turn.Blocks, uint32(b))
		}
		s.Turns = append(s.Turns, turn)
	}
	tr.Streams = []corpus.Stream{s}
	b, err := prompt.New(prompt.Default(), prompt.Options{Models: []string{"glm-5.2"}, Whole: true, LegacyMaxTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions", "completions-ids": "/v1/completions"}
	for name, path := range paths {
		e, err := prompt.ParseEndpoint(name)
		if err != nil {
			t.Fatal(err)
		}
		for turn := range s.Turns {
			body, err := b.Body(e, prompt.Request{Trace: tr, Turn: turn, MaxOut: 3})
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(body.Open())
			if err != nil {
				t.Fatal(err)
			}
			status, answer := post(t, u+path, string(text))
			if status != 200 {
				t.Fatalf("%s: %d %s", name, status, answer)
			}
			r := parse(t, answer)
			if r.Usage.Prompt != s.Turns[turn].In || r.Usage.Out != 3 {
				t.Errorf("%s turn %d: counted %d+%d tokens, recorded are %d+3", name, turn, r.Usage.Prompt, r.Usage.Out, s.Turns[turn].In)
			}
			if want := int64(0); turn > 0 {
				want = s.Turns[turn-1].In / 64 * 64
				if r.Usage.Details.Cached < want-64 {
					t.Errorf("%s turn %d: %d cached tokens, the turn before has %d in whole blocks", name, turn, r.Usage.Details.Cached, want)
				}
			}
		}
	}
}

// TestAnswerSentAgainIsCached checks that a conversation that sends the server's own answer
// back hits on it.
func TestAnswerSentAgainIsCached(t *testing.T) {
	u := start(t, fast(t, 500_000, 0))
	question := strings.Repeat(" word", 640)
	status, body := post(t, u+"/v1/chat/completions", chatBody(question, 640, ""))
	if status != 200 {
		t.Fatal(body)
	}
	said := parse(t, body).Choices[0].Message.Content
	q := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q},{"role":"assistant","content":%q},{"role":"user","content":" go on"}],"max_tokens":4}`, question, said)
	status, body = post(t, u+"/v1/chat/completions", q)
	if status != 200 {
		t.Fatal(body)
	}
	// The last token of an answer has no keys and values, so the page that holds it is not cached.
	if got := parse(t, body).Usage.Details.Cached; got != 1280-64 {
		t.Errorf("%d cached tokens of 640 asked and 640 answered", got)
	}
}

// TestStreamEqualsWhole checks that a stream and an answer in one piece say the same.
func TestStreamEqualsWhole(t *testing.T) {
	for _, engine := range []string{"sglang", "vllm"} {
		o := fast(t, 500_000, 0)
		o.Engine, o.Config.DraftTokens, o.Config.AcceptPPM = engine, 3, 2_500_000
		u := start(t, o)
		_, whole := post(t, u+"/v1/chat/completions", chatBody("tell me something", 50, ""))
		_, sse := post(t, u+"/v1/chat/completions", chatBody("tell me something", 50, `,"stream":true,"stream_options":{"include_usage":true}`))
		text, use, done := readStream(t, sse)
		if want := parse(t, whole).Choices[0].Message.Content; text != want || len(strings.Fields(text)) != 50 {
			t.Errorf("%s: streamed %q, whole %q", engine, text, want)
		}
		if use == nil || use.Prompt != 3 || use.Out != 50 || !done {
			t.Errorf("%s: usage %+v, done %v", engine, use, done)
		}
	}
}

// TestRefusals checks what a server must refuse.
func TestRefusals(t *testing.T) {
	o := fast(t, 100_000, 0)
	o.Config.ContextLen = 50_000
	u := start(t, o)
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{"{", "not a request", 400},
		{`{"messages":[]}`, "messages is empty", 400},
		{`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "text", 400},
		{chatBody("x", 0, ""), "at least 1", 400},
		{chatBody("x", 5, `,"n":2`), "only one answer", 400},
		{chatBody(strings.Repeat(" word", 49_999), 5, ""), "maximum context length", 400},
	} {
		status, body := post(t, u+"/v1/chat/completions", c.body)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%.60s: %d %s", c.body, status, body)
		}
	}
	o = fast(t, 100_000, 0)
	o.Engine = "vllm"
	u = start(t, o)
	if status, body := post(t, u+"/v1/chat/completions", `{"model":"other","messages":[{"role":"user","content":"x"}]}`); status != 404 {
		t.Errorf("another model: %d %s", status, body)
	}
}

// TestFlush checks that a flush clears the cache, refuses while a request runs, and that the
// fault makes it lie.
func TestFlush(t *testing.T) {
	u := start(t, fast(t, 500_000, 0))
	text := strings.Repeat(" word", 640)
	cached := func() int64 {
		_, body := post(t, u+"/v1/chat/completions", chatBody(text, 2, ""))
		return parse(t, body).Usage.Details.Cached
	}
	cached()
	if got := cached(); got != 576 {
		t.Fatalf("%d cached tokens before the flush", got)
	}
	if status, body := post(t, u+"/flush_cache", ""); status != 200 || !strings.Contains(body, "Cache flushed") {
		t.Fatalf("flush: %d %s", status, body)
	}
	if got := cached(); got != 0 {
		t.Errorf("%d cached tokens after the flush", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		q, _ := http.NewRequestWithContext(ctx, "POST", u+"/v1/chat/completions", strings.NewReader(chatBody(text, 1_000_000, "")))
		if r, err := http.DefaultClient.Do(q); err == nil {
			r.Body.Close()
		}
	})
	until(t, u, `"Running":1`)
	if status, body := post(t, u+"/flush_cache", ""); status == 200 {
		t.Errorf("a flush while a request runs: %d %s", status, body)
	}
	stop()
	wg.Wait()
	until(t, u, `"Running":0`)
	if status, body := post(t, u+"/weir/faults", `{"faults":[{"kind":"sticky-cache"}]}`); status != 200 {
		t.Fatal(body)
	}
	if status, _ := post(t, u+"/flush_cache", ""); status != 200 {
		t.Error("a sticky cache admits that it is")
	}
	if got := cached(); got == 0 {
		t.Error("a sticky cache was cleared")
	}
}

// TestMetrics checks that the metrics parse, carry the engine's names, and agree with what the
// answers said.
func TestMetrics(t *testing.T) {
	for engine, want := range map[string]map[string]float64{
		"sglang": {"sglang:prompt_tokens_total": 1280, "sglang:generation_tokens_total": 20, "sglang:cached_tokens_total": 576, "sglang:max_total_num_tokens": 499_968},
		"vllm":   {"vllm:prompt_tokens_total": 1280, "vllm:generation_tokens_total": 20, "vllm:prefix_cache_hits_total": 576, "vllm:prefix_cache_queries_total": 1280},
	} {
		o := fast(t, 500_000, 100_000)
		o.Engine = engine
		u := start(t, o)
		for range 2 {
			post(t, u+"/v1/chat/completions", chatBody(strings.Repeat(" word", 640), 10, ""))
		}
		_, body := get(t, u+"/metrics")
		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", engine, err)
		}
		for name, v := range want {
			f := families[name]
			if f == nil {
				t.Errorf("%s is missing", name)
				continue
			}
			sum := 0.0
			for _, m := range f.Metric {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			if sum != v {
				t.Errorf("%s is %v, want %v", name, sum, v)
			}
		}
		if h := families[engine+":time_to_first_token_seconds"]; h == nil || h.Metric[0].Histogram.GetSampleCount() != 2 {
			t.Errorf("%s: no histogram of two first tokens", engine)
		}
	}
}

// TestFixed checks the constant engine: first token after TTFT, the rest ITL apart.
func TestFixed(t *testing.T) {
	u := start(t, Options{Fixed: &sim.Fixed{TTFT: 50e6, ITL: 5e6}, Model: "fixed"})
	begin := time.Now()
	_, body := post(t, u+"/v1/chat/completions", chatBody("x", 11, `,"stream":true`))
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Errorf("an answer of 50 ms + 10 x 5 ms took %v", d)
	}
	if text, _, done := readStream(t, body); len(strings.Fields(text)) != 11 || !done {
		t.Errorf("%d words, done %v", len(strings.Fields(text)), done)
	}
}

// TestFaults checks what each fault of a request looks like to a client.
func TestFaults(t *testing.T) {
	u := start(t, fast(t, 500_000, 0))
	stream := `,"stream":true,"stream_options":{"include_usage":true}`
	set := func(f string) {
		t.Helper()
		if status, body := post(t, u+"/weir/faults", `{"faults":[`+f+`]}`); status != 200 {
			t.Fatalf("%s: %s", f, body)
		}
	}
	ask := func() (int, string) { return post(t, u+"/v1/chat/completions", chatBody("a b c", 20, stream)) }
	for _, c := range []struct {
		fault string
		check func(status int, body string) bool
	}{
		{`{"kind":"http-error","status":503}`, func(s int, b string) bool { return s == 503 }},
		{`{"kind":"context-overflow"}`, func(s int, b string) bool { return s == 400 && strings.Contains(b, "maximum context length") }},
		{`{"kind":"reset-before"}`, func(s int, b string) bool { return s == 0 }},
		{`{"kind":"no-headers","for":"20ms"}`, func(s int, b string) bool { return s == 0 }},
		{`{"kind":"reset-after","after":3}`, func(s int, b string) bool {
			return s == 200 && strings.Contains(b, "content") && !strings.Contains(b, "[DONE]")
		}},
		{`{"kind":"sse-no-done"}`, func(s int, b string) bool {
			text, use, done := readStream(t, b)
			return len(strings.Fields(text)) == 20 && use != nil && !done
		}},
		{`{"kind":"sse-bad-json","after":2}`, func(s int, b string) bool { return strings.Contains(b, `{"id":"broken"`) }},
		{`{"kind":"sse-error","after":2}`, func(s int, b string) bool { return s == 200 && strings.Contains(b, `"error"`) }},
		{`{"kind":"sse-truncated","after":2}`, func(s int, b string) bool { return strings.HasSuffix(b, `{"ind`) }},
		{`{"kind":"sse-no-tokens"}`, func(s int, b string) bool {
			text, _, done := readStream(t, b)
			return text == "" && done
		}},
		{`{"kind":"sse-comments"}`, func(s int, b string) bool { return strings.Contains(b, "\n: still here\n") }},
		{`{"kind":"sse-crlf"}`, func(s int, b string) bool { return strings.Contains(b, "[DONE]\r\n\r\n") }},
		{`{"kind":"sse-empty-choices"}`, func(s int, b string) bool { return strings.Contains(b, `"choices":[]`) }},
		{`{"kind":"sse-split"}`, func(s int, b string) bool { text, _, done := readStream(t, b); return done && text != "" }},
		{`{"kind":"sse-merged"}`, func(s int, b string) bool { text, _, done := readStream(t, b); return done && text != "" }},
		{`{"kind":"usage-missing"}`, func(s int, b string) bool { _, use, _ := readStream(t, b); return use == nil }},
		{`{"kind":"usage-wrong"}`, func(s int, b string) bool {
			_, use, _ := readStream(t, b)
			return use.Prompt == 4 && use.Details.Cached == 5
		}},
		{`{"kind":"slow-start","for":"1h"}`, func(s int, b string) bool { return s == 503 }},
	} {
		set(c.fault)
		status, body := ask()
		if !c.check(status, body) {
			t.Errorf("%s: %d %.300s", c.fault, status, body)
		}
		set("")
		if status, body := ask(); status != 200 || !strings.Contains(body, "[DONE]") {
			t.Fatalf("after %s: %d %s", c.fault, status, body)
		}
	}
	set(`{"kind":"http-error","every":3,"times":2}`)
	var got []int
	for range 9 {
		status, _ := ask()
		got = append(got, status)
	}
	if fmt.Sprint(got) != "[200 200 500 200 200 500 200 200 200]" {
		t.Errorf("every third request, twice: %v", got)
	}
	for _, bad := range []string{`{"kind":"nope"}`, `{"kind":"stall","after":-1}`, `{"kind":"http-error","status":200}`, `{"kindness":1}`} {
		if status, _ := post(t, u+"/weir/faults", `{"faults":[`+bad+`]}`); status != 400 {
			t.Errorf("%s was taken: %d", bad, status)
		}
	}
}

// TestStall checks that a stalled stream goes on when it is said to, and that a client that
// gives up leaves nothing behind.
func TestStall(t *testing.T) {
	o := fast(t, 500_000, 0)
	o.Faults = []Fault{{Kind: "stall", After: 2, For: Duration(80 * time.Millisecond), Times: 1}, {Kind: "stall", After: 2, Every: 2}}
	u := start(t, o)
	begin := time.Now()
	if _, body := post(t, u+"/v1/chat/completions", chatBody("x", 5, `,"stream":true`)); !strings.Contains(body, "[DONE]") || time.Since(begin) < 80*time.Millisecond {
		t.Errorf("a stall of 80 ms took %v: %s", time.Since(begin), body)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q, _ := http.NewRequestWithContext(ctx, "POST", u+"/v1/chat/completions", strings.NewReader(chatBody("x", 1_000_000, `,"stream":true`)))
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	until(t, u, `"Running":1`)
	time.AfterFunc(100*time.Millisecond, stop)
	if _, err := io.ReadAll(r.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("a stalled stream ended with %v", err)
	}
	until(t, u, `"Running":0`)
}

// TestRankDies checks that a dead engine resets what is in flight and fails its health.
func TestRankDies(t *testing.T) {
	u := start(t, fast(t, 500_000, 0))
	result := make(chan string, 1)
	go func() {
		_, body := post(t, u+"/v1/chat/completions", chatBody("x", 1_000_000, `,"stream":true`))
		result <- body
	}()
	until(t, u, `"Running":1`)
	post(t, u+"/weir/faults", `{"faults":[{"kind":"rank-dies"}]}`)
	select {
	case body := <-result:
		if strings.Contains(body, "[DONE]") {
			t.Error("a request of a dead engine ended well")
		}
	case <-time.After(hang):
		t.Fatal("a request of a dead engine hangs")
	}
	if status, _ := get(t, u+"/health"); status != 503 {
		t.Errorf("the health of a dead engine is %d", status)
	}
}

// TestIdleClose checks that a kept connection is closed when it idles.
func TestIdleClose(t *testing.T) {
	o := fast(t, 500_000, 0)
	o.Faults = []Fault{{Kind: "idle-close", For: Duration(30 * time.Millisecond)}}
	u := start(t, o)
	c, err := net.Dial("tcp", strings.TrimPrefix(u, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(hang))
	b, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
		t.Errorf("%q, %v: want an answer and then the end", b, err)
	}
}

// TestCrashAtStart: the process ends before it says that it is ready.
func TestCrashAtStart(t *testing.T) {
	o := fast(t, 500_000, 0)
	var log bytes.Buffer
	o.Log = &log
	code := 0
	o.Exit = func(c int) { code = c; panic("exit") }
	o.Faults = []Fault{{Kind: "crash-start"}}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		s.Boot()
	}()
	if code != 1 || strings.Contains(log.String(), "ready to roll") {
		t.Errorf("exit status %d, log\n%s", code, log.String())
	}
}

// TestBootRefusesHostPools checks both ways in which an engine fails whose host pools do not
// fit, with the numbers of the 3 TB node of the reference.
func TestBootRefusesHostPools(t *testing.T) {
	o := fast(t, 500_000, 0)
	boot := func(host, node int64) error {
		o.Config.HostTokens, o.NodeBytes = host, node
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return s.Boot()
	}
	if err := boot(5_000_000, 3_108_000_000_000); err != nil {
		t.Errorf("8 x 279 GB on 3.1 TB: %v", err)
	}
	if err := boot(7_000_000, 3_108_000_000_000); !errors.Is(err, ErrKilled) || ExitCode(err) != 137 {
		t.Errorf("8 x 391 GB on 3.1 TB: %v", err)
	}
	if err := boot(60_000_000, 3_108_000_000_000); err == nil || errors.Is(err, ErrKilled) || ExitCode(err) != 1 {
		t.Errorf("3.3 TB a rank on 3.1 TB: %v", err)
	}
}
