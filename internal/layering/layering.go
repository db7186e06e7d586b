// Package layering states which package may import which, and its test checks that it is so.
package layering

// Rows are the folders under internal/ in the order in which data flows. A package imports
// only from rows above its own.
var Rows = []string{
	"facts", "spec", "corpus", "prompt", "plan", "record", "replay", "client", "sim", "knee",
	"engine", "scrape", "result", "frontier", "store", "run", "chart", "web", "cli",
}

// Outside are folders under internal/ that stand outside the flow; only tests import material.
var Outside = []string{"material", "layering"}
