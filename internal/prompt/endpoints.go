package prompt

import (
	"fmt"
	"strconv"
	"strings"
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

// Endpoint is a format of requests, by the path that takes it.
type Endpoint uint8

const (
	EndpointChat           Endpoint = iota // /v1/chat/completions
	EndpointCompletions                    // /v1/completions, the prompt as text
	EndpointCompletionsIDs                 // /v1/completions, the prompt as token ids
	EndpointGenerateIDs                    // SGLang /generate, the prompt as token ids
	EndpointMessages                       // Anthropic /v1/messages
	EndpointResponses                      // /v1/responses
)

var endpoints = [...]struct{ name, path string }{
	{"chat", "/v1/chat/completions"},
	{"completions", "/v1/completions"},
	{"completions-ids", "/v1/completions"},
	{"generate", "/generate"},
	{"messages", "/v1/messages"},
	{"responses", "/v1/responses"},
}

// EndpointNames are the names that ParseEndpoint knows.
func EndpointNames() []string {
	var out []string
	for _, e := range endpoints {
		out = append(out, e.name)
	}
	return out
}

func (e Endpoint) String() string { return endpoints[e].name }

// Path is the path of the endpoint below a server's base address.
func (e Endpoint) Path() string { return endpoints[e].path }

// Roles reports whether the endpoint takes messages with roles, to which the server applies
// its chat template.
func (e Endpoint) Roles() bool { return e.variant() == asChat }

func (e Endpoint) variant() variant {
	switch e {
	case EndpointCompletions:
		return asText
	case EndpointCompletionsIDs, EndpointGenerateIDs:
		return asIDs
	}
	return asChat
}

// ParseEndpoint finds an endpoint by its name: chat, completions, completions-ids,
// generate, messages or responses.
func ParseEndpoint(name string) (Endpoint, error) {
	var names []string
	for i, e := range endpoints {
		if e.name == name {
			return Endpoint(i), nil
		}
		names = append(names, e.name)
	}
	return 0, fmt.Errorf("endpoint %q: use one of %s", name, strings.Join(names, ", "))
}

// Body is the body of a request in the format of an endpoint. Its Len is its Content-Length.
func (b *Builder) Body(e Endpoint, q Request) (*Body, error) {
	y, err := b.body(&q, e.variant())
	if err != nil {
		return nil, err
	}
	return b.wrap(e, y, &q)
}

// Chat is the body of a request to /v1/chat/completions. Its Len is its Content-Length.
func (b *Builder) Chat(q Request) (*Body, error) { return b.Body(EndpointChat, q) }

// wrap puts the prompt of y into the format of an endpoint.
func (b *Builder) wrap(e Endpoint, y *Body, q *Request) (*Body, error) {
	var f fields
	var err error
	switch e {
	case EndpointChat:
		name := "max_completion_tokens"
		if b.o.LegacyMaxTokens {
			name = "max_tokens"
		}
		f, err = b.members(q, name, true)
		return y.finish(f, err, chatShape, `"messages":[`, "]}")
	case EndpointResponses:
		f, err = b.members(q, "max_output_tokens", false)
		return y.finish(f, err, chatShape, `"input":[`, "]}")
	case EndpointMessages:
		r := *q
		if r.MaxOut <= 0 {
			r.MaxOut = anthropicMaxTokens
		}
		f, err = b.members(&r, "max_tokens", false)
		open := ""
		if y.segs[0].role != System {
			open = `"messages":[`
		}
		return y.finish(f, err, anthropicShape, open, "]}")
	case EndpointCompletions:
		f, err = b.members(q, "max_tokens", true)
		return y.finish(f, err, plainShape, `"prompt":"`, `"}`)
	case EndpointCompletionsIDs:
		f, err = b.members(q, "max_tokens", true)
		return y.finish(f, err, plainShape, `"prompt":[`, `]}`)
	case EndpointGenerateIDs:
		f, err = b.generateMembers(q)
		return y.finish(f, err, plainShape, `"input_ids":[`, `]}`)
	}
	return nil, fmt.Errorf("endpoint %d is not known", e)
}

// model is the name to ask for.
func (b *Builder) model(q *Request) string {
	if len(b.o.Models) == 0 {
		return ""
	}
	if q.Trace == nil { // a probe
		return b.o.Models[0]
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
func (y *Body) finish(f fields, err error, s *shape, open, close string) (*Body, error) {
	if err != nil {
		return nil, err
	}
	y.shape = s
	y.head = append(f.append([]byte{'{'}), open...)
	y.foot = []byte(close)
	y.measure()
	return y, nil
}

// generateMembers are the members of SGLang's /generate. Those of the extra object
// sampling_params join the ones that Weir sets.
func (b *Builder) generateMembers(q *Request) (fields, error) {
	var sampling fields
	if q.MaxOut > 0 {
		sampling = sampling.num("max_new_tokens", q.MaxOut)
	}
	if b.o.IgnoreEOS {
		sampling = sampling.raw("ignore_eos", "true")
	}
	f, err := b.addExtra(fields{}.raw("stream", strconv.FormatBool(!b.o.Whole)), q)
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
	return f.set("sampling_params", append(object, '}')), nil
}
