package result

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// maxExample is how many bytes of a failure's detail a reason quotes.
const maxExample = 160

// failures counts failed requests by class and keeps the earliest of each as an example.
type failures map[record.Class]*failed

type failed struct {
	n      int64
	seq    uint64 // of the earliest
	trace  string
	lane   int
	detail string
}

func (f *failures) add(q *record.Request) {
	if *f == nil {
		*f = failures{}
	}
	c := (*f)[q.Failure.Class]
	if c == nil {
		c = &failed{}
		(*f)[q.Failure.Class] = c
	}
	c.n++
	if c.n == 1 || q.Seq < c.seq {
		c.seq, c.trace, c.lane = q.Seq, short(q.Trace), q.Lane
		c.detail = short(strings.Join(strings.Fields(strings.ToValidUTF8(q.Failure.Detail, "\ufffd")), " "))
	}
}

func (f failures) total() (n int64) {
	for _, c := range f {
		n += c.n
	}
	return n
}

// earliest is of the failed request that was dispatched first, nil without any.
func (f failures) earliest() (e *failed) {
	for _, c := range f {
		if e == nil || c.seq < e.seq {
			e = c
		}
	}
	return e
}

// most says which class failed most often, how often and with what detail for example, with
// "; " in front; empty when nothing failed. Of equal classes it is the first by name.
func (f failures) most() string {
	if len(f) == 0 {
		return ""
	}
	class := slices.SortedFunc(maps.Keys(f), func(a, b record.Class) int {
		return cmp.Or(cmp.Compare(f[b].n, f[a].n), cmp.Compare(a, b))
	})[0]
	return "; " + f.example(class)
}

// example is a class with its count and the detail of its earliest failure.
func (f failures) example(class record.Class) string {
	c := f[class]
	if c == nil {
		return ""
	}
	s := fmt.Sprintf("%d %s", c.n, class)
	if c.detail != "" {
		s += ": " + c.detail
	}
	return s
}

// short is s, cut between characters to at most maxExample bytes.
func short(s string) string {
	if len(s) <= maxExample {
		return s
	}
	return strings.ToValidUTF8(s[:maxExample-3], "") + "..."
}
