package simhttp

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Fault is one thing that the server does wrong on request. Faults of requests strike every
// Every-th request behind the first Skip, at most Times times, and those of flushes every
// Every-th flush; the others hold as long as they are set.
type Fault struct {
	Kind   string   `json:"kind"`
	Skip   int64    `json:"skip,omitempty"`   // requests or flushes that are spared at first
	Every  int64    `json:"every,omitempty"`  // one request in so many; 0 is every one
	Times  int64    `json:"times,omitempty"`  // at most so often; 0 is without end
	After  int64    `json:"after,omitempty"`  // output tokens before it strikes
	Status int      `json:"status,omitempty"` // of http-error, 500 when 0
	For    Duration `json:"for,omitempty"`    // of a stall or a slow start, or until a rank dies, the process ends or an idle connection closes
	// Once is a file that is made when the fault strikes; while it is there no fault that names it
	// strikes, so that one of several servers has the fault, once. It is set where the server is
	// started and not over HTTP.
	Once string `json:"-"`
	// Until is a file that somebody else makes: a stall or a request without headers lasts until it is
	// there, at most as long as For, and then the fault strikes no more. Set as Once is.
	Until string `json:"-"`

	seen, struck int64
	since        time.Time
}

// Duration is a time.Duration that reads and writes as "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// FaultKinds are the faults that a server knows, with what they do.
var FaultKinds = []struct{ Kind, Does string }{
	{"http-error", "answers with an HTTP error (status, 500 when not given)"},
	{"context-overflow", "answers 400 as for a prompt that is too long"},
	{"reset-before", "resets the connection before the first byte of an answer"},
	{"reset-after", "resets the connection after so many tokens (after)"},
	{"stall", "sends nothing more after so many tokens (after), for a time (for) or until the client gives up"},
	{"no-headers", "takes the request and never answers (for)"},
	{"sse-no-done", "ends a stream without [DONE]"},
	{"sse-bad-json", "sends a frame that is not JSON after so many tokens (after)"},
	{"sse-error", "sends an error object inside a 200 stream after so many tokens (after)"},
	{"sse-truncated", "ends a stream in the middle of a frame after so many tokens (after)"},
	{"sse-no-tokens", "sends a role frame, no text, and ends cleanly"},
	{"sse-split", "sends frames in pieces that split characters and lines"},
	{"sse-merged", "sends several frames in one write"},
	{"sse-comments", "sends comment lines between frames"},
	{"sse-crlf", "ends lines with CR LF"},
	{"sse-empty-choices", "sends frames without choices between the others"},
	{"usage-missing", "reports no usage"},
	{"usage-wrong", "reports a tenth more prompt tokens than there are, and more cached tokens than that"},
	{"idle-close", "closes kept-alive connections that idle for a time (for, 1s when not given)"},
	{"sticky-cache", "says that a flush cleared the cache and clears nothing"},
	{"flush-refused", "refuses a flush, as an engine does that is busy"},
	{"no-load-back", "never loads anything from the host tier"},
	{"rank-dies", "the engine dies after a time (for): what is in flight is reset, and health fails"},
	{"crash", "the process ends with exit status 1, on a request or after a time (for)"},
	{"crash-start", "the process ends with exit status 1 before it is ready; given when it starts"},
	{"slow-start", "answers 503 until a time (for) has passed since it was set"},
}

