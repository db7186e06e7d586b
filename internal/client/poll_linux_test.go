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
