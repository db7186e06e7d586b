package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
)

const (
	badToken = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n"
	badUsage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n"
	badDone  = "data: [DONE]\n\n"
	badHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// A badServer answers completions over connections that it has whole in its hands. answer
// writes what it says to a request; false closes the connection.
type badServer struct {
	answer func(c net.Conn, tokens int) bool
	// idle closes a connection on which nothing comes for so long, with a reset; 0 never does.
	idle   time.Duration
	resets atomic.Int64
	lost   atomic.Int64 // requests that had come just when their connection was reset
}

func (s *badServer) start(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return "http://" + l.Addr().String()
}

func (s *badServer) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		if s.idle > 0 {
			c.SetReadDeadline(time.Now().Add(s.idle))
			if _, err := r.Peek(1); err != nil {
				s.reset(c.(*net.TCPConn))
				return
			}
			c.SetReadDeadline(time.Time{})
		}
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		if q.Method != http.MethodPost {
			models := `{"data":[{"id":"m","owned_by":"test"}]}`
			if q.URL.Path != "/v1/models" {
				models = "no"
				fmt.Fprintf(c, "HTTP/1.1 404 Not Found\r\n")
			} else {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n")
			}
			fmt.Fprintf(c, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(models), models)
			continue
		}
		tokens := 4
		if i := strings.Index(string(body), `_tokens":`); i >= 0 {
			fmt.Sscanf(string(body[i:]), `_tokens":%d`, &tokens)
		}
		if !s.answer(c, min(tokens, 4)) {
			return
		}
	}
}

// reset ends a connection on which nothing came in time. What has come since is lost, and is counted:
// when both directions are shut the kernel takes nothing more.
func (s *badServer) reset(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			syscall.Shutdown(int(fd), syscall.SHUT_RDWR)
			if n, err := syscall.Read(int(fd), make([]byte, 1)); n > 0 && err == nil {
				s.lost.Add(1)
			}
		})
	}
	c.SetLinger(0)
	s.resets.Add(1)
}

// say writes parts of an event stream, each as a chunk.
func say(c net.Conn, parts ...string) {
	for _, p := range parts {
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(p), p)
	}
}

// stream is a whole answer with so many tokens, after the head.
func stream(c net.Conn, tokens int, usage string, pause time.Duration) bool {
	io.WriteString(c, badHead)
	for range tokens {
		time.Sleep(pause)
		say(c, badToken)
	}
	say(c, usage, badDone)
	io.WriteString(c, "0\r\n\r\n")
	return true
}

// TestBadServers measures servers that go wrong in six ways with weir load and weir replay, the
// times scaled to tenths of seconds: each run ends in bounded time, as the design says, and says
// why.
func TestBadServers(t *testing.T) {
	material.RealTime(t)
	traces := filepath.Join(t.TempDir(), "traces")
	if code, _, errOut := weir("corpus", "generate", "-o", traces, "--traces", "4", "--seed", "3", "--sub-agents", "-1"); code != exitOK {
		t.Fatal(errOut)
	}
	const isl = 64
	honest := func(tokens int) string { return fmt.Sprintf(badUsage, isl, tokens) }
	for _, s := range []struct {
		name   string
		server *badServer
		args   []string // of weir load
		code   int
		says   string       // on standard error
		class  record.Class // of every failure; empty where nothing may fail
		replay string       // what weir replay says; empty where it is valid or not tried
	}{
		{"stalled", &badServer{answer: func(c net.Conn, _ int) bool {
			io.WriteString(c, badHead)
			say(c, badToken)
			io.Copy(io.Discard, c) // until the client has had enough
			return false
		}}, []string{"--timeout", "300ms"}, exitInvalid, "8 of 8 requests failed: 100.00 %, limit 10.00 %", record.FailTimeoutStream, "root primers failed"},
		{"half and close", &badServer{answer: func(c net.Conn, _ int) bool {
			io.WriteString(c, badHead)
			say(c, badToken)
			return false
		}}, nil, exitInvalid, "8 of 8 requests failed: 100.00 %, limit 10.00 %", record.FailResetAfter, "root primers failed"},
		{"500 to everything", &badServer{answer: func(c net.Conn, _ int) bool {
			io.WriteString(c, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nboom")
			return true
		}}, nil, exitInvalid, "8 of 8 requests failed: 100.00 %, limit 10.00 %", record.FailStatus, "root primers failed"},
		{"resets idle connections", &badServer{idle: 50 * time.Millisecond, answer: func(c net.Conn, n int) bool { return stream(c, n, honest(n), 0) }},
			[]string{"--mode", "constant", "--rate", "4"}, exitOK, "", "", ""},
		{"a token every while", &badServer{answer: func(c net.Conn, n int) bool { return stream(c, n, honest(n), 150*time.Millisecond) }},
			[]string{"--timeout", "20s"}, exitOK, "", "", ""},
		{"lies about usage", &badServer{answer: func(c net.Conn, n int) bool { return stream(c, n, fmt.Sprintf(badUsage, 7*isl, 3*n), 0) }},
			nil, exitInvalid, "the server counted", "", "the server counted"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url := s.server.start(t)
			common := []string{"--url", url, "--model", "m", "--no-probe", "--no-metrics", "--calibrate", "never", "--client-limit", "none"}
			out := filepath.Join(t.TempDir(), "load")
			args := append(append([]string{"load", "--isl", fmt.Sprint(isl), "--osl", "4", "--conversations", "8", "-c", "2", "-o", out}, common...), s.args...)
			begun := time.Now()
			code, text, errOut := weir(args...)
			t.Logf("weir %s\nended with %d after %v\n%s%s", strings.Join(args, " "), code, time.Since(begun).Round(10*time.Millisecond), text, errOut)
			failed := failures(t, out)
			if lost := int(s.server.lost.Load()); lost > 0 { // those may fail, and then make the run invalid
				t.Logf("%d requests came just when their connection was reset", lost)
				if n := failed[record.FailResetBefore]; n > lost || n == 0 && len(failed) > 0 || len(failed) > 1 {
					t.Errorf("failures %v", failed)
				}
				return
			}
			if code != s.code || !strings.Contains(errOut, s.says) {
				t.Errorf("exit code %d, want %d, and %q on standard error", code, s.code, s.says)
			}
			if s.class == "" && len(failed) > 0 || s.class != "" && failed[s.class] != 8 {
				t.Errorf("failures %v, want %q", failed, s.class)
			}
			if s.server.idle > 0 && s.server.resets.Load() == 0 {
				t.Error("no connection idled long enough to be reset")
			}

			if s.server.idle > 0 {
				return // pauses of a trace may end just when the connection does, which is another story
			}
			out = filepath.Join(t.TempDir(), "replay")
			args = append([]string{"replay", "--corpus", traces, "-c", "2", "--max-requests", "12", "--warmup-requests-per-lane", "0", "--max-output", "4",
				"--idle-cap", "200ms", "--system-idle-cap", "200ms", "--timeout", "20s", "-o", out}, common...)
			if s.class == record.FailTimeoutStream {
				args = append(args, "--timeout", "300ms")
			}
			begun = time.Now()
			code, text, errOut = weir(args...)
			t.Logf("weir %s\nended with %d after %v\n%s%s", strings.Join(args, " "), code, time.Since(begun).Round(10*time.Millisecond), text, errOut)
			failed = failures(t, out)
			if s.replay != "" {
				if code != exitInvalid || !strings.Contains(errOut, s.replay) || s.class != "" && failed[s.class] == 0 {
					t.Errorf("exit code %d, failures %v, want %d, %q and %q", code, failed, exitInvalid, s.class, s.replay)
				}
				return
			}
			// The prompts of a trace have other lengths than this server tells: that alone may be wrong.
			if code != exitOK && (code != exitInvalid || !strings.Contains(errOut, "usage-implausible")) || len(failed) > 0 {
				t.Errorf("exit code %d, failures %v", code, failed)
			}
		})
	}
}

