package prompt

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bpe merges the characters of a piece by rank until none merge.
type bpe struct {
	vocab map[string]int32
	rank  map[mergePair]int32
	whole bool // a piece in the vocabulary is taken as it is
	bytes bool // what is not in the vocabulary is a token a byte
}

func (b *bpe) encode(piece string) []int32 {
	if b.whole {
		if id, ok := b.vocab[piece]; ok {
			return []int32{id}
		}
	}
	start := make([]int32, 0, len(piece)+1)
	for i := range piece {
		start = append(start, int32(i))
	}
	return b.ids(mergeAll(piece, start, func(l, r string) (int32, bool) { k, ok := b.rank[mergePair{l, r}]; return k, ok }))
}

func (b *bpe) ids(parts []string) []int32 {
	ids := make([]int32, 0, len(parts))
	for _, p := range parts {
		id, ok := b.vocab[p]
		if !ok {
			id = -1
		}
		ids = append(ids, id)
		for n := 1; !ok && b.bytes && n < len(p); n++ {
			ids = append(ids, -1)
		}
	}
	return ids
}

// mergeAll merges the pair of lowest rank, the first of several, until no pair has a rank. start is
// where in piece its parts begin. The rank of a pair is asked for when it comes to be, not each time
// that one is sought: a file without a pattern that splits has whole sentences as one piece.
func mergeAll(piece string, start []int32, rank func(l, r string) (int32, bool)) []string {
	n := len(start)
	start = append(start, int32(len(piece)))
	part := func(i int) string { return piece[start[i]:start[i+1]] }
	const none = math.MaxInt32
	ranks := make([]int32, n) // of part i and the next
	ask := func(i int) {
		ranks[i] = none
		if i+1 < n {
			if k, ok := rank(part(i), part(i+1)); ok {
				ranks[i] = k
			}
		}
	}
	for i := range n {
		ask(i)
	}
	for {
		best, at := int32(none), -1
		for i, k := range ranks[:n] {
			if k < best {
				best, at = k, i
			}
		}
		if at < 0 {
			break
		}
		copy(start[at+1:], start[at+2:n+1])
		copy(ranks[at+1:], ranks[at+2:n])
		n--
		ask(at)
		if at > 0 {
			ask(at - 1)
		}
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return parts
}

// ranks is a vocabulary of tiktoken: two parts merge when together they are a token, the one
// of lowest rank first, and a piece that is a token is taken as it is.
type ranks struct{ rank map[string]int32 }

func (r *ranks) encode(piece string) []int32 {
	if id, ok := r.rank[piece]; ok {
		return []int32{id}
	}
	start := make([]int32, len(piece), len(piece)+1)
	for i := range start {
		start[i] = int32(i)
	}
	parts := mergeAll(piece, start, func(a, b string) (int32, bool) { k, ok := r.rank[a+b]; return k, ok })
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i] = r.rank[p]
	}
	return ids
}

// unigram cuts a piece into the tokens whose scores sum highest.
type unigram struct {
	pieces  []unigramPiece
	id      map[string]int32
	longest int // bytes
	unknown float64
	bytes   bool // what is not in the vocabulary is a token a byte
}

type unigramPiece struct {
	text  string
	score float64
}

func newUnigram(pieces []unigramPiece) *unigram {
	u := &unigram{pieces: pieces, id: make(map[string]int32, len(pieces))}
	lowest := 0.0
	for i, p := range u.pieces {
		u.id[p.text] = int32(i)
		u.longest = max(u.longest, len(p.text))
		lowest = min(lowest, p.score)
	}
	u.unknown = lowest - 10 // kUnkPenalty of SentencePiece
	return u
}

