package client

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/replay"
)

// A stampedConn is a connection under TLS that notes when the kernel got the bytes it read
// last.
type stampedConn struct {
	*net.TCPConn
	raw   syscall.RawConn
	clock replay.Clock
	r     receiver
	try   func(fd uintptr) bool
	n     int
	err   error
	at    int64 // of the last read
}

// stampTCP wraps a connection whose reads should be stamped.
func stampTCP(c *net.TCPConn, clock replay.Clock) (net.Conn, func() int64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return c, nil
	}
	s := &stampedConn{TCPConn: c, raw: raw, clock: clock}
	raw.Control(func(fd uintptr) { stampSocket(int(fd)) })
	s.try = func(fd uintptr) bool {
		n, lag, err := s.r.recv(int(fd))
		if err == unix.EAGAIN {
			return false
		}
		s.n, s.err, s.at = n, err, s.clock.Now()-max(lag, 0)
		return true
	}
	return s, func() int64 { return s.at }
}

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
	raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = err == unix.EAGAIN
	})
	return open
}
