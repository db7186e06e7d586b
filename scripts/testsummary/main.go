// Command testsummary reads the output of `go test -json` and prints what failed, what was
// skipped and why, and one closing line. With CI=true in the environment a skipped test fails.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
}

func main() {
	type key struct{ pkg, test string }
	output := map[key][]string{}
	var failed, skipped []key
	passed := 0
	sc := bufio.NewScanner(os.Stdin)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			fmt.Println(sc.Text()) // a build error is plain text
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			output[k] = append(output[k], e.Output)
		case "pass":
			if e.Test != "" {
				passed++
			} else {
				fmt.Println("ok  ", e.Package)
			}
			delete(output, k)
		case "skip":
			if e.Test != "" {
				skipped = append(skipped, k)
			}
		case "fail":
			failed = append(failed, k)
		}
	}
	for _, k := range failed {
		fmt.Printf("FAIL %s %s\n%s", k.pkg, k.test, strings.Join(output[k], ""))
	}
	if len(skipped) > 0 {
		fmt.Println("skipped:")
		for _, k := range skipped {
			fmt.Printf("  %s %s: %s\n", k.pkg, k.test, strings.TrimSpace(strings.Join(output[k], " ")))
		}
	}
	tests := 0
	for _, k := range failed {
		if k.test != "" {
			tests++
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, tests, len(skipped))
	if len(failed) > 0 || os.Getenv("CI") == "true" && len(skipped) > 0 || passed == 0 {
		os.Exit(1)
	}
}
