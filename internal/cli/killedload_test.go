package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

// TestKilledLoad: of a load killed with -9 in its first seconds every request that had ended is in
// the bundle, the samples too; derive takes what is there and calls the run cut.
func TestKilledLoad(t *testing.T) {
	material.RealTime(t)
	const answered = 5
	var asked atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/metrics":
			fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %d\n", asked.Load())
		case r.Method != http.MethodPost:
			http.NotFound(w, r)
		default:
			io.Copy(io.Discard, r.Body)
			if asked.Add(1) > answered { // nothing more ends, so nothing else makes room in a buffer
				select {
				case <-release:
				case <-r.Context().Done():
				}
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"+
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
		}
	}))
	defer server.Close()
	defer close(release)

	out := filepath.Join(t.TempDir(), "bundle")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{"weir", "load", "--url", server.URL, "--model", "m", "--isl", "64", "--osl", "1", "-c", "1", "--duration", "1h", "--conversations", "100",
		"--timeout", "1h", "--no-probe", "--calibrate", "never", "--client-limit", "none", "--metrics", server.URL + "/metrics", "--metrics-every", "250ms", "-o", out}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	has := func() (requests, samples int) {
		b, err := record.OpenBundle(out)
		if err != nil {
			return 0, 0
		}
		for q, err := range b.Requests() {
			if err == nil && q.OK() {
				requests++
			}
		}
		for s, err := range b.Samples() {
			if err == nil && s.Values["vllm:num_requests_running"] > answered {
				samples++
			}
		}
		return requests, samples
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		requests, samples := has()
		if requests == answered && samples > 0 {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended by itself: %v\n%s", err, said.String())
		default:
		}
		if time.Now().After(end) {
			cmd.Process.Kill()
			<-ended
			t.Fatalf("two minutes later %d of %d requests are in the bundle, and %d samples\n%s", requests, answered, samples, said.String())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if requests, samples := has(); requests != answered || samples == 0 {
		t.Errorf("after the kill %d of %d requests and %d samples", requests, answered, samples)
	}
	code, text, errOut := weir("derive", "--json", out)
	if code != exitInvalid {
		t.Fatalf("derive ended with %d: %s", code, errOut)
	}
	var entries []struct {
		Result struct {
			MeasuredAt string                  `json:"measured_at"`
			Requests   struct{ OK int }        `json:"requests"`
			Reasons    []struct{ Code string } `json:"invalid_reasons"`
			Server     struct{ Samples int }   `json:"server"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil || len(entries) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	r := entries[0].Result
	if r.MeasuredAt == "" || r.Requests.OK != answered || r.Server.Samples == 0 || len(r.Reasons) == 0 || r.Reasons[0].Code != "run-cut" {
		t.Errorf("derived: %+v", r)
	}
}

// TestFullDiskLoad: the disk of a load fills up. It ends, says why, and its bundle has FAILED and every
// request that was answered.
func TestFullDiskLoad(t *testing.T) {
	material.RealTime(t)
	disk := material.SmallDisk(t, "4m")
	const before = 20
	var asked, told atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		io.Copy(io.Discard, r.Body)
		if asked.Add(1) == before {
			material.Fill(t, disk)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
		told.Add(1)
	}))
	defer server.Close()
	out := filepath.Join(disk, "bundle")
	code, text, errOut := weir("load", "--url", server.URL, "--model", "m", "--isl", "64", "--osl", "1", "-c", "1", "--duration", "1h", "--conversations", "100000",
		"--no-probe", "--no-metrics", "--calibrate", "never", "--client-limit", "none", "-o", out)
	if code != exitFailed || !strings.Contains(errOut, "no space left on device") {
		t.Fatalf("it ended with %d:\n%s%s", code, text, errOut)
	}
	b, err := record.OpenBundle(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); err != nil || b.State != record.Failed || b.End.Class != "node" {
		t.Errorf("%s, %+v, %v", b.State, b.End, err)
	}
	ok := int64(0)
	for q, err := range b.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		if q.OK() {
			ok++
		}
	}
	if n := told.Load(); ok < before || ok < n-1 || ok > n { // the last may have been cut
		t.Errorf("%d of %d answers are in the bundle", ok, n)
	}
	material.Fill(t, disk)
	if code, _, errOut := weir("derive", out); code != exitFailed || !strings.Contains(errOut, "no space left on device") {
		t.Errorf("a result where there is no room for one: %d: %s", code, errOut)
	}
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	if code, text, errOut := weir("derive", out); code != exitInvalid || !strings.Contains(text, "run-failed") || !strings.Contains(errOut, "run-failed: node: write ") {
		t.Errorf("derived: %d: %s%s", code, text, errOut)
	}
}
