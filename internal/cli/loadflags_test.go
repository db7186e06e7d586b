package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagsOfModes gives every flag of weir load to every mode. Those that are of a mode are
// listed here by mode; one that is of no mode counts with all.
func TestFlagsOfModes(t *testing.T) {
	counts := map[string]string{
		"closed":        "concurrency ramp corpus each-turn skip-broken source-block-size isl osl range-ratio conversations turns prefix shared-share warmup-requests loop no-gaps",
		"constant":      "rate concurrency corpus each-turn skip-broken source-block-size isl osl range-ratio conversations turns prefix shared-share warmup-requests loop no-gaps",
		"poisson":       "rate concurrency corpus each-turn skip-broken source-block-size isl osl range-ratio conversations turns prefix shared-share warmup-requests loop no-gaps",
		"gamma":         "rate shape concurrency corpus each-turn skip-broken source-block-size isl osl range-ratio conversations turns prefix shared-share warmup-requests loop no-gaps",
		"schedule":      "speed from to concurrency corpus each-turn skip-broken source-block-size warmup-requests",
		"users":         "rate users corpus each-turn skip-broken source-block-size isl osl range-ratio conversations turns prefix shared-share warmup-requests loop",
		"overflow":      "tokens expect-hits concurrency ramp isl osl warmup-requests",
		"fixed-seq-len": "concurrency ramp isl osl range-ratio loop",
	}
	var ofModes []string
	for _, names := range counts {
		ofModes = append(ofModes, strings.Fields(names)...)
	}
	beside := map[string][]string{"each-turn": {"corpus"}, "skip-broken": {"corpus"}, "source-block-size": {"corpus"}, "no-gaps": {"corpus"}, "shared-share": {"prefix"}}
	newLoadCmd(&App{}).Flags().VisitAll(func(one *pflag.Flag) {
		for _, m := range loadModes {
			given := newLoadCmd(&App{}).Flags()
			for _, n := range append(beside[one.Name], one.Name) {
				given.Lookup(n).Changed = true
			}
			want := !slices.Contains(ofModes, one.Name) || slices.Contains(strings.Fields(counts[m.name]), one.Name)
			err := misplaced(given, m.name)
			if (err == nil) != want {
				t.Errorf("--%s with --mode %s: counts is %v, %v", one.Name, m.name, want, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "--mode "+m.name) || !strings.Contains(err.Error(), "counts with --mode ")) {
				t.Errorf("--%s with --mode %s: %v", one.Name, m.name, err)
			}
		}
	})
}

// TestMisplacedFlags: the program refuses what would have no effect before it asks any server.
func TestMisplacedFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--mode closed -c 2 --rate 3":                "--rate has no effect with --mode closed: it sets how many go out in a second; it counts with --mode constant, poisson, gamma or users",
		"--mode closed -c 2 --speed 5":               "--speed has no effect with --mode closed: it divides recorded times; it counts with --mode schedule",
		"--mode poisson --rate 4 --shape 3":          "--shape has no effect with --mode poisson",
		"--mode poisson --rate 4 --users 3":          "--users has no effect with --mode poisson",
		"--mode closed -c 2 --tokens 9":              "--tokens has no effect with --mode closed",
		"--mode users --rate 4 -c 4":                 "--concurrency has no effect with --mode users",
		"--mode users -c 4":                          "say with --rate",
		"--mode closed -c 2 --concurrency 3 --to 5":  "--to has no effect",
		"--mode closed -c 2 --corpus none --isl 100": "--isl has no effect beside --corpus",
		"--mode closed -c 2 --grace 5s":              "--grace has no effect without --duration",
		"--mode closed -c 2 --no-gaps":               "--no-gaps has no effect without --corpus",
		"--mode closed -c 2 --shared-share 0.5":      "--shared-share has no effect without --prefix",
	} {
		code, out, errOut := weir(append([]string{"load", "--url", "http://127.0.0.1:1", "--model", "m", "-o", t.TempDir() + "/b"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, errOut)
		}
	}
	for args, want := range map[string]string{
		"--no-warmup --warmup-requests-per-lane 5":          "--warmup-requests-per-lane has no effect beside --no-warmup",
		"--no-warmup --warmup-duration 5s":                  "--warmup-duration has no effect beside --no-warmup",
		"--no-warmup --warmup-grace 5s":                     "--warmup-grace has no effect beside --no-warmup",
		"--warmup-duration 5s --warmup-requests-per-lane 5": "--warmup-requests-per-lane has no effect beside --warmup-duration",
		"--no-gaps --gap-cap 5s":                            "--gap-cap has no effect beside --no-gaps",
		"--no-gaps --think-time":                            "--think-time has no effect beside --no-gaps",
	} {
		code, out, errOut := weir(append([]string{"replay", "--url", "http://127.0.0.1:1", "--model", "m", "--corpus", "none", "--duration", "1m", "-o", t.TempDir() + "/b"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, errOut)
		}
	}
}
