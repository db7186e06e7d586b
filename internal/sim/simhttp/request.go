package simhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A request is what one of the endpoints was asked for.
type request struct {
	Model       string          `json:"model"`
	Messages    []message       `json:"messages"`
	Prompt      json.RawMessage `json:"prompt"`
	Text        *string         `json:"text"`
	InputIDs    []int64         `json:"input_ids"`
	Stream      bool            `json:"stream"`
	N           *int64          `json:"n"`
	MaxTokens   *int64          `json:"max_tokens"`
	MaxComplete *int64          `json:"max_completion_tokens"`
	MinTokens   int64           `json:"min_tokens"`
	IgnoreEOS   bool            `json:"ignore_eos"`
	Options     struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	Sampling struct {
		MaxNew    *int64 `json:"max_new_tokens"`
		IgnoreEOS bool   `json:"ignore_eos"`
	} `json:"sampling_params"`
	Tools json.RawMessage `json:"tools"`

	// Of a router in front of prefill and decode engines.
	BootstrapHost string `json:"bootstrap_host"`
	BootstrapPort int    `json:"bootstrap_port"`
	BootstrapRoom *int64 `json:"bootstrap_room"`
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Reasoning string          `json:"reasoning_content"`
	ToolCalls []struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

var errTextOnly = errors.New("only text content is understood")

// text is the text of a message: a string, or parts of type text.
func (m *message) text() (string, error) {
	var b strings.Builder
	b.WriteString(m.Reasoning)
	c := bytes.TrimSpace(m.Content)
	switch {
	case len(c) == 0 || bytes.Equal(c, []byte("null")):
	case c[0] == '"':
		var s string
		if err := json.Unmarshal(c, &s); err != nil {
			return "", err
		}
		b.WriteString(s)
	case c[0] == '[':
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(c, &parts); err != nil {
			return "", err
		}
		for _, p := range parts {
			if p.Type != "text" {
				return "", fmt.Errorf("a content part of type %q: %w", p.Type, errTextOnly)
			}
			b.WriteString(p.Text)
		}
	default:
		return "", errors.New("content is neither a string nor a list of parts")
	}
	for _, t := range m.ToolCalls {
		b.WriteString(t.Function.Name)
		b.WriteString(t.Function.Arguments)
	}
	return b.String(), nil
}

// templateMark is the identity of a token that a chat template adds for a role.
func templateMark(role string, i int64) uint64 { return fold(tokenHash("<|"+role+"|>"), uint64(i)) }

// chatPrompt tokenizes the messages as a chat template that adds the given number of tokens to
// a message and to the opening of the answer.
func (q *request) chatPrompt(p *pager, template int64) error {
	if len(q.Messages) == 0 {
		return errors.New("messages is empty")
	}
	if len(q.Tools) > 0 && !bytes.Equal(bytes.TrimSpace(q.Tools), []byte("null")) {
		p.text(string(q.Tools))
	}
	for i := range q.Messages {
		m := &q.Messages[i]
		for k := range template {
			p.add(templateMark(m.Role, k))
		}
		s, err := m.text()
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		p.text(s)
	}
	for k := range template {
		p.add(templateMark("assistant", k))
	}
	return nil
}

// rawPrompt tokenizes the prompt of /v1/completions: one text, or one list of token ids.
func (q *request) rawPrompt(p *pager) error {
	c := bytes.TrimSpace(q.Prompt)
	switch {
	case len(c) == 0:
		return errors.New("prompt is missing")
	case c[0] == '"':
		var s string
		if err := json.Unmarshal(c, &s); err != nil {
			return err
		}
		p.text(s)
		return nil
	}
	var ids []int64
	if err := json.Unmarshal(c, &ids); err == nil {
		for _, id := range ids {
			p.id(id)
		}
		return nil
	}
	var one []json.RawMessage
	if err := json.Unmarshal(c, &one); err != nil || len(one) != 1 {
		return errors.New("prompt is neither one text nor one list of token ids; batches are not served")
	}
	q.Prompt = one[0]
	return q.rawPrompt(p)
}

// generatePrompt tokenizes the prompt of SGLang's /generate.
func (q *request) generatePrompt(p *pager) error {
	switch {
	case q.Text != nil:
		p.text(*q.Text)
	case q.InputIDs != nil:
		for _, id := range q.InputIDs {
			p.id(id)
		}
	default:
		return errors.New("either text or input_ids is needed")
	}
	return nil
}

// want is the number of tokens to generate, and whether that many were asked for.
func (q *request) want(fallback int64) (n int64, asked bool) {
	for _, p := range []*int64{q.MaxComplete, q.MaxTokens, q.Sampling.MaxNew} {
		if p != nil {
			return *p, true
		}
	}
	return max(fallback, q.MinTokens), false
}
