// Command testsummary reads the output of `go test -json` and prints what failed, what was
// skipped and why, and one closing line. With CI=true in the environment a skipped test fails.
//
//	testsummary -again LOG           lists what may run once more, "PACKAGE REGEXP" a line
//	testsummary -status N LOG [LOG]  judges a run that ended with N and its second go
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	again := flag.Bool("again", false, "list what may run once more")
	status := flag.Int("status", 0, "with what the first `go test` ended")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		flag.Usage()
		os.Exit(2)
	}
	var logs [2]*log
	for i := range logs {
		logs[i] = newLog()
		if i < flag.NArg() {
			f, err := os.Open(flag.Arg(i))
			if err == nil {
				err = logs[i].read(f)
				f.Close()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "testsummary:", err)
				os.Exit(1)
			}
		}
	}
	if *again {
		for _, s := range secondGo(logs[0]) {
			fmt.Println(s)
		}
		return
	}
	v := judge(logs[0], logs[1], *status)
	io.WriteString(os.Stdout, v.text(logs[0], logs[1]))
	if !v.good(os.Getenv("CI") == "true") {
		os.Exit(1)
	}
}
