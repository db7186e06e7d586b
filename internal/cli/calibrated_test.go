package cli

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// measured is what a bundle of a run says about the client.
type measured struct {
	point struct {
		Engine struct{ Facts map[string]string }
		Client struct {
			TTFT   int64 `json:"ttft_bound_ns"`
			ITL    int64 `json:"itl_bound_ns"`
			Detail struct {
				Bound       client.Bound
				Health      client.Health
				Calibration *client.Calibration
			}
		}
	}
	result struct {
		Client struct {
			TTFT *float64 `json:"ttft_bound_s"`
			ITL  *float64 `json:"itl_bound_s"`
		}
		Requests struct{ OK, Failed int }
		Server   struct{ Samples int }
	}
}

// TestCalibrated runs a load over everything that is spoken, against servers that speak
// nothing else: the probes before it get through, a calibration over the same is made and kept
// for this host, the next run takes the kept one, and the bound stands in the result.
func TestCalibrated(t *testing.T) {
	material.RealTime(t)
	weir, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		name   string
		flags  []string
		secure bool
		major  int // of HTTP
		load   client.Load
	}{
		{"http1", nil, false, 1, client.Load{}},
		{"tls", []string{"--insecure"}, true, 1, client.Load{TLS: true}},
		{"h2", []string{"--insecure", "--protocol", "h2"}, true, 2, client.Load{Protocol: client.HTTP2}},
		{"h2c", []string{"--protocol", "h2c"}, false, 2, client.Load{Protocol: client.H2C}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			url := simOver(t, way.secure, way.major)
			dir := t.TempDir()
			run := func(calibrate string) (m measured) {
				t.Helper()
				out := filepath.Join(dir, calibrate+time.Now().Format("150405.000000"))
				args := append([]string{"load", "--url", url, "--model", "m", "--isl", "256", "--osl", "8", "--conversations", "10", "-c", "2",
					"--calibrate", calibrate, "--client-limit", "none", "-o", out}, way.flags...)
				cmd := exec.CommandContext(t.Context(), weir, args...)
				cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
				if b, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("weir %v: %v\n%s", args, err, b)
				}
				for name, into := range map[string]any{"point.json": &m.point, "result.json": &m.result} {
					raw, err := os.ReadFile(filepath.Join(out, name))
					if err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal(raw, into); err != nil {
						t.Fatal(err)
					}
				}
				h := m.point.Client.Detail.Health
				if m.result.Requests.OK != 10 || h.TTFT.N != 10 || h.Unbounded != 0 || h.Stamps != "kernel" {
					t.Errorf("%d ok, %d failed; of 10 requests %d have a bound and %d none; stamps %s", m.result.Requests.OK, m.result.Requests.Failed, h.TTFT.N, h.Unbounded, h.Stamps)
				}
				if m.result.Server.Samples == 0 {
					t.Error("the server's metrics were not sampled")
				}
				if m.point.Engine.Facts["template"] == "" {
					t.Error("the probes learned no template")
				}
				return m
			}
			for _, c := range []string{"never", "auto"} { // auto: the run is short, and nothing is kept yet
				if m := run(c); m.point.Client.TTFT != record.Unknown || m.result.Client.TTFT != nil || m.point.Client.Detail.Calibration != nil {
					t.Errorf("--calibrate %s: %+v", c, m.point.Client)
				}
			}
			made := run("always")
			cal := made.point.Client.Detail.Calibration
			if cal == nil || cal.Load.Protocol != way.load.Protocol || cal.Load.TLS != way.load.TLS || cal.Load.Streams != 2 || cal.Requests == 0 {
				t.Fatalf("calibration %+v, want one over %+v at 2 streams", cal, way.load)
			}
			for _, c := range []string{"auto", "always"} {
				m := run(c)
				again := m.point.Client.Detail.Calibration
				if again == nil || !again.When.Equal(cal.When) {
					t.Errorf("--calibrate %s did not take the kept calibration: %+v", c, again)
					continue
				}
				b := again.Bound(m.point.Client.Detail.Health)
				if m.point.Client.TTFT != b.TTFT90 || m.point.Client.ITL != b.ITL90 || b.TTFT90 <= 0 || m.result.Client.TTFT == nil || m.result.Client.ITL == nil {
					t.Errorf("--calibrate %s: bounds %+v in the result, %+v from the calibration and the run", c, m.point.Client, b)
				} else if d := *m.result.Client.TTFT - float64(b.TTFT90)/1e9; d > 1e-9 || d < -1e-9 {
					t.Errorf("--calibrate %s: bound on TTFT is %v s in the result, %d ns in the bundle", c, *m.result.Client.TTFT, b.TTFT90)
				}
			}
			kept, err := filepath.Glob(filepath.Join(dir, "cache", "weir", "calibration", "*.json"))
			if err != nil || len(kept) != 1 {
				t.Errorf("%d calibrations are kept, want 1 (%v)", len(kept), err)
			}
		})
	}
}

// simOver serves a simulated engine over one version of HTTP alone.
func simOver(t *testing.T, secure bool, major int) string {
	t.Helper()
	s, err := simhttp.New(simhttp.Options{Model: "m", Fixed: &sim.Fixed{TTFT: 2e6, ITL: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l, err := net.Listen("tcp", "127.0.0.1:0") // the engine runs while it serves
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	only := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != major {
			http.Error(w, "another version of HTTP is spoken here", http.StatusHTTPVersionNotSupported)
			return
		}
		s.Handler().ServeHTTP(w, q)
	})
	var h http.Handler = only
	if major == 2 && !secure {
		h = h2c.NewHandler(only, &http2.Server{})
	}
	srv := httptest.NewUnstartedServer(h)
	if secure {
		srv.EnableHTTP2 = major == 2
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.URL
}
