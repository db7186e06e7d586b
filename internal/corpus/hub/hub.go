// Package hub fetches data sets from a Hugging Face hub into the cache that its own tools use,
// so that what either has fetched the other finds.
//
// A download goes on where it was cut, every file is checked by size and hash before it
// appears under its name, and a filled cache works without a network. Layout of the cache and
// of the HTTP interface: huggingface_hub 0.34 and 1.x, 2026.
package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// DefaultEndpoint is the public hub; HF_ENDPOINT names another.
const DefaultEndpoint = "https://huggingface.co"

// A Client talks to one hub and keeps one cache.
type Client struct {
	Endpoint string // without a slash at the end
	Token    string // "" for none
	Cache    string // directory, as HF_HUB_CACHE
	Offline  bool   // use what the cache holds and ask nobody

	// Idle is how long a transfer may stand still before it is cut and begun anew.
	Idle time.Duration
	// Pause is the wait before the second try of a transfer; it doubles with every try.
	Pause time.Duration
	// Tries is how often a transfer that brings nothing new is tried.
	Tries int

	// Progress is told of every piece that arrives; may be nil.
	Progress func(file string, done, total int64)

	HTTP *http.Client // nil for a client of the package's own
}

// FromEnv makes a client as the hub's own tools would: HF_ENDPOINT, HF_TOKEN (or a token
// file), HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE.
func FromEnv(getenv func(string) string) (*Client, error) {
	c := &Client{Endpoint: strings.TrimRight(getenv("HF_ENDPOINT"), "/"), Idle: 60 * time.Second, Pause: time.Second, Tries: 5}
	if c.Endpoint == "" {
		c.Endpoint = DefaultEndpoint
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("HF_ENDPOINT is %q: want an address like %s", c.Endpoint, DefaultEndpoint)
	}
	home := getenv("HF_HOME")
	if home == "" {
		base := getenv("XDG_CACHE_HOME")
		if base == "" {
			user := getenv("HOME")
			if user == "" {
				return nil, errors.New("neither HF_HUB_CACHE nor HF_HOME nor HOME is set: where is the cache?")
			}
			base = filepath.Join(user, ".cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if c.Cache == "" {
			c.Cache = getenv(name)
		}
	}
	if c.Cache == "" {
		c.Cache = filepath.Join(home, "hub")
	}
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if c.Token == "" {
			c.Token = strings.TrimSpace(getenv(name))
		}
	}
	if c.Token == "" {
		file := getenv("HF_TOKEN_PATH")
		if file == "" {
			file = filepath.Join(home, "token")
		}
		if b, err := os.ReadFile(file); err == nil {
			c.Token = strings.TrimSpace(string(b))
		}
	}
	switch strings.ToLower(getenv("HF_HUB_OFFLINE")) {
	case "1", "true", "yes", "on":
		c.Offline = true
	}
	return c, nil
}

// A Snapshot is a data set at one revision, in the cache.
type Snapshot struct {
	Repo     string   `json:"repo"`
	Revision string   `json:"revision"` // what was asked for
	Commit   string   `json:"commit"`
	Dir      string   `json:"directory"` // snapshots/<commit> of the cache
	Files    []string `json:"files"`     // that were wanted, below Dir
	Fetched  int64    `json:"bytes_fetched"`
	Total    int64    `json:"bytes_total"`
	Offline  bool     `json:"offline"` // nobody was asked: the files are those that the cache holds
}

// A repo's place in the cache.
func (c *Client) place(repo string) string {
	return filepath.Join(c.Cache, "datasets--"+strings.ReplaceAll(repo, "/", "--"))
}

