package client

import (
	"bufio"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// waitIdle waits until a connection is kept: the answer may come before the sender has seen that
// all of its request is gone.
func (r *rig) waitIdle(t *testing.T) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		for _, h := range r.hosts {
			if h.kept() > 0 {
				return
			}
		}
		if time.Since(begin) > hang {
			t.Fatal("no connection is kept")
		}
	}
}

// TestReuse sends many requests one after the other and wants one connection.
func TestReuse(t *testing.T) {
	for way, blocking := range ways {
		for _, size := range []int{10, 1 << 20} {
			var mu sync.Mutex
			conns := 0
			url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
				mu.Lock()
				conns++
				mu.Unlock()
				for {
					if _, _, err := readRequest(r); err != nil {
						return
					}
					io.WriteString(c, sseHead+chunk(token("a"))+chunk(doneEvent)+"0\r\n\r\n")
				}
			})
			bodies := BodiesFunc(func(*replay.Request) (Body, error) { return text(strings.Repeat("x", size)), nil })
			r := newRig(t, Config{URLs: []string{url}, Bodies: bodies, blocking: blocking})
			for seq := range uint64(20) {
				if rec := r.do(t, request(seq+1)); rec.Failure != nil {
					t.Fatalf("%s: %+v", way, rec.Failure)
				}
				r.waitIdle(t)
			}
			if conns != 1 {
				t.Errorf("%s, bodies of %d bytes: %d connections for 20 requests, one after the other", way, size, conns)
			}
		}
	}
}

// TestResend has a server that closes kept-alive connections just when they are used again:
// the request goes out a second time when nothing of it was acknowledged, and never a third
// time or after a byte was.
func TestResend(t *testing.T) {
	answer := sseHead + chunk(token("a")) + chunk(doneEvent) + "0\r\n\r\n"
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) {
			url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				io.WriteString(c, answer)
				if n == 0 { // reads half of the next request and closes: some of it was acknowledged
					io.ReadFull(r, make([]byte, 100))
					return
				}
				r.ReadByte()
			})
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking})
			if rec := r.do(t, request(1)); rec.Failure != nil {
				t.Fatal(rec.Failure)
			}
			r.waitIdle(t)
			rec := r.do(t, request(2))
			if rec.Failure == nil || rec.Failure.Class != record.FailResetBefore || rec.Resent {
				t.Errorf("closed after bytes were acknowledged: %+v resent %v", rec.Failure, rec.Resent)
			}
		})
	}
}

// A closingClock acts when a function asks it for the time once more.
type closingClock struct {
	replay.MonoClock
	in   string
	left atomic.Int32
	act  func()
}

func (c *closingClock) Now() int64 {
	if c.left.Load() > 0 {
		pc, _, _, _ := runtime.Caller(1)
		if strings.HasSuffix(runtime.FuncForPC(pc).Name(), c.in) && c.left.Add(-1) == 0 {
			c.act()
		}
	}
	return c.MonoClock.Now()
}

// TestResendOnce closes an idle connection between its being chosen and the first byte being
// written: the request goes out again on a new one, and says so.
func TestResendOnce(t *testing.T) {
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) {
			hangUp, hungUp := make(chan struct{}), make(chan struct{})
			url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
				readRequest(r)
				io.WriteString(c, sseHead+chunk(token("a"))+chunk(doneEvent)+"0\r\n\r\n")
				if n == 0 {
					<-hangUp
					goodbye(t, c)
					close(hungUp)
					return
				}
				r.ReadByte()
			})
			clock := &closingClock{MonoClock: replay.NewClock(), in: map[bool]string{false: "attach", true: "on"}[blocking]}
			clock.act = func() { close(hangUp); <-hungUp }
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking, Clock: clock})
			if rec := r.do(t, request(1)); rec.Failure != nil || rec.Resent {
				t.Fatal(rec.Failure)
			}
			r.waitIdle(t)
			clock.left.Store(map[bool]int32{false: 3, true: 1}[blocking])
			if rec := r.do(t, request(2)); rec.Failure != nil || !rec.Resent {
				t.Errorf("%+v resent %v", rec.Failure, rec.Resent)
			}
		})
	}
}

// TestIdleClose has a server that closes idle connections: nothing fails.
func TestIdleClose(t *testing.T) {
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) {
			closed := make(chan struct{})
			url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
				readRequest(r)
				io.WriteString(c, sseHead+chunk(token("a"))+chunk(doneEvent)+"0\r\n\r\n")
				time.Sleep(20 * time.Millisecond)
				c.Close()
				closed <- struct{}{}
			})
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking})
			for seq := range uint64(4) {
				if rec := r.do(t, request(seq+1)); rec.Failure != nil {
					t.Errorf("%+v resent %v", rec.Failure, rec.Resent)
				}
				<-closed
				time.Sleep(10 * time.Millisecond) // most often the client knows by then; it need not
			}
		})
	}
}
