package record

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// appendRequest writes the line of a request, with the bytes that encoding/json gives it without escapes
// of HTML. It is written by the goroutine that tells what to send next, and a request has a number for
// each of its chunks, which encoding/json takes by reflection.
func appendRequest(b []byte, q *Request) ([]byte, error) {
	e := encoder{b: b}
	e.b = strconv.AppendUint(append(e.b, `{"seq":`...), q.Seq, 10)
	e.whole(`,"lane":`, int64(q.Lane))
	e.whole(`,"play":`, int64(q.Play))
	e.text(`,"tree":`, q.Tree)
	e.text(`,"trace":`, q.Trace)
	e.text(`,"stream":`, q.Stream)
	e.whole(`,"depth":`, int64(q.Depth))
	e.whole(`,"turn":`, int64(q.Turn))
	e.unlessZero(`,"outer":`, int64(q.Outer))
	e.unlessZero(`,"inner":`, int64(q.Inner))
	e.text(`,"phase":`, string(q.Phase))
	e.text(`,"start":`, q.Start)
	e.text(`,"url":`, q.URL)
	e.text(`,"model":`, q.Model)
	e.whole(`,"want_in":`, q.WantIn)
	e.whole(`,"want_out":`, q.WantOut)
	t := &q.Times
	e.whole(`,"times":{"intended":`, t.Intended)
	e.whole(`,"queued":`, t.Queued)
	e.whole(`,"sent":`, t.Sent)
	e.whole(`,"headers":`, t.Headers)
	e.whole(`,"first_token":`, t.FirstToken)
	e.whole(`,"first_visible":`, t.FirstVisible)
	e.whole(`,"last_token":`, t.LastToken)
	e.whole(`,"end":`, t.End)
	e.whole(`},"prompt_tokens":`, q.PromptTokens)
	e.whole(`,"output_tokens":`, q.OutputTokens)
	e.whole(`,"reasoning_tokens":`, q.ReasoningTokens)
	e.whole(`,"hits":{"device":`, q.Hits.Device)
	e.whole(`,"host":`, q.Hits.Host)
	e.whole(`,"storage":`, q.Hits.Storage)
	e.whole(`,"total":`, q.Hits.Total)
	e.b = append(e.b, '}')
	if q.BadCount != "" {
		e.text(`,"bad_count":`, q.BadCount)
	}
	e.whole(`,"ceiling_tokens":`, q.CeilingTokens)
	e.whole(`,"join_wait":`, q.JoinWait)
	e.whole(`,"barrier_wait":`, q.BarrierWait)
	for i, c := range q.Chunks {
		before := `,{"at":`
		if i == 0 {
			before = `,"chunks":[{"at":`
		}
		e.whole(before, c.At)
		e.whole(`,"tokens":`, c.Tokens)
		e.b = append(e.b, '}')
	}
	if len(q.Chunks) > 0 {
		e.b = append(e.b, ']')
	}
	e.unlessZero(`,"frames":`, q.Frames)
	e.unlessZero(`,"text_bytes":`, q.TextBytes)
	if q.LocalOutput != nil {
		e.whole(`,"local_output":`, *q.LocalOutput)
	}
	if d := q.Doubt; d != nil {
		e.whole(`,"doubt":{"sent":`, d.Sent)
		e.whole(`,"first":`, d.First)
		e.whole(`,"last":`, d.Last)
		e.b = append(e.b, '}')
	}
	if w := q.Wire; w != nil {
		e.b = strconv.AppendBool(append(e.b, `,"wire":{"reused":`...), w.Reused)
		e.whole(`,"dns_ns":`, w.DNSNs)
		e.whole(`,"connect_ns":`, w.ConnectNs)
		e.whole(`,"written":`, w.Written)
		e.whole(`,"body":`, w.Body)
		e.whole(`,"bytes_out":`, w.BytesOut)
		e.whole(`,"bytes_in":`, w.BytesIn)
		e.whole(`,"body_out":`, w.BodyOut)
		e.whole(`,"body_in":`, w.BodyIn)
		e.whole(`,"writes":`, w.Writes)
		e.whole(`,"reads":`, w.Reads)
		e.b = append(e.b, '}')
	}
	if q.Failure != nil {
		e.b = append(e.b, `,"failure":`...)
		e.other(q.Failure)
	}
	if q.Resent {
		e.b = append(e.b, `,"resent":true`...)
	}
	return append(e.b, "}\n"...), e.err
}

// encoder appends to a line.
type encoder struct {
	b   []byte
	err error
}

func (e *encoder) whole(before string, v int64) {
	e.b = strconv.AppendInt(append(e.b, before...), v, 10)
}

func (e *encoder) unlessZero(before string, v int64) {
	if v != 0 {
		e.whole(before, v)
	}
}

func (e *encoder) text(before, s string) {
	e.b = append(e.b, before...)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			e.other(s)
			return
		}
	}
	e.b = append(append(append(e.b, '"'), s...), '"')
}

// other writes what is rare by encoding/json.
func (e *encoder) other(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && e.err == nil {
		e.err = err
	}
	e.b = append(e.b, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
