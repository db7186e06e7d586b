package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/spec"
)

// fields are the values of a point that something has to act on, with who did.
type fields struct {
	list []field
}

type field struct {
	name  string // as master files spell it, "prefill.tp" for a worker's
	value string
	used  bool
}

func (f *fields) add(name, value string) { f.list = append(f.list, field{name: name, value: value}) }

// fieldsOf lists what adapters have to pass on. What the client, the plan and the record act on
// is not in it: key, name, scenario, concurrency, duration, lengths, corpus, seed, repeats, slo,
// runner and its facts.
func fieldsOf(p *spec.Point) *fields {
	f := &fields{}
	text := func(name, v string) {
		if v != "" && v != "none" {
			f.add(name, v)
		}
	}
	number := func(name string, v int64) {
		if v != 0 {
			f.add(name, fmt.Sprint(v))
		}
	}
	text("image", p.Image)
	text("model", p.Model)
	text("precision", p.Precision)
	text("framework", p.Framework)
	text("spec-decoding", p.SpecDecoding)
	text("kv-offloading", p.Offload.Mode)
	text("kv-offload-backend", p.Offload.Backend.Name)
	text("kv-offload-backend.version", p.Offload.Backend.Version)
	number("dram-budget", p.Offload.BudgetGB)
	text("router", p.Router.Name)
	text("router.version", p.Router.Version)
	text("kv-p2p-transfer", p.KVTransfer)
	number("max-model-len", p.MaxModelLen)
	number("weir.mem-fraction", p.Weir.MemFractionPPM)
	text("weir.kv-dtype", p.Weir.KVDType)
	number("weir.host-ratio", p.Weir.HostRatioPPM)
	number("weir.host-gb-per-rank", p.Weir.HostBytesPerRank)
	text("weir.write-policy", p.Weir.WritePolicy)
	number("weir.page-size", p.Weir.PageSize)
	text("weir.schedule-policy", p.Weir.SchedulePolicy)
	number("weir.draft-tokens", p.Weir.DraftTokens)
	if p.Unified != nil {
		f.parallel("", *p.Unified)
	}
	for _, w := range []struct {
		side string
		w    *spec.Worker
	}{{"prefill.", p.Prefill}, {"decode.", p.Decode}} {
		if w.w == nil || w.w.Workers == 0 {
			continue
		}
		f.parallel(w.side, w.w.Parallel)
		f.add(w.side+"num-worker", fmt.Sprint(w.w.Workers))
		text(w.side+"hardware", w.w.Hardware)
		for _, s := range w.w.Settings {
			name, value, _ := strings.Cut(s, "=")
			f.add(w.side+"settings."+name, value)
		}
	}
	return f
}

func (f *fields) parallel(side string, p spec.Parallel) {
	f.add(side+"tp", fmt.Sprint(p.TP))
	for _, v := range []struct {
		name string
		n    int
	}{{"pp", p.PP}, {"ep", p.EP}, {"dcp-size", p.DCP}, {"pcp-size", p.PCP}} {
		if v.n > 1 {
			f.add(side+v.name, fmt.Sprint(v.n))
		}
	}
	if p.DPAttn {
		f.add(side+"dp-attn", "true")
	}
}

// get returns the value of a field and whether it is set, without consuming it.
func (f *fields) get(name string) (string, bool) {
	for i := range f.list {
		if f.list[i].name == name {
			return f.list[i].value, true
		}
	}
	return "", false
}

// take returns the value of a field and marks it consumed; "" when it is not set.
func (f *fields) take(name string) string {
	for i := range f.list {
		if f.list[i].name == name {
			f.list[i].used = true
			return f.list[i].value
		}
	}
	return ""
}

// unconsumed is the error that names every field without a consumer.
func (b *build) unconsumed() error {
	var errs []error
	for _, f := range b.fields.list {
		if f.used {
			continue
		}
		if b.r.Name == "sim" {
			errs = append(errs, fmt.Errorf("%s: %s: field %s has the value %q and the simulated engine models nothing of it; remove it from the config, or name a recipe that passes it to an engine",
				where(b.p), b.p.Key, f.name, f.value))
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s: field %s has the value %q and nothing passes it to the engine: neither the adapter %s nor recipe %s uses it; remove it from the config, or use it in the recipe as ${%s} or in a condition",
			where(b.p), b.p.Key, f.name, f.value, b.a.name, b.r.Name, f.name))
	}
	return errors.Join(errs...)
}

// conditionFields are the names that conditions of recipes may ask for beside those of the
// point's fields, with their values.
func (b *build) conditionValue(name, role string) string {
	par := b.parallel(role)
	switch name {
	case "role":
		return role
	case "conc":
		return fmt.Sprint(b.p.Conc)
	case "gpu":
		return b.v.GPU
	case "scenario":
		return string(b.p.Scenario)
	case "disagg":
		return fmt.Sprint(b.p.Disagg)
	case "multinode":
		return fmt.Sprint(b.p.Multinode)
	case "dp-attn":
		b.fields.take(b.side(role) + name)
		return fmt.Sprint(par.DPAttn)
	case "tp", "pp", "ep", "dcp-size", "pcp-size":
		b.fields.take(b.side(role) + name)
		return fmt.Sprint(map[string]int{"tp": par.TP, "pp": max(1, par.PP), "ep": max(1, par.EP), "dcp-size": max(1, par.DCP), "pcp-size": max(1, par.PCP)}[name])
	case "spec-decoding", "kv-offloading":
		if v := b.fields.take(name); v != "" {
			return v
		}
		return "none"
	}
	return b.fields.take(name)
}

// conditions are the names that a condition may use.
var conditions = []string{"role", "conc", "gpu", "scenario", "disagg", "multinode", "dp-attn", "tp", "pp", "ep", "dcp-size", "pcp-size",
	"spec-decoding", "kv-offloading", "kv-offload-backend", "precision", "framework", "kv-p2p-transfer", "router"}

func knownCondition(name string) bool { return slices.Contains(conditions, name) }
