package run

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

const (
	// framesPerStream is the rate of content frames, per second, that a request is assumed to have
	// while its answer comes: an interactivity of 50 tokens/s and a frame a token. How fast a server
	// is shows only in the run; a result says when it was faster than its calibration.
	framesPerStream = 50
	// assumedTTFT is the time to a first token, in seconds, that is assumed where a rate alone says
	// how much is in flight.
	assumedTTFT = 1
	// mostAtOnce is the number of streams above which a calibration has no more than the job has
	// lanes: that all lanes are at their peaks at once does not happen.
	mostAtOnce = 500
)

// expected is what is known before a run of how much it will have in flight, at most, and how many
// content frames will come a second.
func (j *Job) expected() (inFlight int, frames float64) {
	p := j.InFlight()
	inFlight = p.InFlight()
	if j.Load == nil {
		return max(min(inFlight, max(p.Units, mostAtOnce)), 1), framesPerStream * float64(max(p.Units, 1)) * min(busyAtOnce(j.Corpus), float64(max(p.Each, 1)))
	}
	rate, out := loadRate(j.Corpus, j.Load), meanOut(j.Corpus, j.Load)
	if inFlight == 0 { // nothing caps it: what a rate keeps in flight
		inFlight = int(min(math.Ceil(rate*(assumedTTFT+out/framesPerStream)), mostAtOnce))
	}
	frames = framesPerStream * float64(max(inFlight, 1))
	if rate > 0 {
		frames = min(frames, max(rate*out, 1))
	}
	return max(inFlight, 1), frames
}

// calibration is the load that a calibration for the job puts on the client.
func (j *Job) calibration(c *client.Config) client.Load {
	return client.LoadFor(j.expected()).Over(c)
}

// loadRate is how many requests a load sends a second; 0 where their ends decide.
func loadRate(c *corpus.Corpus, l *replay.Load) float64 {
	switch l.Arrival {
	case replay.Constant, replay.Poisson, replay.Gamma, replay.Users:
		return l.Rate
	case replay.Schedule:
		n, first, last := 0, int64(math.MaxInt64), int64(math.MinInt64)
		for _, t := range c.Traces {
			for turn := range sentTurns(t, l) {
				n, first, last = n+1, min(first, turn.StartNs), max(last, turn.StartNs)
			}
		}
		if last > first {
			return float64(n) / (float64(last-first) / 1e9) * cmp.Or(l.Speed, 1)
		}
	}
	return 0
}

// meanOut is the mean of the output tokens that a load's requests ask for.
func meanOut(c *corpus.Corpus, l *replay.Load) float64 {
	n, sum := 0, 0.0
	for _, t := range c.Traces {
		for turn := range sentTurns(t, l) {
			out := max(turn.Out, 1)
			if l.MaxOut > 0 {
				out = min(out, l.MaxOut)
			}
			n, sum = n+1, sum+float64(out)
		}
	}
	return sum / float64(max(n, 1))
}

// sentTurns are the turns of a trace that a load sends: the root's, or all.
func sentTurns(t *corpus.Trace, l *replay.Load) iter.Seq[*corpus.Turn] {
	return func(yield func(*corpus.Turn) bool) {
		for i := range t.Streams {
			if s := &t.Streams[i]; l.EachTurn || s.Parent < 0 {
				for k := range s.Turns {
					if !yield(&s.Turns[k]) {
						return
					}
				}
			}
		}
	}
}

// busyAtOnce is how many requests of one agent run were in flight on average while any was, on
// the recorded time lines: 1 at least, as where nobody recorded times.
func busyAtOnce(c *corpus.Corpus) float64 {
	sum, any := 0.0, 0.0
	var spans [][2]int64
	for _, t := range c.Traces {
		spans = spans[:0]
		for i := range t.Streams {
			for k := range t.Streams[i].Turns {
				if turn := &t.Streams[i].Turns[k]; turn.APINs > 0 {
					spans = append(spans, [2]int64{turn.StartNs, turn.EndNs()})
				}
			}
		}
		slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
		end := int64(math.MinInt64)
		for _, s := range spans {
			sum += float64(s[1] - s[0])
			if s[1] > end {
				any += float64(s[1] - max(s[0], end))
				end = s[1]
			}
		}
	}
	if any <= 0 {
		return 1
	}
	return max(sum/any, 1)
}
