package corpus

import (
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

func TestGenerateIsDeterministic(t *testing.T) {
	gen := func(seed uint64, n int) *Corpus {
		c, err := Generate(GenerateOptions{Seed: seed, Traces: n})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := gen(5, 8), gen(5, 8)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives another corpus")
	}
	if a.Fingerprint == gen(6, 8).Fingerprint {
		t.Error("another seed gives the same corpus")
	}
	if !reflect.DeepEqual(a.Traces[:3], gen(5, 3).Traces) {
		t.Error("the number of traces changes a trace")
	}
}

// TestGeneratedFilesReadBack: what is written is read back as it was, streams and all.
func TestGeneratedFilesReadBack(t *testing.T) {
	c, err := Generate(GenerateOptions{Seed: 1, Traces: 20, SubAgentShare: .3, Turns: 30})
	if err != nil {
		t.Fatal(err)
	}
	assertReadsBack(t, c)
}

func TestRecordedFilesReadBack(t *testing.T) {
	c, err := Load(material.Path(t, "traces", "weka"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	assertReadsBack(t, c)
}

func assertReadsBack(t *testing.T, c *Corpus) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "traces")
	if err := WriteWekaDir(dir, c); err != nil {
		t.Fatal(err)
	}
	d, err := Load(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Traces {
		assertSameTrace(t, c.Traces[i], d.Traces[i])
	}
	if c.Fingerprint != d.Fingerprint {
		t.Errorf("fingerprint %s became %s", c.Fingerprint, d.Fingerprint)
	}
	if err := WriteWekaDir(dir, c); err == nil {
		t.Error("a second corpus was written over the first")
	}
}

func assertSameTrace(t *testing.T, a, b *Trace) {
	t.Helper()
	x, y := *a, *b
	x.Streams, y.Streams = nil, nil
	if !maps.Equal(x.Extra, y.Extra) {
		t.Errorf("%s: what the schema doesn't know is not kept", a.ID)
	}
	x.Extra, y.Extra = nil, nil
	if !reflect.DeepEqual(x, y) || len(a.Streams) != len(b.Streams) {
		t.Errorf("trace %+v with %d streams became %+v with %d", x, len(a.Streams), y, len(b.Streams))
		return
	}
	for i := range a.Streams {
		x, y := a.Streams[i], b.Streams[i]
		x.Turns, y.Turns = nil, nil
		if !reflect.DeepEqual(x, y) || len(a.Streams[i].Turns) != len(b.Streams[i].Turns) {
			t.Errorf("stream %+v became %+v", x, y)
			return
		}
		for k := range a.Streams[i].Turns {
			x, y := a.Streams[i].Turns[k], b.Streams[i].Turns[k]
			same := slices.Equal(x.Blocks, y.Blocks)
			x.Blocks, y.Blocks = nil, nil
			if !same || !reflect.DeepEqual(x, y) {
				t.Errorf("%s turn %d: %+v became %+v; blocks equal: %v", a.Streams[i].ID, k, x, y, same)
				return
			}
		}
	}
}

// TestGeneratedFollowsMeasured compares with what was measured on 710 traces of kv-cache-tester (2026-05).
func TestGeneratedFollowsMeasured(t *testing.T) {
	c, err := Generate(GenerateOptions{Seed: 1, Traces: 600})
	if err != nil {
		t.Fatal(err)
	}
	st := c.Stats()
	for _, m := range []struct {
		name              string
		got, want, factor float64
	}{
		{"input p50", st.In.P50, 103659, 1.2}, {"input p90", st.In.P90, 233633, 1.2},
		{"output p50", st.Out.P50, 216, 1.1}, {"output p90", st.Out.P90, 898, 1.1},
		{"new tokens p50", st.New.P50, 728, 1.15}, {"new tokens p90", st.New.P90, 4895, 1.15},
		{"turns p50", st.TurnsPerTrace.P50, 45, 1.2}, {"turns p90", st.TurnsPerTrace.P90, 156, 1.2},
		{"think p50", st.ThinkSeconds.P50, 10, 1.2}, {"think p90", st.ThinkSeconds.P90, 161, 1.2},
		{"service p50", st.APISeconds.P50, 5.7, 1.25},
		{"different tokens p50", st.UniqueTokens.P50, 209920, 1.35}, {"different tokens p90", st.UniqueTokens.P90, 750848, 1.35},
		{"infinite hit rate p50", st.InfinitePerTrace.P50, .953, 1.03}, {"infinite hit rate p10", st.InfinitePerTrace.P10, .829, 1.06},
		{"sub-agents' share", st.SubAgentShare, mSubAgentShare, 1.4},
	} {
		if r := m.got / m.want; math.Max(r, 1/r) > m.factor {
			t.Errorf("%s is %g, measured %g", m.name, m.got, m.want)
		}
	}
}