// failures counts the failed requests of a bundle by class, cancelled ones left out. The timeouts
// of one flag are one class: on a busy machine the earlier one may be over first.
func failures(t *testing.T, dir string) map[record.Class]int {
	t.Helper()
	b, err := record.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[record.Class]int{}
	for q, err := range b.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		if q.Failure != nil && q.Failure.Class != record.FailCancelled {
			class := q.Failure.Class
			if class == record.FailTimeoutHeaders || class == record.FailTimeoutFirst {
				class = record.FailTimeoutStream
			}
			out[class]++
		}
	}
	return out
}

// TestLocalCount: with the model's tokenizer a server that counts three output tokens for every
// two is found out, though no answer alone shows it; one that counts right is not.
func TestLocalCount(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "prompt", "testdata", "count", "gpt2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(file, golden.Tokenizer, 0o644); err != nil {
		t.Fatal(err)
	}
	counter, err := prompt.NewCounter(file, golden.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	const said = " The server counts what it likes.\n\n  And says so, 1234 times!"
	right := counter.Count([]byte(said))
	for _, c := range []struct {
		counts int64
		warns  bool
	}{{right, false}, {right + 1, false}, {right * 3 / 2, true}} { // one more for the end of the answer
		text, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		s := &badServer{answer: func(c2 net.Conn, _ int) bool {
			io.WriteString(c2, badHead)
			say(c2, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", text), fmt.Sprintf(badUsage, 64, c.counts), badDone)
			io.WriteString(c2, "0\r\n\r\n")
			return true
		}}
		out := filepath.Join(t.TempDir(), "b")
		code, text2, errOut := weir("load", "--url", s.start(t), "--model", "m", "--isl", "64", "--osl", "8", "--conversations", "40", "-c", "2", "--no-probe", "--no-metrics",
			"--calibrate", "never", "--client-limit", "none", "--tokenizer", file, "-o", out)
		want := fmt.Sprintf("in 5 answers that were counted here too the server counted %d output tokens and a local tokenizer %d", 5*c.counts, 5*right)
		if code != exitOK || strings.Contains(text2, "counted here too") != c.warns || c.warns && !strings.Contains(text2, want) {
			t.Errorf("%d counted of %d: exit code %d\n%s%s", c.counts, right, code, text2, errOut)
		}
		_, text2, errOut = weir("aiperf", "profile", "--url", s.start(t), "--model", "m", "--endpoint-type", "chat", "--streaming", "--isl", "64", "--osl", "8",
			"--request-count", "40", "--concurrency", "2", "--tokenizer", file, "--output-artifact-dir", filepath.Join(t.TempDir(), "a"), "--ui", "none")
		if strings.Contains(text2+errOut, want) != c.warns {
			t.Errorf("%d counted of %d, by AIPerf's flags:\n%s%s", c.counts, right, text2, errOut)
		}
	}
}
