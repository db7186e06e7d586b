package simhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
)

// Prefill and decode servers speak to each other over HTTP, where the real ones use ZMQ and
// RDMA: when a decode server has room for a request it posts /grant?room=N to the prefill
// server's bootstrap address, and the answer comes when the KV has arrived, at the pace of the
// simulated link. No KV is sent.

// pdTimeout bounds the wait for the other side (SGLANG_DISAGGREGATION_WAITING_TIMEOUT, 300 s).
const pdTimeout = 300 * time.Second

// rooms are the requests of a prefill server by the number that both sides know.
type rooms struct {
	mu  sync.Mutex
	all map[int64]*room
}

// A room is where the two halves of one request meet.
type room struct {
	granted bool
	call    uint64 // 0 before the request came
	over    chan struct{}
	result  grantResult
}

// grantResult is the answer to a grant: the KV has arrived, or why not.
type grantResult struct {
	Error string      `json:"error,omitempty"`
	Hits  record.Hits `json:"hits"`
}

func (s *Server) room(n int64) *room {
	r := s.rooms.all[n]
	if r == nil {
		r = &room{over: make(chan struct{})}
		s.rooms.all[n] = r
	}
	return r
}

// enter puts a request of a prefill server into its room, and lets it begin when the other
// side has granted it.
func (s *Server) enter(n int64, call uint64) {
	s.rooms.mu.Lock()
	r := s.room(n)
	r.call = call
	granted := r.granted
	s.rooms.mu.Unlock()
	if granted {
		s.live.with(func(c *sim.Core) { c.Grant(call) })
	}
}

// leave tells the other side how the request ended.
func (s *Server) leave(n int64, result grantResult) {
	s.rooms.mu.Lock()
	defer s.rooms.mu.Unlock()
	r := s.room(n)
	select {
	case <-r.over:
	default:
		r.result = result
		close(r.over)
	}
}

// bootstrap answers the decode servers.
func (s *Server) bootstrap() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /grant", func(w http.ResponseWriter, q *http.Request) {
		n, err := strconv.ParseInt(q.URL.Query().Get("room"), 10, 64)
		if err != nil {
			writeJSON(w, 400, grantResult{Error: "room is not a number"})
			return
		}
		s.rooms.mu.Lock()
		r := s.room(n)
		r.granted = true
		call := r.call
		s.rooms.mu.Unlock()
		if call != 0 {
			s.live.with(func(c *sim.Core) { c.Grant(call) })
		}
		t := time.NewTimer(pdTimeout)
		defer t.Stop()
		result := grantResult{Error: "the request never came to the prefill server"}
		select {
		case <-r.over:
			result = r.result
		case <-t.C:
		case <-q.Context().Done():
			result.Error = "the decode server gave up"
		}
		s.rooms.mu.Lock()
		delete(s.rooms.all, n)
		s.rooms.mu.Unlock()
		writeJSON(w, 200, result)
	})
	return m
}

// ListenBootstrap opens the address that decode servers post to; it returns the port. Only a
// prefill server has one.
func (s *Server) ListenBootstrap(addr string) (int, error) {
	if s.c.Role != sim.RolePrefill {
		return 0, errors.New("only a prefill server has a bootstrap address")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return 0, err
	}
	s.bootstrapListener = l
	return l.Addr().(*net.TCPAddr).Port, nil
}

// with calls f with the core, brought up to now.
func (l *live) with(f func(*sim.Core)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.core.(*sim.Core); ok {
		l.advance()
		f(c)
		l.poke()
	}
}

// fetch asks the prefill server for the KV of a request that this decode server has room for,
// and lets it decode when it came.
func (a *answering) fetch(c *call) {
	s := a.s
	ctx, stop := context.WithTimeout(a.r.Context(), pdTimeout)
	defer stop()
	fail := func(why string) {
		c.push(sim.Event{Kind: sim.Ended, ID: c.id, Failure: &record.Failure{Class: record.FailStatus, Status: 500, Detail: why}})
		s.live.cancel(c)
	}
	url := fmt.Sprintf("http://%s/grant?room=%d", net.JoinHostPort(a.q.BootstrapHost, strconv.Itoa(a.q.BootstrapPort)), *a.q.BootstrapRoom)
	q, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(nil))
	if err != nil {
		fail("bootstrap: " + err.Error())
		return
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		if a.r.Context().Err() == nil {
			fail("the prefill server does not answer: " + err.Error())
		}
		return
	}
	defer r.Body.Close()
	var result grantResult
	if err := json.NewDecoder(r.Body).Decode(&result); err != nil || result.Error != "" {
		fail("the KV did not come: " + result.Error)
		return
	}
	a.mu.Lock()
	a.prefillHits = &result.Hits
	a.mu.Unlock()
	s.live.with(func(core *sim.Core) { core.Arrive(c.id) })
}
