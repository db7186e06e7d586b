package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// checkConfigs applies the rules that need master files only.
func (l *linter) checkConfigs() {
	for _, w := range l.set.Warnings {
		what := w.What
		if w.Field != "" {
			what = w.Field + ": " + what
		}
		l.add(w.At, "no-effect", what, w.Fix)
	}
	for _, c := range l.set.configs {
		l.checkImage(c.image.At, c.image.V)
		for _, b := range c.fixed {
			if seqLenName(b.isl.V, b.osl.V) == "1k1k" {
				l.add(b.isl.At, "deprecated-scenario", c.key+" uses 1k1k (isl 1024, osl 1024)", "remove the scenario or archive the config")
			}
		}
		for _, b := range c.blocks() {
			for _, e := range b.entries {
				l.checkSettings(c, e)
				l.checkDRAMShare(c, b, e)
			}
		}
	}
}

// checkImage applies no-version and latest-tag.
func (l *linter) checkImage(at Pos, image string) {
	if image == "" || strings.Contains(image, "@sha256:") {
		return
	}
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, ok := strings.Cut(name, ":")
	switch {
	case !ok && strings.ContainsAny(image, "+#"): // a file or an enroot URI
	case !ok:
		l.add(at, "no-version", "image "+image+" has no tag", "add the tag or digest of a release")
	case tag == "latest" || strings.HasSuffix(tag, "-latest") || strings.HasPrefix(tag, "latest-") ||
		tag == "nightly" || tag == "dev" || tag == "main":
		l.add(at, "latest-tag", "image "+image+" has the moving tag "+tag, "use the tag of a release, or a digest")
	}
}

// setting finds NAME in the settings of a worker.
func (w *worker) setting(name string) (string, bool) {
	if w == nil {
		return "", false
	}
	for _, s := range w.settings {
		if k, v, _ := strings.Cut(s, "="); k == name {
			return v, true
		}
	}
	return "", false
}

// draftSettings and acceptSettings are names in additional-settings.
var (
	draftSettings  = []string{"DECODE_MTP_SIZE", "MTP_SIZE", "NUM_SPECULATIVE_TOKENS", "SPECULATIVE_NUM_STEPS"}
	acceptSettings = []string{"SYNTHETIC_ACCEPTANCE_LENGTH", "SGLANG_SIMULATE_ACC_LEN"}
)

func (l *linter) checkSettings(c *config, e *entry) {
	for _, w := range []*worker{e.prefill, e.decode} {
		if w == nil {
			continue
		}
		for _, s := range w.settings {
			name, v, _ := strings.Cut(s, "=")
			if strings.HasSuffix(name, "_IMAGE") {
				l.checkImage(w.settingsAt, v)
			}
			if name == "TOTAL_CPU_DRAM_GB" {
				if gb, err := strconv.ParseFloat(v, 64); err == nil && e.offload.V == "dram" && gb > float64(e.budget) {
					l.add(w.settingsAt, "dram-share", fmt.Sprintf("%s sets %s GB and the share is %d GB", c.key, v, e.budget),
						"remove the setting or lower it to "+strconv.FormatInt(e.budget, 10))
				}
			}
			if contains(acceptSettings, name) {
				n, draft := 0, ""
				for _, d := range draftSettings {
					for _, role := range []*worker{w, e.prefill, e.decode} {
						if dv, ok := role.setting(d); ok && draft == "" {
							draft = dv
							n, _ = strconv.Atoi(dv)
						}
					}
				}
				l.checkAcceptance(w.settingsAt, c.modelPrefix.V, v, n, true, name)
			}
		}
	}
}

// standardCapacity are the beginnings of runner labels whose nodes come with one size of host
// memory, so that the 3 TB cap does not apply (InferenceX MODELS.md, 2026-08).
var standardCapacity = []string{"gb200", "gb300", "tpu"}

// shareLimit is the host memory that a server may pin on a node, in bytes, and how it came about.
func shareLimit(c *config, gpus int) (bytes int64, how string) {
	node := c.hardware.dramMiB.V << 20
	limit, name := node, "the node's memory"
	standard := false
	for _, s := range standardCapacity {
		standard = standard || strings.HasPrefix(strings.TrimPrefix(c.runner.V, clusterPrefix), s)
	}
	if lim := int64(maxNodeDRAMMiB) << 20; !standard && node > lim {
		limit, name = lim, "the 3 TB cap"
	}
	per := int64(c.hardware.gpusPerNode.V)
	return limit / per * int64(gpus), fmt.Sprintf("%s %s x %d/%d GPUs", gb(limit), name, gpus, per)
}

// gb writes bytes as decimal GB, rounded down to a thousandth, so that a limit can be typed in.
func gb(bytes int64) string { return trimZeros(big.NewRat(bytes/1e6, 1000)) + " GB" }

// gpusOnNode are the GPUs of one node that the server of an entry takes.
func gpusOnNode(c *config, e *entry) int {
	if e.prefill != nil {
		g, err := workerGPUsOnNode(e.prefill.parallel(), c.hardware.gpusPerNode.V)
		if err != nil {
			return 0
		}
		return g
	}
	return e.parallel().GPUs()
}

// checkDRAMShare looks at pools that the config sizes itself; a budget that is computed from
// dram-utilization is a share by its formula.
func (l *linter) checkDRAMShare(c *config, b *block, e *entry) {
	if e.offload.V != "dram" || c.hardware == nil {
		return
	}
	w := e.weir.over(c.weir)
	gpus := gpusOnNode(c, e)
	if !w.hostBytes.set() || gpus == 0 {
		return
	}
	l.checkPool(w.hostBytes.At, c, gpus, w.hostBytes.V, "host-gb-per-rank")
}

// checkPool compares a pool of a rank with the share of the node.
func (l *linter) checkPool(at Pos, c *config, gpus int, perRank int64, name string) {
	limit, how := shareLimit(c, gpus)
	if total := perRank * int64(gpus); total > limit {
		l.add(at, "dram-share", fmt.Sprintf("%s: %s x %d ranks = %s, without pools that this size does not count, is over the share %s (%s)",
			name, gb(perRank), gpus, gb(total), gb(limit), how), "use "+gb(limit/int64(gpus))+" or less per rank")
	}
}
