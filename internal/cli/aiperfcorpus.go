package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/corpus/hub"
)

// datasetName takes an alias as AIPerf does, with dashes in place of underscores.
func datasetName(s string) string {
	if _, ok := hub.Lookup(s); !ok && !strings.Contains(s, "/") {
		return strings.ReplaceAll(s, "-", "_")
	}
	return s
}

// corpus finds the traces, keeps those that the flags ask for, and says where they come from.
func (p *profile) corpus(ctx context.Context) (*corpus.Corpus, error) {
	path, from := p.text("--input-file", ""), map[string]any{"source_type": "file"}
	name := datasetName(p.text("--public-dataset", ""))
	if p.has("--hf-weka-dataset") || name == "weka_hf" {
		name = p.text("--hf-weka-dataset", "weka_hf")
	}
	switch {
	case path != "" && name != "":
		return nil, usagef("--input-file and --public-dataset are both given: pass one")
	case path == "" && name == "":
		return nil, usagef("no traces: pass --public-dataset NAME ('weir corpus fetch' lists names) or --input-file PATH")
	case name != "":
		repo, revision := name, ""
		if a, ok := hub.Lookup(name); ok {
			repo, revision = a.Repo, a.Revision
		} else if strings.Count(name, "/") != 1 {
			return nil, usagef("--public-dataset %q is no agentic data set that Weir knows; 'weir corpus fetch' lists them", name)
		}
		h, err := hub.FromEnv(os.Getenv)
		if err != nil {
			return nil, usage(err)
		}
		h.Progress = progress(p.app)
		snap, err := h.Fetch(ctx, repo, revision, wantedFile)
		if err != nil {
			return nil, err
		}
		path = snap.Dir
		from = map[string]any{"source_type": "public", "loader": name, "hf_dataset": repo, "revision": snap.Commit}
	default:
		from["path"] = path
		if t := p.text("--custom-dataset-type", ""); t != "" {
			from["loader"] = t
		}
	}
	c, err := corpus.Load(path, corpus.LoadOptions{})
	if err != nil {
		return nil, usage(err)
	}
	if p.maxContext > 0 || p.entries > 0 {
		kept, rep, err := c.Filter(corpus.FilterOptions{MaxContext: p.maxContext, Limit: p.entries})
		if err != nil {
			return nil, usage(err)
		}
		if rep.OverContext > 0 {
			fmt.Fprintf(p.app.Err, "weir: --max-context-length leaves out %d of %d traces\n", rep.OverContext, rep.Traces)
		}
		c = kept
	}
	from["entries"], from["fingerprint"] = len(c.Traces), c.Fingerprint
	p.dataset = from
	return c, nil
}
