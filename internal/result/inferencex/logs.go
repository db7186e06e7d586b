package inferencex

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// logHead is how much of a log is read: pool sizes stand near its beginning.
const logHead = 64 << 20

// readLogs returns the heads of the engine logs of a result folder: server.log, and the
// watchtower logs in it and up to three folders above.
func readLogs(dir string) ([]string, error) {
	var paths []string
	if p := filepath.Join(dir, "server.log"); isFile(p) {
		paths = append(paths, p)
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for range 4 {
		found, err := filepath.Glob(filepath.Join(at, "watchtower-*.out"))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
		at = filepath.Dir(at)
	}
	var out []string
	seen := map[string]bool{}
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		if p, err = filepath.Abs(p); err != nil || seen[p] {
			continue
		}
		seen[p] = true
		text, err := head(p)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

func head(path string) (string, error) {
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, logHead))
	return string(b), err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

var (
	sglangTokens = regexp.MustCompile(`\bmax_total_num_tokens=(\d+)\b`)
	sglangRank   = regexp.MustCompile(`\bDP\d+\s+TP\d+\s+EP\d+\b`)
	sglangDP     = regexp.MustCompile(`\bdp_size=(\d+)\b`)
	vllmTokens   = regexp.MustCompile(`GPU KV cache size:\s*([\d,]+)\s*tokens`)
	vllmEngine   = regexp.MustCompile(`\((EngineCore(?:_DP\d+)?)\s+pid=\d+\)`)
)

// sglangCapacity adds the pools of all logs. Ranks that name themselves count once each; one
// rank that stands for all data-parallel ranks is multiplied by their number.
func sglangCapacity(logs []string) *int64 {
	return capacity(logs, sglangTokens, sglangRank, func(log string, ranks, bare int, tokens int64) int64 {
		if m := sglangDP.FindStringSubmatch(log); m != nil && (ranks == 1 || ranks == 0 && bare == 1) {
			if n, err := strconv.ParseInt(m[1], 10, 32); err == nil && n > 1 {
				return tokens * n
			}
		}
		return tokens
	})
}

// vllmCapacity adds the pools of all engines of all logs.
func vllmCapacity(logs []string) *int64 {
	return capacity(logs, vllmTokens, vllmEngine, func(_ string, _, _ int, tokens int64) int64 { return tokens })
}

func capacity(logs []string, size, rank *regexp.Regexp, scale func(log string, ranks, bare int, tokens int64) int64) *int64 {
	var all int64
	found := false
	for _, log := range logs {
		named := map[string]int64{}
		var bare []int64
		for l := range strings.Lines(log) {
			m := size.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
			if err != nil || n <= 0 {
				continue
			}
			if tag := rank.FindString(l); tag != "" {
				if sub := rank.FindStringSubmatch(l); len(sub) > 1 {
					tag = sub[1]
				}
				named[tag] = n
			} else {
				bare = append(bare, n)
			}
		}
		var tokens int64
		switch {
		case len(named) > 0:
			for _, n := range slices.Collect(maps.Values(named)) {
				tokens += n
			}
			bare = nil
		case len(bare) > 0:
			for _, n := range bare {
				tokens += n
			}
		default:
			continue
		}
		all += scale(log, len(named), len(bare), tokens)
		found = true
	}
	if !found {
		return nil
	}
	return &all
}
