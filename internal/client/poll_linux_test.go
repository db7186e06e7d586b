package client

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/replay"
	"runtime"
	"strings"
)

// TestPollerRates: streams whose frames come now often, now rarely, and at last one by one with the
// poller parked before each. Whatever a poller does between them, it takes every frame.
func TestPollerRates(t *testing.T) {
	material.RealTime(t)
	for name, unparked := range map[string]bool{"parked": false, "blocked": true} {
		t.Run(name, func(t *testing.T) { pollerRates(t, unparked) })
	}
}

func pollerRates(t *testing.T, unparked bool) {
	const streams, rounds, often, rarely = 8, 4, 200, 3
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		say := func(gap time.Duration) {
			io.WriteString(c, chunk(token("x")))
			time.Sleep(gap)
		}
		io.WriteString(c, sseHead)
		for range rounds {
			for range often {
				say(200 * time.Microsecond)
			}
			for range rarely {
				say(40 * time.Millisecond)
			}
		}
		io.WriteString(c, chunk(doneEvent)+"0\r\n\r\n")
	})
	r := newRig(t, Config{URLs: []string{url}, busyRate: 400, unparked: unparked})
	for i := range streams {
		r.Send(request(uint64(i + 1)))
	}
	for range streams {
		if q := r.wait(t); q.Failure != nil || q.Frames != rounds*(often+rarely) {
			t.Errorf("request %d: %d frames of %d, %+v", q.Seq, q.Frames, rounds*(often+rarely), q.Failure)
		}
	}
	r.Close()
	moved := 0
	for _, p := range r.pollers {
		moved += p.moved
	}
	if moved < 2 {
		t.Errorf("the gate moved %d times", moved)
	}
}

// BenchmarkRare is what a frame costs the client, processor time of the whole process, while there
// are few: a stream's token comes every 10 ms. Its server is another process. Run it with
// -benchtime 1x.
func BenchmarkRare(b *testing.B) {
	for _, streams := range []int{1, 2, 6} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			load := Load{Streams: streams, TTFT: 300 * time.Millisecond, Gap: 10 * time.Millisecond, Tokens: 100, For: 10 * time.Second}
			url := server(b, "pace", load.server())
			for b.Loop() {
				wall, before := time.Now(), processCPU()
				threads := switches()
				m, _, err := calibrate(b.Context(), url, load, false)
				if err != nil {
					b.Fatal(err)
				}
				c := m.result()
				if err := c.Bad(); err != nil {
					b.Fatal(err)
				}
				frames, cpu := float64(max(c.Gap.N, 1)), float64(processCPU()-before)
				b.ReportMetric(cpu/1e3/frames, "cpu-us/frame")
				b.ReportMetric(cpu/1e6/max(frames/float64(load.Tokens-1), 1), "cpu-ms/request")
				b.ReportMetric(100*cpu/float64(time.Since(wall)), "cpu-%")
				b.ReportMetric(float64(switches()-threads)/frames, "switches/frame")
			}
		})
	}
}

// switches counts how often a thread of this process gave up its processor to wait.
func switches() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Nvcsw
}

// TestGateOpens: what comes while the poller's gate is being opened is read or told. The kernel tells
// nothing of it where the expired timer stands before it.
func TestGateOpens(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(fd int, err error) int {
		t.Helper()
		check(err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	wake := open(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))
	inner := open(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	outer := open(unix.EpollCreate1(unix.EPOLL_CLOEXEC)) // the runtime's
	check(unix.EpollCtl(inner, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}))
	gate, timer, err := newGate(inner)
	check(err)
	open(gate, nil)
	open(timer, nil)
	check(unix.EpollCtl(outer, unix.EPOLL_CTL_ADD, gate, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}))
	p := &poller{t: &Target{clock: replay.NewClock()}, ep: inner, gate: gate, timer: timer, wakeFd: wake, health: &readHealth{}}
	told := func(ms int) bool {
		var events [4]unix.EpollEvent
		n, err := unix.EpollWait(outer, events[:], ms)
		check(err)
		return n > 0
	}
	for range 3 {
		p.setGate(true)
		p.nap()
		if !told(60_000) {
			t.Fatal("the nap did not end")
		}
		p.look()
		p.mu.Lock() // the poller waits here behind its asking, before it opens the gate
		done := make(chan bool)
		go func() { done <- p.turn() }()
		for stack := make([]byte, 1<<20); ; time.Sleep(time.Millisecond) {
			if s := string(stack[:runtime.Stack(stack, true)]); strings.Contains(s, "(*poller).turn") && strings.Contains(s, "(*Mutex).Lock") {
				break
			}
		}
		p.look()
		p.mu.Unlock()
		if <-done || p.shut {
			t.Fatal("the poller did not open its gate")
		}
		if n, err := epollNow(inner, p.events[:]); err != nil || n > 0 && !told(0) {
			t.Fatalf("%d events neither read nor told, %v", n, err)
		}
	}
}
