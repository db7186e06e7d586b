package run

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/engine/told"
	"github.com/weirbench/weir/internal/record"
)

// TestListenToServers asks servers that know some, none and all of the info endpoints, one that
// breaks off and one that nobody serves.
func TestListenToServers(t *testing.T) {
	serve := func(answers map[string]string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, ok := answers[r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			if body == "break" {
				c, _, _ := w.(http.Hijacker).Hijack()
				c.Close()
				return
			}
			if r.URL.Path == "/version" && r.Header.Get("Authorization") != "Bearer key" {
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	vllm := serve(map[string]string{"/version": `{"version": "0.32.0"}`, "/v1/models": `{"data": [{"owned_by": "vllm", "max_model_len": 4096}]}`})
	sglang := serve(map[string]string{"/get_server_info": `{"tp_size": 1, "version": "0.5.16", "max_total_num_tokens": 77}`, "/server_info": "break"})
	dynamo := serve(map[string]string{"/health": `{"status": "healthy", "instances": [{"component": "backend", "endpoint": "generate", "instance_id": 7}]}`})
	h := &HTTP{Client: client.Config{URLs: []string{vllm + "/v1", sglang, dynamo, "http://127.0.0.1:1"}, APIKey: "key"}}
	facts := h.listen(t.Context())
	for _, want := range []string{
		vllm + " version 0.32.0", vllm + " context_tokens 4096", sglang + " device_tokens 77", sglang + " version 0.5.16", dynamo + " instance backend/generate",
	} {
		if !slices.ContainsFunc(facts, func(f record.Fact) bool { return f.Process+" "+f.Name+" "+f.Value == want }) {
			t.Errorf("no %q in %+v", want, facts)
		}
	}
	if s, _ := told.Pools(facts, "info", nil); s.Device != 77 {
		t.Errorf("pools %+v", s)
	}
}

// TestSilentServer: a server that accepts and says nothing costs one question, and its facts stay unknown.
func TestSilentServer(t *testing.T) {
	asks := 0
	facts := asked(t.Context(), map[string]string{"a": "http://a"}, func(ctx context.Context, _ string) ([]byte, error) {
		asks++
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if len(facts) != 0 || asks != 1 {
		t.Errorf("%d questions, facts %+v", asks, facts)
	}
}

// TestLogged reads a log file; one that is not there tells nothing.
func TestLogged(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(p, fmt.Appendf(nil, "noise\n[2026-07-01 15:20:30 TP0] max_total_num_tokens=%d, chunked\nCPU KV cache size: 5 tokens", 9), 0o666); err != nil {
		t.Fatal(err)
	}
	if f := logged("x", p); len(f) != 2 || f[0].Value != "5" || f[1].Value != "9" || f[1].Line != 2 || f[1].Process != "x" {
		t.Errorf("%+v", f)
	}
	if f := logged("x", p+".no"); len(f) != 0 {
		t.Errorf("%+v", f)
	}
}
