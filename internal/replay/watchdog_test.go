package replay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

func TestWatchdogBudgets(t *testing.T) {
	w := Watchdog{MinSilenceNs: 60 * second, Factor: 4, FloorSpeed: 100, GuessNs: 100_000 * second}
	if got := w.Budget(0); got != 60*second {
		t.Errorf("budget of nothing is %d", got)
	}
	// 1.5 million tokens at the assumed 100 tokens/s take 15,000 s, four times over.
	if got := w.Budget(1_500_000); got != 60_000*second {
		t.Errorf("budget before a measurement is %d s", got/second)
	}
	if w.Check(59_000*second, 0, 8, 1_500_000) != nil {
		t.Error("a slow warm-up of hours is stopped")
	}
	// What is assumed is no ground to wait for ever.
	if got := w.Budget(64 * 230_000); got != 100_000*second {
		t.Errorf("budget of much before a measurement is %d s", got/second)
	}
	if got := (&Watchdog{}).Budget(64 * 230_000); got != 7200*second {
		t.Errorf("budget of much before a measurement is %d s where nothing is set", got/second)
	}
	if got := (&Watchdog{MinSilenceNs: 3 * 3600 * second}).Budget(64 * 230_000); got != 3*3600*second {
		t.Errorf("budget is %d s, less than what is always allowed", got/second)
	}
	w.Prefilled(10_000_000, 1000*second) // 10,000 tokens/s
	// 64 cold prompts of 230,000 tokens take 1,472 s at that speed: no fixed time is less.
	if got := w.Budget(64 * 230_000); got != 5888*second {
		t.Errorf("budget of 64 cold prompts is %d s", got/second)
	}
	if got := w.Budget(1_500_000); got != 600*second {
		t.Errorf("budget at the measured speed is %d s, want 600", got/second)
	}
	if w.Check(600*second, 0, 8, 1_500_000) != nil {
		t.Error("stopped within its budget")
	}
	s := w.Check(601*second, 0, 8, 1_500_000)
	if s == nil || !strings.Contains(s.Error(), "no token from any of 8 requests for 10m1s; their 1500000 prompt tokens at 10000 tokens/s explain 10m0s") {
		t.Errorf("verdict %v", s)
	}
	if w.Check(1e15, 0, 0, 0) != nil {
		t.Error("a run with nothing in flight is stopped")
	}
	w.Prefilled(0, 1e18) // a measurement below the floor counts as the floor
	if got := w.Speed(); got != 100 {
		t.Errorf("speed %v", got)
	}
}

// ticking is a target that makes a token now and then until it falls silent.
type ticking struct {
	*timedTarget
	silentAfter int64
}

func (k *ticking) LastToken() int64 { return min(k.clock.Now(), k.silentAfter) }

func TestRunRealStopsAStall(t *testing.T) {
	material.RealTime(t)
	o := fastCorpusOptions()
	o.DurationNs = int64(time.Hour)
	s, err := NewAgentic(workedCorpus(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.Watch(Watchdog{MinSilenceNs: int64(500 * time.Millisecond), FloorSpeed: 1e9})
	start := time.Now()
	clock := NewClock()
	f := &ticking{&timedTarget{clock: clock, service: func(*Request) int64 { return int64(time.Hour) }}, int64(300 * time.Millisecond)}
	records := 0
	err = RunReal(context.Background(), s, f, clock, func(*record.Request) { records++ })
	var stall *Stall
	if !errors.As(err, &stall) || stall.InFlight != 1 || len(stall.Goroutines) == 0 {
		t.Fatalf("error %v, want a stall", err)
	}
	if records != 1 || time.Since(start) < 800*time.Millisecond {
		t.Errorf("%d records after %v", records, time.Since(start))
	}
}
