package web

import (
	"fmt"
	"io"
	"testing"

	"github.com/weirbench/weir/internal/result"
)

// BenchmarkReport500 writes a report of five hundred runs of five models.
func BenchmarkReport500(b *testing.B) {
	base := append(cliff(b, "none", 1, 2, 4, 8, 16), cliff(b, "dram", 1, 2, 4, 8, 16)...)
	var rs []*result.Result
	for k := range 50 {
		for _, r := range base {
			c := *r
			c.ID = fmt.Sprint(r.ID, k)
			c.Point.Model = fmt.Sprint("m", k%5)
			c.Point.Precision = fmt.Sprint("p", k/10)
			c.Point.Framework = []string{"sglang", "vllm"}[k/5%2]
			rs = append(rs, &c)
		}
	}
	b.ResetTimer()
	for range b.N {
		if err := WriteReport(io.Discard, rs, ReportOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDerive reads and derives a run of about two thousand requests.
func BenchmarkDerive(b *testing.B) {
	_, dir := deriveAt(b, b.TempDir()+"/b", cliffPoint("none", 64), nil)
	b.ResetTimer()
	for range b.N {
		if _, err := result.DeriveDir(dir); err != nil {
			b.Fatal(err)
		}
	}
}
