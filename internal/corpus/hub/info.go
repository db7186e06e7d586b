package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// A file of a data set as the hub describes it.
type file struct {
	name string // below the repository
	size int64
	key  string // name of its blob: SHA-256 of a large file, Git's SHA-1 of a small one
	lfs  bool   // key is a SHA-256
}

type repoInfo struct {
	SHA      string    `json:"sha"`
	Siblings []sibling `json:"siblings"`
	files    []file
}

type sibling struct {
	Name   string `json:"rfilename"`
	Size   *int64 `json:"size"`
	BlobID string `json:"blobId"`
	LFS    *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// A netError says that the hub could not be asked, as against that it refused.
type netError struct{ err error }

func (e *netError) Error() string { return e.err.Error() }
func (e *netError) Unwrap() error { return e.err }

// An HTTPError is a refusal of the hub.
type HTTPError struct {
	Status int
	URL    string
	Hint   string
}

func (e *HTTPError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// info asks the hub for the commit of a revision and its files.
func (c *Client) info(ctx context.Context, repo, revision string) (*repoInfo, error) {
	at := fmt.Sprintf("%s/api/datasets/%s/revision/%s?blobs=true", c.Endpoint, repo, url.PathEscape(revision))
	var body []byte
	err := c.retry(ctx, at, func(ctx context.Context) (bool, error) {
		resp, err := c.get(ctx, at, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false, c.refusal(resp, at)
		}
		body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20))
		if err != nil {
			return false, &netError{fmt.Errorf("%s: %w", at, err)}
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	var info repoInfo
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("%s: the answer is not what a hub sends: %w", at, err)
	}
	if !isHash(info.SHA) {
		return nil, fmt.Errorf("%s: the answer names no commit", at)
	}
	for _, s := range info.Siblings {
		f := file{name: s.Name, key: s.BlobID, size: -1}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil {
			f.key, f.size, f.lfs = s.LFS.SHA256, s.LFS.Size, true
		}
		if !filepath.IsLocal(filepath.FromSlash(f.name)) || strings.Contains(f.name, "\\") {
			return nil, fmt.Errorf("%s: the answer names the file %q, which lies outside the repository", at, f.name)
		}
		if !isHash(f.key) || f.size < 0 {
			return nil, fmt.Errorf("%s: the answer gives no size and hash for %s", at, f.name)
		}
		info.files = append(info.files, f)
	}
	return &info, nil
}

func (c *Client) client() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = c.idle()
	return &http.Client{Transport: t}
}

func (c *Client) idle() time.Duration {
	if c.Idle > 0 {
		return c.Idle
	}
	return time.Minute
}

// get sends a request; redirects to another host go without the token.
func (c *Client) get(ctx context.Context, at string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "weir")
	// The content as it is: a compressed transfer could not be resumed.
	req.Header.Set("Accept-Encoding", "identity")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.client().Do(req)
	if err != nil {
		return nil, &netError{err}
	}
	return resp, nil
}

// refusal turns an answer that is no success into an error that says what to do.
func (c *Client) refusal(resp *http.Response, at string) error {
	e := &HTTPError{Status: resp.StatusCode, URL: at}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		e.Hint = "the hub wants a token, or there is no such data set: set HF_TOKEN, or check the name"
		if c.Token != "" {
			e.Hint = "the hub does not accept the token, or there is no such data set: check HF_TOKEN and the name"
		}
	case http.StatusForbidden:
		e.Hint = "the token may not read this data set: accept its terms on the hub, or use another token"
	case http.StatusNotFound:
		e.Hint = "no such data set, revision or file"
	}
	return e
}

// passing reports whether an error may go away by itself.
func passing(err error) bool {
	var he *HTTPError
	if errors.As(err, &he) {
		return he.Status == http.StatusTooManyRequests || he.Status >= 500
	}
	var no *netError
	return errors.As(err, &no)
}

// retry calls work until it succeeds, fails for good, or has failed Tries times in a row
// without progress. The wait doubles from try to try.
func (c *Client) retry(ctx context.Context, what string, work func(context.Context) (progress bool, err error)) error {
	pause := c.Pause
	tries := max(1, c.Tries)
	for failed := 0; ; {
		progress, err := work(ctx)
		if err == nil || !passing(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if progress {
			failed, pause = 0, c.Pause
		}
		failed++
		if failed >= tries {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-timer.C:
		}
		pause = min(2*pause, 30*time.Second)
	}
}
