package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// A fakeHub plays the hub: its API, its files, a redirect to another host for large ones, and
// the faults that a test asks for.
type fakeHub struct {
	*httptest.Server
	cdn      *httptest.Server
	files    map[string][]byte
	token    string       // wanted, "" for none
	cutAfter atomic.Int64 // bytes after which a transfer is cut; 0 for never
	cuts     atomic.Int64 // transfers that are still to be cut
	wrong    atomic.Bool  // the content is not what the API promises
	fail     atomic.Int64 // answers of 503 that are still to come
	noRange  atomic.Bool  // ranges are ignored
	mu       sync.Mutex
	ranges   []string
	leaked   atomic.Bool // the token reached the other host
	sent     atomic.Int64
}

func newHub(t *testing.T, files map[string][]byte) *fakeHub {
	h := &fakeHub{files: files}
	h.cdn = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			h.leaked.Store(true)
		}
		h.serve(w, r, h.files[strings.TrimPrefix(r.URL.Path, "/cdn/")])
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("/api/datasets/o/d/revision/{rev}", h.api)
	mux.HandleFunc("/datasets/o/d/resolve/"+commit+"/{file...}", func(w http.ResponseWriter, r *http.Request) {
		if !h.allowed(w, r) {
			return
		}
		name := r.PathValue("file")
		if h.isLarge(name) {
			// The other host has another name, so that a client drops the token.
			http.Redirect(w, r, strings.Replace(h.cdn.URL, "127.0.0.1", "localhost", 1)+"/cdn/"+name, http.StatusFound)
			return
		}
		h.serve(w, r, h.files[name])
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(func() { h.Server.Close(); h.cdn.Close() })
	return h
}

func (h *fakeHub) isLarge(name string) bool { return len(h.files[name]) > 1000 }

func (h *fakeHub) allowed(w http.ResponseWriter, r *http.Request) bool {
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		http.Error(w, "Invalid username or password.", http.StatusUnauthorized)
		return false
	}
	return true
}

func (h *fakeHub) api(w http.ResponseWriter, r *http.Request) {
	if !h.allowed(w, r) {
		return
	}
	if h.fail.Add(-1) >= 0 {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	if rev := r.PathValue("rev"); rev != "main" && rev != commit {
		http.NotFound(w, r)
		return
	}
	var list []map[string]any
	for name, body := range h.files {
		f := map[string]any{"rfilename": name, "size": len(body), "blobId": fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(body)), body...)))}
		if h.isLarge(name) {
			f["lfs"] = map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(body)), "size": len(body), "pointerSize": 134}
		}
		list = append(list, f)
	}
	json.NewEncoder(w).Encode(map[string]any{"id": "o/d", "sha": commit, "siblings": list})
}

