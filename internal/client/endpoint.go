package client

import (
	"fmt"
	"strings"
)

// Endpoint is the API that a request speaks.
type Endpoint uint8

const (
	Chat        Endpoint = iota // OpenAI chat completions
	Completions                 // OpenAI completions
	Generate                    // SGLang's native generate
	Responses                   // OpenAI responses
	Messages                    // Anthropic messages
	// CompletionsIDs is Completions with token ids in the body; answers are the same.
	CompletionsIDs
)

var endpoints = [...]struct{ name, path string }{
	Chat:        {"chat", "/v1/chat/completions"},
	Completions: {"completions", "/v1/completions"},
	Generate:    {"generate", "/generate"},
	Responses:   {"responses", "/v1/responses"},
	Messages:    {"messages", "/v1/messages"},

	CompletionsIDs: {"completions-ids", "/v1/completions"},
}

// ParseEndpoint reads the name of an endpoint: chat, completions, generate,
// responses, messages or completions-ids.
func ParseEndpoint(name string) (Endpoint, error) {
	var known []string
	for e, d := range endpoints {
		if d.name == name {
			return Endpoint(e), nil
		}
		known = append(known, d.name)
	}
	return 0, fmt.Errorf("endpoint %q is unknown; known are %s", name, strings.Join(known, ", "))
}

func (e Endpoint) String() string { return endpoints[e].name }

// Path is the path that the endpoint has on a server by default.
func (e Endpoint) Path() string { return endpoints[e].path }
