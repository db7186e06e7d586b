// Package examples embeds the configuration files that the program itself runs, so that the
// binary needs nothing beside it.
package examples

import "embed"

// Files are the files of the demo, by their path in this folder.
//
//go:embed demo/*.yaml
var Files embed.FS