// Fetch brings the files of a data set that want chooses into the cache and returns where they
// are. repo is "owner/name"; revision a branch, a tag or a commit, "" for main. Without a
// network a filled cache serves as it is.
func (c *Client) Fetch(ctx context.Context, repo, revision string, want func(name string) bool) (*Snapshot, error) {
	if !validRepo(repo) {
		return nil, fmt.Errorf("%q is no name of a data set: want owner/name", repo)
	}
	if revision == "" {
		revision = "main"
	}
	if strings.HasPrefix(revision, "/") || slices.Contains(strings.Split(revision, "/"), "..") {
		return nil, fmt.Errorf("%q is no revision", revision)
	}
	if c.Offline {
		return c.local(repo, revision, want, nil)
	}
	// With a filled cache a hub that does not answer is asked once.
	asker := *c
	if _, err := c.local(repo, revision, want, nil); err == nil {
		asker.Tries = 1
	}
	info, err := asker.info(ctx, repo, revision)
	if err != nil {
		var no *netError
		if errors.As(err, &no) && ctx.Err() == nil {
			return c.local(repo, revision, want, err)
		}
		return nil, err
	}
	snap := &Snapshot{Repo: repo, Revision: revision, Commit: info.SHA, Dir: filepath.Join(c.place(repo), "snapshots", info.SHA)}
	var files []file
	var other []string
	for _, f := range info.files {
		if want(f.name) {
			files = append(files, f)
		} else {
			other = append(other, f.name)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no file in a form that Weir reads; it has %s", repo, strings.Join(other[:min(len(other), 12)], ", "))
	}
	if err := c.room(repo, files); err != nil {
		return nil, err
	}
	for _, f := range files {
		n, err := c.file(ctx, repo, info.SHA, f)
		if err != nil {
			return nil, err
		}
		snap.Fetched += n
		snap.Total += f.size
		snap.Files = append(snap.Files, f.name)
	}
	if revision != info.SHA {
		ref := filepath.Join(c.place(repo), "refs", filepath.FromSlash(revision))
		if err := writeSmall(ref, info.SHA); err != nil {
			return nil, err
		}
	}
	return snap, nil
}

func validRepo(repo string) bool {
	parts := strings.Split(repo, "/")
	if len(parts) != 2 {
		return false
	}
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.HasPrefix(p, "-") || strings.Contains(p, "--") {
			return false
		}
		for _, r := range p {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)) {
				return false
			}
		}
	}
	return true
}

// isHash reports whether s is a SHA-1 or SHA-256 in hexadecimal.
func isHash(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && (len(s) == 40 || len(s) == 64) && strings.ToLower(s) == s
}

// local finds a snapshot in the cache. cause is why nobody could be asked.
func (c *Client) local(repo, revision string, want func(string) bool, cause error) (*Snapshot, error) {
	miss := func(what string) error {
		if cause != nil {
			return fmt.Errorf("%w; and %s", cause, what)
		}
		return fmt.Errorf("offline: %s", what)
	}
	commit := revision
	if !isHash(revision) {
		b, err := os.ReadFile(filepath.Join(c.place(repo), "refs", filepath.FromSlash(revision)))
		if err != nil {
			return nil, miss(fmt.Sprintf("the cache %s doesn't hold %s at %s", c.Cache, repo, revision))
		}
		commit = strings.TrimSpace(string(b))
	}
	if !isHash(commit) {
		return nil, miss(fmt.Sprintf("the cache names %q for %s, which is no commit", commit, revision))
	}
	snap := &Snapshot{Repo: repo, Revision: revision, Commit: commit, Dir: filepath.Join(c.place(repo), "snapshots", commit), Offline: true}
	err := filepath.WalkDir(snap.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(snap.Dir, p)
		name := filepath.ToSlash(rel)
		if d.IsDir() || !want(name) {
			return nil
		}
		info, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("%s points to nothing: the cache was cleaned by halves", p)
		}
		snap.Files = append(snap.Files, name)
		snap.Total += info.Size()
		return nil
	})
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(snap.Files) == 0:
		return nil, miss(fmt.Sprintf("the cache %s holds no file of %s at %s", c.Cache, repo, commit))
	case err != nil:
		return nil, miss(err.Error())
	}
	return snap, nil
}

// link puts a file of a snapshot in its place: a link to its blob, or a copy where the file
// system has none.
func (c *Client) link(repo, commit string, f file) error {
	at := filepath.Join(c.place(repo), "snapshots", commit, filepath.FromSlash(f.name))
	blob := c.blob(repo, f)
	if same(at, blob) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	up := strings.Repeat("../", 1+strings.Count(path.Clean(f.name), "/")+1)
	target := filepath.FromSlash(up + "blobs/" + f.key)
	tmp := at + ".weir-new"
	os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		if err := copyFile(blob, tmp); err != nil {
			os.Remove(tmp)
			return err
		}
	}
	return os.Rename(tmp, at)
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func (c *Client) blob(repo string, f file) string {
	return filepath.Join(c.place(repo), "blobs", f.key)
}

func writeSmall(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if old, err := os.ReadFile(name); err == nil && string(old) == text {
		return nil
	}
	tmp := name + ".weir-new"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, name)
}
