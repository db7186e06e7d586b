package client

import (
	"cmp"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/record"
)

// A poller waits for many connections in one goroutine: one recvmsg per wake-up of a
// connection, parsed where it lies. Against a goroutine a connection it saves the second,
// empty read and two switches of goroutine per event.
//
// Connections are registered edge-triggered in an epoll of its own. By way of a gate, an epoll with
// nothing in it but this one, that is itself a descriptor in the Go runtime's: with nothing to read
// the poller's goroutine is parked there and holds no thread. Were it to block in epoll_wait, its
// processor would not count as idle, and the runtime's monitor would wake every few tens of
// microseconds to look whether to take it away, which costs more than the frames while these are
// rare. While they are not the gate is shut: each would wake a thread of the runtime's for nothing.
type poller struct {
	t      *Target
	ep     int
	gate   int
	file   *os.File        // of gate
	parked syscall.RawConn // of file; nil where the runtime cannot wait for it
	shut   bool            // the gate is; then the timer in it wakes the poller
	timer  int
	moved  int // times it was
	wakeFd int
	recv   *receiver
	health *readHealth

	mu    sync.Mutex
	slots []*wire // by the number that epoll gives back
	free  []int32
	gens  []int32
	over  bool
	gone  chan struct{}

	events      [pollBatch]unix.EpollEvent
	ready       [pollBatch]*wire
	more, again []*wire // those with more to read than their turn allowed

	rate    rate
	askedAt int64 // what is read now had not arrived at this instant
	blocked bool  // the poller was parked until it was woken,
	wokenAt int64 // which was then,
	worked  int64 // and had been at work for so long between askedAt and being parked
	recent  int64 // longest delay of the last few hundred reads, nanoseconds
}

const (
	pollBatch = 256
	pollBuf   = 256 << 10
	readTurns = 4 // reads of one connection before the others have their turn
)

func newPoller(t *Target) (*poller, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		unix.Close(ep)
		unix.Close(wake)
		return nil, err
	}
	gate, timer, err := newGate(ep)
	if err != nil {
		unix.Close(ep)
		unix.Close(wake)
		return nil, err
	}
	p := &poller{t: t, ep: ep, gate: gate, timer: timer, file: os.NewFile(uintptr(gate), "epoll"), wakeFd: wake, recv: newReceiver(pollBuf), health: &readHealth{}, gone: make(chan struct{}), askedAt: t.clock.Now(), rate: rate{limit: t.cfg.busyRate}}
	if p.parked, err = p.file.SyscallConn(); err != nil || t.cfg.unparked {
		p.parked = nil
	}
	go p.run()
	return p, nil
}

// newGate makes a gate to an epoll, open, and the timer in it.
func newGate(ep int) (gate, timer int, err error) {
	if gate, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return 0, 0, err
	}
	if timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		unix.Close(gate)
		return 0, 0, err
	}
	err = unix.SetNonblock(gate, true) // the runtime waits only for such
	for _, fd := range []int{ep, timer} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err == nil {
			err = unix.EpollCtl(gate, unix.EPOLL_CTL_ADD, fd, &ev)
		}
	}
	if err != nil {
		unix.Close(gate)
		unix.Close(timer)
	}
	return gate, timer, err
}

// setGate opens or shuts the gate, and says whether it opened it. What came before the gate opened
// may never be told: with the expired timer before it in the gate's list of what is ready, the
// kernel takes the epoll's own entry there for one that was told already. Who opens asks once more.
func (p *poller) setGate(shut bool) (opened bool) {
	if shut == p.shut {
		return false
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.ep)}
	if shut {
		ev.Events = 0
	}
	if unix.EpollCtl(p.gate, unix.EPOLL_CTL_MOD, p.ep, &ev) == nil {
		p.shut = shut
		p.moved++
		return !shut
	}
	return false
}

// A poller that is woken for every event spends more on waking than on reading, and so does
// the kernel of whoever sends. Above busyRate events a second it sleeps for busyNap between
// rounds and takes what has come: the kernel notes when bytes come, so no instant suffers.
const busyRate = 2000

var busyNap = unix.NsecToTimespec(500_000)

// A rate tells whether events come often, looked at every hundredth of a second.
type rate struct {
	limit  int64 // 0 is busyRate
	events int
	from   int64
	high   bool
}

func (r *rate) roll(now int64) {
	if d := now - r.from; d >= 10_000_000 {
		r.high = int64(r.events)*1_000_000_000/d > cmp.Or(r.limit, busyRate)
		r.events, r.from = 0, now
	}
}

// poll starts the pollers: one for every two processors, at most eight.
func (t *Target) poll() error {
	for range min(max(runtime.NumCPU()/2, 1), 8) {
		p, err := newPoller(t)
		if err != nil {
			return err
		}
		t.pollers = append(t.pollers, p)
	}
	go t.reap()
	return nil
}

