package run

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/engine/told"
	"github.com/weirbench/weir/internal/record"
)

const (
	// infoWait bounds one question to an info endpoint, infosWait all of a run: a server that does
	// not answer leaves facts unknown and delays the load by no more.
	infoWait, infosWait = 3 * time.Second, 10 * time.Second
	infoLimit           = 4 << 20  // bytes of an answer that are read
	logLimit            = 64 << 20 // bytes of a log that are read: what matters stands near its start
)

// listen takes down what the engines have told so far: in their logs, and on the info endpoints of
// those that serve HTTP. Nothing here fails a point.
func (l *life) listen(ctx context.Context) {
	facts := []record.Fact{}
	for _, x := range l.g.procs {
		if x.Role != "infra" {
			facts = append(facts, logged(x.Name, x.log)...)
		}
	}
	bases := map[string]string{}
	for _, p := range l.d.Processes {
		if p.URL != "" && p.Role != "infra" && p.Role != "external" {
			bases[p.Name] = p.URL
		}
	}
	for _, u := range l.d.URLs { // of processes that somebody else started
		if l.d.Engine == "external" {
			bases[u] = u
		}
	}
	l.told = append(facts, asked(ctx, bases, func(ctx context.Context, url string) ([]byte, error) {
		return get(ctx, plain, url, nil)
	})...)
	told.Sort(l.told)
	if v := told.VersionOf(l.told); v != "" {
		l.say("the engine is %s", v)
	}
}

// logged reads the facts of one log.
func logged(name, path string) []record.Fact {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	log := told.NewLog(name)
	if _, err := io.Copy(log, io.LimitReader(f, logLimit)); err != nil {
		return log.Facts() // what was read until then
	}
	log.Close()
	return log.Facts()
}

// listen asks the info endpoints of servers that run already.
func (h *HTTP) listen(ctx context.Context) []record.Fact {
	hc := &http.Client{Transport: &http.Transport{TLSClientConfig: h.Client.TLS, DisableKeepAlives: true, Protocols: h.Client.Protocols()}}
	header := http.Header{}
	for k, v := range h.Client.Header {
		header[k] = v
	}
	if h.Client.APIKey != "" {
		header.Set("Authorization", "Bearer "+h.Client.APIKey)
	}
	bases := map[string]string{}
	for _, u := range h.Client.URLs {
		base := strings.TrimSuffix(strings.TrimSuffix(u, "/"), "/v1")
		bases[base] = base
	}
	return asked(ctx, bases, func(ctx context.Context, url string) ([]byte, error) { return get(ctx, hc, url, header) })
}

// asked asks servers, by the name that their facts carry, all at the same time.
func asked(ctx context.Context, bases map[string]string, get func(context.Context, string) ([]byte, error)) []record.Fact {
	ctx, cancel := context.WithTimeout(ctx, infosWait)
	defer cancel()
	var mu sync.Mutex
	facts := []record.Fact{}
	var wg sync.WaitGroup
	ask := func(name, base, path string) (answered, silent bool) {
		one, cancel := context.WithTimeout(ctx, infoWait)
		defer cancel()
		body, err := get(one, base+path)
		if err != nil {
			return false, one.Err() != nil
		}
		found := told.Info(name, path, body)
		mu.Lock()
		defer mu.Unlock()
		facts = append(facts, found...)
		return len(found) > 0, false
	}
	for name, base := range bases {
		wg.Go(func() {
			known, server := false, false
			for _, path := range told.Paths {
				if path == "/get_server_info" && server {
					continue // the former spelling of what was answered
				}
				answered, silent := ask(name, base, path)
				if silent {
					return // it will not answer the next one either
				}
				if answered {
					server = server || path == "/server_info"
					known = known || path != "/v1/models"
				}
			}
			if !known {
				ask(name, base, told.HealthPath)
			}
		})
	}
	wg.Wait()
	told.Sort(facts)
	return facts
}

// get asks for one answer with status 200.
func get(ctx context.Context, hc *http.Client, url string, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, infoLimit))
}
