package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestCall asks a server over everything that is spoken, each server speaking nothing else
// where that can be had, and finds the key, the headers and the body there.
func TestCall(t *testing.T) {
	for _, way := range spoken {
		t.Run(way.name, func(t *testing.T) {
			cfg := start(t, way.protocol, way.secure, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				w.WriteHeader(http.StatusTeapot)
				fmt.Fprintf(w, "%d %s %s %s %s %s %s", q.ProtoMajor, q.Method, q.URL.Path, q.Header.Get("Authorization"), q.Header.Get("X-Api-Key"), q.Header.Get("X-Extra"), body)
			}))
			cfg.APIKey, cfg.Endpoint, cfg.Header = "k", Messages, http.Header{"X-Extra": {"e"}}
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			defer cancel()
			major := map[bool]int{true: 1, false: 2}[way.protocol == HTTP1]
			for range 2 {
				raw, status, err := cfg.Call(ctx, http.MethodPost, "/v1/x", text("{}"))
				if want := fmt.Sprintf("%d POST /v1/x Bearer k k e {}", major); err != nil || status != http.StatusTeapot || string(raw) != want {
					t.Errorf("%d %q, %v; want %q", status, raw, err, want)
				}
				if raw, _, err := cfg.Call(ctx, http.MethodGet, "/v1/models", nil); err != nil || !strings.HasPrefix(string(raw), fmt.Sprintf("%d GET /v1/models", major)) {
					t.Errorf("%q, %v", raw, err)
				}
			}
		})
	}
}
