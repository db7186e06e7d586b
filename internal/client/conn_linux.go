package client

import (
	"net"

	"golang.org/x/sys/unix"
)

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