func (u *unigram) encode(piece string) []int32 {
	type node struct {
		score float64
		from  int
		id    int32
	}
	best := make([]node, len(piece)+1)
	for i := range best {
		best[i] = node{score: math.Inf(-1), id: -1}
	}
	best[0].score = 0
	for i := 0; i < len(piece); {
		_, width := utf8.DecodeRuneInString(piece[i:])
		if !math.IsInf(best[i].score, -1) {
			single := false
			for n := 1; n <= min(u.longest, len(piece)-i); n++ {
				id, ok := u.id[piece[i:i+n]]
				if !ok {
					continue
				}
				single = single || n == width
				if s := best[i].score + u.pieces[id].score; s > best[i+n].score {
					best[i+n] = node{s, i, id}
				}
			}
			if s := best[i].score + u.unknown; !single && s > best[i+width].score {
				best[i+width] = node{s, i, -1}
			}
		}
		i += width
	}
	var ids []int32
	for at := len(piece); at > 0; at = best[at].from {
		ids = append(ids, best[at].id)
		for n := at - best[at].from; u.bytes && best[at].id < 0 && n > 1; n-- {
			ids = append(ids, -1)
		}
	}
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids
}

// A step is a normalizer or a pre-tokenizer.
type step interface {
	apply(pieces []string) []string
}