// ParseFault reads a fault as the flag gives it: KIND[,skip=N][,every=N][,times=N]
// [,after=TOKENS][,status=CODE][,for=DURATION][,once=FILE][,until=FILE].
func ParseFault(s string) (Fault, error) {
	parts := strings.Split(s, ",")
	f := Fault{Kind: parts[0]}
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		var err error
		switch key {
		case "skip":
			f.Skip, err = strconv.ParseInt(value, 10, 64)
		case "every":
			f.Every, err = strconv.ParseInt(value, 10, 64)
		case "times":
			f.Times, err = strconv.ParseInt(value, 10, 64)
		case "after":
			f.After, err = strconv.ParseInt(value, 10, 64)
		case "status":
			f.Status, err = strconv.Atoi(value)
		case "once":
			f.Once = value
		case "until":
			f.Until = value
		case "for":
			err = f.For.UnmarshalText([]byte(value))
		default:
			err = fmt.Errorf("it has no %q: use skip, every, times, after, status, for, once or until", key)
		}
		if err != nil {
			return f, fmt.Errorf("fault %q: %w", s, err)
		}
	}
	return f, f.check()
}

func (f *Fault) check() error {
	known := slices.ContainsFunc(FaultKinds, func(k struct{ Kind, Does string }) bool { return k.Kind == f.Kind })
	switch {
	case !known:
		return fmt.Errorf("fault %q is unknown: the kinds are %s", f.Kind, strings.Join(faultNames(), ", "))
	case f.Skip < 0 || f.Every < 0 || f.Times < 0 || f.After < 0 || f.For < 0:
		return fmt.Errorf("fault %s has a negative number", f.Kind)
	case f.Until != "" && f.Kind != "stall" && f.Kind != "no-headers":
		return fmt.Errorf("fault %s lasts until nothing: until is for stall and no-headers", f.Kind)
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("fault %s has status %d: an HTTP error lies between 400 and 599", f.Kind, f.Status)
	}
	return nil
}

func faultNames() []string {
	var names []string
	for _, k := range FaultKinds {
		names = append(names, k.Kind)
	}
	return names
}

// faults are those that are set now.
type faults struct {
	mu  sync.Mutex
	set []*Fault
}

func (f *faults) replace(set []Fault) error {
	for i := range set {
		if err := set[i].check(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = nil
	for _, x := range set {
		x.since, x.seen, x.struck = time.Now(), 0, 0
		f.set = append(f.set, &x)
	}
	return nil
}

func (f *faults) list() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []Fault{}
	for _, x := range f.set {
		out = append(out, *x)
	}
	return out
}

// standing returns the fault of a kind that holds without regard to requests.
func (f *faults) standing(kind string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.set {
		if x.Kind == kind {
			return *x, true
		}
	}
	return Fault{}, false
}

// ofFlush says whether a kind strikes flushes.
func ofFlush(kind string) bool { return kind == "sticky-cache" || kind == "flush-refused" }

// flush counts a flush and says whether a fault of a kind strikes it.
func (f *faults) flush(kind string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	any := false
	for _, x := range f.set {
		any = x.Kind == kind && x.hit() || any
	}
	return any
}

// hit counts one occasion and says whether the fault strikes.
func (x *Fault) hit() bool {
	if x.seen++; x.seen <= x.Skip || x.Every > 1 && (x.seen-x.Skip)%x.Every != 0 || x.Times > 0 && x.struck >= x.Times {
		return false
	}
	if x.over() {
		return false
	}
	if x.Once != "" {
		f, err := os.OpenFile(x.Once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return false
		}
		f.Close()
	}
	x.struck++
	return true
}

// struck is what strikes one request.
type struck map[string]Fault

// strike counts a request and returns what strikes it.
func (f *faults) strike() struck {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s struck
	for _, x := range f.set {
		if ofFlush(x.Kind) || !x.hit() {
			continue
		}
		if s == nil {
			s = struck{}
		}
		s[x.Kind] = *x
	}
	return s
}

func (s struck) has(kind string) bool { _, ok := s[kind]; return ok }

// over says whether what ends the fault has happened.
func (f *Fault) over() bool {
	if f.Until == "" {
		return false
	}
	_, err := os.Stat(f.Until)
	return err == nil
}

// wait is how long a stall lasts: long enough for every client to give up when not said.
func (f Fault) wait() time.Duration {
	if f.For > 0 {
		return time.Duration(f.For)
	}
	return time.Hour
}
