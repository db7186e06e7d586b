package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/facts"
)

// Who chose the size of a host tier.
const (
	chosenByPoint  = "the point"
	chosenByRecipe = "the published recipe"
)

// tierFor picks the host tier of the point's backend and the setting that the point or the
// recipe gives; 0 where none does. It is false where the point asks for what the engine does
// not have.
func (b *bench) tierFor(r *Role, st settings, shapes []shape) (t tier, setting int64, chosen string, ok bool) {
	backend := strings.ToLower(b.p.Offload.Backend.Name)
	if len(b.engine.Backends) == 0 {
		b.find(r.Name, EngineRejects, "turn kv-offloading off", "%s has no host tier", b.engine.Name)
		return nil, 0, "", false
	}
	if backend == "" {
		backend = b.engine.Backends[0]
	}
	if !slices.Contains(b.engine.Backends, backend) {
		b.find(r.Name, EngineRejects, "choose one of "+strings.Join(b.engine.Backends, ", "), "%s has no host tier %q", b.engine.Name, backend)
		return nil, 0, "", false
	}
	if b.engine.Name == "sglang" {
		return b.hicacheFor(r, st, shapes, backend)
	}
	bt := b.byteTierFor(r, st, shapes, backend)
	want, chosen, err := b.hostBytes(r, st, bt)
	if err != "" {
		b.find(r.Name, EngineRejects, "give a size that makes sense", "%s", err)
		return nil, 0, "", false
	}
	if want > 0 {
		if setting = want / bt.unit; setting == 0 {
			b.find(r.Name, EngineRejects, fmt.Sprintf("give at least %s on each rank", GB(bt.unit)), "%s on each rank is less than one step of %s", GB(want), bt.flag(1))
			return nil, 0, "", false
		}
		if rest := want % bt.unit; rest > 0 && bt.unit > 1<<20 {
			b.warn(r.Name, "rounding", "%s takes steps of %d bytes: %s of %s are lost on every rank", bt.flag(setting), bt.unit, GB(rest), GB(want))
		}
	}
	return bt, setting, chosen, true
}

// hostBytes is the size of a tier that is set in bytes, on one rank: what the point says, or
// what the recipe does when the plan follows recipes.
func (b *bench) hostBytes(r *Role, st settings, t *byteTier) (n int64, chosen, err string) {
	w := &b.p.Weir
	switch {
	case w.HostRatioPPM < 0 || w.HostBytesPerRank < 0:
		return 0, "", "the size of a host tier is negative"
	case w.HostBytesPerRank > 0:
		return w.HostBytesPerRank, chosenByPoint, ""
	case w.HostRatioPPM > 0:
		return mulDiv(satMul(r.Device.Tokens, t.cell), w.HostRatioPPM, 1_000_000), chosenByPoint, ""
	case !b.opt.AsRecipe || st.recipe == nil || st.recipe.Host == nil:
		return 0, "", ""
	}
	h, ranks, budget := st.recipe.Host, r.Ranks, satMul(b.p.Offload.BudgetGB, 1_000_000_000)
	switch {
	case h.BytesPerRank > 0:
		n = h.BytesPerRank
	case h.TotalBytes > 0:
		n = h.TotalBytes / max(1, ranks/r.AttnDP)
	case h.SegmentGB > 0:
		n = h.SegmentGB << 30 // Mooncake's GB are 2^30
	}
	switch h.Formula {
	case "rank":
		n = budget / ranks
	case "rank-gb":
		n = b.p.Offload.BudgetGB / ranks * t.unit // whole GB, in the unit that the backend reads
	case "engine-rank":
		n = budget / ranks / ranks
	case "engine-gib":
		n = b.p.Offload.BudgetGB << 30 / ranks
	case "all-on-rank":
		n = b.p.Offload.BudgetGB * t.unit
	case "less-checkpoint":
		per := (budget>>30-414)/ranks - h.BufferGB - st.recipe.WeightOffloadBytes>>30
		n = max(0, per) << 30
	}
	if n <= 0 {
		return 0, "", ""
	}
	return n, chosenByRecipe, ""
}

// byteTier is a host tier of a size in bytes that holds whole pages of all that a rank caches.
type byteTier struct {
	b       *bench
	r       *Role
	backend string
	unit    int64 // bytes of one step of the setting, on one rank
	cell    int64 // bytes of a token on one rank, all pools
	page    int64
	// perStored is what the tier keeps for one token over the ranks of an attention group; equal to cell
	// times the group where every rank stores its own copy.
	dedup     bool
	usablePPM int64 // share of the size that is filled before the backend evicts
	buffer    int64 // beside the pool, per rank
	where     string
	flag      func(setting int64) string
}

