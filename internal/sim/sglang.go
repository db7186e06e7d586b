package sim

import (
	"cmp"
	"slices"
)

// Constants of SGLang's scheduler (schedule_policy.py, environ.py, 2026-07).
const (
	clipNewTokens = 4096    // output tokens that admission reserves at most
	ratioStart    = 700_000 // new-token ratio at start and when idle, ppm
	ratioFloor    = 98_000  // 0.7 x 0.14
	ratioSteps    = 600     // decode steps from the one to the other
	retractSteps  = 20      // steps that must fit after a retraction
	lpmMost       = 128     // longest queue that is sorted by prefix
	inBatchTokens = 32      // shared prefix of waiting requests that makes one wait for another
)

// maxJump is the most decode steps taken at once. Their length is that of the middle one,
// which is exact where the cost of a step is linear in the context.
const maxJump = 128

// sglang is SGLang's scheduler, for one rank: prefill before decode, in chunks, by longest
// cached prefix or first come first served, at most one request with a part of its prompt
// computed.
type sglang struct {
	desk
	cache *radix

	waiting []*job
	running []*job
	chunked *job
	full    bool  // nothing is admitted until a request ends
	ratio   int64 // share of outstanding output tokens that admission reserves, ppm

	heads map[uint64]bool // of waiting prompts, while the queue is sorted

	// Of a prefill engine: requests that wait for room on the decode side, requests whose KV is
	// on its way there, and KV that a step has just computed. See pd.go.
	bootstrap, inflight []*job
	outgoing            []outgoing
	// Of a decode engine: requests without room, with room and without KV, and with KV.
	prealloc, expected, arrived []*job
}

func newSGLang(c *Config, cache *radix, caps []int64) *sglang {
	return &sglang{desk: desk{c: c, caps: caps}, cache: cache, ratio: ratioStart, heads: map[uint64]bool{}}
}

func (s *sglang) busy() bool {
	return len(s.waiting) > 0 || len(s.running) > 0 || s.chunked != nil || len(s.arrived) > 0
}

func (s *sglang) empty() bool {
	return !s.busy() && len(s.bootstrap)+len(s.inflight)+len(s.prealloc)+len(s.expected) == 0
}

func (s *sglang) enqueue(j *job) {
	switch s.c.Role {
	case RolePrefill:
		j.maxOut = 1 // the rest is decode's
		s.bootstrap = append(s.bootstrap, j)
	case RoleDecode:
		s.prealloc = append(s.prealloc, j)
	default:
		s.waiting = append(s.waiting, j)
	}
}

func (s *sglang) wake() (int64, bool) {
	t, ok := s.cache.nextWrite()
	if at, has := s.timeout(); has && (!ok || at < t) {
		t, ok = at, true
	}
	for _, j := range s.waiting {
		if j.fetch != nil && j.fetch.limit > s.now && (!ok || j.fetch.limit < t) {
			t, ok = j.fetch.limit, true
		}
	}
	return t, ok
}

func (s *sglang) noLoadBack(off bool) { s.cache.noLoadBack = off }

func (s *sglang) check() string { return s.cache.check() }

func (s *sglang) flush() {
	s.cache.now = 1<<63 - 1
	s.cache.settleWrites()
	s.cache.reset()
}

func (s *sglang) fits(prompt, maxOut int64) bool {
	if s.c.Role == RoleDecode {
		return s.ceil(prompt+maxOut)+2*reservedDecode <= s.cache.capacity
	}
	if s.c.Role == RolePrefill {
		maxOut = 1
	}
	return s.ceil(prompt)+min(maxOut, clipNewTokens)+2*s.c.PageSize < s.cache.capacity
}

func (s *sglang) next(now int64) *plan {
	s.now, s.cache.now = now, now
	s.cache.settleWrites()
	if s.c.Role != RoleUnified {
		s.expire()
		s.preallocate()
		s.join()
	}
	s.fetchNew()
	p := s.fresh()
	if !s.formPrefill(p) {
		s.formDecode(p)
	}
	p.staged = s.cache.takeStaged()
	if len(p.prefill) == 0 && p.steps == 0 {
		s.ratio = ratioStart
	}
	return p
}

// adder is the budget of one prefill step (schedule_policy.py PrefillAdder).
type adder struct {
	reserved int64 // tokens promised to running and admitted requests
	input    int64
	chunk    int64
}

