package run

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/result"
)

// TestLyingServers runs a point against servers that answer well and count badly: the run ends
// with a result, and one that is not valid and says why.
func TestLyingServers(t *testing.T) {
	material.RealTime(t)
	for _, s := range []struct {
		name, usage string
		code        result.Code
		text        string
	}{
		{"more cached than prompt", `{"prompt_tokens":20,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":77100}}`, result.UsageImplausible, "77100 of 20 prompt tokens"},
		{"always 10", `{"prompt_tokens":10,"completion_tokens":2}`, result.UsageImplausible, "the server counted"},
		{"none", `null`, result.UsageMissing, ""},
		{"negative", `{"prompt_tokens":-1,"completion_tokens":-1}`, result.UsageMissing, "_tokens -1"},
		{"text", `{"prompt_tokens":"10","completion_tokens":"2"}`, result.UsageMissing, `_tokens "`},
		{"10^25", `{"prompt_tokens":10000000000000000000000000,"completion_tokens":10000000000000000000000000}`, result.UsageMissing, "_tokens 1000"},
		{"10^15", `{"prompt_tokens":20,"completion_tokens":1000000000000000}`, result.UsageMissing, "completion_tokens 1000000000000000"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/models" {
					fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"test"}]}`)
					return
				}
				io.Copy(io.Discard, r.Body)
				sse(w, token, token, `{"choices":[],"usage":`+s.usage+`}`, "[DONE]")
			}))
			defer srv.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			r, _, err := against(t, ctx, srv.URL, 2, time.Minute, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests.OK == 0 {
				t.Fatalf("nothing succeeded: %+v", r.Requests)
			}
			found := ""
			for _, f := range r.Reasons {
				if f.Code == s.code {
					found += f.Text + "\n"
				}
			}
			if r.Valid || found == "" || !strings.Contains(found, s.text) {
				t.Errorf("valid %v, reasons %v, want %s with %q", r.Valid, r.Reasons, s.code, s.text)
			}
			if h := r.Hits.Total; h != nil && *h > 1 {
				t.Errorf("a hit rate of %v", *h)
			}
		})
	}
}
