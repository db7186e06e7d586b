package client

import (
	"bytes"

	"github.com/weirbench/weir/internal/record"
)

// A tally is one count of a usage object. Servers spell it in several ways; the spelling that
// stands first in the list of synonyms wins, wherever it stands in the object.
type tally struct {
	n    int64
	rank int8 // of the spelling that gave n, counted from 1; 0 when nobody did
	bad  bool // the count was refused, so that an earlier one does not stand either
}

func (t tally) value() int64 {
	if t.rank == 0 {
		return record.Unknown
	}
	return t.n
}

// Spellings of counts in the order in which they win (AIPerf 0.7 common/models/usage_models.py,
// read 2026-07), with those of SGLang's meta_info.
const (
	rankOpenAI    int8 = iota + 1 // prompt_tokens, completion_tokens, *_details.cached_tokens
	rankAnthropic                 // input_tokens, output_tokens, cache_read_input_tokens
	rankDeepSeek                  // prompt_cache_hit_tokens
	rankGemini                    // promptTokenCount, candidatesTokenCount, cachedContentTokenCount
	rankCamel                     // inputTokens, outputTokens, cacheReadInputTokens
	rankOther                     // input_token_count, generated_token_count, cached_tokens
)

// usage is what a server said about the tokens of a request, as far as it said it.
type usage struct {
	prompt, output, reasoning tally
	cacheRead, cacheWrite     tally
	device, host, storage     tally  // SGLang's cached_tokens_details
	refused                   string // the first count that was none, as "name value"
}

// maxRefused is how many bytes of a count that is none are kept.
const maxRefused = 40

// set takes a count into t. A value that is no count of tokens (negative, a fraction, text, more
// than record.MaxTokens) leaves t as it is and is noted; null says nothing.
func (w *usage) set(t *tally, rank int8, s *jsonScan) {
	from := s.i
	n, ok := s.count()
	switch {
	case ok && n <= record.MaxTokens:
		if t.rank == 0 || rank <= t.rank {
			t.n, t.rank, t.bad = n, rank, false
		}
	case s.bad:
	default:
		raw := bytes.TrimSpace(s.b[from:s.i])
		if raw[0] == 'n' {
			return
		}
		t.bad = t.rank == 0
		if w.refused == "" {
			w.refused = clip(string(s.name)+" "+string(raw), maxRefused)
		}
	}
}

// believed is n when it is a count of tokens, else record.Unknown; sums of counts can be too large.
func believed(n int64) int64 {
	if n > record.MaxTokens {
		return record.Unknown
	}
	return n
}

// merge takes every count of u that is known into w, and forgets those that u has refused.
func (w *usage) merge(u *usage) {
	if w.refused == "" {
		w.refused = u.refused
	}
	for _, p := range [...][2]*tally{
		{&w.prompt, &u.prompt}, {&w.output, &u.output}, {&w.reasoning, &u.reasoning},
		{&w.cacheRead, &u.cacheRead}, {&w.cacheWrite, &u.cacheWrite},
		{&w.device, &u.device}, {&w.host, &u.host}, {&w.storage, &u.storage},
	} {
		if p[1].rank != 0 || p[1].bad {
			*p[0] = *p[1]
		}
	}
}

// promptTokens is the whole prompt. Anthropic's input_tokens leave out what was read from or
// written to the cache, so those are added.
func (w *usage) promptTokens() int64 {
	n := w.prompt.value()
	if n == record.Unknown || w.prompt.rank != rankAnthropic {
		return n
	}
	if w.cacheRead.bad || w.cacheWrite.bad {
		return record.Unknown
	}
	if w.cacheRead.rank == rankAnthropic {
		n += w.cacheRead.n
	}
	if w.cacheWrite.rank == rankAnthropic {
		n += w.cacheWrite.n
	}
	return believed(n)
}

