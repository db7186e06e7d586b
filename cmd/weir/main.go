// Command weir measures LLM inference servers under agentic load, from a search space to a
// frontier.
package main

import (
	"os"

	"github.com/weirbench/weir/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
