package prompt

import (
	_ "embed"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

const (
	// ringWords is the length of the random text that blocks are cut from, in words.
	ringWords = 1 << 16
	// pieceWords is the most that is written at once; a longer block is written in pieces.
	pieceWords = 512
	// maxWordBytes bounds a word, its leading space included.
	maxWordBytes = 24
	// minWords and minFirst are the smallest list that still tells blocks apart in a few words.
	minWords, minFirst = 64, 32
)

// Words is a list of words that are one token each in some tokenizers, and the text made of
// them. A word is written with a leading space; text of n words is n tokens, whatever the
// words and wherever the text stands. It is immutable and safe for concurrent use.
//
// The same list gives the same text for the same block of the same trace on every machine.
type Words struct {
	name string
	// word[i] is " word" in text and ",id" in a list of token ids. The first nFirst words
	// are one token without the leading space too, so that they may begin a message whose
	// template trims it; the last tailFirst of those begin tails and never blocks.
	word    []string
	nBlock  uint32 // word[:nBlock] begin blocks
	nFirst  uint32 // word[nBlock:nFirst] begin tails
	idLen   int    // words at the head of a block that spell its identity
	longest int    // bytes of the longest word, separator included

	ring string   // ringWords random words, and the first pieceWords of them again
	off  []uint32 // byte offset of word i of ring; one more than there are words
	ids  []int32  // token ids by word; nil when they are not known
}

//go:embed words.txt
var defaultText string

var defaultWords = sync.OnceValue(func() *Words {
	first, more, err := parseWords(defaultText)
	if err != nil {
		panic(err) // the embedded list is checked by a test
	}
	w, err := newWords("common", first, more)
	if err != nil {
		panic(err)
	}
	return w
})

// Default is the embedded list: 4,096 lower-case words, each one token with a leading space in
// the tokenizers of Qwen 3, Llama 3, DeepSeek, GLM, gpt-oss, Kimi, Gemma 3, Mistral and Claude.
func Default() *Words { return defaultWords() }

// Name says where the list comes from: "common" for the default, else what the loader gave.
func (w *Words) Name() string { return w.name }

// Len is the number of words.
func (w *Words) Len() int { return len(w.word) }

// List returns the words without their leading space; the first n of them are one token
// without it too.
func (w *Words) List() (words []string, n int) {
	words = make([]string, len(w.word))
	for i, s := range w.word {
		words[i] = s[1:]
	}
	return words, int(w.nFirst)
}

// parseWords reads the form of words.txt: words apart by white space under [first] and [more],
// "#" begins a comment.
func parseWords(text string) (first, more []string, err error) {
	var into *[]string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, f := range strings.Fields(line) {
			switch {
			case f == "[first]":
				into = &first
			case f == "[more]":
				into = &more
			case into == nil:
				return nil, nil, fmt.Errorf("line %d: word %q before [first]", i+1, f)
			default:
				*into = append(*into, f)
			}
		}
	}
	return first, more, nil
}

// newWords makes a list of first, which are one token with and without a leading space, and
// more, which are one token with it.
func newWords(name string, first, more []string) (*Words, error) {
	if len(first) < minFirst || len(first)+len(more) < minWords {
		return nil, fmt.Errorf("%s: %d words, %d of them also one token without a leading space; needs at least %d and %d",
			name, len(first)+len(more), len(first), minWords, minFirst)
	}
	all := make([]string, 0, len(first)+len(more))
	seen := make(map[string]bool, cap(all))
	for _, s := range append(append([]string{}, first...), more...) {
		if len(s) == 0 || len(s) >= maxWordBytes {
			return nil, fmt.Errorf("%s: word %q has %d bytes; 1 to %d are allowed", name, s, len(s), maxWordBytes-1)
		}
		for _, c := range []byte(s) {
			if c < 'a' || c > 'z' {
				return nil, fmt.Errorf("%s: word %q is not of the letters a to z", name, s)
			}
		}
		if seen[s] {
			return nil, fmt.Errorf("%s: word %q is there twice", name, s)
		}
		seen[s] = true
		all = append(all, " "+s)
	}
	return buildWords(name, all, len(first)), nil
}

// IDRange is a list of the token ids lo to hi-1 for endpoints that take ids: every id stands
// for itself, so that no tokenizer is needed. It fails unless 0 <= lo and hi-lo >= 64.
func IDRange(lo, hi int32) (*Words, error) {
	if lo < 0 || int64(hi)-int64(lo) < minWords {
		return nil, fmt.Errorf("token ids %d to %d: needs at least %d ids from 0 up", lo, int64(hi)-1, minWords)
	}
	all := make([]string, 0, hi-lo)
	for id := lo; id < hi; id++ {
		all = append(all, ","+strconv.Itoa(int(id)))
	}
	w := buildWords(fmt.Sprintf("ids %d-%d", lo, hi-1), all, len(all)/2)
	w.ids = make([]int32, len(all))
	for i := range w.ids {
		w.ids[i] = lo + int32(i)
	}
	return w, nil
}

