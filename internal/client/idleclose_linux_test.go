package client

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

// A hasty server closes idle connections at random instants. It knows which requests its
// kernel had acknowledged by then.
type hasty struct {
	mu     sync.Mutex
	served map[string]int  // answers by request
	killed map[string]bool // requests that lay acknowledged and unread in a connection that was closed
}

func (h *hasty) serve(c net.Conn, r *bufio.Reader) {
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.Copy(io.Discard, q.Body)
		h.mu.Lock()
		h.served[q.Header.Get("X-Request-ID")]++
		h.mu.Unlock()
		io.WriteString(c, sseHead+chunk(token("a"))+chunk(doneEvent)+"0\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(2000)) * time.Microsecond))
		if _, err := r.Peek(1); err == nil {
			c.SetReadDeadline(time.Time{})
			continue
		}
		h.hangUp(c.(*net.TCPConn))
		return
	}
}

// hangUp ends both directions, after which the kernel takes nothing more (it answers data with
// a reset, as after a close), and then looks at what it had taken.
func (h *hasty) hangUp(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.Shutdown(int(fd), syscall.SHUT_RDWR)
		var left []byte
		b := make([]byte, 4096)
		for {
			n, err := syscall.Read(int(fd), b)
			if n <= 0 || err != nil {
				break
			}
			left = append(left, b[:n]...)
		}
		if len(left) == 0 {
			return
		}
		if q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(left))); err == nil {
			h.mu.Lock()
			h.killed[q.Header.Get("X-Request-ID")] = true
			h.mu.Unlock()
		}
	})
}

// TestHastyServer sends thousands of requests to a server that closes idle connections just
// when they are used again. Each is answered, by a second sending where one is due, but those
// that the server's kernel had acknowledged: they fail, and are never sent again.
func TestHastyServer(t *testing.T) {
	material.RealTime(t)
	const lanes, each = 8, 250
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) {
			h := &hasty{served: map[string]int{}, killed: map[string]bool{}}
			url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { h.serve(c, r) })
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking, RunID: way, Timeouts: Timeouts{Headers: 30 * time.Second}})
			waits := make([]chan struct{}, lanes*each+1)
			for i := range waits {
				waits[i] = make(chan struct{})
			}
			go func() {
				for range lanes * each {
					close(waits[(<-r.each).Seq])
				}
			}()
			var wg sync.WaitGroup
			for lane := range lanes {
				wg.Go(func() {
					for i := range each {
						seq := uint64(lane*each + i + 1)
						r.Send(request(seq))
						select {
						case <-waits[seq]:
						case <-time.After(time.Minute):
							t.Errorf("request %d has no outcome after a minute", seq)
							return
						}
						time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			resent, failed := 0, 0
			for seq, rec := range r.got {
				id := identity(way, "request", strconv.FormatUint(seq, 10))
				switch f := rec.Failure; {
				case f == nil && h.served[id] != 1:
					t.Errorf("request %d succeeded and was answered %d times", seq, h.served[id])
				case f != nil && (f.Class != record.FailResetBefore || !h.killed[id]):
					t.Errorf("request %d: %+v (resent %v), and the server's kernel had not acknowledged it", seq, *f, rec.Resent)
				case f != nil && h.served[id] != 0:
					t.Errorf("request %d failed and was answered", seq)
				}
				if rec.Resent {
					resent++
				}
				if rec.Failure != nil {
					failed++
				}
			}
			t.Logf("of %d requests %d were sent again, %d failed after the server's kernel had taken them", lanes*each, resent, failed)
		})
	}
}
