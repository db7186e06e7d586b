package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

// reserved are the headers that Weir writes itself.
var reserved = []string{"Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Accept", "Accept-Encoding", "Connection"}

// checkHeaders refuses what would break the head of a request.
func checkHeaders(c *Config) error {
	for name, values := range c.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("client: %q is no header name", name)
		}
		if slices.Contains(reserved, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("client: header %s is written by Weir itself and cannot be set", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return fmt.Errorf("client: the value of header %s has a byte that headers cannot carry", name)
			}
		}
	}
	names := c.SessionHeaders
	if c.ParentHeader != "" {
		names = append(slices.Clone(names), c.ParentHeader)
	}
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) || slices.Contains(reserved, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("client: %q cannot be a session header", name)
		}
	}
	if !httpguts.ValidHeaderFieldValue(c.APIKey) {
		return fmt.Errorf("client: the API key has a byte that headers cannot carry")
	}
	return nil
}

// fixedHeaders are those that are the same for every request of a configuration.
func (c *Config) fixedHeaders() [][2]string {
	hs := [][2]string{
		{"User-Agent", "weir"},
		{"Content-Type", "application/json"},
		{"Accept", "text/event-stream"},
	}
	if c.Gzip {
		hs = append(hs, [2]string{"Accept-Encoding", "gzip"})
	} else {
		hs = append(hs, [2]string{"Accept-Encoding", "identity"})
	}
	if c.APIKey != "" {
		hs = append(hs, [2]string{"Authorization", "Bearer " + c.APIKey})
	}
	if c.Endpoint == Messages {
		hs = append(hs, [2]string{"anthropic-version", "2023-06-01"})
		if c.APIKey != "" {
			hs = append(hs, [2]string{"x-api-key", c.APIKey})
		}
	}
	for _, name := range sortedKeys(c.Header) {
		values := c.Header[name]
		hs = slices.DeleteFunc(hs, func(h [2]string) bool { return strings.EqualFold(h[0], name) })
		for _, v := range values {
			hs = append(hs, [2]string{name, v})
		}
	}
	return hs
}

func sortedKeys(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// requestHeaders are those of one request.
func (c *Config) requestHeaders(q *replay.Request) [][2]string {
	hs := [][2]string{{"X-Request-ID", RequestID(c.RunID, q.Seq)}}
	if len(c.SessionHeaders) == 0 && c.ParentHeader == "" {
		return hs
	}
	s := &q.Trace.Streams[q.Stream]
	id := SessionID(c.RunID, q.Tree, s.ID)
	for _, name := range c.SessionHeaders {
		hs = append(hs, [2]string{name, id})
	}
	if c.ParentHeader != "" && s.Parent != corpus.Unbound {
		hs = append(hs, [2]string{c.ParentHeader, SessionID(c.RunID, q.Tree, q.Trace.Streams[s.Parent].ID)})
	}
	return hs
}

// RequestID is what X-Request-ID carries for the request with this number in its bundle.
func RequestID(runID string, seq uint64) string {
	return identity(runID, "request", strconv.FormatUint(seq, 10))
}

// SessionID is what session headers carry for a conversation of a live tree.
func SessionID(runID, tree, stream string) string { return identity(runID, tree, stream) }

// identity makes a UUID (version 8, RFC 9562: made of a hash) of its parts: the same in every
// run with the same run id.
func identity(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	h[6] = h[6]&0x0f | 0x80
	h[8] = h[8]&0x3f | 0x80
	x := hex.EncodeToString(h[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
