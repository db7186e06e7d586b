package sim

// vllm is vLLM's scheduler (v1/core/sched/scheduler.py, 2026-07), for one rank: every step has
// a budget of tokens, which running requests take first, one token each or a part of a prompt,
// and waiting ones after them; when blocks run out the request that began last is preempted and
// computes again.
type vllm struct {
	desk
	pool    *blockPool
	offload *offload // nil without a host tier

	waiting []*job
	running []*job
	loading []*job // blocks taken, host blocks on their way
	stuck   int64  // pool.frees when the first waiting request did not fit, -1 when it may
	useless bool   // nothing is loaded from the host
	found   []int32
}

func newVLLM(c *Config, m *stepModel) *vllm {
	v := &vllm{desk: desk{c: c, caps: m.caps}, pool: newBlockPool(c.DeviceTokens / c.PageSize), stuck: -1}
	if c.HostTokens > 0 {
		v.offload = newOffload(c.HostTokens, c.PageSize, m.hostCopy)
	}
	return v
}

func (v *vllm) enqueue(j *job) { v.waiting = append(v.waiting, j) }

func (v *vllm) busy() bool { return len(v.waiting)+len(v.running)+len(v.loading) > 0 }

func (v *vllm) empty() bool { return !v.busy() }

func (v *vllm) fits(prompt, maxOut int64) bool {
	return v.blocksOf(prompt+maxOut) <= v.pool.size()
}

// blocksOf is so many tokens in blocks.
func (v *vllm) blocksOf(tokens int64) int64 { return v.ceil(tokens) / v.c.PageSize }

func (v *vllm) noLoadBack(off bool) { v.useless = off }

func (v *vllm) flush() {
	v.pool.reset()
	if v.offload != nil {
		v.offload.reset()
	}
}

// wake is when the first host blocks under way have come.
func (v *vllm) wake() (t int64, ok bool) {
	for _, j := range v.loading {
		if !ok || j.loadEnd < t {
			t, ok = j.loadEnd, true
		}
	}
	return t, ok
}

// hashesOf are the chained hashes of the first n blocks of prompt and output.
func (j *job) hashesOf(n int64) []uint64 {
	for i := int64(len(j.hashes)); i < n; i++ {
		parent := uint64(0)
		if i > 0 {
			parent = j.hashes[i-1]
		}
		j.hashes = append(j.hashes, mix(parent, j.pages(i + 1)[i]))
	}
	return j.hashes[:n]
}

func (v *vllm) next(now int64) *plan {
	v.now = now
	p := v.fresh()
	v.arrive()
	if v.leap(p) {
		return p
	}
	budget := v.c.ChunkedPrefill
	preempted := false
	decodes := v.running[:0:0]
	for i := 0; i < len(v.running) && budget > 0; i++ {
		j := v.running[i]
		n := min(j.fill-j.have, budget)
		decode := n <= 0
		if decode {
			n = 1
		}
		for !v.grow(j, n, decode) {
			last := v.running[len(v.running)-1]
			v.preempt(last)
			preempted = true
			if last == j {
				n = 0
				break
			}
		}
		if n == 0 {
			break
		}
		if decode {
			decodes = append(decodes, j)
			budget -= 1
			continue
		}
		budget -= n
		v.put(p, j, n)
	}
	if !preempted {
		v.admit(p, budget)
	}
	if len(decodes) > 0 {
		p.steps = 1
		v.decodeLoad(&p.load, decodes, 1)
	}
	return p
}

func (v *vllm) put(p *plan, j *job, n int64) {
	p.prefill = append(p.prefill, piece{j, n, j.have+n == j.fill})
	p.load.spans = append(p.load.spans, span{n, j.have})
	p.input += n
}