// stepFile is a normalizer or pre-tokenizer of tokenizer.json.
type stepFile struct {
	Type           string      `json:"type"`
	Normalizers    []stepFile  `json:"normalizers"`
	PreTokenizers  []stepFile  `json:"pretokenizers"`
	Pattern        stepPattern `json:"pattern"`
	Content        string      `json:"content"`
	Prepend        string      `json:"prepend"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	AddPrefixSpace *bool       `json:"add_prefix_space"`
	PrependScheme  string      `json:"prepend_scheme"`
	Split          *bool       `json:"split"`
	UseRegex       *bool       `json:"use_regex"`
	Replacement    string      `json:"replacement"`
	Individual     bool        `json:"individual_digits"`
}

type stepPattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// addSteps appends what a file says under where; byteLevel reports a byte-level alphabet.
func (t *tokenizer) addSteps(where string, f *stepFile) (byteLevel bool, err error) {
	if f == nil {
		return false, nil
	}
	switch f.Type {
	case "Sequence":
		for _, list := range [][]stepFile{f.Normalizers, f.PreTokenizers} {
			for i := range list {
				b, err := t.addSteps(where, &list[i])
				if err != nil {
					return false, err
				}
				byteLevel = byteLevel || b
			}
		}
		return byteLevel, nil
	case "NFC": // what models write is composed
	case "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Precompiled", "Nmt", "Punctuation", "UnicodeScripts":
		t.inexact = f.Type // but lower-case letters and single spaces are what they were
	case "Digits":
		pattern := `\p{N}+`
		if f.Individual {
			pattern = `\p{N}`
		}
		t.pipe = append(t.pipe, split{re: regexp.MustCompile(pattern), behavior: "Isolated"})
	case "Strip":
		t.pipe = append(t.pipe, mapping(func(s string) string { return strings.Trim(s, " ") }))
	case "Prepend":
		t.pipe = append(t.pipe, mapping(func(s string) string { return f.Prepend + s }))
	case "Replace":
		return false, t.addReplace(where, f)
	case "Split":
		s, err := newSplit(where, f)
		if err != nil {
			return false, err
		}
		t.pipe = append(t.pipe, s)
	case "ByteLevel":
		if where == "normalizer" {
			t.pipe = append(t.pipe, mapping(toByteLevel))
			return true, nil
		}
		if f.AddPrefixSpace != nil && *f.AddPrefixSpace {
			t.pipe = append(t.pipe, mapping(func(s string) string {
				if strings.HasPrefix(s, " ") {
					return s
				}
				return " " + s
			}))
		}
		if f.UseRegex == nil || *f.UseRegex {
			t.pipe = append(t.pipe, gpt2Split)
		}
		t.pipe = append(t.pipe, mapping(toByteLevel))
		return true, nil
	case "Metaspace":
		t.pipe = append(t.pipe, newMetaspace(f))
	case "Whitespace", "WhitespaceSplit", "BertPreTokenizer":
		t.inexact = f.Type
		t.pipe = append(t.pipe, spaceSplit{})
	default:
		return false, fmt.Errorf("%s %q is not known to keep words apart; use the embedded list and check it with probes", where, f.Type)
	}
	return false, nil
}

func (t *tokenizer) addReplace(where string, f *stepFile) error {
	switch {
	case f.Pattern.String != nil:
		from := *f.Pattern.String
		t.pipe = append(t.pipe, mapping(func(s string) string { return strings.ReplaceAll(s, from, f.Content) }))
	case f.Pattern.Regex != nil:
		re, err := compile(*f.Pattern.Regex)
		if err != nil {
			return fmt.Errorf("%s Replace: %w", where, err)
		}
		t.pipe = append(t.pipe, mapping(func(s string) string { return re.ReplaceAllLiteralString(s, f.Content) }))
	}
	return nil
}

// mapping applies a function to every piece.
type mapping func(string) string

func (m mapping) apply(pieces []string) []string {
	for i, p := range pieces {
		pieces[i] = m(p)
	}
	return pieces
}

// byteAlphabet is that of byte-level BPE: bytes that print are themselves, the others the
// characters from U+0100 on, in order (GPT-2's bytes_to_unicode).
var byteAlphabet = func() (t [256]string) {
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xa1 && r <= 0xac || r >= 0xae && r <= 0xff) {
			r = next
			next++
		}
		t[b] = string(r)
	}
	return t
}()

func toByteLevel(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(byteAlphabet[s[i]])
	}
	return b.String()
}

// splitWords cuts before every space.
type splitWords struct{}

func (splitWords) apply(pieces []string) []string {
	var out []string
	for _, p := range pieces {
		for len(p) > 0 {
			n := strings.IndexByte(p[1:], ' ') + 1
			if n == 0 {
				n = len(p)
			}
			out, p = append(out, p[:n]), p[n:]
		}
	}
	return out
}

// spaceSplit cuts at spaces and takes them away.
type spaceSplit struct{}

func (spaceSplit) apply(pieces []string) (out []string) {
	for _, p := range pieces {
		out = append(out, strings.Fields(p)...)
	}
	return out
}

// metaspace writes spaces as a marker, puts one before the text and cuts before each.
type metaspace struct {
	marker  string
	prepend bool
	split   bool
}

func newMetaspace(f *stepFile) metaspace {
	m := metaspace{marker: f.Replacement, split: f.Split == nil || *f.Split}
	if m.marker == "" {
		m.marker = "▁"
	}
	switch {
	case f.PrependScheme != "":
		m.prepend = f.PrependScheme != "never"
	case f.AddPrefixSpace != nil:
		m.prepend = *f.AddPrefixSpace
	default:
		m.prepend = true
	}
	return m
}

func (m metaspace) apply(pieces []string) (out []string) {
	for _, p := range pieces {
		p = strings.ReplaceAll(p, " ", m.marker)
		if m.prepend && !strings.HasPrefix(p, m.marker) {
			p = m.marker + p
		}
		if !m.split {
			out = append(out, p)
			continue
		}
		for len(p) > 0 {
			n := strings.Index(p[1:], m.marker) + 1
			if n == 0 {
				n = len(p)
			}
			out, p = append(out, p[:n]), p[n:]
		}
	}
	return out
}

// split cuts at the matches of a pattern.
type split struct {
	re       *regexp.Regexp
	behavior string
	invert   bool
	ahead    bool // a run of spaces leaves its last to what follows
	newlines bool // but not one that ends a line
}

// gpt2Split is the pattern that byte-level pre-tokenizers have of their own (GPT-2).
var gpt2Split = func() split {
	pattern := `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	s, err := newSplit("", &stepFile{Behavior: "Isolated", Pattern: stepPattern{Regex: &pattern}})
	if err != nil {
		panic(err) // a test makes it
	}
	return s
}()

func newSplit(where string, f *stepFile) (split, error) {
	s := split{behavior: f.Behavior, invert: f.Invert}
	var err error
	switch {
	case f.Pattern.String != nil:
		s.re = regexp.MustCompile(regexp.QuoteMeta(*f.Pattern.String))
	case f.Pattern.Regex != nil:
		if s.re, err = compile(*f.Pattern.Regex); err != nil {
			return s, fmt.Errorf("%s Split: %w", where, err)
		}
		s.ahead = strings.Contains(*f.Pattern.Regex, lookAhead)
		s.newlines = strings.Contains(*f.Pattern.Regex, `\s*[\r\n]+`)
	default:
		return s, fmt.Errorf("%s Split has no pattern", where)
	}
	switch f.Behavior {
	case "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous":
		return s, nil
	}
	return s, fmt.Errorf("%s Split: behavior %q is not known", where, f.Behavior)
}

