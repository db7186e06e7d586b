package sim

import "container/heap"

// Constants of SGLang's disaggregation (server_args.py, environ.py, 2026-07).
const (
	reservedDecode   = 512   // tokens that the decode side keeps free for each request it has
	bootstrapTimeout = 300e9 // nanoseconds that a request waits for the other side
)

// linkLatency is what one message on a link takes beside its bytes, nanoseconds: the point to
// point latency of AIConfigurator (2026-08).
const linkLatency = 10_000

// A Link carries KV from prefill to decode engines: one transfer after another, each at the
// full bandwidth of the sender's network adapters, so that many at a time share it. Engines
// that are given the same Link share it too.
type Link struct {
	free int64 // when the last transfer under way ends
	busy int64 // nanoseconds of transfers, since the start
}

// send queues a transfer that takes so long and returns when it has arrived.
func (l *Link) send(now, ns int64) int64 {
	l.free = max(now, l.free) + ns
	l.busy += ns
	return l.free + linkLatency
}

// A transfer is the last piece of a request's KV on its way to the decode engine.
type transfer struct {
	at   int64
	rank int
	j    *job
}

type transfers []transfer

func (a transfers) Len() int { return len(a) }
func (a transfers) Less(i, k int) bool {
	return a[i].at < a[k].at || a[i].at == a[k].at && a[i].j.id < a[k].j.id
}
func (a transfers) Swap(i, k int) { a[i], a[k] = a[k], a[i] }
func (a *transfers) Push(x any)   { *a = append(*a, x.(transfer)) }
func (a *transfers) Pop() any {
	old := *a
	x := old[len(old)-1]
	old[len(old)-1] = transfer{}
	*a = old[:len(old)-1]
	return x
}

// Grant tells a prefill engine that the decode engine has room for a task: its computation
// may begin and its KV be sent. Grants for tasks that have not come yet are kept.
func (g *Core) Grant(id uint64) {
	for _, r := range g.ranks {
		if s, ok := r.(*sglang); ok && s.grant(id) {
			g.kick = true
			return
		}
	}
	g.granted[id] = true
}

// Arrive tells a decode engine that the KV of a task is there. It is decoded from the next step
// on.
func (g *Core) Arrive(id uint64) {
	for _, r := range g.ranks {
		if s, ok := r.(*sglang); ok && s.arriveKV(id) {
			g.kick = true
			g.cut(g.now)
			return
		}
	}
}

// send puts the KV that the step computed on the link.
func (g *Core) send(rank int, s *sglang) {
	for _, x := range s.outgoing {
		x.j.sent += x.tokens
		at := g.c.Link.send(g.now, int64(float64(x.tokens)*g.model.nicNs))
		if x.last {
			heap.Push(&g.transfers, transfer{at, rank, x.j})
		}
	}
	s.outgoing = s.outgoing[:0]
}

// sent ends the transfers that are over.
func (g *Core) sent() {
	for len(g.transfers) > 0 && g.transfers[0].at <= g.now {
		t := heap.Pop(&g.transfers).(transfer)
		s := g.ranks[t.rank].(*sglang)
		s.sent(t.j, g.now)
		g.collect(s)
		g.kick = true
	}
}

// outgoing is KV that a step computed and that goes to the decode engine.
type outgoing struct {
	j      *job
	tokens int64
	last   bool
}

func (s *sglang) grant(id uint64) bool {
	for i, j := range s.bootstrap {
		if j.id == id {
			s.bootstrap = append(s.bootstrap[:i], s.bootstrap[i+1:]...)
			s.waiting = append(s.waiting, j)
			return true
		}
	}
	return false
}

// prefilled hands a request whose prompt is complete over to the link. Its pages stay locked
// until they were sent.
func (s *sglang) prefilled(j *job) {
	s.keep(j, j.have, false)
	j.computed = s.now
	s.inflight = append(s.inflight, j)
	s.events = append(s.events, Event{Kind: Prefilled, ID: j.id, At: s.now, Tokens: j.out, Hits: j.hits})
}

func (s *sglang) sent(j *job, now int64) {
	s.now, s.cache.now = now, now
	for i, x := range s.inflight {
		if x == j {
			s.inflight = append(s.inflight[:i], s.inflight[i+1:]...)
			s.count.Transfers.add(now-j.computed, j.sent*s.c.KVBytesPerToken)
			s.end(j)
			return
		}
	}
}

// preallocate reserves room for requests of the decode side, first come first served: the
// prompt, and a reserve for every request that it already has.
func (s *sglang) preallocate() {
	for len(s.prealloc) > 0 {
		j := s.prealloc[0]
		have := int64(len(s.running) + len(s.expected) + len(s.arrived))
		if s.ceil(j.prompt)+reservedDecode > s.cache.room()-reservedDecode*have || !s.claim(j, j.prompt) {
			return
		}
		s.prealloc = append(s.prealloc[:0], s.prealloc[1:]...)
		s.expected = append(s.expected, j)
		s.events = append(s.events, Event{Kind: Granted, ID: j.id, At: s.now})
	}
}

func (s *sglang) arriveKV(id uint64) bool {
	for i, j := range s.expected {
		if j.id == id {
			s.expected = append(s.expected[:i], s.expected[i+1:]...)
			s.arrived = append(s.arrived, j)
			return true
		}
	}
	return false
}

// join lets requests whose KV came decode; their first token, computed by the prefill engine,
// goes out now.
func (s *sglang) join() {
	for len(s.arrived) > 0 && int64(len(s.running)) < s.c.MaxRunning {
		j := s.arrived[0]
		s.arrived = append(s.arrived[:0], s.arrived[1:]...)
		j.have, j.out = j.prompt, 1
		s.count.Generated++
		s.emit(j, 1)
		if j.out >= j.maxOut {
			s.end(j)
			continue
		}
		s.running = append(s.running, j)
	}
}

// expire fails requests that have waited too long for the other side.
func (s *sglang) expire() {
	for _, list := range []*[]*job{&s.bootstrap, &s.expected} {
		kept := (*list)[:0]
		for _, j := range *list {
			if s.now-j.arrived < bootstrapTimeout {
				kept = append(kept, j)
				continue
			}
			if s.c.Role == RolePrefill {
				s.count.BootstrapFailed++
			} else {
				s.count.TransferFailed++
			}
			s.release(j)
			s.fail(j, "the other side of the disaggregated engine did not answer in time")
		}
		clear((*list)[len(kept):])
		*list = kept
	}
}

// timeout is when the next request has waited too long.
func (s *sglang) timeout() (t int64, ok bool) {
	for _, list := range [][]*job{s.bootstrap, s.expected} {
		for _, j := range list {
			if at := j.arrived + bootstrapTimeout; !ok || at < t {
				t, ok = at, true
			}
		}
	}
	return t, ok
}
