package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/facts"
)

// trapsOf warns of settings that an engine accepts and does not mean as they read.
func (b *bench) trapsOf(r *Role, st settings) {
	h := st.recipe
	if !b.opt.AsRecipe || h == nil || h.Host == nil || r.Host.Chosen != chosenByRecipe {
		return
	}
	if h.Host.IO != "" || h.Host.Layout != "" {
		io, layout := first(h.Host.IO, "kernel"), first(h.Host.Layout, "page_first")
		if gotIO, gotLayout := NormaliseHiCache(io, layout, b.p.Offload.Backend.Name); gotIO != io || gotLayout != layout {
			b.warn(r.Name, "normalised", "SGLang turns %s with io %s into %s with io %s", layout, io, gotLayout, gotIO)
		}
	}
	if f := h.Host.Formula; f == "engine-gib" || (f == "rank-gb" || f == "all-on-rank") && b.engine.Name != "sglang" {
		over := satMul(b.p.Offload.BudgetGB, 1<<30) - satMul(b.p.Offload.BudgetGB, 1_000_000_000)
		b.warn(r.Name, "unit", "the recipe passes decimal GB to a setting that counts GiB: 7.4 %% more, %s over a budget of %d GB", GB(over), b.p.Offload.BudgetGB)
	}
	for _, n := range h.Notes {
		b.warn(r.Name, "recipe", "%s", n)
	}
}

// NormaliseHiCache is what SGLang makes of an I/O backend and a memory layout: page_first_direct
// needs direct, page_first with direct becomes page_first_direct, and Mooncake takes no
// layer_first (server_args.py, _handle_hicache, 2026-07).
func NormaliseHiCache(io, layout, storage string) (gotIO, gotLayout string) {
	if layout == "page_first_direct" && io == "kernel" {
		io = "direct"
	}
	if layout == "page_first" && io == "direct" {
		layout = "page_first_direct"
	}
	if storage == "mooncake" && layout == "layer_first" {
		layout = "page_first"
		if io == "direct" {
			layout = "page_first_direct"
		}
	}
	return io, layout
}

// misplaced refuses fields of a point that nothing would consume.
func (b *bench) misplaced() error {
	p := b.p
	if p.Offload.Mode != "dram" && (p.Weir.HostRatioPPM != 0 || p.Weir.HostBytesPerRank != 0) {
		return fmt.Errorf("a host tier has a size but kv-offloading is %q: set kv-offloading to dram or drop the size", first(p.Offload.Mode, "none"))
	}
	if p.Weir.HostRatioPPM != 0 && p.Weir.HostBytesPerRank != 0 {
		return fmt.Errorf("host-ratio and host-gb-per-rank both size the host tier: keep one")
	}
	if p.Offload.Mode != "" && p.Offload.Mode != "none" && p.Offload.Mode != "dram" {
		return fmt.Errorf("kv-offloading %q is not known; known: none, dram", p.Offload.Mode)
	}
	if p.Offload.BudgetGB < 0 {
		return fmt.Errorf("a budget of %d GB of host memory is negative", p.Offload.BudgetGB)
	}
	if len(b.workers()) == 0 {
		return fmt.Errorf("the point has no workers")
	}
	for _, w := range b.workers() {
		if w.gpu == "" {
			continue
		}
		g, err := b.set.GPUForRunner(w.gpu)
		if err != nil {
			return fmt.Errorf("%s: hardware %q: %w", w.name, w.gpu, err)
		}
		if g.Name != b.gpu.Name {
			return fmt.Errorf("%s: hardware %s, but runner %s has %s", w.name, w.gpu, p.Runner, b.gpu.Name)
		}
	}
	return nil
}

// modelOf resolves the point's model: by its prefix, else by its repository.
func (b *bench) modelOf() (*facts.Model, error) {
	m, err := b.set.ModelByPrefix(b.p.ModelPrefix)
	if err == nil {
		return m, nil
	}
	m, nameErr := b.set.ModelByName(b.p.Model)
	if nameErr == nil {
		return m, nil
	}
	if b.p.ModelPrefix == "" {
		return nil, nameErr
	}
	return nil, err
}
