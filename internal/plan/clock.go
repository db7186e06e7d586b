package plan

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Clocks are compared as NTP does: the asker notes when it asks and when the answer comes, the
// server when it read the question and when it answers. Half of the round trip bounds the error;
// of several rounds the shortest counts.
const (
	clockRounds   = 8
	clockDeadline = 10 * time.Second
)

// ClockOffset asks a node that runs ServeClock how far its clock is from this one's.
func ClockOffset(ctx context.Context, addr string) *ClockState {
	st := &ClockState{Peer: addr}
	ctx, cancel := context.WithTimeout(ctx, clockDeadline)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		st.Why = err.Error()
		return st
	}
	defer conn.Close()
	if d, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(d); err != nil {
			st.Why = err.Error()
			return st
		}
	}
	for range clockRounds {
		var b [16]byte
		t1 := time.Now()
		if _, err := conn.Write([]byte{'?'}); err != nil {
			st.Why = err.Error()
			return st
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			st.Why = err.Error()
			return st
		}
		t4 := time.Now()
		t2, t3 := int64(binary.BigEndian.Uint64(b[:8])), int64(binary.BigEndian.Uint64(b[8:]))
		if t3 < t2 || t2 < 0 {
			st.Why = "the answer is not that of a clock"
			return st
		}
		trip := max(0, t4.Sub(t1).Nanoseconds()-(t3-t2))
		if e := trip/2 + 1; !st.OK || e < st.ErrorNs {
			st.OK, st.ErrorNs = true, e
			st.OffsetNs = t2 + (t3-t2)/2 - (t1.UnixNano() + t4.Sub(t1).Nanoseconds()/2)
		}
	}
	return st
}

// ServeClock answers ClockOffset on a listener until ctx ends. The clock is time.Now where now
// is nil.
func ServeClock(ctx context.Context, l net.Listener, now func() time.Time) error {
	if now == nil {
		now = time.Now
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		go func() {
			defer conn.Close()
			if conn.SetDeadline(time.Now().Add(clockDeadline)) != nil {
				return
			}
			var q [1]byte
			for range clockRounds {
				if _, err := io.ReadFull(conn, q[:]); err != nil || q[0] != '?' {
					return
				}
				var b [16]byte
				binary.BigEndian.PutUint64(b[:8], uint64(now().UnixNano()))
				binary.BigEndian.PutUint64(b[8:], uint64(now().UnixNano()))
				if _, err := conn.Write(b[:]); err != nil {
					return
				}
			}
		}()
	}
}
