package sim

import (
	"testing"

	"pgregory.net/rapid"
)

// TestRadixKeepsItsBooks plays random requests against the cache under every policy and checks
// after each step that every token of both pools is accounted for.
func TestRadixKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.SampledFrom([]int64{1, 4, 64}).Draw(t, "page")
		hostPages := rapid.SampledFrom([]int64{0, 8, 40, 200}).Draw(t, "host")
		policy := rapid.SampledFrom([]writePolicy{writeThrough, writeThroughSelective, writeBack}).Draw(t, "policy")
		r := newRadix(page, 60*page, hostPages*page, policy)
		r.copyTime = func(n int64) int64 { return n / page * 10 }
		type user struct {
			at    *node
			held  int64
			owned int64
			keys  []uint64
		}
		var users []*user
		owned := func() (n int64) {
			for _, u := range users {
				n += u.owned
			}
			return n
		}
		verify := func(after string) {
			t.Helper()
			if bad := r.check(); bad != "" {
				t.Fatalf("after %s: %s", after, bad)
			}
			if got := r.free + r.evictable + r.protected + owned(); got != r.capacity {
				t.Fatalf("after %s: %d free + %d evictable + %d protected + %d owned is not the pool of %d",
					after, r.free, r.evictable, r.protected, owned(), r.capacity)
			}
		}
		end := func(i int, keep bool) {
			u := users[i]
			users = append(users[:i], users[i+1:]...)
			if keep {
				last, _ := r.insert(u.keys, int(u.held/page), false)
				_ = last
				u.owned -= int64(len(u.keys))*page - u.held
			}
			r.free += u.owned
			r.unlock(u.at)
			verify("the end of a request")
		}
		for i := range rapid.IntRange(1, 80).Draw(t, "steps") {
			r.now += int64(rapid.IntRange(0, 60).Draw(t, "wait"))
			r.settleWrites()
			if len(users) > 3 || len(users) > 0 && rapid.Bool().Draw(t, "end") {
				end(rapid.IntRange(0, len(users)-1).Draw(t, "who"), rapid.Bool().Draw(t, "keep"))
				continue
			}
			family := uint64(rapid.IntRange(1, 3).Draw(t, "family"))
			n := rapid.IntRange(1, 24).Draw(t, "pages")
			fork := rapid.IntRange(0, n).Draw(t, "fork")
			keys := make([]uint64, n)
			for p := range keys {
				keys[p] = family<<40 | uint64(p)
				if p >= fork {
					keys[p] |= uint64(i+1) << 20
				}
			}
			m := r.find(keys)
			if m.device+m.host > int64(n)*page {
				t.Fatalf("a prompt of %d tokens was found to hold %d", int64(n)*page, m.device+m.host)
			}
			verify("a search")
			r.lock(m.last)
			if m.host > 0 {
				loaded, lm := r.loadBack(m, r.room())
				if loaded != 0 && loaded != m.host {
					t.Fatalf("%d of %d host tokens were loaded: it is all or nothing", loaded, m.host)
				}
				r.lock(lm.last)
				r.unlock(m.last)
				m = lm
				verify("a load")
			}
			u := &user{at: m.last, held: m.device, keys: keys}
			need := int64(n)*page - m.device
			if !r.alloc(need) {
				r.unlock(m.last)
				verify("a refusal")
				continue
			}
			u.owned = need
			users = append(users, u)
			r.takeStaged()
			verify("an admission")
		}
		for len(users) > 0 {
			end(0, true)
		}
		r.now = 1 << 60
		r.settleWrites()
		if r.protected != 0 {
			t.Fatalf("%d tokens are still locked when nobody is there", r.protected)
		}
		verify("all")
	})
}
