package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/replay"
)

// readLengths reads what the made-up prompts are like.
func (p *profile) readLengths() replay.Lengths {
	l := replay.Lengths{
		Name: "session", Turns: p.whole("--session-turns-mean", 1, 1), In: int64(p.whole("--isl", defaultISL, 1)),
		Out: int64(p.whole("--osl", 0, 1)), RangeRatio: 1, SharedShare: 1,
		InDev: math.Trunc(p.number("--isl-stddev", 0, 0, 1e9)), OutDev: math.Trunc(p.number("--osl-stddev", 0, 0, 1e9)), TurnsDev: math.Trunc(p.number("--session-turns-stddev", 0, 0, 1e6)),
		Pause: p.number("--session-turn-delay-mean", 0, 0, replay.MaxPause), PauseDev: math.Trunc(p.number("--session-turn-delay-stddev", 0, 0, replay.MaxPause)),
		PauseRatio: p.number("--session-delay-ratio", 1, 0, 1e6),
	}
	if l.PauseRatio == 0 {
		l.Pause = 0
	}
	pairs := p.text("--sequence-distribution", "")
	if !p.has("--osl") && pairs == "" {
		if l.Turns > 1 || l.TurnsDev > 0 {
			p.fail("no --osl: conversations of several turns carry answers of a length that Weir has to know")
		}
		if p.has("--osl-stddev") {
			p.fail("--osl-stddev needs --osl")
		}
		p.args.notes = append(p.args.notes, "no --osl: as with AIPerf nothing is asked of the length of answers, so the server ends them")
	}
	l.Prefix = int64(p.whole("--shared-system-prompt-length", 0, 0))
	if p.has("--prefix-prompt-length") || p.has("--prefix-prompt-pool-size") {
		if p.has("--shared-system-prompt-length") {
			p.fail("--prefix-prompt-length and --shared-system-prompt-length are both given: pass one")
		}
		if !p.has("--prefix-prompt-length") || !p.has("--prefix-prompt-pool-size") {
			p.fail("--prefix-prompt-length and --prefix-prompt-pool-size need each other")
		}
		l.Prefix, l.Prefixes = int64(p.whole("--prefix-prompt-length", 0, 1)), p.whole("--prefix-prompt-pool-size", 1, 1)
	}
	if p.has("--user-context-prompt-length") {
		own := int64(p.whole("--user-context-prompt-length", 0, 1))
		if l.Prefixes > 0 {
			p.fail("--prefix-prompt-length and --user-context-prompt-length are both given: pass one")
		}
		// What all share ends at a whole block.
		l.SharedShare = float64(l.Prefix) / float64(l.Prefix+own)
		l.Prefix += own
	}
	if pairs != "" {
		for _, n := range []string{"--isl", "--isl-stddev", "--osl", "--osl-stddev", "--random-range-ratio"} {
			if p.has(n) {
				p.fail("%s and --sequence-distribution are both given: pass one", n)
			}
		}
		var err error
		if l.Pairs, err = parsePairs(pairs); err != nil {
			p.fail("--sequence-distribution: %v", err)
		} else {
			mean := func(of func(replay.Pair) int64) int64 {
				sum := 0.0
				for _, q := range l.Pairs {
					sum += float64(of(q)) * q.Share / 100
				}
				return max(1, int64(math.Round(sum)))
			}
			l.In, l.Out = mean(func(q replay.Pair) int64 { return q.In }), mean(func(q replay.Pair) int64 { return q.Out })
		}
		l.InDev, l.OutDev = 0, 0
	}
	if p.has("--random-range-ratio") {
		p.within(&l)
	} else if p.has("--random-corpus-style") {
		p.fail("--random-corpus-style without --random-range-ratio chooses a pool of tokens, which Weir does not have")
	}
	return l
}

