package prompt

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// A list made for a tokenizer keeps the embedded words that fit it; with fewer than
	// these it takes words from the vocabulary as well.
	enoughWords, enoughFirst = 1024, 512
	// mostWords bounds the list when words are taken from a vocabulary, most frequent first.
	mostWords    = 4096
	shortestWord = 3 // letters of a word taken from a vocabulary
	longestWord  = 14
)

// FromTokenizer makes the word list of a model from its tokenizer.json (byte-level BPE,
// SentencePiece BPE and Unigram) or from a rank file of tiktoken (tiktoken.model). Every word
// is encoded by the rules of the file itself: with a leading space it is one token, and words
// in a row do not merge. The list knows the token id of each word; see AsIDs.
//
// name stands in messages and in Name. A file whose rules Weir does not know to keep words
// apart is refused by the name of the rule.
func FromTokenizer(name string, file []byte) (*Words, error) {
	t, err := ReadTokenizer(name, file)
	if err != nil {
		return nil, err
	}
	return t.Words()
}

// A Tokenizer is a model's tokenizer file, read once for its words and for counting.
type Tokenizer struct {
	name string
	t    *tokenizer
}

// ReadTokenizer reads a file of the kinds that FromTokenizer knows. name stands in messages.
func ReadTokenizer(name string, file []byte) (*Tokenizer, error) {
	parse := parseRanks
	if trimmed := bytes.TrimSpace(file); len(trimmed) > 0 && trimmed[0] == '{' {
		parse = parseTokenizer
	}
	t, err := parse(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Tokenizer{name, t}, nil
}

// Words is the list that FromTokenizer makes.
func (t *Tokenizer) Words() (*Words, error) {
	w, err := t.t.words(t.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return w, nil
}

// AsIDs is the same list for endpoints that take token ids, nil when it has no ids: the prompt
// is then the ids that the model's tokenizer makes of the text.
func (w *Words) AsIDs() *Words {
	if w.ids == nil {
		return nil
	}
	return w.withIDs(w.ids)
}

// IDs returns the token id of every word of List in order, nil when they are not known.
func (w *Words) IDs() []int32 { return append([]int32(nil), w.ids...) }

// choosing names the rules by which a list is chosen, and the embedded words. Whoever changes
// tokenizer.words, or what it calls, counts it up: lists that were kept are then made again.
var choosing = sync.OnceValue(func() string {
	return fmt.Sprintf("1 %x", sha256.Sum256([]byte(defaultText)))
})

// A WordsKey names the list that a tokenizer file gives: the same file, the same rules, the same list.
func WordsKey(file []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", choosing())
	h.Write(file)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Kept is a list as text, to be kept under its WordsKey; see FromKept.
func (w *Words) Kept() []byte {
	k := keptWords{First: int(w.nFirst), IDs: w.ids}
	k.Words, _ = w.List()
	b, err := json.Marshal(k)
	if err != nil {
		return nil // there is nothing in it that cannot be written
	}
	return b
}

type keptWords struct {
	First int      `json:"first"`
	Words []string `json:"words"`
	IDs   []int32  `json:"ids"`
}

// FromKept is the list that Kept wrote for this tokenizer. It is refused where the tokenizer makes
// other tokens of random text of it than the list says.
func (t *Tokenizer) FromKept(kept []byte) (*Words, error) {
	var k keptWords
	if err := json.Unmarshal(kept, &k); err != nil {
		return nil, err
	}
	if k.First < 0 || k.First > len(k.Words) || len(k.IDs) != len(k.Words) {
		return nil, fmt.Errorf("%d words, %d of them first, %d ids", len(k.Words), k.First, len(k.IDs))
	}
	w, err := newWords(t.name, k.Words[:k.First], k.Words[k.First:])
	if err != nil {
		return nil, err
	}
	w.ids = k.IDs
	x := uint64(len(k.IDs))
	lead := t.t.encode(" the")
	for range 8 {
		text, want := " the", slices.Clone(lead)
		for range 16 {
			x = mix(x)
			i := bound(x, uint32(len(w.word)))
			text, want = text+w.word[i], append(want, w.ids[i])
		}
		if got := t.t.encode(text); !slices.Equal(got, want) {
			return nil, fmt.Errorf("tokens %v of %q, want %v", got, text, want)
		}
	}
	return w, nil
}

// A tokenizer is what decides how lower-case words apart by single spaces become tokens.
type tokenizer struct {
	model  encoder
	pipe   []step          // normalizers and pre-tokenizers, in order
	vocab  func() []string // tokens by id, for words of its own
	marker string          // how a space before a word looks in vocab
	added  []string        // added tokens: they are cut out before anything else
	// inexact names a step that is only known for lower-case words and single spaces, empty
	// where any text becomes the tokens that it should.
	inexact string
}

// An encoder cuts one piece of text into tokens.
type encoder interface {
	encode(piece string) []int32
}

// remembered is an encoder that encodes no piece twice: what is asked of the few thousand words of
// a list is much the same.
type remembered struct {
	encoder
	known map[string][]int32
}

func (r *remembered) encode(piece string) []int32 {
	ids, ok := r.known[piece]
	if !ok {
		ids = r.encoder.encode(piece)
		r.known[piece] = ids
	}
	return ids
}

// encode returns the tokens of a text.
func (t *tokenizer) encode(text string) []int32 {
	pieces := []string{text}
	for _, s := range t.pipe {
		pieces = s.apply(pieces)
	}
	var ids []int32
	for _, p := range pieces {
		ids = append(ids, t.model.encode(p)...)
	}
	return ids
}

// words chooses the list: embedded words that are one token, and where too few are, words of
// the vocabulary.
func (t *tokenizer) words(name string) (*Words, error) {
	// An added token with anything else in it is in no word.
	added := slices.DeleteFunc(slices.Clone(t.added), func(s string) bool { return !isLower(strings.ReplaceAll(s, " ", "")) })
	t = &tokenizer{model: &remembered{encoder: t.model, known: map[string][]int32{}}, pipe: t.pipe, vocab: t.vocab, marker: t.marker, added: added}
	base, nBase := Default().List()
	ids := map[string]int32{}
	var first, more []string
	// The embedded words keep their places, so that a list that keeps all of them writes the
	// same text as the embedded one.
	the := len(t.encode(" the"))
	take := func(s string, id int32, mayBegin bool) {
		if ids[s] = id; mayBegin && len(t.encode(s)) == 1 && len(t.encode(" "+s)) == the {
			first = append(first, s)
		} else {
			more = append(more, s)
		}
	}
	for i, id := range t.tokensOf(base) {
		if id >= 0 {
			take(base[i], id, i < nBase)
		}
	}
	own := len(first) < enoughFirst || len(first)+len(more) < enoughWords
	if own {
		for _, v := range t.vocab() {
			s, ok := strings.CutPrefix(v, t.marker)
			if len(first)+len(more) >= mostWords {
				break
			}
			if _, known := ids[s]; !ok || known || len(s) < shortestWord || len(s) > longestWord || !isLower(s) {
				continue
			}
			if id := t.tokensOf([]string{s})[0]; id >= 0 {
				take(s, id, true)
			}
		}
	}
	if len(first) == 0 && len(more) == 0 {
		return nil, fmt.Errorf("no lower-case word is one token with a leading space (of %d embedded words and %d of the vocabulary)", len(base), len(t.vocab()))
	}
	first, more = t.settle(first, more)
	w, err := newWords(name, first, more)
	if err != nil {
		return nil, err
	}
	w.ids = make([]int32, len(w.word))
	for i, s := range w.word {
		w.ids[i] = ids[s[1:]]
	}
	return w, nil
}

// together is how many words are encoded at once: a text has its cost, whatever its length.
const together = 64

// tokensOf is for each word the token that it is with a leading space between two others, -1 where
// it is none or has an added token in it.
func (t *tokenizer) tokensOf(words []string) []int32 {
	const the = " the"
	lead := len(t.encode(the))
	of := func(words []string) (ids []int32, all bool) {
		var b strings.Builder
		b.WriteString(the)
		for _, s := range words {
			b.WriteString(" " + s + the)
		}
		got := t.encode(b.String())
		if len(got) != lead+2*len(words) {
			return nil, false
		}
		for i := range words {
			at := lead + 2*i
			if got[at] < 0 || got[at+1] != got[lead+1] {
				return nil, false
			}
			ids = append(ids, got[at])
		}
		return ids, true
	}
	var out []int32
	for chunk := range slices.Chunk(words, together) {
		if ids, ok := of(chunk); ok && !slices.ContainsFunc(chunk, t.holdsAdded) {
			out = append(out, ids...)
			continue
		}
		for _, s := range chunk {
			id := int32(-1)
			if ids, ok := of([]string{s}); ok && len(t.encode(the+" "+s)) == lead+1 && !t.holdsAdded(s) {
				id = ids[0]
			}
			out = append(out, id)
		}
	}
	return out
}

// settle drops words until random text of the others counts exactly: words that merge with a
// neighbour go.
func (t *tokenizer) settle(first, more []string) (f, m []string) {
	all := append(append([]string{}, first...), more...)
	base := len(t.encode(" the")) - 1 // a token for the start of the text, in some
	drop := map[string]bool{}
	x := uint64(1)
	for range 4 * len(all) / 16 {
		var b strings.Builder
		var in [16]string
		for i := range in {
			x = mix(x)
			in[i] = all[bound(x, uint32(len(all)))]
			b.WriteString(" " + in[i])
		}
		if len(t.encode(b.String())) == len(in)+base {
			continue
		}
		for i := 1; i < len(in); i++ {
			if len(t.encode(" "+in[i-1]+" "+in[i])) != 2+base {
				drop[in[i]] = true
			}
		}
	}
	keep := func(list []string) (kept []string) {
		for _, s := range list {
			if !drop[s] {
				kept = append(kept, s)
			}
		}
		return kept
	}
	return keep(first), keep(more)
}

func (t *tokenizer) holdsAdded(s string) bool {
	s = " " + s
	return slices.ContainsFunc(t.added, func(a string) bool { return strings.Contains(s, a) })
}

func isLower(s string) bool {
	for _, c := range []byte(s) {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// tokenizerFile is tokenizer.json of the tokenizers library, version 1.0.
type tokenizerFile struct {
	AddedTokens []struct {
		Content string `json:"content"`
	}
	Normalizer   *stepFile
	PreTokenizer *stepFile
	Model        modelFile
}

// modelFile is its model: Vocab and Merges of BPE, Pieces of Unigram.
type modelFile struct {
	Type           string
	Vocab          map[string]int32
	Pieces         []unigramPiece
	Merges         []mergePair
	IgnoreMerges   bool
	Prefix, Suffix string // continuing_subword_prefix, end_of_word_suffix
	ByteFallback   bool
}

// A mergePair is one merge, left and right.
type mergePair [2]string

func parseTokenizer(file []byte) (*tokenizer, error) {
	f, err := parseTokenizerFile(file)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t := &tokenizer{}
	for _, a := range f.AddedTokens {
		if a.Content != "" {
			t.added = append(t.added, a.Content)
		}
	}
	// An added token may be the beginning of another.
	slices.SortStableFunc(t.added, func(a, b string) int { return len(b) - len(a) })
	byteLevel, err := t.addSteps("normalizer", f.Normalizer)
	if err != nil {
		return nil, err
	}
	pre, err := t.addSteps("pre_tokenizer", f.PreTokenizer)
	if err != nil {
		return nil, err
	}
	t.marker = "▁"
	if byteLevel || pre {
		t.marker = "Ġ"
	}
	m := &f.Model
	kind := m.Type
	if kind == "" { // files of old versions do not say
		kind = "BPE"
		if m.Pieces != nil {
			kind = "Unigram"
		}
	}
	switch kind {
	case "BPE":
		if m.Prefix != "" || m.Suffix != "" {
			return nil, fmt.Errorf("model: continuing_subword_prefix %q and end_of_word_suffix %q are not supported", m.Prefix, m.Suffix)
		}
		if m.Pieces != nil {
			return nil, fmt.Errorf("model.vocab is a list; that of BPE is an object of tokens and their ids")
		}
		b := &bpe{vocab: m.Vocab, whole: m.IgnoreMerges, bytes: m.ByteFallback, rank: make(map[mergePair]int32, len(m.Merges))}
		for i, p := range m.Merges {
			if _, known := b.rank[p]; !known {
				b.rank[p] = int32(i)
			}
		}
		t.model, t.vocab = b, func() []string { return byID(m.Vocab) }
	case "Unigram":
		if m.Vocab != nil {
			return nil, fmt.Errorf("model.vocab is an object; that of Unigram is a list of pieces and their scores")
		}
		u := newUnigram(m.Pieces)
		u.bytes = m.ByteFallback
		t.model = u
		t.vocab = func() (all []string) {
			for _, p := range u.pieces {
				all = append(all, p.text)
			}
			return all
		}
	default:
		return nil, fmt.Errorf("model type %q is not supported; byte-level BPE, SentencePiece BPE and Unigram are", kind)
	}
	return t, nil
}

// byID lists the tokens of a vocabulary by id.
func byID(vocab map[string]int32) []string {
	all := make([]string, 0, len(vocab))
	for s := range vocab {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(vocab[a], vocab[b]), strings.Compare(a, b)) })
	return all
}

// parseRanks reads a rank file of tiktoken: lines of a token in base64 and its rank. Such
// files do not say how text is split before; words with a space before them stay whole in
// every pattern in use.
func parseRanks(file []byte) (*tokenizer, error) {
	r := &ranks{rank: make(map[string]int32, 1<<17)}
	line := 0
	for len(file) > 0 {
		line++
		var l []byte
		l, file, _ = bytes.Cut(file, []byte("\n"))
		if len(bytes.TrimSpace(l)) == 0 {
			continue
		}
		token, rank, ok := strings.Cut(string(bytes.TrimSpace(l)), " ")
		raw, err := base64.StdEncoding.DecodeString(token)
		n, err2 := strconv.ParseInt(rank, 10, 32)
		if !ok || err != nil || err2 != nil || n < 0 {
			return nil, fmt.Errorf("line %d: %.60q is neither tokenizer.json nor a token in base64 and its rank", line, l)
		}
		r.rank[string(raw)] = int32(n)
	}
	if len(r.rank) == 0 {
		return nil, fmt.Errorf("the file is empty")
	}
	return &tokenizer{model: r, pipe: []step{splitWords{}}, vocab: func() []string { return byID(r.rank) }, marker: " ", inexact: "a rank file, which does not say how text is split"}, nil
}
