package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// TestScrapeSaysSimulated: the lines of a simulated engine are headed so, those of another server
// are not.
func TestScrapeSaysSimulated(t *testing.T) {
	material.RealTime(t)
	real := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "sglang:num_running_reqs 1")
	}))
	t.Cleanup(real.Close)
	for url, simulated := range map[string]bool{simServer(t, 120_000, 400_000): true, real.URL: false} {
		code, out, errOut := weir("scrape", "--every", "100ms", "--for", "150ms", url)
		if head := strings.HasPrefix(out, "simulated: no engine ran"); code != exitOK || head != simulated {
			t.Errorf("simulated %v: exit code %d\n%s%s", simulated, code, out, errOut)
		}
		code, out, errOut = weir("scrape", "--every", "100ms", "--for", "150ms", "--json", url)
		var p period
		if err := json.NewDecoder(strings.NewReader(out)).Decode(&p); err != nil || code != exitOK || p.Simulated != simulated {
			t.Errorf("simulated %v: exit code %d, %v\n%s%s", simulated, code, err, out, errOut)
		}
	}
}
