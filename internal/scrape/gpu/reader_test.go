package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

// fake is a tool that prints what files say, at each run another one: out.1, out.2, and so on, the
// last one for ever. A file that begins with #! is run in place of printed.
type fake struct {
	path string
	dir  string
}

func newFake(t testing.TB, tool string, outs ...string) *fake {
	t.Helper()
	f := &fake{dir: t.TempDir()}
	f.path = filepath.Join(f.dir, tool)
	for i, o := range outs {
		if err := os.WriteFile(filepath.Join(f.dir, fmt.Sprintf("out.%d", i+1)), []byte(o), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := `#!/bin/sh
cd ` + f.dir + `
echo "$*" >>args
case "$*" in "list --json") cat list 2>/dev/null; exit 0;; esac
n=$(($(cat n 2>/dev/null || echo 0) + 1))
echo $n >n
[ -e out.$n ] || n=` + fmt.Sprint(len(outs)) + `
if [ "$(head -c 2 out.$n)" = '#!' ]; then exec ./out.$n "$@"; fi
cat out.$n
`
	if err := os.WriteFile(f.path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

// tape collects samples and puts differences together again.
type tape struct {
	mu      sync.Mutex
	samples []record.Sample
	wait    chan struct{}
	known   map[string]float64
}

func (p *tape) write(s *record.Sample) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := map[string]float64{}
	if s.Delta {
		for k, v := range p.known {
			whole[k] = v
		}
	}
	for k, v := range s.Values {
		whole[k] = v
	}
	for _, k := range s.Gone {
		delete(whole, k)
	}
	c := *s
	if s.Error == "" {
		c.Values, p.known = whole, whole
	}
	p.samples = append(p.samples, c)
	select {
	case p.wait <- struct{}{}:
	default:
	}
	return nil
}

// until waits for a sample that holds.
func (p *tape) until(t *testing.T, what string, holds func(*record.Sample) bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for from := 0; ; {
		p.mu.Lock()
		for ; from < len(p.samples); from++ {
			if holds(&p.samples[from]) {
				p.mu.Unlock()
				return
			}
		}
		all := fmt.Sprintf("%+v", p.samples)
		p.mu.Unlock()
		select {
		case <-p.wait:
		case <-limit:
			t.Fatalf("no sample with %s in %s", what, all)
		}
	}
}

func read(t *testing.T, f *fake, deadline time.Duration) (*Reader, *tape) {
	t.Helper()
	p := &tape{wait: make(chan struct{}, 1)}
	begin := time.Now()
	r, err := NewReader(Options{Tool: f.path, Every: 20 * time.Millisecond, Deadline: deadline, Now: func() int64 { return int64(time.Since(begin)) }, Write: p.write})
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

const row = "%d, GPU-%d, NVIDIA H100 80GB HBM3, 500.00, 1000, 81559, 90, 1755, 2619, 64, 78, 0, 0, 0x0000000000000000\n"

func has(s *record.Sample, names ...string) bool {
	for _, n := range names {
		found := false
		for k := range s.Values {
			found = found || strings.Contains(k, n)
		}
		if !found {
			return false
		}
	}
	return s.Error == ""
}

// TestReader runs a fake nvidia-smi that has two devices, then one, then a device that fell off the
// bus with a failing exit, then prints garbage, dies, and comes back with both.
func TestReader(t *testing.T) {
	one, two := fmt.Sprintf(row, 0, 0), fmt.Sprintf(row, 1, 1)
	f := newFake(t, "nvidia-smi", one+two, one,
		"#!/bin/sh\nprintf '"+strings.ReplaceAll(one, "\n", "\\n")+"'; echo 'Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error'; exit 15\n",
		"\xff\xfe\x00garbage", "#!/bin/sh\nkill -9 $$\n", "#!/bin/sh\nexit 9\n", one+two)
	r, p := read(t, f, time.Minute)
	r.Start()
	p.until(t, "both devices", func(s *record.Sample) bool { return has(s, "GPU-0", "GPU-1") && !s.Delta })
	p.until(t, "one device", func(s *record.Sample) bool { return has(s, "GPU-0") && !has(s, "GPU-1") && s.Delta })
	p.until(t, "garbage", func(s *record.Sample) bool { return strings.Contains(s.Error, "no device in what nvidia-smi printed") })
	p.until(t, "a death", func(s *record.Sample) bool { return strings.Contains(s.Error, "killed") })
	p.until(t, "an exit", func(s *record.Sample) bool { return strings.Contains(s.Error, "exit status 9") })
	p.until(t, "both again", func(s *record.Sample) bool { return has(s, "GPU-0", "GPU-1") && s.Delta })
	rep, err := r.Stop(t.Context())
	if err != nil || rep.Failed != 3 || rep.Readings < 7 {
		t.Errorf("%+v %v", rep, err)
	}
	if last := p.samples[len(p.samples)-1]; !has(&last, `weir_gpu_power_milliwatts{gpu="0",uuid="GPU-0"}`, "weir_gpu_present") {
		t.Errorf("last sample %+v", last)
	}
}

// TestReaderHangs: a tool that hangs, and what it started, is ended at the deadline and reported,
// and the next reading is taken.
func TestReaderHangs(t *testing.T) {
	material.RealTime(t)
	f := newFake(t, "nvidia-smi", "#!/bin/sh\nsleep 600 & sleep 600\n", fmt.Sprintf(row, 0, 0))
	r, p := read(t, f, 300*time.Millisecond)
	r.o.Deadline = 300 * time.Millisecond
	r.Start()
	p.until(t, "the deadline", func(s *record.Sample) bool {
		return strings.Contains(s.Error, "no whole answer of nvidia-smi within 300ms")
	})
	p.until(t, "a device", func(s *record.Sample) bool { return has(s, "GPU-0") })
	if _, err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReaderLearns: a release that does not know a field, and an amd-smi whose JSON is none.
func TestReaderLearns(t *testing.T) {
	f := newFake(t, "nvidia-smi", `#!/bin/sh
case "$*" in *event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;; esac
echo '`+strings.TrimSpace(fmt.Sprintf(row, 0, 0))+`'
`)
	r, _ := read(t, f, time.Minute)
	d, err := r.Read(t.Context())
	if err != nil || len(d) != 1 || d[0].Values[Throttle] != 0 || d[0].Values[Power] != 500_000 {
		t.Errorf("%+v %v", d, err)
	}
	a := newFake(t, "amd-smi", `#!/bin/sh
case "$*" in metric*) echo 'AttributeError: no attribute'; exit 1;; esac
echo 'GPU,POWER,GFX%,VRAM_USED
0,142 W,73 %,49148 MB'
`)
	if err := os.WriteFile(filepath.Join(a.dir, "list"), []byte(`[{"gpu": 0, "uuid": "7eff"}]`), 0o666); err != nil {
		t.Fatal(err)
	}
	r, p := read(t, a, time.Minute)
	r.Start()
	p.until(t, "the table", func(s *record.Sample) bool {
		return s.Values[`weir_gpu_power_milliwatts{gpu="0",uuid="7eff"}`] == 142_000 && s.Values[`weir_gpu_utilization_permille{gpu="0",uuid="7eff"}`] == 730
	})
	if _, err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReaderStops: stopping does not wait for a tool that hangs.
func TestReaderStops(t *testing.T) {
	f := newFake(t, "nvidia-smi", "#!/bin/sh\nsleep 600\n")
	r, p := read(t, f, 10*time.Minute)
	r.Start()
	for {
		if b, err := os.ReadFile(filepath.Join(f.dir, "n")); err == nil && len(b) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if rep, err := r.Stop(ctx); err != nil || rep.Readings != 0 || len(p.samples) != 0 {
		t.Errorf("%+v %v %+v", rep, err, p.samples)
	}
}

// TestFind looks for tools on PATH.
func TestFind(t *testing.T) {
	f := newFake(t, "amd-smi", "")
	t.Setenv("PATH", f.dir)
	for choice, want := range map[string]string{"auto": f.path, "none": "", "amd-smi": f.path, f.path: f.path} {
		got, err := Find(choice)
		if err != nil || strings.Join(got, ",") != want {
			t.Errorf("%s: %q %v, want %q", choice, got, err, want)
		}
	}
	for _, bad := range []string{"nvidia-smi", "rocm-smi", "/nowhere/nvidia-smi"} {
		if got, err := Find(bad); err == nil {
			t.Errorf("%s: %q", bad, got)
		}
	}
}
