package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

// A Calibrator calibrates for runs and remembers what it found, by host.
type Calibrator struct {
	// Server is the command of a pace server, see StartPace; empty runs one inside this
	// process.
	Server []string
	// Dir is where calibrations are kept; empty keeps none.
	Dir string
	// MaxAge is how old a kept one may be; 0 is 30 days.
	MaxAge time.Duration
	// KeptOnly takes a kept calibration or none.
	KeptOnly bool
	// For is how long a calibration runs; 0 is 3 s.
	For time.Duration
}

// HostCalibrator is the usual one of a host, with weir, the path of this program, as the server: it
// measures for runs of a minute or more; shorter ones, and those whose duration is 0 because nobody
// knows it, take what is kept.
func HostCalibrator(weir string, d time.Duration) *Calibrator {
	return &Calibrator{Server: []string{weir, "calibrate", "--serve"}, Dir: CacheDir(), KeptOnly: d < time.Minute}
}

// CacheDir is where calibrations are kept by default; empty when the system names no such
// place.
func CacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "weir", "calibration")
}

// LoadFor is the load that stands for a run with so many requests in flight and so many
// content frames a second: both rounded up, so that a run is never calibrated at less.
func LoadFor(inFlight int, eventsPerSecond float64) Load {
	l := Load{Streams: roundUp(max(inFlight, 1)), TTFT: 50 * time.Millisecond}
	rate := float64(roundUp(int(math.Ceil(max(eventsPerSecond, 1)))))
	l.Gap = time.Duration(float64(l.Streams) / rate * float64(time.Second))
	l.Gap = min(max(l.Gap, time.Millisecond), time.Second)
	l.Tokens = int(max(time.Second/l.Gap, 2))
	return l
}

// roundUp is the next of 1, 2, 5, 10, 20, 50, ...
func roundUp(n int) int {
	for p := 1; ; p *= 10 {
		for _, m := range []int{1, 2, 5} {
			if n <= m*p || p >= 1e9 {
				return m * p
			}
		}
	}
}

// Over makes a load one over what a configuration speaks.
func (l Load) Over(c *Config) Load {
	l.Protocol = c.Protocol
	if l.Protocol == HTTP1 {
		l.Protocol = "" // as where nobody said
	}
	l.TLS = l.Protocol == "" && len(c.URLs) > 0 && strings.HasPrefix(c.URLs[0], "https://")
	return l
}

// Run returns a calibration for a load, a kept one when there is one of this host, this
// kernel and this program. kept tells so. The calibration is nil when there is an error, but
// for one that could only not be kept, and when KeptOnly found none.
func (c *Calibrator) Run(ctx context.Context, load Load) (cal *Calibration, kept bool, err error) {
	load.For = c.For
	if load.For == 0 {
		load.For = 3 * time.Second
	}
	path := ""
	if c.Dir != "" {
		path = filepath.Join(c.Dir, hostKey(load)+".json")
		if cal := c.read(path); cal != nil {
			return cal, true, nil
		}
	}
	if c.KeptOnly {
		return nil, false, nil
	}
	url, stop, err := StartPace(ctx, c.Server, load.server())
	if err != nil {
		return nil, false, err
	}
	defer stop()
	if cal, err = Calibrate(ctx, url, load); err != nil {
		return nil, false, err
	}
	if err := cal.Bad(); err != nil {
		return nil, false, err
	}
	if path != "" {
		if err := keep(path, cal); err != nil {
			return cal, false, fmt.Errorf("keeping the calibration: %w", err)
		}
	}
	return cal, false, nil
}

func (c *Calibrator) read(path string) *Calibration {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var cal Calibration
	age := c.MaxAge
	if age == 0 {
		age = 30 * 24 * time.Hour
	}
	if json.Unmarshal(raw, &cal) != nil || cal.Bad() != nil || time.Since(cal.When) > age {
		return nil // it is made again
	}
	return &cal
}

func keep(path string, cal *Calibration) error {
	raw, err := json.Marshal(cal)
	if err != nil {
		return err
	}
	return spec.KeepFile(path, raw)
}

// hostKey names what a calibration depends on.
func hostKey(load Load) string {
	host, _ := os.Hostname()
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	h := sha256.Sum256(fmt.Appendf(nil, "2 %s %s %s %s %d %+v", host, strings.TrimSpace(string(kernel)), runtime.GOARCH, runtime.Version(), runtime.NumCPU(), load))
	return hex.EncodeToString(h[:8])
}

// Self is what the target knows of its own error, for the bundle. The bounds that a result is
// judged by need a calibration; without one, nil, they are unknown, and what the run measured
// of itself stands in the detail alone. They are those that nine of ten requests keep: they
// are held against a median, which one hiccup in a hundred requests does not move.
func (t *Target) Self(cal *Calibration) *record.Client {
	h := t.Health()
	b := h.bound()
	out := &record.Client{TTFTBoundNs: record.Unknown, ITLBoundNs: record.Unknown, GCPauseNs: h.GCPause.Max, TimerLagNs: h.TimerLag.P99}
	if cal != nil {
		b = cal.Bound(h)
		out.Beyond = cal.beyond(&h)
		out.TTFTBoundNs, out.ITLBoundNs = b.TTFT90, b.ITL90
	}
	detail, err := json.Marshal(struct {
		Bound       Bound        `json:"bound"`
		Health      Health       `json:"health"`
		Calibration *Calibration `json:"calibration"`
	}{b, h, cal})
	if err == nil { // there is nothing in it that cannot be written
		out.Detail = detail
	}
	return out
}
