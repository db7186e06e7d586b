package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/replay"
)

// clientFlags say where a load goes and how it is sent.
type clientFlags struct {
	urls, headers, sessions         []string
	endpoint, key, parent, protocol string
	spread, caFile, calibrate       string
	insecure, gzip, chunks          bool
	timeout, first, connect, total  time.Duration
	stall                           time.Duration
	limit                           clientLimit
}

// keyEnv is the environment variable that a key is taken from when no flag gives one.
const keyEnv = "WEIR_API_KEY"

func (f *clientFlags) add(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.urls, "url", nil, "base URL of the server; may be repeated")
	fl.StringVar(&f.spread, "spread", string(client.SpreadTree), "what stays with one of several URLs: tree, conversation or request")
	fl.StringVar(&f.endpoint, "endpoint", "chat", "what is spoken: chat, completions, completions-ids, generate, responses, messages; completions apply no chat template")
	fl.StringVar(&f.protocol, "protocol", string(client.HTTP1), "http/1.1, h2 (over TLS) or h2c (without)")
	fl.StringVar(&f.key, "api-key", "", "bearer key (default $"+keyEnv+")")
	fl.StringSliceVarP(&f.headers, "header", "H", nil, "further header as `NAME:VALUE`; may be repeated")
	fl.StringSliceVar(&f.sessions, "session-header", nil, "header that carries the conversation, such as X-Session-ID; may be repeated")
	fl.StringVar(&f.parent, "parent-header", "", "header that carries a sub-agent's parent conversation, such as X-Dynamo-Parent-Session-ID")
	fl.StringVar(&f.caFile, "ca-file", "", "PEM file of the authorities to trust, in place of the system's")
	fl.BoolVar(&f.insecure, "insecure", false, "do not check the server's certificate")
	fl.BoolVar(&f.gzip, "gzip", false, "accept compressed answers")
	fl.BoolVar(&f.chunks, "chunk-times", false, "keep when each content frame came, for chunk_gap_s, which others call ITL; records grow with it")
	fl.StringVar(&f.calibrate, "calibrate", "auto", "measure the client's own error before the run, once a host: always, never, or auto: for runs of a minute or more, with what is known of the host for others")
	f.limit.add(fl)
	fl.DurationVar(&f.timeout, "timeout", 10*time.Minute, "longest wait from one token of a request to its next")
	fl.DurationVar(&f.first, "first-timeout", 6*time.Hour, "longest wait for a response and a first token; long, as a queue may be: --stall-after ends a run in which nothing comes")
	fl.DurationVar(&f.connect, "connect-timeout", 30*time.Second, "longest wait for a connection")
	fl.DurationVar(&f.total, "request-timeout", 8*time.Hour, "longest time of a whole request")
	fl.DurationVar(&f.stall, "stall-after", 10*time.Minute, "time without a token of any request that is always allowed; past it, and past what the waiting prompts explain, the run ends as stalled")
}

// endpointIn is the path of an endpoint with which a URL ends, and the endpoint's name; empty for none.
func endpointIn(url string) (path, name string) {
	for _, n := range prompt.EndpointNames() {
		if e, err := prompt.ParseEndpoint(n); err == nil && strings.HasSuffix(strings.TrimRight(url, "/"), e.Path()) && len(e.Path()) > len(path) {
			path, name = e.Path(), n
		}
	}
	return path, name
}

// config makes the client's configuration, or says which flag is wrong. What it changed of a URL
// it notes.
func (f *clientFlags) config(notes io.Writer) (client.Config, error) {
	var c client.Config
	if len(f.urls) == 0 {
		return c, fmt.Errorf("no server: name one with --url")
	}
	urls := slices.Clone(f.urls)
	for i, u := range urls {
		if path, name := endpointIn(u); path != "" {
			return c, fmt.Errorf("--url %s: that is the address of an endpoint: give the server's, --url %s, and which endpoint with --endpoint %s",
				u, strings.TrimSuffix(strings.TrimRight(u, "/"), path), name)
		}
		if base, ok := strings.CutSuffix(strings.TrimRight(u, "/"), "/v1"); ok {
			urls[i] = base
			fmt.Fprintf(notes, "weir: note: --url %s: taken as %s, as paths of endpoints begin with /v1\n", u, base)
		}
	}
	if f.timeout <= 0 || f.first <= 0 || f.connect <= 0 || f.total <= 0 || f.stall <= 0 {
		return c, fmt.Errorf("--timeout, --first-timeout, --connect-timeout, --request-timeout and --stall-after must be positive: nothing waits for ever")
	}
	e, err := client.ParseEndpoint(f.endpoint)
	if err != nil {
		return c, fmt.Errorf("--endpoint: %w", err)
	}
	header, err := parseHeaders(f.headers)
	if err != nil {
		return c, err
	}
	key := f.key
	if key == "" {
		key = os.Getenv(keyEnv)
	}
	c = client.Config{
		URLs: urls, Endpoint: e, APIKey: key, Header: header, SessionHeaders: f.sessions, ParentHeader: f.parent,
		Protocol: client.Protocol(f.protocol), Spread: client.Spread(f.spread), Gzip: f.gzip, Chunks: f.chunks,
		Timeouts: client.Timeouts{Connect: f.connect, First: f.first, Headers: f.first, Stream: f.timeout, Total: f.total},
	}
	c.TLS, err = f.tls()
	return c, err
}

// watchdog ends runs that stand still.
func (f *clientFlags) watchdog() replay.Watchdog {
	return replay.Watchdog{MinSilenceNs: int64(f.stall)}
}

// calibrator is what calibrates a run of a duration, 0 for one whose time nobody knows; nil
// when nothing does.
func (f *clientFlags) calibrator(d time.Duration) (*client.Calibrator, error) {
	return calibrator(f.calibrate, d)
}

func calibrator(mode string, d time.Duration) (*client.Calibrator, error) {
	switch mode {
	case "never":
		return nil, nil
	case "auto", "always":
	default:
		return nil, fmt.Errorf("--calibrate %q: use always, never or auto", mode)
	}
	exe, err := self()
	if err != nil {
		return nil, err
	}
	c := client.HostCalibrator(exe, d)
	c.KeptOnly = c.KeptOnly && mode == "auto"
	return c, nil
}

func (f *clientFlags) tls() (*tls.Config, error) {
	if f.caFile == "" && !f.insecure {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.insecure}
	if f.caFile != "" {
		pem, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file %s holds no PEM certificate", f.caFile)
		}
	}
	return c, nil
}

func parseHeaders(in []string) (http.Header, error) {
	h := http.Header{}
	for _, s := range in {
		name, value, ok := strings.Cut(s, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("--header %q: write NAME:VALUE", s)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}