// outputTokens is the whole output. Gemini's candidatesTokenCount leaves out the thoughts, so
// those are added.
func (w *usage) outputTokens() int64 {
	n := w.output.value()
	if w.output.rank == rankGemini && w.reasoning.bad {
		return record.Unknown
	}
	if n != record.Unknown && w.output.rank == rankGemini && w.reasoning.rank == rankGemini {
		n += w.reasoning.n
	}
	return believed(n)
}

func (w *usage) hits() record.Hits {
	h := record.Hits{Device: w.device.value(), Host: w.host.value(), Storage: w.storage.value(),
		Total: w.cacheRead.value()}
	if h.Total == record.Unknown && h.Device != record.Unknown && !w.host.bad && !w.storage.bad {
		h.Total = believed(h.Device + max(h.Host, 0) + max(h.Storage, 0))
	}
	return h
}

// read takes the members of a usage object, of SGLang's meta_info and of every other envelope
// that holds such counts.
func (w *usage) read(s *jsonScan) {
	if !s.object() {
		return
	}
	for s.key() {
		switch string(s.name) {
		case "prompt_tokens":
			w.set(&w.prompt, rankOpenAI, s)
		case "input_tokens":
			w.set(&w.prompt, rankAnthropic, s)
		case "promptTokenCount":
			w.set(&w.prompt, rankGemini, s)
		case "inputTokens":
			w.set(&w.prompt, rankCamel, s)
		case "input_token_count":
			w.set(&w.prompt, rankOther, s)

		case "completion_tokens":
			w.set(&w.output, rankOpenAI, s)
		case "output_tokens":
			w.set(&w.output, rankAnthropic, s)
		case "candidatesTokenCount":
			w.set(&w.output, rankGemini, s)
		case "outputTokens":
			w.set(&w.output, rankCamel, s)
		case "generated_token_count":
			w.set(&w.output, rankOther, s)

		case "cache_read_input_tokens":
			w.set(&w.cacheRead, rankAnthropic, s)
		case "prompt_cache_hit_tokens":
			w.set(&w.cacheRead, rankDeepSeek, s)
		case "cachedContentTokenCount":
			w.set(&w.cacheRead, rankGemini, s)
		case "cacheReadInputTokens":
			w.set(&w.cacheRead, rankCamel, s)
		case "cached_tokens":
			w.set(&w.cacheRead, rankOther, s)

		case "cache_creation_input_tokens":
			w.set(&w.cacheWrite, rankAnthropic, s)
		case "cacheWriteInputTokens":
			w.set(&w.cacheWrite, rankCamel, s)

		case "reasoning_tokens":
			w.set(&w.reasoning, rankAnthropic, s)
		case "thoughtsTokenCount":
			w.set(&w.reasoning, rankGemini, s)

		case "prompt_tokens_details", "input_tokens_details":
			w.details(s, &w.cacheRead)
		case "completion_tokens_details", "output_tokens_details":
			w.details(s, nil)
		case "cached_tokens_details":
			w.tiers(s)
		default:
			s.skip()
		}
	}
}

// details reads the details of prompt or output tokens; cached takes cached_tokens.
func (w *usage) details(s *jsonScan, cached *tally) {
	if !s.object() {
		return
	}
	for s.key() {
		switch n := string(s.name); {
		case n == "cached_tokens" && cached != nil:
			w.set(cached, rankOpenAI, s)
		case n == "reasoning_tokens" && cached == nil:
			w.set(&w.reasoning, rankOpenAI, s)
		case n == "cached_tokens_details":
			w.tiers(s)
		default:
			s.skip()
		}
	}
}

// tiers reads SGLang's split of cached tokens by the tier that held them (SGLang
// managers/schedule_batch.py and meta_info, 2026-07).
func (w *usage) tiers(s *jsonScan) {
	if !s.object() {
		return
	}
	for s.key() {
		switch string(s.name) {
		case "device":
			w.set(&w.device, rankOpenAI, s)
		case "host":
			w.set(&w.host, rankOpenAI, s)
		case "storage":
			w.set(&w.storage, rankOpenAI, s)
		default:
			s.skip()
		}
	}
}
