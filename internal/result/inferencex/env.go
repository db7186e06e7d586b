package inferencex

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An Env looks a variable up; ok is false when it is not set.
type Env func(name string) (value string, ok bool)

// point is what the environment says of the point that was measured.
type point struct {
	env      Env
	problems []error

	kvOffloading string
	backend      *Component
	router       *Component
	multinode    bool
	tp, ep       int
	dpAttention  string
	gpus         int // denominator of per-GPU rates
}

// A Component is a named part with an optional version.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

func (p *point) fail(format string, a ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, a...))
}

func (p *point) text(name string) string {
	v, _ := p.env(name)
	return v
}

// number reads an integer; an unset or empty variable takes the default.
func (p *point) number(name string, def int) int {
	v := p.text(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil {
		p.fail("%s=%q is not a whole number", name, v)
		return def
	}
	return n
}

func (p *point) positive(name string) int {
	n := p.number(name, 1)
	if n < 1 {
		p.fail("%s=%d: it must be at least 1", name, n)
	}
	return n
}

func (p *point) flag(name string) bool {
	switch strings.ToLower(p.text(name)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

// component reads a JSON object of name and version.
func (p *point) component(name string, needVersion bool) *Component {
	raw := p.text(name)
	if raw == "" || raw == "null" {
		return nil
	}
	var m map[string]*string
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		p.fail("%s=%q: need a JSON object of strings, name and version: %v", name, raw, err)
		return nil
	}
	for k, v := range m {
		if k != "name" && k != "version" {
			p.fail("%s has the key %q: only name and version are known", name, k)
			return nil
		}
		if v == nil || *v == "" {
			p.fail("%s: %s is empty", name, k)
			return nil
		}
	}
	if m["name"] == nil || needVersion && m["version"] == nil {
		p.fail("%s=%s: need name%s", name, raw, map[bool]string{true: " and version", false: ""}[needVersion])
		return nil
	}
	c := &Component{Name: *m["name"]}
	if v := m["version"]; v != nil {
		c.Version = *v
	}
	return c
}

// readPoint checks the variables of the agentic aggregator. The error names every one that is
// missing, malformed or contradicts another.
func readPoint(env Env) (*point, Row, error) {
	p := &point{env: env}
	p.offload()
	var r Row
	r.HW = p.text("RUNNER_TYPE")
	r.Conc = p.number("CONC", 0)
	r.Image = p.text("IMAGE")
	r.RecipeFingerprint = p.text("RECIPE_FINGERPRINT")
	r.Model = p.text("MODEL")
	r.ModelPrefix = p.text("MODEL_PREFIX")
	r.Framework = p.text("FRAMEWORK")
	r.Precision = p.text("PRECISION")
	r.SpecDecoding = "none"
	if v, ok := env("SPEC_DECODING"); ok {
		r.SpecDecoding = v
	}
	r.Disagg = p.flag("DISAGG")
	r.Scenario = "agentic-coding"
	r.Multinode = p.flag("IS_MULTINODE")
	r.AllocatedDRAM = p.number("TOTAL_CPU_DRAM_GB", 0)
	if r.Multinode {
		p.roles(&r)
	} else {
		p.single(&r)
	}
	r.TP, r.EP, r.DPAttention = p.tp, p.ep, p.dpAttention
	r.KVOffloading, r.Backend = p.kvOffloading, p.backend
	r.Router = p.component("ROUTER_METADATA", true)
	r.KVTransfer = p.text("KV_P2P_TRANSFER")
	return p, r, errors.Join(p.problems...)
}

func (p *point) offload() {
	p.kvOffloading = p.text("KV_OFFLOADING")
	name := p.text("KV_OFFLOAD_BACKEND")
	p.backend = p.component("KV_OFFLOAD_BACKEND_METADATA", false)
	switch {
	case p.kvOffloading == "":
		p.fail("KV_OFFLOADING is not set: say none or dram")
	case p.kvOffloading == "none":
		if name != "" || p.backend != nil {
			p.fail("KV_OFFLOADING=none stands beside a KV_OFFLOAD_BACKEND (%s): remove one", name)
		}
	case name == "" || name == "none" || p.backend == nil:
		p.fail("KV_OFFLOADING=%s needs KV_OFFLOAD_BACKEND and KV_OFFLOAD_BACKEND_METADATA", p.kvOffloading)
	case p.backend.Name != name:
		p.fail("KV_OFFLOAD_BACKEND=%s and KV_OFFLOAD_BACKEND_METADATA name %s differ", name, p.backend.Name)
	}
}

func (p *point) single(r *Row) {
	p.tp, p.ep = p.number("TP", 1), p.number("EP_SIZE", 1)
	p.dpAttention = "false"
	if v, ok := p.env("DP_ATTENTION"); ok {
		p.dpAttention = v
	}
	pp, dcp, pcp := p.positive("PP_SIZE"), p.positive("DCP_SIZE"), p.positive("PCP_SIZE")
	r.SingleShape = &SingleShape{PP: pp, DCP: dcp, PCP: pcp}
	p.gpus = p.tp * pp * pcp
}

func (p *point) roles(r *Row) {
	role := func(prefix string) (Role, int) {
		dp := "false"
		if v, ok := p.env(prefix + "_DP_ATTN"); ok {
			dp = v
		}
		s := Role{
			Workers: p.number(prefix+"_NUM_WORKERS", 0), TP: p.number(prefix+"_TP", 0),
			PP: p.positive(prefix + "_PP_SIZE"), DCP: p.positive(prefix + "_DCP_SIZE"), PCP: p.positive(prefix + "_PCP_SIZE"),
			EP: p.number(prefix+"_EP", 1), DPAttention: dp,
		}
		return s, s.Workers * s.TP * s.PP * s.PCP
	}
	prefill, prefillGPUs := role("PREFILL")
	decode, decodeGPUs := role("DECODE")
	if decodeGPUs <= 0 { // prefill workers decode too
		decode.TP, decode.EP, decode.PP, decode.DCP, decode.PCP = 0, 0, 1, 1, 1
	}
	m := &MultiShape{
		PrefillWorkers: prefill.Workers, PrefillTP: prefill.TP, PrefillPP: prefill.PP, PrefillDCP: prefill.DCP, PrefillPCP: prefill.PCP,
		PrefillEP: prefill.EP, PrefillDPAttention: prefill.DPAttention, PrefillGPUs: prefillGPUs,
		DecodeWorkers: decode.Workers, DecodeTP: decode.TP, DecodePP: decode.PP, DecodeDCP: decode.DCP, DecodePCP: decode.PCP,
		DecodeEP: decode.EP, DecodeDPAttention: decode.DPAttention, DecodeGPUs: decodeGPUs,
		PrefillHW: p.text("PREFILL_HARDWARE"), DecodeHW: p.text("DECODE_HARDWARE"),
	}
	if (m.PrefillHW == "") != (m.DecodeHW == "") {
		p.fail("PREFILL_HARDWARE=%q and DECODE_HARDWARE=%q: set both or neither", m.PrefillHW, m.DecodeHW)
	}
	r.MultiShape = m
	p.gpus = prefillGPUs + decodeGPUs
	p.tp, p.ep = prefill.TP+decode.TP, max(prefill.EP, decode.EP)
	p.dpAttention = strconv.FormatBool(p.flag("PREFILL_DP_ATTN") || p.flag("DECODE_DP_ATTN"))
}

// Role is one side of a multi-node point.
type Role struct {
	Workers, TP, PP, DCP, PCP, EP int
	DPAttention                   string
}
