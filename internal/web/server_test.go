package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/store"
)

func get(t *testing.T, url string) (int, string, http.Header) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// TestPages asks for every page and every part of the API, in good and in bad ways.
func TestPages(t *testing.T) {
	srv, entries := shop(t, 1, 16)
	id := entries[3].Result.ID
	for _, c := range []struct {
		path string
		code int
		has  string
	}{
		{"/", 200, "4 of 4 runs"},
		{"/?offload=none&x=ttft_p90&y=output_per_gpu", 200, "2 of 4 runs, the rest is hidden by filters"},
		{"/?offload=nothing", 200, "No run passes these filters; 4 are in the store"},
		{"/?x=nope", 400, "unknown axis"},
		{"/?colour=red", 400, "unknown parameter"},
		{"/nowhere", 404, ""},
		{"/run/" + id, 200, "How far to trust this"},
		{"/run/" + id[:6], 200, "Where it comes from"},
		{"/run/zz", 404, "no such run"},
		{"/compare?a=" + entries[1].Result.ID + "&b=" + id, 200, "times the throughput per GPU of A"},
		{"/compare?a=" + id, 400, "needs runs on both sides"},
		{"/api/results", 200, `"bundle"`},
		{"/api/results?offload=none&valid=1", 200, `"result"`},
		{"/api/results?offload=nothing", 200, `[]`},
		{"/api/results/" + id, 200, `"point_id"`},
		{"/api/results/zz", 404, `"error"`},
		{"/api/results?valid=maybe", 400, "valid=maybe is neither 1 nor 0"},
		{"/api/results?valid=0", 200, `"result"`},
		{"/?all=some", 400, "all=some is neither 1 nor 0"},
		{"/api", 404, "there is no /api"},
		{"/api/nowhere", 404, "there is no /api/nowhere"},
		{"/api/results/" + id + "/nowhere", 404, "there is no"},
		{"/api/results/" + id + "/timeline", 200, `"lanes"`},
		{"/api/results/" + id + "/requests/1", 200, `"ceiling_tokens"`},
		{"/api/results/" + id + "/requests/999999", 404, "no request 999999"},
		{"/api/results/" + id + "/requests/x", 400, "integer"},
		{"/api/frontier", 200, `"knee"`},
		{"/api/frontier?x=e2el_p90", 200, `"better":"lower"`},
		{"/api/axes", 200, `"e2e_norm_p90"`},
		{"/api/choices", 200, `"offload"`},
		{"/api/compare?a=" + id + "&b=" + id, 200, `"identical"`},
		{"/export.csv", 200, "id,point_id"},
		{"/frontier.svg", 200, "<style>"},
	} {
		code, body, head := get(t, srv.URL+c.path)
		if code != c.code || !strings.Contains(body, c.has) {
			t.Errorf("%s: %d, want %d with %q: %.300s", c.path, code, c.code, c.has, body)
		}
		if !strings.Contains(head.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s has no content policy", c.path)
		}
		if strings.HasPrefix(c.path, "/api") && !json.Valid([]byte(body)) {
			t.Errorf("%s is no JSON", c.path)
		}
	}
	resp, err := http.Post(srv.URL+"/api/results", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var fault struct{ Error string }
	if err := json.NewDecoder(resp.Body).Decode(&fault); err != nil || resp.StatusCode != http.StatusMethodNotAllowed ||
		!strings.Contains(fault.Error, "POST") || !strings.Contains(resp.Header.Get("Allow"), "GET") {
		t.Errorf("POST: %d %v %+v %v", resp.StatusCode, resp.Header, fault, err)
	}
}

// TestAmbiguousID: a beginning that several ids share is a conflict, said in the form that was
// asked for.
func TestAmbiguousID(t *testing.T) {
	srv, entries := shop(t, 1, 2, 4, 8, 16, 24, 32, 64, 96) // 18 ids begin with 16 digits
	first := map[byte]bool{}
	for _, e := range entries {
		c := e.Result.ID[0]
		if !first[c] {
			first[c] = true
			continue
		}
		code, body, _ := get(t, srv.URL+"/api/results/"+string(c))
		if code != http.StatusConflict || !json.Valid([]byte(body)) || !strings.Contains(body, "begins several ids") {
			t.Errorf("API: %d %s", code, body)
		}
		if code, body, _ := get(t, srv.URL+"/run/"+string(c)); code != http.StatusConflict || !strings.Contains(body, "<h1>") {
			t.Errorf("page: %d %s", code, body)
		}
		return
	}
	t.Fatal("no two ids begin alike")
}

// TestEmptyStore teaches how to fill it.
func TestEmptyStore(t *testing.T) {
	srv, _ := shop(t)
	if code, body, _ := get(t, srv.URL+"/"); code != 200 || !strings.Contains(body, "weir demo") {
		t.Errorf("%d %.300s", code, body)
	}
	if _, body, _ := get(t, srv.URL+"/api/results"); strings.TrimSpace(body) != "[]" {
		t.Errorf("API of an empty store: %s", body)
	}
}

// TestBundleGone: a run whose bundle was moved still has its page, which says so.
func TestBundleGone(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := derive(t, cliffPoint("none", 2), nil)
	if err := s.Put(context.Background(), store.Entry{Result: r, Bundle: filepath.Join(t.TempDir(), "gone")}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(NewHandler(s))
	defer srv.Close()
	if code, body, _ := get(t, srv.URL+"/run/"+r.ID); code != 200 || !strings.Contains(body, "No timeline:") {
		t.Errorf("%d %.200s", code, body)
	}
	if code, body, _ := get(t, srv.URL+"/api/results/"+r.ID+"/timeline"); code != 404 || !strings.Contains(body, "not a bundle") {
		t.Errorf("%d %.200s", code, body)
	}
}

// TestSweepsAreLaidOver: two sweeps that are both chosen are two series and no repeats; without
// a choice the runs of one point are repeats.
func TestSweepsAreLaidOver(t *testing.T) {
	ctx := context.Background()
	s, err := store.Open(filepath.Join(t.TempDir(), "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, sweep := range []string{"monday", "tuesday"} {
		for _, c := range []int{1, 8} {
			r := derive(t, cliffPoint("none", c), func(m *record.Meta, qs []*record.Request) []*record.Request {
				m.Seed, m.Repeat = uint64(i), i
				return qs
			})
			if err := s.Put(ctx, store.Entry{Result: r, Sweep: sweep}); err != nil {
				t.Fatal(err)
			}
		}
	}
	srv := httptest.NewServer(NewHandler(s))
	defer srv.Close()
	_, both, _ := get(t, srv.URL+"/?sweep=monday&sweep=tuesday")
	if strings.Contains(both, "range of 2 runs") || !strings.Contains(both, "tuesday") || !strings.Contains(both, `class="over`) {
		t.Error("chosen sweeps are not laid over each other")
	}
	_, all, _ := get(t, srv.URL+"/")
	if !strings.Contains(all, "range of 2 runs") {
		t.Error("repeats show no range")
	}
}

// TestAtMostSix: a default view has at most six series and names the others.
func TestAtMostSix(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 8 {
		p := cliffPoint("none", 4)
		p.Precision = fmt.Sprint("p", i)
		if err := s.Put(context.Background(), store.Entry{Result: derive(t, p, nil)}); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(NewHandler(s))
	defer srv.Close()
	_, six, _ := get(t, srv.URL+"/")
	if !strings.Contains(six, "2 more series are not shown") || !strings.Contains(six, "?all=1") || strings.Count(six, `<tr class="series">`) != 6 {
		t.Errorf("%d series", strings.Count(six, `<tr class="series">`))
	}
	_, all, _ := get(t, srv.URL+"/?all=1")
	if strings.Count(all, `<tr class="series">`) != 8 {
		t.Errorf("%d series with all=1", strings.Count(all, `<tr class="series">`))
	}
}
