package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Probe looks at this node for a request. It never fails: what cannot be seen is listed in
// Problems.
func Probe(ctx context.Context, q Request) *NodeState {
	p := &prober{q: q, s: &NodeState{TimeNs: time.Now().UnixNano()}}
	p.s.Host, _ = os.Hostname()
	p.system(ctx)
	for _, port := range q.Ports {
		p.s.Ports = append(p.s.Ports, p.port(ctx, port))
	}
	if q.Mark != "" {
		p.s.Marked = marked(q.Mark)
	}
	if q.Corpus != "" {
		p.s.Paths = append(p.s.Paths, pathState("corpus", q.Corpus, nil))
	}
	if q.Model != "" {
		p.s.Paths = append(p.s.Paths, modelState(q.Model))
	}
	if q.ClockAddr != "" {
		p.s.Clock = ClockOffset(ctx, q.ClockAddr)
	}
	return p.s
}

// prober fills a NodeState.
type prober struct {
	q Request
	s *NodeState
}

func (p *prober) problem(format string, a ...any) {
	p.s.Problems = append(p.s.Problems, fmt.Sprintf(format, a...))
}

// root is a path under the request's root.
func (p *prober) root(path string) string {
	if p.q.Root == "" {
		return path
	}
	return filepath.Join(p.q.Root, path)
}

// read returns a small file, trimmed; "" and false where it cannot be read.
func (p *prober) read(path string) (string, bool) {
	b, err := os.ReadFile(p.root(path))
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(b)), true
}

// number reads a file that holds one number; "max" is no limit and false.
func (p *prober) number(path string) (int64, bool) {
	s, ok := p.read(path)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// port tries to listen on all addresses.
func (p *prober) port(ctx context.Context, port int) PortState {
	st := PortState{Port: port}
	if port < 1 || port > 65535 {
		st.Why = "no such port"
		return st
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		var se *os.SyscallError
		st.Why = err.Error()
		if errors.As(err, &se) {
			st.Why = se.Err.Error()
		}
		st.Owner = p.listener(port)
		return st
	}
	l.Close()
	st.Free = true
	return st
}

// leftoverNames are how engines and their stores name what they put into shared memory: vLLM's
// offload region, LMCache, NCCL, POSIX semaphores and queues of Python, Mooncake, PSM.
var leftoverNames = []string{"vllm_offload_*", "lmcache*", "nccl-*", "psm_*", "sem.mp-*", "torch_*", "mooncake*", "sglang*", "hicache*"}

// Leftovers are the files of engines in a folder of shared memory, the largest first.
func Leftovers(dir string) []Leftover {
	return leftovers(dir, time.Now(), func(_ string, info fs.FileInfo) int64 { return info.Size() })
}

// leftovers lists files of engines that ran before, the largest first at most a hundred.
func leftovers(dir string, now time.Time, size func(string, fs.FileInfo) int64) []Leftover {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []Leftover
	for _, e := range entries {
		for _, pattern := range leftoverNames {
			if ok, _ := filepath.Match(pattern, e.Name()); !ok {
				continue
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				out = append(out, Leftover{Name: e.Name(), Bytes: size(filepath.Join(dir, e.Name()), info), AgeNs: max(0, now.Sub(info.ModTime()).Nanoseconds())})
			}
			break
		}
	}
	slices.SortStableFunc(out, func(a, b Leftover) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out[:min(len(out), 100)]
}

// pathState says whether a file or a directory with files is there.
func pathState(what, path string, missing []string) PathState {
	st := PathState{What: what, Path: path, Missing: missing}
	info, err := os.Stat(path)
	if err != nil {
		st.Why = reason(err)
		return st
	}
	if !info.IsDir() {
		st.Present, st.Bytes = info.Size() > 0, info.Size()
		if !st.Present {
			st.Why = "is empty"
		}
		return st
	}
	entries := 0
	// The separator makes a link to a folder be followed.
	err = filepath.WalkDir(path+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if entries++; entries > 100_000 {
			return fs.SkipAll
		}
		if info, err := os.Stat(name); err == nil { // a checkpoint may be links into a cache
			st.Bytes += info.Size()
		}
		return nil
	})
	switch {
	case err != nil:
		st.Why = reason(err)
	case entries == 0:
		st.Why = "holds no file"
	default:
		st.Present = true
	}
	return st
}

func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// modelState checks a checkpoint: its config.json and every shard that its index names.
func modelState(dir string) PathState {
	var missing []string
	lacks := func(name string) {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			missing = append(missing, name)
		}
	}
	lacks("config.json")
	if b, err := os.ReadFile(filepath.Join(dir, "model.safetensors.index.json")); err == nil {
		var index struct {
			Map map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(b, &index); err != nil {
			missing = append(missing, "model.safetensors.index.json (is not JSON)")
		}
		seen := map[string]bool{}
		for _, shard := range index.Map {
			if !seen[shard] {
				seen[shard] = true
				lacks(shard)
			}
		}
	} else if m, _ := filepath.Glob(filepath.Join(dir, "*.safetensors")); len(m) == 0 {
		missing = append(missing, "*.safetensors")
	}
	st := pathState("model", dir, nil)
	if st.Present {
		slices.Sort(missing)
		st.Missing = missing
	}
	return st
}
