package hub

import (
	"slices"
	"strings"
)

// An Alias is a name under which AgentX knows a data set.
type Alias struct {
	Name     string `json:"name"`
	Repo     string `json:"repo"`
	Revision string `json:"revision"` // a commit where one is known, else main
	About    string `json:"about"`
}

// Commits of the two corpora that AgentX v1.0 uses by default, read off public lock files and
// reports that pin them, 2026-09 and 2026-10.
const (
	commit062126     = "23f152f6f0f9399a85901b89a6458def0ef16729"
	commit062126_256 = "8fecd2fc56694469f758f0afbbb6335ad3043740"
)

// Aliases are the AgentX corpora by the names that AIPerf's --public-dataset takes (InferenceX
// benchmark_lib.sh and AIPerf's scenario inferencex-agentx-mvp, 2026-07). Where no commit is
// known the newest one is fetched, and the result says which.
var Aliases = func() []Alias {
	list := []Alias{
		{"agentx", "semianalysisai/cc-traces-weka-062126", commit062126, "the default of AgentX: 393 traces, full context"},
		{"agentx-256k", "semianalysisai/cc-traces-weka-062126-256k", commit062126_256, "the same without requests over 256,000 tokens"},
		{"semianalysis_cc_traces_weka_062126", "semianalysisai/cc-traces-weka-062126", commit062126, "built 2026-06-21"},
		{"semianalysis_cc_traces_weka_062126_256k", "semianalysisai/cc-traces-weka-062126-256k", commit062126_256, "built 2026-06-21, capped"},
		{"semianalysis_cc_traces_weka_with_subagents", "semianalysisai/cc-traces-weka-062126", commit062126, "the newest with sub-agents"},
		{"semianalysis_cc_traces_weka_with_subagents_256k", "semianalysisai/cc-traces-weka-062126-256k", commit062126_256, "the newest with sub-agents, capped"},
		{"weka_hf", "semianalysisai/cc-traces-weka-062126", commit062126, "AIPerf's loader of that name, under the scenario"},
		{"semianalysis_cc_traces_weka", "semianalysisai/cc-traces-weka-no-subagents-051826", "main", "98 traces without sub-agents"},
		{"semianalysis_cc_traces_weka_no_subagents", "semianalysisai/cc-traces-weka-no-subagents-051826", "main", "98 traces without sub-agents"},
	}
	for _, date := range []string{"061326", "061526"} {
		list = append(list,
			Alias{"semianalysis_cc_traces_weka_" + date, "semianalysisai/cc-traces-weka-" + date, "main", "dated"},
			Alias{"semianalysis_cc_traces_weka_" + date + "_256k", "semianalysisai/cc-traces-weka-" + date + "-256k", "main", "dated, capped"})
	}
	for _, date := range []string{"060226", "060526", "060826"} {
		list = append(list,
			Alias{"semianalysis_cc_traces_weka_with_subagents_" + date, "semianalysisai/cc-traces-weka-with-subagents-" + date, "main", "dated"},
			Alias{"semianalysis_cc_traces_weka_with_subagents_" + date + "_256k", "semianalysisai/cc-traces-weka-with-subagents-" + date + "-256k", "main", "dated, capped"})
	}
	return list
}()

// Lookup finds an alias.
func Lookup(name string) (Alias, bool) {
	i := slices.IndexFunc(Aliases, func(a Alias) bool { return strings.EqualFold(a.Name, name) })
	if i < 0 {
		return Alias{}, false
	}
	return Aliases[i], true
}
