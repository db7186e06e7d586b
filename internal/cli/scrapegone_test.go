package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
)

// TestScrapeLeavesOut: the gauges of a server that answers no more leave the sums, the count of those
// that answer says so, and both come back with it.
func TestScrapeLeavesOut(t *testing.T) {
	material.RealTime(t)
	var gone atomic.Bool
	var urls []string
	for i := range 3 {
		var asked atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if i == 2 && gone.Load() {
				panic(http.ErrAbortHandler)
			}
			prompt := "1000000"
			if asked.Add(1)%2 == 0 {
				prompt = "NaN" // for one scrape: what was counted before is not counted again
			}
			fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %d\n"+
				"# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total %s\n", 1+10*(i/2), prompt)
		}))
		defer s.Close()
		urls = append(urls, s.URL)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	r, w := io.Pipe()
	var errOut bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		err := watch(ctx, &App{Out: w, Err: &errOut, JSON: true}, urls, 100*time.Millisecond, 0)
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	dec := json.NewDecoder(r)
	until := func(what string, answering int, running float64) {
		t.Helper()
		for {
			var p period
			if err := dec.Decode(&p); err != nil {
				t.Fatalf("%s never came: %v", what, err)
			}
			if p.Endpoints != 3 || p.Prompt != nil && *p.Prompt != 0 {
				t.Fatalf("%s: %d endpoints, %v prompt tokens a second of counters that stand still", what, p.Endpoints, *p.Prompt)
			}
			if p.Answering == answering && p.Running != nil && *p.Running == running {
				return
			}
		}
	}
	until("all", 3, 13)
	gone.Store(true)
	until("two", 2, 2)
	gone.Store(false)
	until("all again", 3, 13)
	stop()
	go io.Copy(io.Discard, r)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestScrapeHead: the head names units and how many answer.
func TestScrapeHead(t *testing.T) {
	var out bytes.Buffer
	v := func(x float64) *float64 { return &x }
	p := period{AtS: 2, Answering: 2, Endpoints: 3, Prompt: v(12345.4), Device: v(12000), Computed: v(345.4), DeviceKV: v(0.913), Running: v(7)}
	if err := p.print(&App{Out: &out, Err: io.Discard}, true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || lines[0] != "2 of 3 endpoints answer" || !strings.Contains(lines[1], "prompt, tokens/s, by where it was found") {
		t.Fatalf("%s", out.String())
	}
	for i, want := range []string{"time prompt device host storage computed tokens/s device host running waiting device = host + storage * computed .",
		"2.0 s 12,345 12,000 - - 345 - 91.3 % - 7 - =======================."} {
		if got := strings.Join(strings.Fields(lines[2+i]), " "); got != want {
			t.Errorf("line %d is\n%s\nwant\n%s", 2+i, got, want)
		}
	}
	t.Log("\n" + out.String())
}
