package spec

import (
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// generatorSeconds is what InferenceX's generator takes for the full sweep without its
// validation, in Python on one core (the project's own measurement, 2026-08).
const generatorSeconds = 0.8

// The full sweep in one process: both master files and runners.yaml parsed, every rule checked,
// 1,820 rows expanded, marked and written.
func BenchmarkFullSweep(b *testing.B) {
	masters := []string{material.Path(b, "inferencex", "nvidia-master.yaml"), material.Path(b, "inferencex", "amd-master.yaml")}
	runners := material.Path(b, "inferencex", "runners.yaml")
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		s, err := Load(masters, runners)
		if err != nil {
			b.Fatal(err)
		}
		m, err := s.Matrix(Selection{}, EvalsMarked)
		if err != nil {
			b.Fatal(err)
		}
		if m.Len() != 1820 {
			b.Fatalf("%d rows", m.Len())
		}
		buf = m.AppendJSON(buf[:0])
	}
	b.ReportMetric(generatorSeconds/(b.Elapsed().Seconds()/float64(b.N)), "x-generator")
}

// The points alone: expansion and ids of a loaded set.
func BenchmarkPoints(b *testing.B) {
	s := inferenceX(b)
	b.ReportAllocs()
	for b.Loop() {
		points, err := s.Points(Selection{})
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range points {
			p.ID()
		}
	}
}
