package client

import (
	"bufio"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// TestDoubt stalls the reader while two tokens of a stream arrive 20 ms apart. The instant of
// the first is then wrong, and the record must say by how much.
func TestDoubt(t *testing.T) {
	material.RealTime(t)
	const apart = 20 * time.Millisecond
	rest := chunk(token("b")) + chunk(doneEvent) + "0\r\n\r\n"
	all := len(sseHead) + len(chunk(token("a"))) + len(rest)
	begun, asked, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	clock := replay.NewClock()
	url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		if _, _, err := readRequest(r); err != nil {
			return
		}
		io.WriteString(c, sseHead)
		if n == 0 {
			close(begun)
			io.WriteString(c, chunk(token("stall")))
			r.ReadByte()
			return
		}
		close(asked)
		sent.Store(clock.Now())
		io.WriteString(c, chunk(token("a")))
		time.Sleep(apart)
		io.WriteString(c, rest)
		close(written)
	})
	r := newRig(t, Config{URLs: []string{url}, Clock: clock, Timeouts: Timeouts{Headers: time.Minute}})
	r.probe = func(lane int, _ []byte, _ int64) {
		if lane == 7 {
			<-asked
			<-written
			for begin := time.Now(); queued(r.Target, 2) < all && time.Since(begin) < hang; {
				time.Sleep(time.Millisecond) // the kernel has not delivered them yet
			}
		}
	}
	first := request(1)
	first.Lane = 7
	r.Send(first)
	<-begun
	r.Send(request(2))
	rec := r.wait(t)
	if rec.Seq != 2 || rec.Failure != nil {
		t.Fatalf("%+v", rec)
	}
	wrong := rec.Times.FirstToken - sent.Load()
	if wrong < int64(apart)*9/10 {
		t.Fatalf("the reader was not stalled: %v", time.Duration(wrong))
	}
	if rec.Doubt.First < int64(apart) {
		t.Errorf("first token is %v late, doubt says at most %v", time.Duration(wrong), time.Duration(rec.Doubt.First))
	}
	if rec.Doubt.TTFT() == record.Unknown || rec.Doubt.Sent < 0 {
		t.Errorf("doubt %+v", rec.Doubt)
	}
	if h := r.Health(); h.Shared != 1 || h.TTFT.Max < int64(apart) {
		t.Errorf("health %+v", h)
	}
}

// queued is the number of bytes that wait in the kernel for a request's reader.
func queued(t *Target, seq uint64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for x := range t.flying {
		if w := x.wire.Load(); x.q.Seq == seq && w != nil {
			n, err := unix.IoctlGetInt(w.fd, unix.SIOCINQ)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// goodbye closes a connection when the peer's kernel has taken note that it ends.
func goodbye(t testing.TB, c net.Conn) {
	defer c.Close()
	tcp := c.(*net.TCPConn)
	tcp.CloseWrite()
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for begin, open := time.Now(), true; open; time.Sleep(time.Millisecond) {
		raw.Control(func(fd uintptr) {
			const established, finWait1 = 1, 4
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			open = err == nil && (info.State == established || info.State == finWait1)
		})
		if time.Since(begin) > hang {
			t.Error("the peer does not acknowledge the end")
			return
		}
	}
}

// kept is the number of idle connections of a host.
func (h *host) kept() int {
	h.wires.mu.Lock()
	n := len(h.wires.list)
	h.wires.mu.Unlock()
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	return n + len(h.idle.list)
}
