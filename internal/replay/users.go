package replay

import "math"

// arrive puts the users of Users on their lanes when the phase begins.
func (l *load) arrive(t int64) {
	if l.o.FromFirstTurn {
		l.arriveFresh(t)
		return
	}
	// A steady state: user i enters i staggers after the start with the turns that would be
	// left to it, user 0 with all of them.
	for i := range l.o.NumUsers {
		l.user(i, t+l.perRate(i), i, 0)
	}
}

// arriveFresh is the beginning of AIPerf's user-centric load (timing/strategies/user_centric_rate.py
// of agentx-harness 1.0.12, 2026-10). Users are of ages that are spread evenly over the time from the
// first to the last turn of a mean conversation. Each sends as many turns as its age leaves it, from
// the first of its conversation on; the oldest has none left, and a new user with all turns is first
// in its place.
func (l *load) arriveFresh(t int64) {
	turns := 0
	for _, u := range l.units {
		turns += len(u.turns())
	}
	n := l.o.NumUsers
	life := max(1, int(math.RoundToEven(float64(turns)/float64(len(l.units))))-1)
	step := 1
	if gcd(n, life) > 1 {
		step = spread(n)
	}
	for i := 1; i < n; i++ {
		age := (n - i) * life
		slot := age % n
		if gcd(n, life) > 1 {
			slot = i * step % n
		}
		l.user(n-slot, t+l.perRate(n-slot), 0, life-age/n)
	}
	l.user(0, t, 0, 0)
}

// spread is the smallest step above 1 that meets each of n places once; 1 where there is none.
func spread(n int) int {
	for s := 2; s < n; s++ {
		if gcd(n, s) == 1 {
			return s
		}
	}
	return 1
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// user puts the next conversation on a user's lane, aged by a number of users, to send some of its
// turns; 0 sends all.
func (l *load) user(lane int, at int64, age, turns int) {
	if k := l.take(); k != nil {
		k.lane, k.turn, k.turns = lane, age*len(l.units[k.unit].turns())/l.o.NumUsers, turns
		l.live++
		l.at(at, k)
	}
}

// length is how many turns a talk has when it ends.
func (l *load) length(k *talk) int {
	n := len(l.of(k).turns())
	if k.turns > 0 {
		n = min(n, k.turns)
	}
	return n
}
