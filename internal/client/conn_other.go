//go:build !linux

package client

import (
	"net"

	"github.com/weirbench/weir/internal/replay"
)

// Without TCP_INFO nothing proves that a byte was not acknowledged, so nothing is sent again,
// and an idle connection is not used again.
func acked(*net.TCPConn) uint64 { return 0 }

func quiet(*net.TCPConn) bool { return false }

func stampTCP(c *net.TCPConn, _ replay.Clock) (net.Conn, func() int64) { return c, nil }
