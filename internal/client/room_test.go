package client

import (
	"bufio"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestNoRoom has a server that never answers: what the machine has no room for is not sent, not
// queued and fails at once as the client's own fault; when room is there again requests go out.
func TestNoRoom(t *testing.T) {
	for _, protocol := range []Protocol{HTTP1, H2C} {
		url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { r.WriteTo(nowhere{}) })
		r := newRig(t, Config{URLs: []string{url}, Protocol: protocol, roomFor: 3})
		for seq := range uint64(3) {
			r.Send(request(seq + 1))
		}
		for seq := range uint64(2) {
			q := r.do(t, request(seq+4))
			if f := q.Failure; f == nil || f.Class != record.FailClient || !strings.Contains(f.Detail, "no room") || q.Times.Sent != record.Never || q.Seq != seq+4 {
				t.Errorf("%s: request %d: %+v, sent %d", protocol, q.Seq, f, q.Times.Sent)
			}
		}
		r.Cancel()
		for range 3 {
			if q := r.wait(t); q.Failure == nil || q.Failure.Class != record.FailCancelled {
				t.Errorf("%s: request %d: %+v", protocol, q.Seq, q.Failure)
			}
		}
		r.Send(request(9))
		r.Cancel()
		if q := r.wait(t); q.Failure == nil || q.Failure.Class != record.FailCancelled {
			t.Errorf("%s: with room again: %+v", protocol, q.Failure)
		}
	}
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// TestRoom holds what there is room for against what is refused: a plan of just that many fits, one
// more does not.
func TestRoom(t *testing.T) {
	for _, m := range []machine{
		{files: 4096, ports: 28232, memory: 1 << 40},
		{files: 1 << 20, ports: 28232, memory: 1 << 40},
		{files: 1 << 20, ports: 28232, memory: 1 << 30},
		{files: 60, ports: 10, memory: 1 << 30},
		{files: math.MaxInt64, ports: 65535, memory: math.MaxInt64},
	} {
		for _, c := range []Config{
			{URLs: []string{"http://a"}}, {URLs: []string{"https://a"}}, {URLs: []string{"http://a"}, Protocol: H2C},
		} {
			n, of := c.room(m, true)
			if of == "" || n > 0 && c.fits(&Plan{Units: n}, m) != nil || c.fits(&Plan{Units: n + 1}, m) == nil {
				t.Errorf("%+v of %+v: room for %d (%s); %v, one more: %v", c.Protocol, m, n, of, c.fits(&Plan{Units: n}, m), c.fits(&Plan{Units: n + 1}, m))
			}
			if wide, _ := c.room(m, false); wide < n {
				t.Errorf("%d without ports, %d with", wide, n)
			}
		}
	}
}
