package client

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client/pace"
	"github.com/weirbench/weir/internal/material"
)

func TestCalibrate(t *testing.T) {
	material.RealTime(t)
	url, stop, err := StartPace(t.Context(), nil, pace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for way, blocking := range ways {
		load := Load{Streams: 4, TTFT: 5 * time.Millisecond, Gap: 2 * time.Millisecond, Tokens: 6, For: 200 * time.Millisecond}
		m, h, err := calibrate(t.Context(), url, load, blocking)
		if err != nil {
			t.Fatal(err)
		}
		c := m.result()
		c.Health = h
		if err := c.Bad(); err != nil {
			t.Fatal(way, err)
		}
		n := uint64(c.Requests)
		if n < 4 || c.TTFTError.N != n || c.ITLError.N != n || c.Gap.N != n*5 || c.TokenDelay.N != n*6 || c.Health.Events != n*6 {
			t.Errorf("%s: %d requests, counts %d %d %d %d %d", way, n, c.TTFTError.N, c.ITLError.N, c.Gap.N, c.TokenDelay.N, c.Health.Events)
		}
		if c.Health.MostFlying < 1 || c.Health.MostFlying > 4 || c.Health.CPU <= 0 {
			t.Errorf("%s: %+v", way, c.Health)
		}
		b := c.Bound(c.Health)
		if b.TTFT < c.TTFTError.P50 || b.ITL < c.ITLError.P50 {
			t.Errorf("%s: bound %+v under the median error %+v", way, b, c)
		}
	}
}

// TestCalibrateFewRequests: one stream of long answers is too little for the tail of TTFT's error, so
// a calibration adds short ones, and the bound is half as much again as the largest error of them all.
func TestCalibrateFewRequests(t *testing.T) {
	material.RealTime(t)
	url, stop, err := StartPace(t.Context(), nil, pace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := Calibrate(t.Context(), url, Load{Streams: 1, TTFT: 2 * time.Millisecond, Gap: time.Millisecond, Tokens: 300, For: 50 * time.Millisecond})
	if err == nil {
		err = c.Bad()
	}
	if err != nil {
		t.Fatal(err)
	}
	long := c.ITLError.N // of long answers alone
	if long == 0 || long > 10 || c.TTFTError.N <= long || c.TTFTError.N != uint64(c.Requests) {
		t.Errorf("%d requests, %d errors of TTFT, %d of long answers", c.Requests, c.TTFTError.N, long)
	}
	if b := c.Bound(Health{}); b.TTFT != c.TTFTError.Max+c.TTFTError.Max/2 || b.TTFT90 != c.TTFTError.P90 {
		t.Errorf("bound %+v of errors %+v", b, c.TTFTError)
	}
	many := Calibration{TTFTError: Quantiles{N: 1000, P99: 5, Max: 9}}
	if b := many.Bound(Health{}); b.TTFT != 5 {
		t.Errorf("bound %+v", b)
	}
}

func TestCalibratorKeeps(t *testing.T) {
	material.RealTime(t)
	c := Calibrator{Dir: filepath.Join(t.TempDir(), "a", "b"), For: 50 * time.Millisecond}
	load := LoadFor(3, 500)
	first, kept, err := c.Run(t.Context(), load)
	if err != nil || kept {
		t.Fatal(kept, err)
	}
	again, kept, err := c.Run(t.Context(), load)
	if err != nil || !kept || !again.When.Equal(first.When) || again.TTFTError != first.TTFTError {
		t.Errorf("kept %v: %+v, was %+v (%v)", kept, again, first, err)
	}
	c.KeptOnly = true
	if cal, kept, err := c.Run(t.Context(), load); err != nil || !kept || cal == nil {
		t.Errorf("the kept one was not taken: %v (%v)", kept, err)
	}
	if cal, _, err := c.Run(t.Context(), LoadFor(30, 500)); err != nil || cal != nil {
		t.Errorf("calibrated although only a kept one was wanted: %+v (%v)", cal, err)
	}
	c.KeptOnly = false
	if _, kept, err = c.Run(t.Context(), LoadFor(30, 500)); err != nil || kept {
		t.Errorf("another load: kept %v (%v)", kept, err)
	}
	names, err := filepath.Glob(filepath.Join(c.Dir, "*"))
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if err := os.WriteFile(name, []byte("{broken"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept, err = c.Run(t.Context(), load); err != nil || kept {
		t.Errorf("a broken file was used: kept %v (%v)", kept, err)
	}
}

func TestLoadFor(t *testing.T) {
	for _, c := range []struct {
		n    int
		rate float64
	}{{1, 1}, {3, 700}, {64, 3000}, {1000, 100000}, {5000, 20}, {0, 0}} {
		l := LoadFor(c.n, c.rate)
		if l.Streams < c.n || l.Gap <= 0 || l.Tokens < 2 {
			t.Errorf("%+v: %+v", c, l)
		}
		if asked := float64(l.Streams) / l.Gap.Seconds(); l.Gap > time.Millisecond && asked < c.rate*0.999 {
			t.Errorf("%+v: %+v asks for only %.0f events/s", c, l, asked)
		}
	}
}

// TestBeyondCalibration: bounds of a run that asked more of the client than its calibration did say
// so.
func TestBeyondCalibration(t *testing.T) {
	c := Calibration{Load: Load{Streams: 10, Gap: 10 * time.Millisecond, Tokens: 100}} // 1,010 frames/s
	for _, x := range []struct {
		flying int64
		events uint64
		want   string
	}{
		{10, 10_000, ""}, {1, 0, ""},
		{11, 10_000, "the run had up to 11 requests in flight and 1000 frames/s, its calibration 10 and 1010"},
		{10, 20_000, "the run had up to 10 requests in flight and 2000 frames/s, its calibration 10 and 1010"},
	} {
		if got := c.beyond(&Health{MostFlying: x.flying, Events: x.events, Wall: 10 * time.Second}); got != x.want {
			t.Errorf("%d in flight, %d events: %q, want %q", x.flying, x.events, got, x.want)
		}
	}
}

func TestPaceStamps(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go pace.Serve(l)
	plan := pace.Plan{TTFT: 3 * time.Millisecond, Gap: 2 * time.Millisecond, Tokens: 3}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+pace.Header+": "+plan.String()+"\r\nContent-Length: 0\r\n\r\n")
	var stamps []pace.Stamp
	r := bufio.NewReader(c)
	for len(stamps) < 3 {
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if len(line) > 6 && string(line[:6]) == "data: " {
			if s, ok := pace.ParseStamp(line[6:]); ok {
				stamps = append(stamps, s)
			}
		}
	}
	for i, s := range stamps {
		if s.Due != s.Read+int64(plan.TTFT)+int64(i)*int64(plan.Gap) || s.Sent < s.Due || s.Read != stamps[0].Read {
			t.Errorf("frame %d: %+v", i, s)
		}
	}
}