func (s *sglang) formPrefill(p *plan) bool {
	if s.chunked == nil && (s.full || len(s.waiting) == 0) {
		return false
	}
	room := s.c.MaxRunning - int64(len(s.running))
	if room <= 0 && s.chunked == nil {
		s.full = true
		return false
	}
	a := adder{input: s.c.MaxPrefill, chunk: s.c.ChunkedPrefill}
	for _, j := range s.running {
		a.reserved += min(j.maxOut-j.out, clipNewTokens) * s.ratio / ppm
	}
	if j := s.chunked; j != nil {
		n := min(j.fill-j.have, a.chunk)
		last := j.have+n == j.fill
		if !last {
			n = n / s.c.PageSize * s.c.PageSize
		}
		if !s.claim(j, n) {
			return false
		}
		s.spend(&a, n)
		if last {
			a.reserved += min(j.maxOut-j.out, clipNewTokens)
			s.chunked = nil
		}
		s.put(p, j, n, last)
	}
	s.order()
	admitted := 0
	for i, j := range s.waiting {
		if int64(len(p.prefill)) >= room {
			s.full = true
		}
		if s.full || a.chunk <= 0 || a.input <= 0 {
			break
		}
		if j.fetch != nil { // storage is still bringing a part of its prompt
			if s.now < j.fetch.limit {
				continue
			}
			s.endFetch(j)
		}
		ok, more := s.admit(p, &a, j)
		if ok {
			s.waiting[i] = nil
			admitted++
		}
		if !more {
			break
		}
	}
	if admitted > 0 {
		s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool { return j == nil })
	}
	return len(p.prefill) > 0
}

// order sorts the queue by the longest cached prefix, as schedule policy lpm does; a request
// whose uncached prefix an earlier one in the queue is about to compute goes behind the others
// (schedule_policy.py _compute_prefix_matches). Equal ones stay in the order of arrival.
func (s *sglang) order() {
	if s.c.SchedulePolicy != "lpm" || len(s.waiting) < 2 || len(s.waiting) > lpmMost {
		return
	}
	clear(s.heads)
	for _, j := range s.waiting {
		keys := j.pages((j.fill - 1) / s.c.PageSize)
		m := s.cache.find(keys)
		j.match = m.device + m.host
		if j.match > inBatchTokens {
			continue
		}
		head, n := uint64(0), int((inBatchTokens+s.c.PageSize-1)/s.c.PageSize)
		if len(keys) < n {
			continue
		}
		for _, k := range keys[:n] {
			head = mix(head, k)
		}
		if s.heads[head] {
			j.match = -1
		}
		s.heads[head] = true
	}
	slices.SortStableFunc(s.waiting, func(a, b *job) int { return cmp.Compare(b.match, a.match) })
}

// fetchNew asks storage for the prompts that came since the last step.
func (s *sglang) fetchNew() {
	if s.cache.storage == nil {
		return
	}
	for _, j := range s.waiting {
		if j.asked {
			continue
		}
		j.asked = true
		keys := j.pages((j.fill - 1) / s.c.PageSize)
		j.fetch = s.cache.prefetch(keys, s.cache.find(keys))
	}
}

// endFetch takes what storage has brought of a prompt.
func (s *sglang) endFetch(j *job) {
	f := j.fetch
	j.fetch = nil
	j.fromStorage = s.cache.fetched(j.pages((j.fill-1)/s.c.PageSize), f)
}

func (s *sglang) spend(a *adder, n int64) {
	a.input -= s.ceil(n)
	a.chunk -= s.ceil(n)
}

// put adds a piece whose memory is taken.
func (s *sglang) put(p *plan, j *job, n int64, last bool) {
	p.prefill = append(p.prefill, piece{j, n, last})
	p.load.spans = append(p.load.spans, span{n, j.have})
	p.input += n
}

// claim makes room for n more tokens of a job.
func (s *sglang) claim(j *job, n int64) bool {
	need := s.ceil(j.have+n) - j.held - j.owned
	if need > 0 && !s.cache.alloc(need) {
		return false
	}
	j.owned += max(0, need)
	return true
}

