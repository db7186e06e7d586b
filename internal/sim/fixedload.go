package sim

import (
	"fmt"
	"slices"
)

type loadResult struct{ perSecond, tpot, ttft float64 }

// fixedLoad keeps conc requests of random lengths under way until ten times as many, at most
// 512, have ended, as InferenceX's fixed-length benchmark does with more.
func fixedLoad(c Config, conc int, prompt, output int64, ratio float64) (loadResult, error) {
	core, err := NewCore(c)
	if err != nil {
		return loadResult{}, err
	}
	type open struct{ sent, first, prompt, out int64 }
	tasks := map[uint64]*open{}
	var id, draws uint64
	length := func(n int64) int64 {
		draws++
		low := int64(float64(n) * ratio)
		return low + int64(mix(draws, 42)%uint64(n-low+1))
	}
	send := func(now int64) {
		id++
		o := &open{sent: now, prompt: length(prompt), out: length(output)}
		tasks[id] = o
		pages := make([]uint64, o.prompt/core.c.PageSize, o.prompt/core.c.PageSize+32)
		for i := range pages {
			pages[i] = 1<<62 | id<<24 | uint64(i)
		}
		core.Submit(now, Task{ID: id, Prompt: o.prompt, MaxOut: o.out, Pages: pages})
	}
	for range conc {
		send(0)
	}
	var tokens, end int64
	var tpot, ttft []int64
	total := max(min(10*conc, 512), 2*conc)
	for done := 0; done < total; {
		t, ok := core.Next()
		if !ok {
			return loadResult{}, fmt.Errorf("the simulation stands still after %d of %d requests", done, total)
		}
		for _, e := range core.Advance(t) {
			o := tasks[e.ID]
			if e.Kind == Tokens {
				o.first = e.At
				continue
			}
			if e.Failure != nil {
				return loadResult{}, fmt.Errorf("a request failed: %s", e.Failure.Detail)
			}
			delete(tasks, e.ID)
			done++
			end = e.At
			tokens += o.prompt + o.out
			ttft = append(ttft, o.first-o.sent)
			tpot = append(tpot, (e.At-o.first)/(o.out-1))
			if int(id) < total {
				send(e.At)
			}
		}
	}
	median := func(v []int64) float64 {
		slices.Sort(v)
		return float64(v[len(v)/2])
	}
	return loadResult{perSecond: float64(tokens) / (float64(end) / 1e9), tpot: median(tpot), ttft: median(ttft)}, nil
}