// byteTierFor is the tier of vLLM, TensorRT-LLM and ATOM.
//
// Sources, 2026-07 and 2026-08: vLLM config/cache.py:180 and its offloading connectors, LMCache
// configurations.rst and cache_engine (max_local_cpu_size x 1024^3), Mooncake's store
// configuration ("gb" x 1024^3), TensorRT-LLM kvcache.md.
func (b *bench) byteTierFor(r *Role, st settings, shapes []shape, backend string) *byteTier {
	t := &byteTier{b: b, r: r, backend: backend, page: st.pageSize, usablePPM: 1_000_000, cell: max(1, r.BytesPerToken)}
	world := max(1, r.Ranks/r.AttnDP) // ranks of one engine
	switch {
	case b.engine.Name == "trt":
		t.unit = 1 << 20
		t.flag = func(s int64) string { return fmt.Sprintf("kv_cache_config.host_cache_size: %d", satMul(s, t.unit)) }
		b.warn(r.Name, "scope-inferred", "that host_cache_size counts one rank is inferred: TensorRT-LLM does not say")
	case backend == "vllm-simple":
		t.unit = 1 << 20
		t.flag = func(s int64) string { return fmt.Sprintf("cpu_bytes_to_use_per_rank=%d", satMul(s, t.unit)) }
	case backend == "native":
		t.unit = ceilDiv(1<<30, world)
		t.where = "/dev/shm/vllm_offload_*.mmap"
		t.flag = func(s int64) string { return fmt.Sprintf("--kv-offloading-size %d", s) }
	case backend == "lmcache":
		t.unit = 1 << 30
		t.usablePPM = 800_000
		t.where = "/dev/shm where the server shares it"
		t.flag = func(s int64) string { return fmt.Sprintf("--l1-size-gb %d (a server for each rank)", s) }
		if b.engine.Name == "atom" {
			t.where, t.usablePPM = "", 1_000_000
			t.flag = func(s int64) string { return fmt.Sprintf("LMCACHE_MAX_LOCAL_CPU_SIZE=%d", s) }
		}
	case backend == "mooncake":
		t.unit, t.dedup, t.usablePPM, t.buffer = 1<<30, true, 800_000, 4<<30
		if st.recipe != nil && st.recipe.Host != nil {
			if h := st.recipe.Host; h.WatermarkPPM > 0 {
				t.usablePPM = h.WatermarkPPM
			}
			if h := st.recipe.Host; h.BufferGB > 0 {
				t.buffer = h.BufferGB << 30
			}
		}
		t.flag = func(s int64) string { return fmt.Sprintf(`"global_segment_size": "%dGB"`, s) }
	}
	return t
}

func (t *byteTier) limits() (lo, hi int64) {
	return 1, max(1, t.r.Node.MemoryBytes.N/t.unit)
}

func (t *byteTier) size(setting int64) Host {
	r := t.r
	h := Host{Backend: t.backend, Flag: t.flag(setting), step: t.unit, Where: t.where}
	bytes := satMul(setting, t.unit)
	usable := mulDiv(bytes, t.usablePPM, 1_000_000)
	tokens := usable / t.cell
	tokens -= tokens % t.page
	h.Tokens = tokens
	h.UniqueTokens = satMul(tokens, r.AttnDP*r.DCP)
	if t.dedup { // one store over all ranks of the worker keeps each head once
		h.UniqueTokens = satMul(usable, r.Ranks) / satMul(t.cell, t.copies())
		h.UniqueTokens -= h.UniqueTokens % t.page
	}
	p := Pool{Name: "kv", BytesPerSlot: t.cell, Slots: tokens, Bytes: bytes, Counted: true, Formula: "all pools of the device"}
	if t.dedup {
		p.Name = "segment"
	}
	h.Pools = []Pool{p}
	if t.usablePPM < 1_000_000 {
		h.Note = fmt.Sprintf("evicts above %s of its size: counted up to there", ppm(t.usablePPM))
	}
	if t.buffer > 0 {
		h.Other = append(h.Other, Item{"local buffer", t.buffer, "the backend's transfer buffer, per rank"})
	}
	return h
}

// copies is over how many ranks the distinct content of one token lies: all heads of an
// attention group once, for every stage of a pipeline.
func (t *byteTier) copies() int64 {
	n := int64(1)
	for _, l := range t.b.model.Layers {
		switch l.Kind {
		case facts.MHA, facts.SWA, facts.Sparse:
			n = max(n, min(t.r.AttnTP, l.KVHeads))
		}
	}
	return n * t.r.PP
}