// buildWords lays out the text of a list whose words carry their leading separator.
func buildWords(name string, word []string, nFirst int) *Words {
	tails := max(2, nFirst/9) &^ 1
	w := &Words{name: name, word: word, nBlock: uint32(nFirst - tails), nFirst: uint32(nFirst), idLen: 1}
	for span := uint64(w.nBlock); span < 1<<32; span *= uint64(len(word)) {
		w.idLen++
	}
	for _, s := range word {
		w.longest = max(w.longest, len(s))
	}
	var b strings.Builder
	w.off = make([]uint32, 0, ringWords+pieceWords+1)
	x := mix(uint64(len(word)))
	for i := range ringWords + pieceWords {
		if i == ringWords { // the ring closes: its beginning stands again behind its end
			x = mix(uint64(len(word)))
		}
		w.off = append(w.off, uint32(b.Len()))
		x = mix(x)
		b.WriteString(word[bound(x, uint32(len(word)))])
	}
	w.off = append(w.off, uint32(b.Len()))
	w.ring = b.String()
	return w
}

// withIDs is the same list written as token ids, ids[i] for word i.
func (w *Words) withIDs(ids []int32) *Words {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = "," + strconv.Itoa(int(id))
	}
	v := buildWords(w.name, all, int(w.nFirst))
	v.ids = ids
	return v
}

// mix scrambles 64 bits; distinct inputs give distinct outputs (the finaliser of SplitMix64,
// Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// bound maps a random x into [0, n).
func bound(x uint64, n uint32) uint32 {
	hi, _ := bits.Mul64(x, uint64(n))
	return uint32(hi)
}

// keyOf is the key of a trace or stream: FNV-1a of its id, scrambled.
func keyOf(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return mix(h)
}

// head picks the words that spell block id of the trace with the given key: distinct ids give
// distinct spellings, and ids less than nBlock apart differ in the first word. It returns
// how many of the idLen words it gave.
func (w *Words) head(key uint64, id uint32, at *[8]uint32) int {
	n := uint32(len(w.word))
	r, q := id%w.nBlock, id/w.nBlock
	at[0] = (r + uint32(key)%w.nBlock) % w.nBlock
	s := mix(key ^ uint64(r))
	for i := 1; i < w.idLen; i++ {
		at[i] = (q%n + uint32(s)%n) % n
		q /= n
		s = mix(s)
	}
	return w.idLen
}

// appendBlock appends piece j of the first n tokens of block id: words j*pieceWords up to
// (j+1)*pieceWords of them.
func (w *Words) appendBlock(dst []byte, key uint64, id uint32, n, j int) []byte {
	left := min(n-j*pieceWords, pieceWords)
	if j == 0 {
		var at [8]uint32
		k := min(w.head(key, id, &at), left)
		for _, i := range at[:k] {
			dst = append(dst, w.word[i]...)
		}
		left -= k
	}
	return append(dst, w.cut(mix(key+uint64(id))+uint64(j), left)...)
}

// cut is n <= pieceWords words of the ring from a place that x picks.
func (w *Words) cut(x uint64, n int) string {
	at := bound(mix(x), ringWords)
	return w.ring[w.off[at]:w.off[int(at)+n]]
}

func (w *Words) cutBytes(x uint64, n int) int64 {
	at := bound(mix(x), ringWords)
	return int64(w.off[int(at)+n] - w.off[at])
}

// blockBytes is the length of the first n tokens of block id as text.
func (w *Words) blockBytes(key uint64, id uint32, n int) int64 {
	var at [8]uint32
	k := min(w.head(key, id, &at), n)
	var sum int64
	for _, i := range at[:k] {
		sum += int64(len(w.word[i]))
	}
	x := mix(key + uint64(id))
	for j := 0; j*pieceWords < n; j++ {
		left := min(n-j*pieceWords, pieceWords)
		if j == 0 {
			left -= k
		}
		sum += w.cutBytes(x+uint64(j), left)
	}
	return sum
}

// A tail is text that no block stands for: the tokens of a prompt behind its last full
// block. It begins with a word that begins no block, and the tails of consecutive turns begin
// with different words.
type tail struct {
	key  uint64 // of trace, stream and turn
	turn int
	n    int64 // tokens
}

func newTail(streamKey uint64, turn int, n int64) tail {
	return tail{key: mix(streamKey ^ mix(uint64(turn))), turn: turn, n: n}
}

func (w *Words) tailFirst(t tail) string {
	half := (w.nFirst - w.nBlock) / 2
	return w.word[w.nBlock+uint32(t.turn&1)*half+bound(t.key, half)]
}

// appendTail appends piece j of a tail.
func (w *Words) appendTail(dst []byte, t tail, j int64) []byte {
	left := int(min(t.n-j*pieceWords, pieceWords))
	if j == 0 && left > 0 {
		dst = append(dst, w.tailFirst(t)...)
		left--
	}
	return append(dst, w.cut(t.key+uint64(j), left)...)
}

func (w *Words) tailBytes(t tail) int64 {
	var sum int64
	for j := int64(0); j*pieceWords < t.n; j++ {
		left := int(min(t.n-j*pieceWords, pieceWords))
		if j == 0 {
			sum += int64(len(w.tailFirst(t)))
			left--
		}
		sum += w.cutBytes(t.key+uint64(j), left)
	}
	return sum
}