// leap plans many decode steps at once when every running request decodes and nobody else can
// come in.
func (v *vllm) leap(p *plan) bool {
	if len(v.running) == 0 || int64(len(v.running)) > v.c.ChunkedPrefill || len(v.waiting) > 0 && v.stuck != v.pool.frees && int64(len(v.running)) < v.c.MaxRunning {
		return false
	}
	k := int64(maxJump)
	for _, j := range v.running {
		if j.have < j.fill {
			return false
		}
		k = min(k, j.stepsLeft(v.c.AcceptPPM))
	}
	for ; k >= 1; k /= 2 {
		need := int64(0)
		for _, j := range v.running {
			need += max(0, v.blocksOf(j.prompt+j.outAfter(k, v.c.AcceptPPM)-1)-int64(len(j.blocks)))
		}
		if need <= v.pool.free {
			break
		}
	}
	if k < 1 {
		return false
	}
	for _, j := range v.running {
		v.cover(j, j.prompt+j.outAfter(k, v.c.AcceptPPM)-1)
	}
	p.steps = k
	v.decodeLoad(&p.load, v.running, k)
	return true
}

// cover takes blocks so that a job has room for so many tokens; the caller knows that there
// are enough.
func (v *vllm) cover(j *job, tokens int64) {
	if n := v.blocksOf(tokens) - int64(len(j.blocks)); n > 0 {
		j.blocks = v.pool.take(j.blocks, n)
	}
}

// grow makes room for the next step of a running job: n tokens of its prompt, or what a decode
// step adds.
func (v *vllm) grow(j *job, n int64, decode bool) bool {
	to := j.have + n
	if decode {
		to = j.prompt + j.outAfter(1, v.c.AcceptPPM) - 1
	}
	if v.blocksOf(to)-int64(len(j.blocks)) > v.pool.free {
		return false
	}
	v.cover(j, to)
	if !decode {
		v.name(j, to)
	}
	return true
}

// name makes the full blocks among the first tokens findable. vLLM does so when they are
// scheduled, before they are computed.
func (v *vllm) name(j *job, tokens int64) {
	n := tokens / v.c.PageSize
	hashes := j.hashesOf(n)
	for i := j.named; i < n; i++ {
		v.pool.name(j.blocks[i], hashes[i])
	}
	j.named = max(j.named, n)
}

// preempt puts a request back to the front of the queue with nothing computed.
func (v *vllm) preempt(j *job) {
	v.running = v.running[:len(v.running)-1]
	v.release(j)
	j.fill = j.prompt + j.out
	v.waiting = append([]*job{j}, v.waiting...)
	v.count.Retracted++
}

func (v *vllm) release(j *job) {
	v.pool.release(j.blocks)
	j.blocks, j.named, j.have = j.blocks[:0], 0, 0
}

// admit begins waiting requests, first come first served, as long as budget and blocks last.
func (v *vllm) admit(p *plan, budget int64) {
	for len(v.waiting) > 0 && budget > 0 && int64(len(v.running)+len(v.loading)) < v.c.MaxRunning {
		if v.stuck == v.pool.frees {
			return
		}
		j := v.waiting[0]
		page := v.c.PageSize
		most := (j.fill - 1) / page // the last token is computed whatever is cached
		hashes := j.hashesOf(most)
		v.found = v.pool.find(v.found[:0], hashes)
		device := int64(len(v.found)) * page
		host := int64(0)
		if v.offload != nil && !v.useless {
			host = v.offload.find(hashes[len(v.found):], v.now) * page
		}
		n := min(j.fill-device-host, budget)
		take := n
		if host > 0 { // blocks for the load alone; the prompt goes on when it has come
			take = 0
		}
		need := v.blocksOf(device+host+take) - int64(len(v.found))
		if need+v.pool.idle(v.found) > v.pool.free {
			v.stuck = v.pool.frees
			return
		}
		v.pool.touch(v.found)
		j.blocks = append(j.blocks[:0], v.found...)
		j.have = device
		j.named = int64(len(v.found))
		v.cover(j, device+host+take)
		v.waiting = append(v.waiting[:0], v.waiting[1:]...)
		v.seen(j, device, host, 0)
		if host > 0 {
			from := hashes[len(v.found) : int64(len(v.found))+host/page]
			j.loadEnd, j.hostBlocks = v.offload.load(from, v.now), from
			v.loading = append(v.loading, j)
			continue
		}
		v.name(j, device+take)
		v.running = append(v.running, j)
		p.hit += device
		budget -= n
		v.put(p, j, n)
	}
}