func (h *fakeHub) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	from := 0
	if rg := r.Header.Get("Range"); rg != "" {
		h.mu.Lock()
		h.ranges = append(h.ranges, rg)
		h.mu.Unlock()
		if !h.noRange.Load() {
			fmt.Sscanf(rg, "bytes=%d-", &from)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		}
	}
	if h.wrong.Load() {
		body = append([]byte{body[0] + 1}, body[1:]...)
	}
	rest := body[from:]
	w.Header().Set("Content-Length", fmt.Sprint(len(rest)))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if n := int(h.cutAfter.Load()); n > 0 && n < len(rest) && h.cuts.Add(-1) >= 0 {
		h.sent.Add(int64(n))
		w.Write(rest[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	h.sent.Add(int64(len(rest)))
	w.Write(rest)
}

func (h *fakeHub) client(t testing.TB, cache string) *Client {
	c, err := FromEnv(func(k string) string {
		return map[string]string{"HF_ENDPOINT": h.URL + "/", "HF_HUB_CACHE": cache, "HOME": t.TempDir()}[k]
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Pause, c.Idle = time.Millisecond, 2*time.Minute
	return c
}

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func jsonl(name string) bool { return strings.HasSuffix(name, ".jsonl") }

func sample() map[string][]byte {
	return map[string][]byte{"traces.jsonl": random(3 << 20), "sub/small.jsonl": []byte("{}\n"), "README.md": []byte("# card")}
}

func check(t *testing.T, c *Client, files map[string][]byte, snap *Snapshot) {
	t.Helper()
	if len(snap.Files) != 2 {
		t.Fatalf("files %v", snap.Files)
	}
	for _, name := range snap.Files {
		got, err := os.ReadFile(filepath.Join(snap.Dir, filepath.FromSlash(name)))
		if err != nil || string(got) != string(files[name]) {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
	// The layout is the one of the hub's own tools.
	root := filepath.Join(c.Cache, "datasets--o--d")
	link, err := os.Readlink(filepath.Join(root, "snapshots", commit, "sub", "small.jsonl"))
	if err != nil || !strings.HasPrefix(link, "../../../blobs/") {
		t.Errorf("link %q, %v", link, err)
	}
	if ref, _ := os.ReadFile(filepath.Join(root, "refs", "main")); string(ref) != commit {
		t.Errorf("refs/main is %q", ref)
	}
	blob := filepath.Join(root, "blobs", fmt.Sprintf("%x", sha256.Sum256(files["traces.jsonl"])))
	if info, err := os.Stat(blob); err != nil || info.Size() != int64(len(files["traces.jsonl"])) {
		t.Errorf("blob: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(root, "blobs", "*.incomplete"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFetchAndThenOffline(t *testing.T) {
	h := newHub(t, sample())
	h.token = "secret"
	c := h.client(t, t.TempDir())
	c.Token = "secret"
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
	if h.leaked.Load() {
		t.Error("the token was sent to another host")
	}
	if snap.Fetched != 3<<20+3 {
		t.Errorf("fetched %d bytes", snap.Fetched)
	}
	again, err := c.Fetch(context.Background(), "o/d", "main", jsonl)
	if err != nil || again.Fetched != 0 {
		t.Errorf("a second fetch brought %d bytes, %v", again.Fetched, err)
	}
	// Offline by choice, and because nobody answers.
	c.Offline = true
	for range 2 {
		off, err := c.Fetch(context.Background(), "o/d", "", jsonl)
		if err != nil || !off.Offline {
			t.Fatalf("%+v, %v", off, err)
		}
		check(t, c, h.files, off)
		c.Offline = false
		h.Server.CloseClientConnections()
		h.Server.Close()
	}
	if _, err := c.Fetch(context.Background(), "o/other", "", jsonl); err == nil || !strings.Contains(err.Error(), "doesn't hold o/other") {
		t.Errorf("an empty cache: %v", err)
	}
}

func TestCutTransferGoesOn(t *testing.T) {
	h := newHub(t, sample())
	h.cutAfter.Store(700_000)
	h.cuts.Store(3)
	c := h.client(t, t.TempDir())
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
	if len(h.ranges) != 3 {
		t.Errorf("ranges asked for: %v", h.ranges)
	}
	if snap.Fetched != 3<<20+3 {
		t.Errorf("%d bytes came over the network for %d", snap.Fetched, snap.Total)
	}
}

// TestNextFetchGoesOn: a fetch that gave up leaves its part, and the next one takes it.
func TestNextFetchGoesOn(t *testing.T) {
	h := newHub(t, sample())
	h.cutAfter.Store(1_000_000)
	h.cuts.Store(1)
	c := h.client(t, t.TempDir())
	c.Tries = 1
	_, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err == nil || !strings.Contains(err.Error(), "of 3145728 bytes are there, and the next fetch goes on from there") {
		t.Fatalf("got %v", err)
	}
	h.cuts.Store(0)
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
	if snap.Fetched >= 3<<20 {
		t.Errorf("the second fetch brought %d bytes", snap.Fetched)
	}
}

func TestServerWithoutRanges(t *testing.T) {
	h := newHub(t, sample())
	h.cutAfter.Store(1_000_000)
	h.cuts.Store(1)
	h.noRange.Store(true)
	c := h.client(t, t.TempDir())
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
}

func TestWrongHash(t *testing.T) {
	h := newHub(t, sample())
	h.wrong.Store(true)
	c := h.client(t, t.TempDir())
	_, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err == nil || !strings.Contains(err.Error(), "wrong content: its hash is") {
		t.Fatalf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(c.Cache, "datasets--o--d", "*", "*"))
	for _, p := range left {
		if info, err := os.Stat(p); err == nil && !info.IsDir() && info.Size() > 3 {
			t.Errorf("%s was kept", p)
		}
	}
}

// TestBrokenPart: a part whose beginning is broken is found by its hash and fetched anew.
func TestBrokenPart(t *testing.T) {
	h := newHub(t, sample())
	c := h.client(t, t.TempDir())
	blobs := filepath.Join(c.Cache, "datasets--o--d", "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(blobs, fmt.Sprintf("%x.incomplete", sha256.Sum256(h.files["traces.jsonl"])))
	if err := os.WriteFile(part, make([]byte, 500_000), 0o644); err != nil {
		t.Fatal(err)
	}
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
}

func TestRefusals(t *testing.T) {
	h := newHub(t, sample())
	h.token = "secret"
	c := h.client(t, t.TempDir())
	_, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	var he *HTTPError
	if !errors.As(err, &he) || he.Status != 401 || !strings.Contains(err.Error(), "set HF_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	c.Token = "other"
	if _, err := c.Fetch(context.Background(), "o/d", "", jsonl); err == nil || !strings.Contains(err.Error(), "does not accept the token") {
		t.Errorf("with a wrong token: %v", err)
	}
	c.Token = "secret"
	if _, err := c.Fetch(context.Background(), "o/d", "v9", jsonl); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("no such revision: %v", err)
	}
	if _, err := c.Fetch(context.Background(), "o/d", "", func(string) bool { return false }); err == nil || !strings.Contains(err.Error(), "no file in a form that Weir reads; it has ") {
		t.Errorf("nothing wanted: %v", err)
	}
	for _, repo := range []string{"d", "../x", "o/../d", "o//d", "a/b/c", "-o/d"} {
		if _, err := c.Fetch(context.Background(), repo, "", jsonl); err == nil {
			t.Errorf("%q was taken for a name", repo)
		}
	}
}

func TestBusyHubIsAskedAgain(t *testing.T) {
	h := newHub(t, sample())
	h.fail.Store(3)
	c := h.client(t, t.TempDir())
	if _, err := c.Fetch(context.Background(), "o/d", "", jsonl); err != nil {
		t.Error(err)
	}
	h.fail.Store(1000)
	c.Cache = t.TempDir()
	if _, err := c.Fetch(context.Background(), "o/d", "", jsonl); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v", err)
	}
}

func TestStalledTransferIsCut(t *testing.T) {
	stop := make(chan struct{})
	body := random(5000)
	h := newHub(t, map[string][]byte{"traces.jsonl": body})
	h.cdn.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5000")
		w.Write(body[:100])
		w.(http.Flusher).Flush()
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	defer close(stop)
	c := h.client(t, t.TempDir())
	c.Idle, c.Tries = 3*time.Second, 1 // of every answer
	_, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err == nil || !strings.Contains(err.Error(), "nothing came for 3s") {
		t.Errorf("got %v", err)
	}
}

func TestCancel(t *testing.T) {
	h := newHub(t, sample())
	h.fail.Store(1000)
	c := h.client(t, t.TempDir())
	c.Pause = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Fetch(ctx, "o/d", "", jsonl); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestTwoAtOnce: of two fetches into one cache one transfers.
func TestTwoAtOnce(t *testing.T) {
	h := newHub(t, sample())
	cache := t.TempDir()
	var wg sync.WaitGroup
	var fetched atomic.Int64
	for range 4 {
		c := h.client(t, cache)
		wg.Go(func() {
			snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
			if err != nil {
				t.Error(err)
				return
			}
			fetched.Add(snap.Fetched)
		})
	}
	wg.Wait()
	if fetched.Load() != 3<<20+3 {
		t.Errorf("%d bytes were fetched", fetched.Load())
	}
}

// TestEscapingNames: a hub can't make a client write outside its cache.
func TestEscapingNames(t *testing.T) {
	for _, name := range []string{"../evil.jsonl", "/etc/evil.jsonl", "a/../../evil.jsonl", `..\evil.jsonl`} {
		h := newHub(t, map[string][]byte{name: []byte("{}")})
		c := h.client(t, t.TempDir())
		if _, err := c.Fetch(context.Background(), "o/d", "", jsonl); err == nil || !strings.Contains(err.Error(), "outside the repository") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoRoom(t *testing.T) {
	c := &Client{Cache: t.TempDir()}
	err := c.room("o/d", []file{{name: "x", size: 1 << 60, key: strings.Repeat("a", 64)}})
	if err == nil || !strings.Contains(err.Error(), "1152921504606846976 bytes are missing and ") {
		t.Errorf("got %v", err)
	}
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	get := func(k string) string { return env[k] }
	c, err := FromEnv(get)
	if err != nil || c.Endpoint != DefaultEndpoint || c.Cache != filepath.Join(home, ".cache/huggingface/hub") || c.Token != "" {
		t.Errorf("%+v, %v", c, err)
	}
	env["HF_HOME"] = filepath.Join(home, "hf")
	os.MkdirAll(env["HF_HOME"], 0o755)
	os.WriteFile(filepath.Join(env["HF_HOME"], "token"), []byte("abc\n"), 0o600)
	env["HF_HUB_OFFLINE"] = "1"
	if c, _ = FromEnv(get); c.Cache != filepath.Join(home, "hf/hub") || c.Token != "abc" || !c.Offline {
		t.Errorf("%+v", c)
	}
	env["HF_ENDPOINT"] = "nonsense"
	if _, err := FromEnv(get); err == nil {
		t.Error("a wrong HF_ENDPOINT was taken")
	}
}

func TestAliases(t *testing.T) {
	for _, a := range Aliases {
		if !validRepo(a.Repo) || a.Revision != "main" && !isHash(a.Revision) {
			t.Errorf("%+v", a)
		}
		if b, ok := Lookup(strings.ToUpper(a.Name)); !ok || b != a {
			t.Errorf("%s is not found, or comes twice", a.Name)
		}
	}
}
