// Package examples embeds the configuration files that the program itself runs, so that the
// binary needs nothing beside it.
package examples

import (
	"embed"
	"io/fs"
)

// Files are the files of the demo, by their path in this folder.
//
//go:embed demo/*.yaml
var Files embed.FS

//go:embed recipes/*.yaml
var recipes embed.FS

// Recipes are the recipes that come with the program, by file name.
func Recipes() fs.FS {
	sub, err := fs.Sub(recipes, "recipes")
	if err != nil { // the folder is embedded
		panic(err)
	}
	return sub
}