// arrive lets requests go on whose host blocks have come.
func (v *vllm) arrive() {
	kept := v.loading[:0]
	for _, j := range v.loading {
		if j.loadEnd > v.now {
			kept = append(kept, j)
			continue
		}
		v.offload.loadDone(j.hostBlocks)
		j.have += int64(len(j.hostBlocks)) * v.c.PageSize
		j.hostBlocks = nil
		v.name(j, j.have)
		v.running = append(v.running, j)
	}
	clear(v.loading[len(kept):])
	v.loading = kept
}

func (v *vllm) finish(now, steps int64) {
	v.now = now
	v.stepped()
	p := &v.step
	if steps > 0 {
		kept := v.running[:0]
		for _, j := range v.running {
			if j.have < j.fill { // its prompt is not complete
				kept = append(kept, j)
				continue
			}
			n := j.advance(steps, v.c.AcceptPPM)
			j.fill = j.have
			v.count.Generated += n
			if v.c.Stream && n > 0 {
				v.emit(j, n)
			}
			v.name(j, j.have)
			v.storeNew(j)
			if j.out >= j.maxOut {
				v.end(j)
				continue
			}
			kept = append(kept, j)
		}
		clear(v.running[len(kept):])
		v.running = kept
	}
	for _, pc := range p.prefill {
		j := pc.j
		j.have += pc.n
		v.storeNew(j)
		if !pc.last {
			continue
		}
		j.out++
		v.count.Generated++
		v.emit(j, 1)
		if j.out >= j.maxOut {
			v.drop(&v.running, j)
			v.end(j)
		}
	}
	p.prefill, p.steps = p.prefill[:0], 0
}

// storeNew sends full blocks to the host that were computed since the last time.
func (v *vllm) storeNew(j *job) {
	if v.offload == nil {
		return
	}
	n := j.have / v.c.PageSize
	if n > j.stored {
		v.offload.store(j.hashesOf(n)[j.stored:], v.now)
		j.stored = n
	}
}

func (v *vllm) drop(list *[]*job, j *job) {
	for i, x := range *list {
		if x == j {
			*list = append((*list)[:i], (*list)[i+1:]...)
			return
		}
	}
}

func (v *vllm) end(j *job) {
	v.release(j)
	v.report(j)
}

func (v *vllm) giveUp() {
	j := v.waiting[0]
	v.waiting = append(v.waiting[:0], v.waiting[1:]...)
	v.fail(j, "the request needs more KV blocks than there are")
	v.stuck = -1
}

func (v *vllm) cancel(now int64, which func(*job) bool) {
	v.now = now
	out := func(jobs []*job) []*job {
		kept := jobs[:0]
		for _, j := range jobs {
			if !which(j) {
				kept = append(kept, j)
				continue
			}
			if j.hostBlocks != nil {
				v.offload.loadDone(j.hostBlocks)
				j.hostBlocks = nil
			}
			v.release(j)
			j.failure = cancelled()
			v.report(j)
		}
		clear(jobs[len(kept):])
		return kept
	}
	kept := v.step.prefill[:0]
	for _, pc := range v.step.prefill {
		if !which(pc.j) {
			kept = append(kept, pc)
		}
	}
	v.step.prefill = kept
	v.waiting, v.running, v.loading = out(v.waiting), out(v.running), out(v.loading)
	if len(v.running) == 0 {
		v.step.steps = 0
	}
	v.stuck = -1
}

func (v *vllm) stats() Stats {
	n := v.count
	n.Running, n.Waiting = int64(len(v.running)), int64(len(v.waiting)+len(v.loading))
	page := v.c.PageSize
	n.DeviceTokens, n.DeviceUsed = v.pool.size()*page, (v.pool.size()-v.pool.free)*page
	n.DeviceEvictable = v.pool.free * page
	n.Evicted = v.pool.evict * page
	if o := v.offload; o != nil {
		n.HostTokens, n.HostUsed = o.capacity*page, int64(len(o.byHash))*page
		n.LoadedBack, n.BackedUp, n.Dropped = o.loaded*page, o.stored*page, o.skipped*page
	}
	return n
}

func (v *vllm) check() string {
	if bad := v.pool.check(); bad != "" {
		return bad
	}
	if v.offload != nil {
		return v.offload.check()
	}
	return ""
}
