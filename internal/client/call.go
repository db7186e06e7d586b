package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxCall is how much of the answer to a Call is read, bytes.
const maxCall = 1 << 20

// Call sends one small request outside of a run to the first server, over what the
// configuration speaks and with its key and headers, and returns the answer as it came. path is
// put behind the base URL. ctx bounds it. As in a run, proxies are not asked and redirects not
// followed.
func (c *Config) Call(ctx context.Context, method, path string, body Body) (raw []byte, status int, err error) {
	raw, status, _, err = c.CallAt(ctx, c.URLs[0], method, path, body)
	return raw, status, err
}

// CallAt is Call to the server at base, with the header of the answer.
func (c *Config) CallAt(ctx context.Context, base, method, path string, body Body) (raw []byte, status int, header http.Header, err error) {
	var r io.Reader
	if body != nil {
		r = body.Open()
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, r)
	if err != nil {
		return nil, 0, nil, err
	}
	if body != nil {
		req.ContentLength = body.Len()
	}
	for _, h := range c.fixedHeaders() {
		switch {
		case strings.HasPrefix(h[0], "Accept"):
		case h[0] == "Content-Type" && body == nil:
		default:
			req.Header.Add(h[0], h[1])
		}
	}
	resp, err := c.once().RoundTrip(req)
	if err != nil {
		return nil, 0, nil, err
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(resp.Body, maxCall)); err != nil {
		return nil, resp.StatusCode, resp.Header, fmt.Errorf("reading %s: %w", path, err)
	}
	return raw, resp.StatusCode, resp.Header, nil
}

// once is a transport for one request: its connection is not kept.
func (c *Config) once() http.RoundTripper {
	return &http.Transport{TLSClientConfig: c.TLS, DisableKeepAlives: true, Protocols: c.Protocols()}
}

// Protocols are the versions of HTTP that the configuration speaks: one.
func (c *Config) Protocols() *http.Protocols {
	p := new(http.Protocols)
	switch c.Protocol {
	case HTTP2:
		p.SetHTTP2(true)
	case H2C:
		p.SetUnencryptedHTTP2(true)
	default:
		p.SetHTTP1(true)
	}
	return p
}
