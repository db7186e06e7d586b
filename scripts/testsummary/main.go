// Command testsummary reads the output of `go test -json` and prints what failed, what was
// skipped and why, and one closing line. With CI=true in the environment a skipped test fails.
//
//	testsummary -again LOG              lists what may run again, "PACKAGE REGEXP" a line
//	testsummary -status N LOG [LOG...]  judges a run that ended with N and its further goes
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	again := flag.Bool("again", false, "list what may run again")
	status := flag.Int("status", 0, "with what the first `go test` ended")
	flag.Parse()
	if flag.NArg() < 1 {
		flag.Usage()
		os.Exit(2)
	}
	var logs []*log
	for _, name := range flag.Args() {
		l := newLog()
		f, err := os.Open(name)
		if err == nil {
			err = l.read(f)
			f.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsummary:", err)
			os.Exit(1)
		}
		logs = append(logs, l)
	}
	if *again {
		for _, s := range nextGo(logs[0]) {
			fmt.Println(s)
		}
		return
	}
	v := judge(*status, logs[0], logs[1:]...)
	io.WriteString(os.Stdout, v.text(logs[0], logs[1:]...))
	if !v.good(os.Getenv("CI") == "true") {
		os.Exit(1)
	}
}
