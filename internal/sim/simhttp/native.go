package simhttp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

func (s *Server) sglangRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /generate", s.generate)
	m.HandleFunc("GET /health_generate", s.health)
	m.HandleFunc("GET /readiness", s.health)
	m.HandleFunc("POST /v1/tokenize", s.tokenize)
	for _, method := range []string{"GET", "POST"} {
		m.HandleFunc(method+" /flush_cache", s.flushCache)
	}
	m.HandleFunc("POST /hicache/storage-backend/clear", s.clearStorage)
	m.HandleFunc("GET /get_model_info", s.modelInfo)
	m.HandleFunc("GET /model_info", s.modelInfo)
	m.HandleFunc("GET /get_server_info", s.serverInfo)
	m.HandleFunc("GET /server_info", s.serverInfo)
}

func (s *Server) vllmRoutes(m *http.ServeMux) {
	m.HandleFunc("GET /ping", s.health)
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]any{"version": s.version()})
	})
	m.HandleFunc("POST /reset_prefix_cache", s.flushCache)
}

func (s *Server) version() string {
	if s.o.Version != "" {
		return s.o.Version
	}
	return "simulated"
}

// flushCache empties the caches when nothing runs. SGLang refuses otherwise; vLLM answers 200
// all the same.
func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	if s.down(w) {
		return
	}
	if s.faults.flush("flush-refused") {
		w.WriteHeader(400)
		fmt.Fprintln(w, "Flush cache failed: a fault that was asked for.")
		return
	}
	ok := s.faults.flush("sticky-cache") || s.live.flush()
	if s.o.Engine == "vllm" {
		w.WriteHeader(200)
		return
	}
	if !ok {
		w.WriteHeader(400)
		fmt.Fprintln(w, "Flush cache failed: requests are running or waiting.")
		return
	}
	fmt.Fprint(w, "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n")
}

// clearStorage empties HiCache's third tier, which a flush leaves as it is; without one it
// answers 400.
func (s *Server) clearStorage(w http.ResponseWriter, _ *http.Request) {
	if s.down(w) {
		return
	}
	if s.c.StorageTokens == 0 {
		w.WriteHeader(400)
		fmt.Fprintln(w, "Clear HiCache storage backend failed: there is none.")
		return
	}
	if !s.live.clearStorage() {
		w.WriteHeader(500)
		fmt.Fprintln(w, "Clear HiCache storage backend failed: fetches are under way.")
		return
	}
	fmt.Fprintln(w, "Hierarchical cache storage backend cleared.")
}

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, map[string]any{
		"model_path": s.o.Model, "tokenizer_path": s.o.Model, "is_generation": true, "weight_version": "default",
	})
}

// serverInfo tells what SGLang's endpoint tells about sizes, and that the engine is simulated.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	c := &s.c
	states := []map[string]any{}
	for _, n := range s.live.stats() {
		states = append(states, map[string]any{
			"memory_usage": map[string]any{"token_capacity": n.DeviceTokens},
			"num_running":  n.Running, "num_waiting": n.Waiting,
		})
	}
	writeJSON(w, 200, map[string]any{
		"simulated": true, "version": s.version(), "model_path": s.o.Model, "served_model_name": s.o.Model,
		"tp_size": c.Parallel.TP, "dp_size": c.Ranks(), "pp_size": 1, "ep_size": max(1, c.Parallel.EP),
		"page_size": c.PageSize, "context_length": s.contextLen(), "chunked_prefill_size": c.ChunkedPrefill,
		"max_prefill_tokens": c.MaxPrefill, "max_running_requests": c.MaxRunning, "max_total_num_tokens": c.DeviceTokens,
		"enable_hierarchical_cache": c.HostTokens > 0, "hicache_write_policy": c.WritePolicy,
		"hicache_host_tokens": c.HostTokens, "schedule_policy": c.SchedulePolicy, "kv_cache_dtype": c.KVDType,
		"enable_cache_report": !s.o.NoCacheReport, "disaggregation_mode": cmp.Or(c.Role, "null"), "status": "ready",
		"internal_states": states, "uptime_seconds": int64(time.Since(s.live.start).Seconds()),
	})
}

// tokenize is vLLM's and SGLang's: the ids of a text or of messages under the template.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&q); err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	p := &pager{page: s.page(), keep: true}
	var err error
	if q.Messages != nil {
		err = q.chatPrompt(p, s.o.Template)
	} else {
		err = q.rawPrompt(p)
	}
	if err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	writeJSON(w, 200, map[string]any{"tokens": p.ids, "count": p.n, "max_model_len": s.contextLen()})
}
