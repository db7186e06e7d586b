package result

import "github.com/weirbench/weir/internal/record"

// hits sums prompt tokens by the tier in which they were found. Requests that report the split
// and requests that report only the total are kept apart, so that a tier's share is never
// diluted by requests that did not speak of it.
type hits struct {
	device, host, storage, splitOf int64 // requests with a split
	total, totalOf                 int64 // requests with a total
	n                              int64
}

// total is the hit of q over all tiers, Unknown when it was not reported.
func total(q *record.Request) int64 {
	h := q.Hits
	if h.Total >= 0 {
		return h.Total
	}
	if h.Device < 0 {
		return record.Unknown
	}
	return h.Device + max(h.Host, 0) + max(h.Storage, 0)
}

// computed is the number of prompt tokens of q that had to be computed, else Unknown.
func (h *hits) computed(q *record.Request) int64 {
	sum := total(q)
	if sum < 0 || q.PromptTokens < 0 {
		return record.Unknown
	}
	return max(0, q.PromptTokens-sum)
}

// add counts q and returns computed(q).
func (h *hits) add(q *record.Request) int64 {
	sum := total(q)
	if sum < 0 || q.PromptTokens <= 0 {
		return record.Unknown
	}
	h.n++
	h.total += sum
	h.totalOf += q.PromptTokens
	if q.Hits.Device >= 0 {
		h.device += q.Hits.Device
		h.host += max(q.Hits.Host, 0)
		h.storage += max(q.Hits.Storage, 0)
		h.splitOf += q.PromptTokens
	}
	return h.computed(q)
}

// withholdHits leaves out every hit rate of a corpus that does not know which prompts share a
// prefix.
func (r *Result) withholdHits() {
	if r.Corpus.LengthsOnly > 0 {
		r.Hits, r.Intervals.HitTotal = Hits{}, nil
	}
}

func (h *hits) rates() Hits {
	of, all := float64(h.splitOf), float64(h.totalOf)
	return Hits{
		N:      h.n,
		Device: ratio(float64(h.device), of), Host: ratio(float64(h.host), of), Storage: ratio(float64(h.storage), of),
		Total: ratio(float64(h.total), all),
	}
}
