package cli

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// modeFlag says with which modes of 'weir load' a flag counts.
type modeFlag struct {
	name  string
	modes string // names of modes, by spaces
	does  string // what it is for, in messages
}

const (
	closedLoops = "closed overflow fixed-seq-len"
	madeUp      = "closed constant poisson gamma users" // modes whose made-up conversations have any form
)

// loadModeFlags are the flags of 'weir load' that count with some modes only, in the order in
// which they are judged. A flag that is not here counts with all.
var loadModeFlags = []modeFlag{
	{"rate", "constant poisson gamma users", "it sets how many go out in a second"},
	{"shape", "gamma", "it sets how bursty a gamma process is"},
	{"speed", "schedule", "it divides recorded times"},
	{"from", "schedule", "it cuts recorded times"},
	{"to", "schedule", "it cuts recorded times"},
	{"users", "users", "it sets how many users send at once"},
	{"tokens", "overflow", "it sets what one pass sends"},
	{"expect-hits", "overflow", "it judges the second pass"},
	{"concurrency", closedLoops + " constant poisson gamma schedule", "it caps conversations at once"},
	{"ramp", closedLoops, "it opens the slots of a closed loop"},
	{"corpus", madeUp + " schedule", "it gives the traces that are sent"},
	{"each-turn", madeUp + " schedule", "it is about sending --corpus"},
	{"skip-broken", madeUp + " schedule", "it is about reading --corpus"},
	{"source-block-size", madeUp + " schedule", "it is about reading --corpus"},
	{"isl", madeUp + " overflow fixed-seq-len", "it sets made-up lengths"},
	{"osl", madeUp + " overflow fixed-seq-len", "it sets made-up lengths"},
	{"range-ratio", madeUp + " fixed-seq-len", "it sets made-up lengths"},
	{"conversations", madeUp, "it sets how many are made up"},
	{"turns", madeUp, "it sets the form of made-up conversations"},
	{"prefix", madeUp, "it sets the form of made-up conversations"},
	{"shared-share", madeUp, "it sets the form of made-up conversations"},
	{"warmup-requests", madeUp + " schedule overflow", "fixed-seq-len has a warm-up of its own"},
	{"loop", madeUp + " fixed-seq-len", "the other modes have an end"},
	{"no-gaps", "closed constant poisson gamma", "the other modes keep their times"},
}

// misplaced refuses a given flag that has no effect on what the mode sends, and says with what
// it would have one.
func misplaced(given *pflag.FlagSet, mode string) error {
	for _, f := range loadModeFlags {
		modes := strings.Fields(f.modes)
		if !given.Changed(f.name) || slices.Contains(modes, mode) {
			continue
		}
		if f.name == "concurrency" && given.Changed("warmup-requests") {
			continue // which go out at that concurrency
		}
		return usagef("--%s has no effect with --mode %s: %s; it counts with --mode %s", f.name, mode, f.does, alternatives(modes))
	}
	if given.Changed("corpus") {
		if err := without(given, "beside --corpus, whose lengths are recorded: leave one out", "isl", "osl", "range-ratio", "conversations", "turns", "prefix", "shared-share"); err != nil {
			return err
		}
	} else if err := without(given, "without --corpus: made-up conversations are read from nowhere and have no pauses", "each-turn", "skip-broken", "source-block-size", "no-gaps"); err != nil {
		return err
	}
	if given.Changed("prefix") {
		return nil
	}
	return without(given, "without --prefix, whose part it is", "shared-share")
}

// alternatives joins names with commas and an or.
func alternatives(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
