package sim

import "github.com/weirbench/weir/internal/record"

// A scheduler decides, for one rank, what the next step does; how long that takes and when it
// happens is the Core's business.
type scheduler interface {
	// enqueue takes a job that arrived.
	enqueue(j *job)
	// next plans what happens from now on and takes the memory for it. A plan without pieces
	// and steps means that nothing can be done.
	next(now int64) *plan
	// planned is the plan under way.
	planned() *plan
	// finish ends the plan at now, after the given number of decode steps: tokens come out,
	// requests end.
	finish(now, steps int64)
	// busy tells whether there is a request that a step could serve, now or later.
	busy() bool
	// empty tells whether there is no request at all.
	empty() bool
	// wake is when, without a step, something changes that the scheduler waits for.
	wake() (t int64, ok bool)
	// giveUp fails the request that can never go on: nothing runs and nothing is on its way
	// that would make room for it.
	giveUp()
	// cancel takes out the jobs that which names.
	cancel(now int64, which func(*job) bool)
	// fits tells whether a job could ever be admitted.
	fits(prompt, maxOut int64) bool
	// flush empties the cache; it is called only when nothing is busy.
	flush()
	noLoadBack(off bool)
	stats() Stats
	// take returns the events since the last call.
	take() []Event
	// check returns what is wrong with the books, or "".
	check() string
}

// A plan is what one rank does until the next decision.
type plan struct {
	prefill []piece
	steps   int64 // decode steps, when nothing is prefilled
	load    load
	loaded  int64 // tokens copied from the host meanwhile
	staged  int64 // tokens copied to the host before it can begin
	hit     int64 // cached tokens of the requests that begin in it
	input   int64 // tokens that it prefills
}

// A piece is a part of a prompt that a step computes.
type piece struct {
	j    *job
	n    int64
	last bool // the prompt is complete after it
}

// desk is what schedulers have in common: what they tell of their requests.
type desk struct {
	c      *Config
	caps   []int64 // context lengths beyond which some layer does not look
	step   plan
	now    int64
	count  Stats
	events []Event
}

func (d *desk) planned() *plan { return &d.step }

// fresh empties the plan and returns it.
func (d *desk) fresh() *plan {
	p := &d.step
	*p = plan{prefill: p.prefill[:0], load: load{spans: p.load.spans[:0], capped: p.load.capped[:0]}}
	return p
}

func (d *desk) take() []Event {
	e := d.events
	d.events = nil
	return e
}

// ceil is so many tokens in whole pages.
func (d *desk) ceil(tokens int64) int64 {
	p := d.c.PageSize
	return (tokens + p - 1) / p * p
}

// seen counts the tiers in which a job's prefix was found, once, when it is first scheduled.
func (d *desk) seen(j *job, device, host, storage int64) {
	if j.counted {
		return
	}
	j.counted = true
	j.hits = record.Hits{Device: device, Host: host, Storage: storage, Total: device + host + storage}
	d.count.Queried += j.prompt
	d.count.QueryHits += j.hits.Total
	d.count.QueryHost += host
}

// stepped counts what a plan that is over did.
func (d *desk) stepped() {
	p := &d.step
	if in := p.hit + p.input; in > 0 {
		d.count.LastHitPPM = p.hit * ppm / in
	}
	for _, pc := range p.prefill {
		d.count.PrefillTokens += pc.n
	}
}

// decodeLoad describes the middle one of k steps.
func (d *desk) decodeLoad(l *load, running []*job, k int64) {
	mid := k * d.c.AcceptPPM / ppm / 2
	l.decodes = int64(len(running))
	for len(l.capped) < len(d.caps) {
		l.capped = append(l.capped, 0)
	}
	for _, j := range running {
		ctx := j.have + 1 + mid
		l.ctx += ctx
		l.longest = max(l.longest, ctx)
		for i, c := range d.caps {
			l.capped[i] += min(ctx, c)
		}
	}
}

// emit reports tokens that came out of a step.
func (d *desk) emit(j *job, n int64) {
	first := j.first < 0
	if first {
		j.first = d.now
	} else if !d.c.Stream {
		return
	}
	d.events = append(d.events, Event{Kind: Tokens, ID: j.id, At: d.now, Tokens: n, First: first, Hits: j.hits})
}

// report says that a job is over.
func (d *desk) report(j *job) {
	d.events = append(d.events, j.ended(d.now))
	d.count.Requests++
	d.count.OutputTokens += j.out
	if j.failure != nil {
		d.count.Failed++
		return
	}
	d.count.PromptTokens += j.prompt
	d.count.CachedDevice += j.hits.Device
	d.count.CachedHost += j.hits.Host
	d.count.CachedStorage += j.hits.Storage
}

// fail ends a job that holds nothing more.
func (d *desk) fail(j *job, why string) {
	j.failure = &record.Failure{Class: record.FailStatus, Status: 500, Detail: why}
	d.report(j)
}