// admit tries to begin a waiting request. ok tells that it is in, more that another may be
// tried.
func (s *sglang) admit(p *plan, a *adder, j *job) (ok, more bool) {
	page := s.c.PageSize
	m := s.cache.find(j.pages((j.fill - 1) / page)) // one token is left to compute
	extend := j.fill - m.device
	newTokens := min(j.maxOut-j.out, clipNewTokens)
	total := extend + newTokens + page
	if total >= s.cache.room()-a.reserved {
		s.noRoom(p)
		return false, false
	}
	if s.ceil(extend-m.host) >= a.input && len(p.prefill) > 0 {
		return false, false
	}
	s.cache.lock(m.last)
	if total >= s.cache.room()-a.reserved {
		s.cache.unlock(m.last)
		s.noRoom(p)
		return false, false
	}
	device, loaded := m.device, int64(0)
	if m.host > 0 {
		var lm match
		loaded, lm = s.cache.loadBack(m, s.cache.room()-a.reserved)
		s.cache.lock(lm.last)
		s.cache.unlock(m.last)
		m = lm
	}
	extend = j.fill - m.device
	refuse := func() (bool, bool) {
		s.cache.unlock(m.last)
		p.loaded += loaded // what was copied stays on the device
		return false, false
	}
	if s.ceil(extend) >= a.input && len(p.prefill) > 0 {
		return refuse()
	}
	n, last := extend, true
	if s.ceil(extend) > a.chunk {
		n, last = a.chunk/page*page, false
		if n <= 0 {
			return refuse()
		}
	}
	j.at, j.held, j.have = m.last, m.device, m.device
	if !s.claim(j, n) {
		j.at, j.held, j.have = nil, 0, 0
		s.noRoom(p)
		return refuse()
	}
	stored := min(loaded, j.fromStorage)
	s.seen(j, device, loaded-stored, stored)
	j.unsent = j.have // a cached prefix is sent with the first piece
	p.loaded += loaded
	p.hit += device + loaded
	s.spend(a, n)
	if last {
		a.reserved += newTokens + page
	} else {
		s.chunked = j
	}
	s.put(p, j, n, last)
	return true, last
}

// noRoom stops admission until a request ends, unless none would.
func (s *sglang) noRoom(p *plan) { s.full = len(p.prefill) > 0 || len(s.running) > 0 }

// formDecode plans as many equal decode steps as fit before a request ends.
func (s *sglang) formDecode(p *plan) {
	if len(s.running) == 0 {
		return
	}
	accept := s.c.AcceptPPM
	k := int64(maxJump)
	for _, j := range s.running {
		k = min(k, j.stepsLeft(accept))
	}
	k = max(1, k)
	for {
		if s.cache.alloc(s.growth(k)) {
			break
		}
		if k > 1 {
			k /= 2
			continue
		}
		if !s.retract() {
			return
		}
	}
	for _, j := range s.running {
		after := s.ceil(j.prompt+j.outAfter(k, accept)-1) - j.held
		j.owned = max(j.owned, after)
	}
	s.ratio = max(ratioFloor, s.ratio-k*(ratioStart-ratioFloor)/ratioSteps)
	p.steps = k
	s.decodeLoad(&p.load, s.running, k)
}

// growth is the memory that k steps need beyond what is held.
func (s *sglang) growth(k int64) (need int64) {
	for _, j := range s.running {
		need += max(0, s.ceil(j.prompt+j.outAfter(k, s.c.AcceptPPM)-1)-j.held-j.owned)
	}
	return need
}

// retract puts the request with the fewest output tokens, the longer prompt first, back into
// the queue; what the tree holds of it stays there. A request that is alone and does not fit
// fails (schedule_batch.py retract_decode).
func (s *sglang) retract() bool {
	worst := 0
	for i, j := range s.running {
		w := s.running[worst]
		if j.out < w.out || j.out == w.out && j.prompt > w.prompt {
			worst = i
		}
	}
	j := s.running[worst]
	s.running = append(s.running[:worst], s.running[worst+1:]...)
	s.release(j)
	if len(s.running) == 0 {
		s.fail(j, "out of memory: the pool cannot hold this request alone")
		return false
	}
	s.count.Retracted++
	j.fill, j.have = j.prompt+j.out, 0
	s.waiting = append(s.waiting, j)
	var out, most int64
	for _, r := range s.running {
		out += r.out
		most += r.maxOut
	}
	s.ratio = min(ppm, max(ratioFloor, (out+retractSteps*int64(len(s.running)))*ppm/max(1, most)))
	return true
}

// release gives back what only j holds and its lock.
func (s *sglang) release(j *job) {
	if j.fetch != nil {
		s.endFetch(j)
	}
	s.cache.free += j.owned
	if j.at != nil {
		s.cache.unlock(j.at)
	}
	j.at, j.held, j.owned = nil, 0, 0
}