// within reads --random-range-ratio: a share that the lengths are off on both sides in the style of vllm, the
// lowest length as a share of the highest in that of sglang.
func (p *profile) within(l *replay.Lengths) {
	const name = "--random-range-ratio"
	if l.InDev > 0 || l.OutDev > 0 {
		p.fail("%s and a stddev of lengths are both given: pass one", name)
		return
	}
	if !p.has("--isl") || !p.has("--osl") {
		p.fail("%s needs --isl and --osl", name)
		return
	}
	style, text := p.text("--random-corpus-style", "vllm"), p.text(name, "")
	in, out := 0.0, 0.0
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		in, out = f, f
	} else {
		var both struct{ Input, Output *float64 }
		if json.Unmarshal([]byte(text), &both) != nil || both.Input == nil || both.Output == nil || style == "sglang" {
			p.fail("%s %q: need a number, or in the style of vllm {\"input\": NUMBER, \"output\": NUMBER}", name, text)
			return
		}
		in, out = *both.Input, *both.Output
	}
	isl, osl := float64(l.In), float64(l.Out)
	switch {
	case style == "vllm" && in >= 0 && in < 1 && out >= 0 && out < 1:
		l.Range = &replay.Range{
			InLow: max(1, int64(math.Floor(isl*(1-in)))), InHigh: int64(math.Ceil(isl * (1 + in))),
			OutLow: max(1, int64(math.Floor(osl*(1-out)))), OutHigh: int64(math.Ceil(osl * (1 + out))),
		}
	case style == "vllm":
		p.fail("%s %q: need 0 to less than 1 in the style of vllm", name, text)
	case style == "sglang" && in >= 0 && in <= 1:
		l.Range = &replay.Range{InLow: max(1, int64(isl*in)), InHigh: l.In, OutLow: max(1, int64(osl*in)), OutHigh: l.Out}
	case style == "sglang":
		p.fail("%s %q: need 0 to 1 in the style of sglang", name, text)
	default:
		p.fail("--random-corpus-style %q: use vllm or sglang", style)
	}
}

// onePair is a pair of lengths: mean|deviation of each, the deviations left out where they are 0.
const onePair = `(\d+)(?:\|([\d.]+))?\s*,\s*(\d+)(?:\|([\d.]+))?\s*`

var (
	plainPair   = regexp.MustCompile(`^` + onePair + `:\s*([\d.]+)$`)
	bracketPair = regexp.MustCompile(`^\(\s*` + onePair + `\)\s*:\s*([\d.]+)$`)
	betweenPair = regexp.MustCompile(`\s*,\s*\(`)
)

// parsePairs reads pairs of lengths in AIPerf's three forms, with shares in percent: "256,128:40;512,256:60",
// "[(256,128):40,(512,256):60]" and {"pairs": [{"isl": 256, "osl": 128, "prob": 40}, ...]}.
func parsePairs(s string) ([]replay.Pair, error) {
	s = strings.TrimSpace(s)
	var out []replay.Pair
	if strings.HasPrefix(s, "{") {
		var doc struct {
			Pairs []struct {
				ISL, OSL *int64
				Prob     *float64
				InDev    float64 `json:"isl_stddev"`
				OutDev   float64 `json:"osl_stddev"`
			}
		}
		if err := json.Unmarshal([]byte(s), &doc); err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		for i, q := range doc.Pairs {
			if q.ISL == nil || q.OSL == nil || q.Prob == nil {
				return nil, fmt.Errorf("pair %d of %q lacks isl, osl or prob", i+1, s)
			}
			out = append(out, replay.Pair{In: *q.ISL, Out: *q.OSL, InDev: q.InDev, OutDev: q.OutDev, Share: *q.Prob})
		}
	} else {
		form, list := plainPair, strings.Split(s, ";")
		if in, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(in, "]") {
			form, list = bracketPair, strings.Split(betweenPair.ReplaceAllString(strings.TrimSuffix(in, "]"), "\x00("), "\x00")
		}
		for _, one := range list {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			m := form.FindStringSubmatch(one)
			var v [5]float64
			for i := range v {
				if m == nil {
					break
				}
				var err error
				if m[i+1] == "" {
					continue
				}
				if v[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
					m = nil
				}
			}
			if m == nil || v[0] > math.MaxInt32 || v[2] > math.MaxInt32 {
				return nil, fmt.Errorf("%q: write INPUT,OUTPUT:PERCENT;..., with INPUT|DEVIATION and OUTPUT|DEVIATION for draws around them", one)
			}
			out = append(out, replay.Pair{In: int64(v[0]), InDev: v[1], Out: int64(v[2]), OutDev: v[3], Share: v[4]})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q has no pair of lengths", s)
	}
	return out, nil
}
