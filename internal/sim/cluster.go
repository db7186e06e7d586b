package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// ClusterConfig says which engines stand behind one router.
type ClusterConfig struct {
	// Workers take requests. With Decode they are the prefill side.
	Workers []Config
	// Decode are the decode engines of a disaggregated cluster. All engines share Link when it
	// is not nil, else each prefill engine has its own.
	Decode []Config
	Link   *Link
	// Policy spreads requests over workers: round_robin, cache_aware or consistent_hashing;
	// consistent_hashing, by the live tree, when empty. Decode engines take turns.
	Policy string
	// RouterNs is what the router adds to a request, and ControlNs what a message between a
	// prefill and a decode engine takes; 1 ms each when 0.
	RouterNs, ControlNs int64
}

// Cluster is several simulated engines behind a router as one target in virtual time.
type Cluster struct {
	c      ClusterConfig
	cores  []*Core // workers, then decode engines
	keys   *keyer
	router *Router
	turn   int // decode engines take turns
	sink   func(*record.Request)
	now    int64
	open   map[uint64]*routed
	done   []*record.Request
	notes  []note // messages between engines under way, in order of time
}

var _ replay.VirtualTarget = (*Cluster)(nil)

// routed is a request and where it is.
type routed struct {
	r              *record.Request
	worker, decode int // indices in cores; decode is -1 on a unified worker
	hits           record.Hits
	failed         *record.Failure // of the other side
}

// note is a message to an engine.
type note struct {
	at     int64
	to     int
	id     uint64
	arrive bool // KV is there, else room is
}

// NewCluster makes an idle cluster.
func NewCluster(c ClusterConfig) (*Cluster, error) {
	if len(c.Workers) == 0 {
		return nil, errors.New("sim: a cluster needs at least one worker")
	}
	c.Policy = cmp.Or(c.Policy, "consistent_hashing")
	c.RouterNs, c.ControlNs = cmp.Or(c.RouterNs, 1e6), cmp.Or(c.ControlNs, 1e6)
	k := &Cluster{c: c, keys: newKeyer(), open: map[uint64]*routed{}}
	var names []string
	add := func(side string, i int, c Config) error {
		core, err := NewCore(c)
		if err != nil {
			return fmt.Errorf("%s %d: %w", side, i, err)
		}
		if n := len(k.cores); n > 0 && core.c.PageSize != k.cores[0].c.PageSize {
			return fmt.Errorf("%s %d: page size %d differs from the %d of the first engine: the real ones would wait for KV that never comes", side, i, core.c.PageSize, k.cores[0].c.PageSize)
		}
		k.cores = append(k.cores, core)
		return nil
	}
	for i, w := range c.Workers {
		side := "worker"
		if len(c.Decode) > 0 {
			side, w.Role = "prefill engine", RolePrefill
			if c.Link != nil {
				w.Link = c.Link
			}
		}
		if err := add(side, i, w); err != nil {
			return nil, err
		}
		names = append(names, fmt.Sprint("worker-", i))
	}
	for i, d := range c.Decode {
		d.Role = RoleDecode
		if err := add("decode engine", i, d); err != nil {
			return nil, err
		}
	}
	var err error
	k.router, err = NewRouter(c.Policy, names)
	return k, err
}

// Cores are the engines, workers first.
func (k *Cluster) Cores() []*Core { return k.cores }

// Stats are the counts of the ranks of every engine, workers first.
func (k *Cluster) Stats() [][]Stats {
	out := make([][]Stats, len(k.cores))
	for i, c := range k.cores {
		out[i] = c.Stats()
	}
	return out
}

// Start implements replay.Target.
func (k *Cluster) Start(sink func(*record.Request)) { k.sink = sink }

