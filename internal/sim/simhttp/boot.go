package simhttp

import (
	"errors"
	"fmt"

	"github.com/weirbench/weir/internal/sim"
)

// hostReserve is what SGLang leaves free when it checks for host memory (pool_host/base.py:25,
// 2026-07).
const hostReserve = 10 << 30

// ErrKilled is in the chain of the error of an engine that the kernel would have killed.
var ErrKilled = errors.New("killed by the out-of-memory killer")

// ExitCode is the exit status of a process that ends with the error as the engine's would: 137
// when the kernel kills it, else 1.
func ExitCode(err error) int {
	if errors.Is(err, ErrKilled) {
		return 137
	}
	return 1
}

// Model is the name that clients ask for.
func (s *Server) Model() string { return s.o.Model }

func (s *Server) logf(format string, a ...any) {
	if s.o.Log != nil {
		fmt.Fprintf(s.o.Log, format+"\n", a...)
	}
}

// Boot logs the sizes of pools as the engine does when it starts, and fails as the engine does
// when the declared memory of the node is too small for the host pools: with its own refusal
// when one rank's pool does not fit, else, because ranks do not know of each other, by the
// kernel when all pools together do not.
func (s *Server) Boot() error {
	if s.o.Fixed != nil {
		return nil
	}
	c := &s.c
	if s.o.Engine == "vllm" {
		s.logf("INFO [kv_cache_utils.py] GPU KV cache size: %s tokens", thousands(c.DeviceTokens))
		s.logf("INFO [kv_cache_utils.py] Maximum concurrency for %s tokens per request: %.2fx", thousands(c.ContextLen), float64(c.DeviceTokens)/float64(c.ContextLen))
	} else {
		for r := range max(1, c.Parallel.TP) {
			s.logf("[TP%d] KV Cache is allocated. dtype: %s, #tokens: %d, KV size: %.2f GB", r, c.KVDType, c.DeviceTokens,
				float64(c.DeviceTokens*c.KVBytesPerToken)/(1<<30))
		}
	}
	if err := s.bootHost(); err != nil {
		return err
	}
	if _, ok := s.faults.standing("crash-start"); ok {
		s.crash("before it was ready")
	}
	if s.o.Engine == "sglang" {
		s.logf("max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%d, context_len=%d",
			c.DeviceTokens, c.ChunkedPrefill, c.MaxPrefill, c.MaxRunning, c.ContextLen)
		s.logf("The server is fired up and ready to roll! (simulated)")
	} else {
		s.logf("INFO Application startup complete. (simulated)")
	}
	return nil
}

func (s *Server) bootHost() error {
	c := &s.c
	if c.HostTokens == 0 {
		return nil
	}
	pool := sim.HostBytes(c)
	ranks := int64(max(1, c.Parallel.TP))
	free := s.o.NodeBytes
	if free > 0 && pool > free-hostReserve {
		return fmt.Errorf("ValueError: not enough host memory: requesting %.2f GB for the hierarchical KV cache of one rank, %.2f GB are free after a reserve of 10 GiB; reduce --host-tokens to at most %d",
			gb(pool), gb(max(0, free-hostReserve)), max(0, (free-hostReserve)/c.KVBytesPerToken))
	}
	for r := range ranks {
		if s.o.Engine == "sglang" {
			s.logf("[TP%d] Allocating %.2f GB host memory for hierarchical KV cache.", r, gb(pool))
		}
		if free > 0 && (r+1)*pool > free {
			return fmt.Errorf("rank %d: %w: %d ranks x %.2f GB = %.2f GB of pinned host pools, the node has %.2f GB; each rank had found room for its own; reduce --host-tokens to at most %d",
				r, ErrKilled, ranks, gb(pool), gb(ranks*pool), gb(free), free/ranks/c.KVBytesPerToken)
		}
	}
	return nil
}

func gb(n int64) float64 { return float64(n) / 1e9 }

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