// lookAhead is how patterns leave the last of several spaces to the word that follows.
const lookAhead = `\s+(?!\S)`

// compile reads a pattern of Oniguruma. The alternative that looks ahead for white space is left
// out, see split.matches; possessive repeats are written as plain ones, and white space is
// Unicode's.
func compile(pattern string) (*regexp.Regexp, error) {
	p := strings.NewReplacer(`|`+lookAhead, "", lookAhead+`|`, "", `?+`, `?`, `++`, `+`, `*+`, `*`).Replace(pattern)
	re, err := regexp.Compile(wideSpaces(p))
	if err != nil {
		return nil, fmt.Errorf("pattern %.120q is not understood: %w", pattern, err)
	}
	return re, nil
}

// wideSpaces writes out what \s and \S are in Unicode.
func wideSpaces(p string) string {
	const white = `\t-\r\x{85}\p{Z}`
	var b strings.Builder
	inside := 0
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\' && i+1 < len(p):
			i++
			switch {
			case p[i] == 's' && inside > 0:
				b.WriteString(white)
			case p[i] == 's':
				b.WriteString("[" + white + "]")
			case p[i] == 'S' && inside == 0:
				b.WriteString("[^" + white + "]")
			default:
				b.WriteString(p[i-1 : i+1])
			}
			continue
		case c == '[':
			inside++
		case c == ']' && inside > 0:
			inside--
		}
		b.WriteByte(c)
	}
	return b.String()
}

// matches are the matches in p, one after the other. Where the pattern looks ahead, a run of
// several spaces before something else is one without its last.
func (s split) matches(p string) [][]int {
	all := s.re.FindAllStringIndex(p, -1)
	if !s.ahead {
		return all
	}
	for i := 0; i < len(all); i++ {
		m := all[i]
		run := p[m[0]:m[1]]
		if m[1] == len(p) || strings.TrimFunc(run, unicode.IsSpace) != "" || s.newlines && strings.ContainsAny(run[len(run)-1:], "\r\n") {
			continue
		}
		_, last := utf8.DecodeLastRuneInString(run)
		next, _ := utf8.DecodeRuneInString(p[m[1]:])
		if last == len(run) || unicode.IsSpace(next) {
			continue
		}
		m[1] -= last
		all = all[:i+1]
		for _, more := range s.re.FindAllStringIndex(p[m[1]:], -1) { // what follows begins earlier now
			all = append(all, []int{more[0] + m[1], more[1] + m[1]})
		}
	}
	return all
}

func (s split) apply(pieces []string) (out []string) {
	for _, p := range pieces {
		out = append(out, s.cut(p)...)
	}
	return out
}

func (s split) cut(p string) (out []string) {
	type part struct {
		text  string
		match bool
	}
	var parts []part
	at := 0
	for _, m := range s.matches(p) {
		if m[0] == m[1] {
			continue
		}
		if m[0] > at {
			parts = append(parts, part{p[at:m[0]], s.invert})
		}
		parts = append(parts, part{p[m[0]:m[1]], !s.invert})
		at = m[1]
	}
	if at < len(p) {
		parts = append(parts, part{p[at:], s.invert})
	}
	for i, q := range parts {
		switch {
		case !q.match || s.behavior == "Isolated":
			if q.match || s.behavior != "MergedWithNext" || i == 0 || !parts[i-1].match {
				out = append(out, q.text)
			} else {
				out[len(out)-1] += q.text
			}
		case s.behavior == "Removed":
		case s.behavior == "MergedWithPrevious" && i > 0 && !parts[i-1].match,
			s.behavior == "Contiguous" && i > 0 && parts[i-1].match:
			out[len(out)-1] += q.text
		default:
			out = append(out, q.text)
		}
	}
	return out
}
