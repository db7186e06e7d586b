package prompt

import (
	"fmt"
	"strconv"
)

// anthropicMaxTokens is asked for where the format requires a number and none is given, as
// AIPerf does.
const anthropicMaxTokens = 1024

var (
	chatShape = &shape{
		open:  [3]string{`{"role":"system","content":"`, `{"role":"user","content":"`, `{"role":"assistant","content":"`},
		close: [3]string{`"}`, `"}`, `"}`}, sep: ",",
	}
	anthropicShape = &shape{
		open:  [3]string{`"system":"`, chatShape.open[User], chatShape.open[Assistant]},
		close: [3]string{`","messages":[`, `"}`, `"}`}, sep: ",", systemApart: true,
	}
	plainShape = &shape{}
)

// model is the name to ask for.
func (b *Builder) model(q *Request) string {
	if len(b.o.Models) == 0 {
		return ""
	}
	m := q.Trace.Streams[q.Stream].Turns[q.Turn].Model % len(b.o.Models)
	return b.o.Models[max(0, m)]
}

// members are the members of a body besides the prompt: what all formats have in common, then
// what the format and the caller add.
func (b *Builder) members(q *Request, maxName string, usage bool) (fields, error) {
	f := make(fields, 0, 8+len(b.extra))
	f = f.str("model", b.model(q))
	f = f.raw("stream", strconv.FormatBool(!b.o.Whole))
	if q.MaxOut > 0 && maxName != "" {
		f = f.num(maxName, q.MaxOut)
	}
	if usage && !b.o.Whole && !b.o.NoUsage {
		f = f.raw("stream_options", `{"include_usage":true}`)
	}
	if b.o.IgnoreEOS {
		f = f.raw("ignore_eos", "true")
	}
	return b.addExtra(f, q)
}

func (b *Builder) addExtra(f fields, q *Request) (fields, error) {
	f = f.merge(b.extra)
	if len(q.Extra) > 0 {
		own, err := parseFields(q.Extra, "messages", "prompt", "input", "input_ids", "text", "system")
		if err != nil {
			return nil, err
		}
		f = f.merge(own)
	}
	return f, nil
}

// finish closes a body: the members, then the prompt between open and close.
func (y *Body) finish(f fields, s *shape, open, close string) *Body {
	y.shape = s
	y.head = append(f.append([]byte{'{'}), open...)
	y.foot = []byte(close)
	y.measure()
	return y
}

// Chat is the body of a request to /v1/chat/completions. Its Size is its Content-Length.
func (b *Builder) Chat(q Request) (*Body, error) {
	y, err := b.body(&q, asChat)
	if err != nil {
		return nil, err
	}
	name := "max_completion_tokens"
	if b.o.LegacyMaxTokens {
		name = "max_tokens"
	}
	f, err := b.members(&q, name, true)
	if err != nil {
		return nil, err
	}
	return y.finish(f, chatShape, `"messages":[`, "]}"), nil
}

// Responses is the body of a request to /v1/responses, with the whole conversation as input.
func (b *Builder) Responses(q Request) (*Body, error) {
	y, err := b.body(&q, asChat)
	if err != nil {
		return nil, err
	}
	f, err := b.members(&q, "max_output_tokens", false)
	if err != nil {
		return nil, err
	}
	return y.finish(f, chatShape, `"input":[`, "]}"), nil
}

// Messages is the body of a request to Anthropic's /v1/messages.
func (b *Builder) Messages(q Request) (*Body, error) {
	y, err := b.body(&q, asChat)
	if err != nil {
		return nil, err
	}
	if q.MaxOut <= 0 {
		q.MaxOut = anthropicMaxTokens
	}
	f, err := b.members(&q, "max_tokens", false)
	if err != nil {
		return nil, err
	}
	open := ""
	if y.segs[0].role != System {
		open = `"messages":[`
	}
	return y.finish(f, anthropicShape, open, "]}"), nil
}

// Completions is the body of a request to /v1/completions with the prompt as one text, without
// roles or template.
func (b *Builder) Completions(q Request) (*Body, error) {
	y, err := b.body(&q, asText)
	if err != nil {
		return nil, err
	}
	f, err := b.members(&q, "max_tokens", true)
	if err != nil {
		return nil, err
	}
	return y.finish(f, plainShape, `"prompt":"`, `"}`), nil
}

// CompletionsIDs is the body of a request to /v1/completions with the prompt as token ids:
// exactly the recorded number of them.
func (b *Builder) CompletionsIDs(q Request) (*Body, error) {
	y, err := b.body(&q, asIDs)
	if err != nil {
		return nil, err
	}
	f, err := b.members(&q, "max_tokens", true)
	if err != nil {
		return nil, err
	}
	return y.finish(f, plainShape, `"prompt":[`, `]}`), nil
}

// GenerateIDs is the body of a request to SGLang's /generate with the prompt as token ids.
// Members of the extra object sampling_params join those that Weir sets.
func (b *Builder) GenerateIDs(q Request) (*Body, error) {
	y, err := b.body(&q, asIDs)
	if err != nil {
		return nil, err
	}
	var sampling fields
	if q.MaxOut > 0 {
		sampling = sampling.num("max_new_tokens", q.MaxOut)
	}
	if b.o.IgnoreEOS {
		sampling = sampling.raw("ignore_eos", "true")
	}
	f, err := b.addExtra(fields{}.raw("stream", strconv.FormatBool(!b.o.Whole)), &q)
	if err != nil {
		return nil, err
	}
	for i := range f {
		if f[i].name == "sampling_params" {
			own, err := parseFields(f[i].value)
			if err != nil {
				return nil, fmt.Errorf("sampling_params: %w", err)
			}
			sampling = sampling.merge(own)
		}
	}
	object := sampling.append([]byte{'{'})
	if len(sampling) > 0 {
		object = object[:len(object)-1]
	}
	f = f.set("sampling_params", append(object, '}'))
	return y.finish(f, plainShape, `"input_ids":[`, `]}`), nil
}