// keep hands the pages of the first tokens of a job to the tree and holds them there.
func (s *sglang) keep(j *job, tokens int64, chunk bool) {
	if s.c.Role == RoleDecode { // it has no radix tree by default
		return
	}
	page := s.c.PageSize
	pages := tokens / page
	if pages*page > j.held {
		last, _ := s.cache.insert(j.pages(pages), int(j.held/page), chunk)
		s.cache.lock(last)
		s.cache.unlock(j.at)
		j.owned -= pages*page - j.held
		j.at, j.held = last, pages*page
	}
}

func (s *sglang) finish(now, steps int64) {
	s.now, s.cache.now = now, now
	s.stepped()
	p := &s.step
	for _, pc := range p.prefill {
		j := pc.j
		j.have += pc.n
		if s.c.Role == RolePrefill {
			s.outgoing = append(s.outgoing, outgoing{j, pc.n + j.unsent, pc.last})
			j.unsent = 0
		}
		if !pc.last {
			s.keep(j, j.have, true)
			continue
		}
		j.out++
		s.count.Generated++
		if s.c.Role == RolePrefill {
			s.prefilled(j)
			continue
		}
		s.emit(j, 1)
		if j.out >= j.maxOut {
			s.end(j)
			continue
		}
		s.keep(j, j.have, false)
		s.running = append(s.running, j)
	}
	if steps > 0 {
		kept := s.running[:0]
		for _, j := range s.running {
			n := j.advance(steps, s.c.AcceptPPM)
			s.count.Generated += n
			if s.c.Stream && n > 0 {
				s.emit(j, n)
			}
			if j.out >= j.maxOut {
				s.end(j)
				continue
			}
			if spare := j.owned - (s.ceil(j.have) - j.held); spare > 0 && steps < p.steps {
				j.owned -= spare
				s.cache.free += spare
			}
			kept = append(kept, j)
		}
		clear(s.running[len(kept):])
		s.running = kept
	}
	p.prefill, p.steps = p.prefill[:0], 0
}

// end gives the pages of prompt and output to the tree and frees the rest.
func (s *sglang) end(j *job) {
	s.keep(j, j.prompt+j.out-1, false)
	s.release(j)
	s.full = false
	s.report(j)
}

func (s *sglang) giveUp() {
	j := s.chunked
	if j != nil {
		s.chunked = nil
	} else {
		j = s.waiting[0]
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
	}
	s.release(j)
	s.full = false
	s.fail(j, "out of memory: the pool cannot hold this request")
}

// cancel keeps nothing that was not in the tree.
func (s *sglang) cancel(now int64, which func(*job) bool) {
	s.now = now
	out := func(jobs []*job) []*job {
		kept := jobs[:0]
		for _, j := range jobs {
			if which(j) {
				s.drop(j)
				continue
			}
			kept = append(kept, j)
		}
		clear(jobs[len(kept):])
		return kept
	}
	for _, list := range []*[]*job{&s.waiting, &s.running, &s.bootstrap, &s.inflight, &s.prealloc, &s.expected, &s.arrived} {
		*list = out(*list)
	}
	if len(s.running) == 0 {
		s.step.steps = 0
	}
	if s.chunked != nil && which(s.chunked) {
		s.drop(s.chunked)
		s.chunked = nil
	}
	kept := s.step.prefill[:0]
	for _, pc := range s.step.prefill {
		if which(pc.j) {
			if pc.j.failure == nil {
				s.drop(pc.j)
			}
			continue
		}
		kept = append(kept, pc)
	}
	s.step.prefill = kept
}

func (s *sglang) drop(j *job) {
	s.release(j)
	s.full = false
	j.failure = cancelled()
	s.report(j)
}

func (s *sglang) stats() Stats {
	n := s.count
	n.Running, n.Waiting = int64(len(s.running)), int64(len(s.waiting)+len(s.arrived))
	n.Bootstrap, n.Inflight = int64(len(s.bootstrap)), int64(len(s.inflight))
	n.Prealloc, n.Transfer = int64(len(s.prealloc)), int64(len(s.expected))
	if s.chunked != nil {
		n.Running++
	}
	c := s.cache
	n.DeviceTokens, n.DeviceUsed, n.DeviceEvictable = c.capacity, c.inUse(), c.evictable
	n.HostTokens, n.HostUsed = c.hostCap, c.hostCap-c.hostFree
	n.Evicted, n.LoadedBack, n.BackedUp, n.Dropped = c.stats.evicted, c.stats.loadedBack, c.stats.backedUp, c.stats.dropped
	return n
}
