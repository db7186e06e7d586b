package simhttp

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weirbench/weir/internal/record"
)

// stream is an answer as server-sent events, a frame for the tokens of each step.
type stream struct {
	a    *answering
	c    *http.ResponseController
	head string // of every frame, up to the choices
	buf  []byte
	eol  string
}

func newStream(a *answering) *stream {
	kind := "text_completion"
	if a.d == chatDialect {
		kind = "chat.completion.chunk"
	}
	model, _ := json.Marshal(a.s.o.Model)
	o := &stream{a: a, c: http.NewResponseController(a.w), eol: "\n"}
	o.head = fmt.Sprintf(`{"id":%q,"object":%q,"created":%d,"model":%s,`, a.id, kind, a.begin.Unix(), model)
	if a.strike.has("sse-crlf") {
		o.eol = "\r\n"
	}
	return o
}

func (o *stream) begin() error {
	h := o.a.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	o.a.w.WriteHeader(200)
	return o.c.Flush()
}

// frame queues one frame with the given data.
func (o *stream) frame(data string) {
	o.buf = append(o.buf, "data: "...)
	o.buf = append(o.buf, data...)
	o.buf = append(o.buf, o.eol...)
	o.buf = append(o.buf, o.eol...)
}

// send writes what is queued.
func (o *stream) send() error {
	b := o.buf
	o.buf = o.buf[:0]
	if o.a.strike.has("sse-split") {
		for len(b) > 7 {
			if _, err := o.a.w.Write(b[:7]); err != nil {
				return err
			}
			if err := o.c.Flush(); err != nil {
				return err
			}
			b = b[7:]
		}
	}
	if _, err := o.a.w.Write(b); err != nil {
		return err
	}
	return o.c.Flush()
}

// choice queues a frame with one choice; inner is its delta or text.
func (o *stream) choice(inner, finish string) {
	usage := ""
	if o.a.q.Options.Continuous {
		if u := o.a.usage(); u != nil {
			b, _ := json.Marshal(u)
			usage = `,"usage":` + string(b)
		}
	}
	if finish == "" {
		finish = "null"
	} else {
		finish = `"` + finish + `"`
	}
	o.frame(o.head + `"choices":[{"index":0,` + inner + `,"logprobs":null,"finish_reason":` + finish + `}]` + usage + `}`)
}

func (o *stream) tokens(from, n int64) error {
	a := o.a
	if a.d == generateDialect {
		o.frame(o.generated())
		return o.send()
	}
	if from == 0 && a.d == chatDialect {
		o.choice(`"delta":{"role":"assistant","content":""}`, "")
	}
	if a.strike.has("sse-comments") {
		o.buf = append(o.buf, ": still here"+o.eol+o.eol...)
	}
	if a.strike.has("sse-empty-choices") {
		o.frame(o.head + `"choices":[]}`)
	}
	if t := a.reasoning(from, n); t > 0 && a.d == chatDialect {
		o.choice(`"delta":{"reasoning_content":"`+answer(a.seed, from, t)+`"}`, "")
		from, n = from+t, n-t
	}
	if n > 0 {
		if a.d == chatDialect {
			o.choice(`"delta":{"content":"`+answer(a.seed, from, n)+`"}`, "")
		} else {
			o.choice(`"text":"`+answer(a.seed, from, n)+`"`, "")
		}
	}
	if a.strike.has("sse-merged") && len(o.buf) < 4096 && a.out < a.want {
		return nil
	}
	return o.send()
}

// generated is a frame of /generate: the whole text so far.
func (o *stream) generated() string {
	b, _ := json.Marshal(map[string]any{"text": answer(o.a.seed, 0, o.a.out), "meta_info": o.a.meta()})
	return string(b)
}

func (o *stream) broken(fault string) error {
	switch fault {
	case "sse-bad-json":
		o.frame(`{"id":"broken","choices":[{"index":0,"delta":{"content":"`)
	case "sse-error":
		b, _ := json.Marshal(o.a.s.errorBody(500, "InternalServerError", "a fault that was asked for"))
		if o.a.s.o.Engine == "sglang" {
			b = []byte(`{"error":` + string(b) + `}`)
		}
		o.frame(string(b))
		o.frame("[DONE]")
		o.send()
		return errGone
	case "sse-truncated":
		o.buf = append(o.buf, `data: {"id":"cut","choices":[{"ind`...)
		o.send()
		return errGone
	case "sse-no-tokens":
		if o.a.d == chatDialect {
			o.choice(`"delta":{"role":"assistant","content":""}`, "")
		}
		o.frame("[DONE]")
		o.send()
		return errGone
	}
	return o.send()
}

func (o *stream) fail(f *record.Failure) {
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": f.Detail, "type": "InternalServerError", "code": max(f.Status, 500)}})
	o.frame(string(b))
	o.frame("[DONE]")
	o.send()
}

func (o *stream) end() {
	a := o.a
	switch a.d {
	case chatDialect:
		o.choice(`"delta":{}`, a.finish())
	case textDialect:
		o.choice(`"text":""`, a.finish())
	}
	if a.q.Options.IncludeUsage && a.d != generateDialect {
		if u := a.usage(); u != nil {
			b, _ := json.Marshal(u)
			o.frame(o.head + `"choices":[],"usage":` + string(b) + `}`)
		}
	}
	if !a.strike.has("sse-no-done") {
		o.frame("[DONE]")
	}
	o.send()
}
