package spec

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// Pos is a place in a file. Line and Col count from 1; Line 0 means no place is known.
type Pos struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
}

func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// A Problem is one violation of one rule at one place.
type Problem struct {
	At    Pos    `json:"at"`
	Field string `json:"field"` // dotted path of the field, empty for the file as a whole
	What  string `json:"what"`  // what is wrong, with the offending text
	Fix   string `json:"fix"`   // the smallest change that passes
}

// String is one line: "file:line:col: field: what; fix".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.At.String())
	if p.Field != "" {
		b.WriteString(": ")
		b.WriteString(p.Field)
	}
	b.WriteString(": ")
	b.WriteString(p.What)
	if p.Fix != "" {
		b.WriteString("; ")
		b.WriteString(p.Fix)
	}
	return b.String()
}

// Problems are all violations found in one run, in the order of the files and of the lines in
// them. As an error they print one line each.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted puts problems in file order: files as they were named, then lines, then columns;
// rules that meet at one place keep the order in which they were checked.
func (ps Problems) sorted(files []string) Problems {
	rank := make(map[string]int, len(files))
	for i, f := range files {
		if _, ok := rank[f]; !ok {
			rank[f] = i
		}
	}
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i].At, ps[j].At
		if ra, rb := rank[a.File], rank[b.File]; ra != rb {
			return ra < rb
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Col < b.Col
	})
	return ps
}

// nearest returns the known name that is closest to s, or "" when none is close: more than a
// third of the name (at least one letter, at most four) would have to change.
func nearest(s string, known []string) string {
	best, at := "", max(1, min(4, (len(s)+1)/3))+1
	for _, k := range known {
		if d := EditDistance(s, k, at); d < at {
			best, at = k, d
		}
	}
	return best
}

// Nearest is the word that is the fewest changes of letters away, however many; of several the one that begins alike
// for longest, and of those the first. It is "" only when there is none.
func Nearest(word string, words []string) string {
	best, least := "", -1
	for _, w := range words {
		d := EditDistance(word, w, math.MaxInt)
		if least < 0 || d < least || d == least && alike(word, w) > alike(word, best) {
			best, least = w, d
		}
	}
	return best
}

// alike is how many letters two words begin with in common.
func alike(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// EditDistance is the optimal string alignment distance of a and b in bytes (a swap of neighbours
// counts one), or limit when it is not below it.
func EditDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev2, prev, cur := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
	}
	return min(rows[(len(a)+1)%3][len(b)], limit)
}