// reap ends exchanges whose deadline has passed and connections that have been idle too long.
func (t *Target) reap() {
	w := &t.cfg.Timeouts
	least := min(w.Headers, w.First, w.Stream, w.Total, w.Idle)
	tick := time.NewTicker(min(max(least/16, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	var all []*exchange
	looked := t.clock.Now()
	for {
		select {
		case <-t.gone:
			return
		case <-tick.C:
		}
		all = all[:0]
		t.mu.Lock()
		for x := range t.flying {
			all = append(all, x)
		}
		t.mu.Unlock()
		for _, x := range all {
			x.checkDeadline()
		}
		// Should a wake-up ever be lost, it costs no more than a second.
		if now := t.clock.Now(); len(all) > 0 && now-looked >= int64(time.Second)/2 {
			looked = now
			for _, p := range t.pollers {
				p.look()
			}
		}
		clear(all)
		for _, h := range t.hosts {
			closeAll(h.stale(t.clock.Now(), false))
		}
	}
}

// look makes the poller look once. Nobody reads the number.
func (p *poller) look() { unix.Write(p.wakeFd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (p *poller) close() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.look()
	<-p.gone
	p.file.Close()
	unix.Close(p.timer)
	unix.Close(p.ep)
	unix.Close(p.wakeFd)
}

// add registers a connection.
func (p *poller) add(w *wire) error {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		w.slot = p.free[n-1]
		p.free = p.free[:n-1]
		p.slots[w.slot] = w
	} else {
		w.slot = int32(len(p.slots))
		p.slots = append(p.slots, w)
		p.gens = append(p.gens, 0)
	}
	gen := p.gens[w.slot]
	p.mu.Unlock()
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: w.slot, Pad: gen}
	if err := unix.EpollCtl(p.ep, unix.EPOLL_CTL_ADD, w.fd, &ev); err != nil {
		p.remove(w)
		return err
	}
	return nil
}

// remove forgets a connection whose descriptor is about to be closed. Events of it that were
// already fetched no longer find it.
func (p *poller) remove(w *wire) {
	p.mu.Lock()
	p.slots[w.slot] = nil
	p.gens[w.slot]++
	p.free = append(p.free, w.slot)
	p.mu.Unlock()
}

// epollNow is epoll_wait that does not wait. It is no system call to the runtime, which would wake
// its monitor for each.
func epollNow(ep int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// run reads until the poller is closed.
//
// All of it happens inside one Read of the epoll's descriptor: the runtime remembers an event that
// comes while the poller is at work, so that it may be parked without asking once more whether there
// is something. Every event of a connection is one of the descriptor, however many went before.
func (p *poller) run() {
	defer close(p.gone)
	over := false
	if p.parked != nil {
		err := p.parked.Read(func(uintptr) bool {
			over = p.turn()
			return over
		})
		if over || err == nil {
			return
		}
	}
	for !p.turn() { // the runtime cannot wait for an epoll here
		if p.shut {
			unix.Nanosleep(&busyNap, nil)
		} else if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.ep), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			time.Sleep(time.Millisecond)
		}
	}
}

// turn reads what there is and returns when there is nothing more, or true when the poller was
// closed. It begins when something came, and at once where the turn before missed that.
func (p *poller) turn() (over bool) {
	p.blocked, p.wokenAt = !p.shut, p.t.clock.Now()
	for {
		asked := p.t.clock.Now()
		n, err := epollNow(p.ep, p.events[:])
		p.rate.roll(asked)
		p.rate.events += n
		p.mu.Lock()
		over := p.over
		for i := range n {
			p.ready[i] = nil
			if s := p.events[i].Fd; s >= 0 && p.gens[s] == p.events[i].Pad {
				p.ready[i] = p.slots[s]
			}
		}
		p.mu.Unlock()
		if over {
			return true
		}
		p.again = p.again[:0]
		for i := range n {
			if w := p.ready[i]; w != nil && w.ready(p.events[i].Events) {
				p.again = append(p.again, w)
			}
		}
		for _, w := range p.more {
			if w.ready(unix.EPOLLIN) {
				p.again = append(p.again, w)
			}
		}
		p.more, p.again = p.again, p.more
		if err == nil && n < pollBatch {
			p.askedAt = asked
		}
		p.blocked = false
		if p.setGate(p.rate.high && p.health.lag.n.Load() > 0) {
			continue
		}
		if n < pollBatch && len(p.more) == 0 {
			if p.shut {
				p.nap()
			}
			p.worked = p.t.clock.Now() - p.askedAt
			return false
		}
	}
}

// nap has the timer wake the poller in a moment.
func (p *poller) nap() {
	spec := unix.ItimerSpec{Value: busyNap}
	if _, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(p.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		p.setGate(false)
		p.look() // tells what came before
	}
}

// arrival turns the lag that the kernel told into the instant at which the bytes came, and
// bounds by how much it may be too late when they came in several pieces: they cannot have
// come before epoll was asked, and when the poller was parked since then they waited for it to end
// its work, and to wake no longer than other bytes did. older, unless it is Never, is an instant before
// epoll's, after which what an earlier read left behind had come. A lag that cannot be,
// because the wall clock was set, is left out.
func (p *poller) arrival(now, lag, older int64) arrival {
	from := p.askedAt
	if older != record.Never {
		from = older
	}
	if lag < 0 || lag > now-from+int64(10*time.Millisecond) {
		p.health.unstamped.Add(1)
		return arrival{at: now, loose: now - from}
	}
	p.health.lag.observe(lag)
	p.recent = max(lag, p.recent-p.recent>>8)
	in := arrival{at: now - lag, loose: max(now-lag-from, 0), stamped: true}
	if p.blocked && older == record.Never {
		in.loose = min(in.loose, now-p.wokenAt+p.recent+p.worked)
	}
	return in
}
