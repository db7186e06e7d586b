package client

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/replay"
)

// A stampedConn is a connection read by a goroutine of its own. It notes when the kernel got
// the bytes that it read last, and since when they can have been there at most: since the call
// before that found nothing more.
type stampedConn struct {
	*net.TCPConn
	raw   syscall.RawConn
	clock replay.Clock
	lag   *histogram
	r     receiver
	try   func(fd uintptr) bool
	n     int
	err   error
	in    arrival
	empty int64 // what is read next had not come at this instant
}

// stampTCP wraps a connection whose reads should be stamped; nil when it cannot be.
func (t *Target) stampTCP(c *net.TCPConn) arriver {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &stampedConn{TCPConn: c, raw: raw, clock: t.clock, lag: &t.health.lag, empty: t.clock.Now()}
	raw.Control(func(fd uintptr) { stampSocket(int(fd)) })
	s.try = func(fd uintptr) bool {
		before := s.clock.Now()
		n, lag, err := s.r.recv(int(fd))
		if err == unix.EAGAIN {
			s.empty = before
			return false
		}
		if s.n, s.err = n, err; n > 0 {
			s.in = s.came(s.clock.Now(), lag)
			if n < len(s.r.buf) {
				s.empty = before
			}
		}
		return true
	}
	return s
}

// came makes the arrival of a read. A lag that cannot be, because the wall clock was set, is
// left out.
func (s *stampedConn) came(now, lag int64) arrival {
	if lag < 0 || now-lag < s.empty-int64(10*time.Millisecond) {
		return arrival{at: now, loose: now - s.empty}
	}
	s.lag.observe(lag)
	return arrival{at: now - lag, loose: max(now-lag-s.empty, stampNoise), stamped: true}
}

func (s *stampedConn) arrived() arrival { return s.in }

// Read reads once into p.
func (s *stampedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.r.aim(p)
	for {
		if err := s.raw.Read(s.try); err != nil {
			return 0, err
		}
		switch {
		case s.err == unix.EINTR:
			continue
		case s.err != nil:
			return 0, &net.OpError{Op: "read", Net: "tcp", Addr: s.RemoteAddr(), Err: os.NewSyscallError("recvmsg", s.err)}
		case s.n == 0:
			return 0, io.EOF
		}
		return s.n, nil
	}
}

// acked is the number of bytes that the peer's kernel has acknowledged on a connection
// (TCP_INFO, RFC 4898 tcpEStatsAppHCThruOctetsAcked).
func acked(c *net.TCPConn) uint64 {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var n uint64
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}

// quiet tells whether an idle connection is open and has nothing to say.
func quiet(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	raw.Control(func(fd uintptr) { open = quietFd(int(fd)) })
	return open
}

func quietFd(fd int) bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EAGAIN
}
