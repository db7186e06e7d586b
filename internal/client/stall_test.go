package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// TestStalledRun drives a run against a server that falls silent after a token of each
// request: the watchdog ends it long before any timeout, with what was in flight, and every
// request is accounted for.
func TestStalledRun(t *testing.T) {
	material.RealTime(t)
	t.Parallel() // most of its time is waiting
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err == nil {
			io.WriteString(c, sseHead+chunk(token("a")))
			r.ReadByte()
		}
	})
	c := &corpus.Corpus{Name: "c"}
	for _, id := range []string{"a", "b", "c"} {
		c.Traces = append(c.Traces, &corpus.Trace{ID: id, BlockSize: 64, Models: []string{"m"}, Streams: []corpus.Stream{
			{ID: id, Parent: corpus.Unbound, Join: corpus.Unbound, Turns: []corpus.Turn{{In: 64, Out: 9, Blocks: []uint32{1}}}}}})
	}
	s, err := replay.NewLoad(c, replay.Load{Arrival: replay.Closed, Concurrency: 3})
	if err != nil {
		t.Fatal(err)
	}
	s.Watch(replay.Watchdog{MinSilenceNs: int64(15 * time.Second), FloorSpeed: 1e9})
	clock := replay.NewClock()
	target, err := New(Config{URLs: []string{url}, Bodies: onePrompt, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	classes := map[record.Class]int{}
	err = replay.RunReal(ctx, s, target, clock, func(r *record.Request) { classes[r.Failure.Class]++ })
	var stall *replay.Stall
	if !errors.As(err, &stall) {
		t.Fatalf("ended with %v", err)
	}
	if classes[record.FailCancelled] != 3 || len(classes) != 1 {
		t.Errorf("outcomes %v", classes)
	}
	if !strings.Contains(string(stall.Connections), "3 requests in flight") || strings.Count(string(stall.Connections), "next token") != 3 {
		t.Errorf("connections:\n%s", stall.Connections)
	}
	if !strings.Contains(string(stall.Goroutines), "client.(*poller).run") {
		t.Error("no goroutines in the dump")
	}
}