// Send implements replay.Target.
func (k *Cluster) Send(q replay.Request) {
	r := replay.NewRecord(&q)
	r.Model = k.cores[0].c.ModelName
	at := max(k.now, q.Queued)
	r.Times.Sent, r.Times.Headers = at, at
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	pages := k.keys.pages(&q, k.cores[0].c.PageSize)
	session := k.keys.tree(q.Tree)
	x := &routed{r: r, decode: -1, worker: k.router.Pick(session, pages)}
	if n := len(k.c.Decode); n > 0 {
		x.decode = len(k.c.Workers) + k.turn%n
		k.turn++
	}
	for _, i := range []int{x.worker, x.decode} {
		if i < 0 {
			continue
		}
		if f := k.cores[i].Refusal(t.In, q.MaxOut); f != nil {
			r.Failure = f
			r.Times.End = at
			k.done = append(k.done, r)
			k.router.Done(x.worker)
			return
		}
	}
	k.open[q.Seq] = x
	task := Task{ID: q.Seq, Prompt: t.In, MaxOut: q.MaxOut, Pages: pages, Session: session}
	k.cores[x.worker].Submit(at+k.c.RouterNs, task)
	if x.decode >= 0 {
		task.Pages = slices.Clone(pages)
		k.cores[x.decode].Submit(at+k.c.RouterNs, task)
	}
}

// Cancel implements replay.Target.
func (k *Cluster) Cancel() {
	for _, c := range k.cores {
		c.CancelAll()
	}
}

// Next implements replay.VirtualTarget.
func (k *Cluster) Next() (t int64, ok bool) {
	if len(k.done) > 0 {
		return k.now, true
	}
	return k.next()
}

func (k *Cluster) next() (t int64, ok bool) {
	if len(k.notes) > 0 {
		t, ok = k.notes[0].at, true
	}
	for _, c := range k.cores {
		if at, has := c.Next(); has && (!ok || at < t) {
			t, ok = at, true
		}
	}
	return max(t, k.now), ok
}

// Advance implements replay.VirtualTarget.
func (k *Cluster) Advance(t int64) {
	out := k.done
	k.done = nil
	for {
		at, ok := k.next()
		if !ok || at > t {
			break
		}
		k.now = at
		for i, c := range k.cores { // one engine's news reach another only later
			for _, e := range c.Advance(at) {
				if r := k.event(i, e); r != nil {
					out = append(out, r)
				}
			}
		}
		for len(k.notes) > 0 && k.notes[0].at <= at {
			n := k.notes[0]
			k.notes = k.notes[1:]
			if n.arrive {
				k.cores[n.to].Arrive(n.id)
			} else {
				k.cores[n.to].Grant(n.id)
			}
		}
	}
	k.now = max(k.now, t)
	for _, c := range k.cores {
		c.Advance(t)
	}
	slices.SortStableFunc(out, func(a, b *record.Request) int {
		return cmp.Or(cmp.Compare(a.Times.End, b.Times.End), cmp.Compare(a.Seq, b.Seq))
	})
	for _, r := range out {
		k.sink(r)
	}
}

// note sends a message that arrives after ControlNs; messages keep their order.
func (k *Cluster) note(at int64, to int, id uint64, arrive bool) {
	k.notes = append(k.notes, note{at + k.c.ControlNs, to, id, arrive})
	slices.SortStableFunc(k.notes, func(a, b note) int { return cmp.Compare(a.at, b.at) })
}

// event follows what happened on engine i; it returns the record of a request that is over.
func (k *Cluster) event(i int, e Event) *record.Request {
	x := k.open[e.ID]
	if x == nil {
		return nil
	}
	answers := x.decode < 0 || i == x.decode // the engine whose tokens reach the client
	switch e.Kind {
	case Tokens:
		if answers {
			if e.First {
				x.r.Times.FirstToken, x.r.Times.FirstVisible = e.At, e.At
			}
			x.r.Times.LastToken = e.At
		}
		return nil
	case Granted:
		k.note(e.At, x.worker, e.ID, false)
		return nil
	case Prefilled:
		x.hits = e.Hits
		return nil
	}
	if !answers {
		if e.Failure == nil {
			k.note(e.At, x.decode, e.ID, true)
			return nil
		}
		x.failed = e.Failure
		k.cores[x.decode].Cancel(e.ID) // the router gives up on both
		return nil
	}
	delete(k.open, e.ID)
	k.router.Done(x.worker)
	r := x.r
	r.Times.End = max(e.At, r.Times.Sent)
	r.Failure = e.Failure
	if x.failed != nil {
		r.Failure = x.failed
	}
	if r.Failure == nil {
		r.Times.LastToken = e.At
		r.PromptTokens, r.OutputTokens, r.ReasoningTokens = r.WantIn, e.Tokens, 0
		r.Hits = e.Hits
		if x.decode >= 0 {
			r.Hits = x.hits
		}
	} else if x.decode >= 0 {
		k.cores[x.worker].Cancel(e.ID)
	}
	return r
}
