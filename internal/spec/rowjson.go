package spec

import (
	"strconv"
	"unicode/utf8"
)

// rowWriter writes rows as InferenceX's generator prints them: the fields in its order, ", " and
// ": " between them, everything outside ASCII escaped.
type rowWriter struct{ buf []byte }

func (w *rowWriter) key(name string) {
	if n := len(w.buf); n > 0 && w.buf[n-1] != '{' {
		w.buf = append(w.buf, ", "...)
	}
	w.buf = appendJSONString(w.buf, name)
	w.buf = append(w.buf, ": "...)
}

func (w *rowWriter) str(name, v string) {
	w.key(name)
	w.buf = appendJSONString(w.buf, v)
}

func (w *rowWriter) int(name string, v int64) {
	w.key(name)
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

func (w *rowWriter) bool(name string, v bool) {
	w.key(name)
	w.buf = strconv.AppendBool(w.buf, v)
}

func (w *rowWriter) ints(name string, vs []int) {
	w.key(name)
	w.buf = append(w.buf, '[')
	for i, v := range vs {
		if i > 0 {
			w.buf = append(w.buf, ", "...)
		}
		w.buf = strconv.AppendInt(w.buf, int64(v), 10)
	}
	w.buf = append(w.buf, ']')
}

func (w *rowWriter) component(name string, c *component) {
	if c == nil {
		return
	}
	w.key(name)
	w.buf = append(w.buf, '{')
	w.str("name", c.name.V)
	if c.version.set() {
		w.str("version", c.version.V)
	}
	w.buf = append(w.buf, '}')
}

// worker writes the fields in the order of the file, then the defaults of those it leaves out.
func (w *rowWriter) worker(name string, k *worker) {
	w.key(name)
	w.buf = append(w.buf, '{')
	for _, f := range k.keys {
		switch f {
		case "num-worker":
			w.int(f, int64(k.count.V))
		case "tp":
			w.int(f, int64(k.tp.V))
		case "pp":
			w.int(f, int64(k.pp.V))
		case "ep":
			w.int(f, int64(k.ep.V))
		case "dcp-size":
			w.int(f, int64(k.dcp.V))
		case "pcp-size":
			w.int(f, int64(k.pcp.V))
		case "dp-attn":
			w.bool(f, k.dpAttn.V)
		case "hardware":
			w.str(f, k.hardware.V)
		case "additional-settings":
			w.key(f)
			w.buf = append(w.buf, '[')
			for i, s := range k.settings {
				if i > 0 {
					w.buf = append(w.buf, ", "...)
				}
				w.buf = appendJSONString(w.buf, s)
			}
			w.buf = append(w.buf, ']')
		}
	}
	if !k.pp.set() {
		w.int("pp", 1)
	}
	if !k.dcp.set() {
		w.int("dcp-size", 1)
	}
	if !k.pcp.set() {
		w.int("pcp-size", 1)
	}
	w.buf = append(w.buf, '}')
}

// row writes one job of the matrix.
func (w *rowWriter) row(r *row, fingerprint string) {
	c, e := r.config, r.entry
	w.buf = append(w.buf, '{')
	w.str("image", c.image.V)
	w.str("model", c.model.V)
	w.str("model-prefix", c.modelPrefix.V)
	w.str("precision", c.precision.V)
	w.str("framework", c.framework.V)
	w.str("runner", r.runner)
	switch {
	case r.agentic():
		w.agentic(r)
	case r.multi():
		w.lengths(r)
		w.str("spec-decoding", e.spec.or("none"))
		w.worker("prefill", e.prefill)
		w.worker("decode", e.decode)
		w.ints("conc", r.conc)
		w.int("max-model-len", int64(r.block.isl.V+r.block.osl.V+lengthSlack))
		w.str("exp-name", r.name())
		w.bool("disagg", c.disagg.V)
		w.bool("run-eval", r.runEval)
	default:
		w.lengths(r)
		w.topology(e)
		w.int("conc", int64(r.conc[0]))
		w.int("max-model-len", int64(r.block.isl.V+r.block.osl.V+lengthSlack))
		w.int("ep", int64(r.ep))
		w.bool("dp-attn", e.dpAttn.V)
		w.str("spec-decoding", e.spec.or("none"))
		w.str("exp-name", r.name())
		w.bool("disagg", c.disagg.V)
		w.bool("run-eval", r.runEval)
	}
	w.component("router", r.router())
	if t := r.transfer(); t.set() {
		w.str("kv-p2p-transfer", t.V)
	}
	if r.agentic() && r.hasEval {
		w.bool("run-eval", r.runEval)
	}
	if r.evalConc > 0 {
		w.int("eval-conc", int64(r.evalConc))
	}
	if r.evalAll {
		w.bool("eval-all-concs", true)
	}
	if r.evalOnly {
		w.bool("eval-only", true)
	}
	w.weir(r)
	if fingerprint != "" {
		w.str("recipe-fingerprint", fingerprint)
	}
	w.buf = append(w.buf, '}')
}

func (w *rowWriter) agentic(r *row) {
	c, e := r.config, r.entry
	if r.multi() {
		w.str("spec-decoding", e.spec.or("none"))
		w.worker("prefill", e.prefill)
		w.worker("decode", e.decode)
		w.ints("conc", r.conc)
	} else {
		w.topology(e)
		w.int("ep", int64(r.ep))
		w.bool("dp-attn", e.dpAttn.V)
		w.str("spec-decoding", e.spec.or("none"))
		w.int("conc", int64(r.conc[0]))
	}
	w.str("kv-offloading", e.offload.or("none"))
	w.int("total-cpu-dram-gb", e.budget)
	w.int("duration", agenticDuration)
	w.str("exp-name", r.name())
	if r.multi() {
		w.bool("disagg", c.disagg.V)
	}
	w.str("scenario-type", string(AgenticCoding))
	w.component("kv-offload-backend", e.backend)
}

func (w *rowWriter) lengths(r *row) {
	w.int("isl", int64(r.block.isl.V))
	w.int("osl", int64(r.block.osl.V))
}

func (w *rowWriter) topology(e *entry) {
	w.int("tp", int64(e.tp.V))
	w.int("pp", int64(e.pp.or(1)))
	w.int("dcp-size", int64(e.dcp.or(1)))
	w.int("pcp-size", int64(e.pcp.or(1)))
}

// weir writes Weir's own fields where a config has them, so that none is lost on the way.
func (w *rowWriter) weir(r *row) {
	if r.config.weir.node == nil && r.entry.weir.node == nil {
		return
	}
	f := r.entry.weir.over(r.config.weir)
	w.key("weir")
	w.buf = append(w.buf, '{')
	opt := func(name string, s scalar[string]) {
		if s.set() {
			w.str(name, s.V)
		}
	}
	num := func(name string, s scalar[int64]) {
		if s.set() {
			w.int(name, s.V)
		}
	}
	opt("recipe", f.recipe)
	opt("corpus", f.corpus)
	w.key("seeds")
	w.buf = append(w.buf, '[')
	for i, s := range f.seedList() {
		if i > 0 {
			w.buf = append(w.buf, ", "...)
		}
		w.buf = strconv.AppendUint(w.buf, s, 10)
	}
	w.buf = append(w.buf, ']')
	num("mem-fraction-ppm", f.memFraction)
	opt("kv-dtype", f.kvDType)
	if r.entry.offload.V == "dram" {
		num("host-ratio-ppm", f.hostRatio)
		num("host-bytes-per-rank", f.hostBytes)
		opt("write-policy", f.writePolicy)
	}
	num("page-size", f.pageSize)
	opt("schedule-policy", f.schedule)
	if r.speculates() {
		num("draft-tokens", f.draftTokens)
	}
	w.int("repeats", int64(f.repeats.or(1)))
	num("slo-ttft-p90-ns", f.slo.ttft)
	num("slo-itl-p90-ns", f.slo.itl)
	num("slo-e2e-norm-intvty-p90-milli", f.slo.interactivity)
	w.buf = append(w.buf, '}')
}

func appendRows(buf []byte, rows []row) []byte {
	w := rowWriter{buf: append(buf, '[')}
	for i := range rows {
		if i > 0 {
			w.buf = append(w.buf, ", "...)
		}
		w.row(&rows[i], "")
	}
	return append(w.buf, ']')
}

// appendJSONString quotes s with ASCII only.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			i += n
			if r >= 0x10000 {
				r -= 0x10000
				b = appendEscape(b, 0xd800+(r>>10))
				b = appendEscape(b, 0xdc00+(r&0x3ff))
			} else {
				b = appendEscape(b, r)
			}
			continue
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

func appendEscape(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
