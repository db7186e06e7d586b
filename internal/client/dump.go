package client

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// Dump writes a table of everything in flight, the longest silent first: what each request
// waits for and since when. It is for whoever has to find out why nothing moves.
func (t *Target) Dump(w io.Writer) {
	now := t.clock.Now()
	type line struct {
		x      *exchange
		stage  string
		silent int64
	}
	var lines []line
	t.mu.Lock()
	for x := range t.flying {
		stage, since := x.stage()
		lines = append(lines, line{x, stage, now - since})
	}
	t.mu.Unlock()
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.silent, a.silent), cmp.Compare(a.x.q.Seq, b.x.q.Seq))
	})
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%d requests in flight\nseq\tlane\ttree\tstream\tturn\tphase\twaits for\tsilent\tframes\tserver\n", len(lines))
	for _, l := range lines {
		q := &l.x.q
		fmt.Fprintf(tw, "%d\t%d\t%s\t%s\t%d\t%s\t%s\t%v\t%d\t%s\n", q.Seq, q.Lane, q.Tree, q.Trace.Streams[q.Stream].ID, q.Turn, q.Phase,
			l.stage, time.Duration(l.silent).Round(time.Millisecond), l.x.progress.frames.Load(), l.x.host.base)
	}
	tw.Flush()
}

// stage says what the exchange waits for and since when.
func (x *exchange) stage() (string, int64) {
	p := &x.progress
	if at := p.complete.Load(); at != record.Never {
		return "end of body", at
	}
	if at := p.token.Load(); at != record.Never {
		return "next token", at
	}
	if at := p.headers.Load(); at != record.Never {
		return "first token", at
	}
	if at := p.sent.Load(); at != record.Never {
		return "response head", at
	}
	return "body or connection", x.q.Queued
}
