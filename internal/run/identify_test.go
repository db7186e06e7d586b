package run

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// TestSimulatedBehindOthers looks at a simulated engine through what may stand before it: a
// router, a proxy that forwards no path that it does not know, one that strips headers, and
// another server that comes first.
func TestSimulatedBehindOthers(t *testing.T) {
	serve := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	simulated := func(speed float64) string {
		s, err := simhttp.New(simhttp.Options{Fixed: &sim.Fixed{TTFT: 1e6, ITL: 1e5}, Speed: speed})
		if err != nil {
			t.Fatal(err)
		}
		return serve(s.Handler())
	}
	own, fast := simulated(1), simulated(20)
	router := func(workers ...string) string {
		r, err := simhttp.NewRouter(simhttp.RouterOptions{Workers: workers, Policy: "round_robin"})
		if err != nil {
			t.Fatal(err)
		}
		return serve(r.Handler())
	}
	proxy := func(to string, change func(*httputil.ReverseProxy)) http.Handler {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		p := httputil.NewSingleHostReverseProxy(u)
		if change != nil {
			change(p)
		}
		return p
	}
	known := http.NewServeMux()
	known.Handle("/v1/", proxy(fast, nil))
	stripped := proxy(fast, func(p *httputil.ReverseProxy) {
		p.ModifyResponse = func(r *http.Response) error { r.Header.Del(simhttp.SimulatedHeader); return nil }
	})
	real := http.NewServeMux()
	real.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"data":[{"id":"m","owned_by":"vllm"}]}`))
	})
	measured := serve(real)
	for name, c := range map[string]struct {
		urls  []string
		speed float64 // 0 where nothing is simulated
	}{
		"itself":                    {[]string{own}, 1},
		"faster":                    {[]string{fast}, 20},
		"router":                    {[]string{router(own)}, 1},
		"router, one worker faster": {[]string{router(own, fast)}, 20},
		"router before both kinds":  {[]string{router(measured, own)}, 1},
		"router before real ones":   {[]string{router(measured)}, 0},
		"proxy without the path":    {[]string{serve(known)}, 20},
		"proxy without the header":  {[]string{serve(stripped)}, 20},
		"second of two":             {[]string{measured, fast}, 20},
		"none":                      {[]string{measured}, 0},
	} {
		h := HTTP{Client: client.Config{URLs: c.urls}}
		s, err := h.identify(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := record.NewMeta()
		s.tell(m)
		if m.Simulated != (c.speed != 0) || m.SimSpeed != c.speed {
			t.Errorf("%s: simulated %v at speed %v, want %v", name, m.Simulated, m.SimSpeed, c.speed)
		}
		if m.Simulated != strings.Contains(m.SimError, "no engine") {
			t.Errorf("%s: the stated error is %q", name, m.SimError)
		}
	}
}
