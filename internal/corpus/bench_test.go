package corpus

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// BenchmarkCompile prepares the recorded traces: what a run has to do once.
func BenchmarkCompile(b *testing.B) {
	dir := material.Path(b, "traces", "weka")
	out := filepath.Join(b.TempDir(), "c.weir")
	b.SetBytes(dirBytes(b, dir))
	for b.Loop() {
		os.Remove(out)
		if _, err := Compile(dir, out, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile700 prepares 700 traces: the recorded ones several times over, with
// other ids.
func BenchmarkCompile700(b *testing.B) {
	dir := replicate(b, material.Path(b, "traces", "weka"), 700)
	out := filepath.Join(b.TempDir(), "c.weir")
	b.SetBytes(dirBytes(b, dir))
	for b.Loop() {
		os.Remove(out)
		if _, err := Compile(dir, out, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoadWeka reads the recorded traces without preparation.
func BenchmarkLoadWeka(b *testing.B) {
	dir := material.Path(b, "traces", "weka")
	b.SetBytes(dirBytes(b, dir))
	for b.Loop() {
		if _, err := Load(dir, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoadJSONLines reads the recorded traces from one file with a trace a line.
func BenchmarkLoadJSONLines(b *testing.B) {
	c, err := Load(material.Path(b, "traces", "weka"), LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	name := filepath.Join(b.TempDir(), "traces.jsonl")
	err = writeFile(name, func(w io.Writer) error {
		for _, t := range c.Traces {
			if err := WriteWeka(w, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(fileSize(name))
	for b.Loop() {
		if _, err := Load(name, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoadCompiled is what a run does when the corpus is prepared.
func BenchmarkLoadCompiled(b *testing.B) {
	out := filepath.Join(b.TempDir(), "c.weir")
	if _, err := Compile(material.Path(b, "traces", "weka"), out, LoadOptions{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(fileSize(out))
	for b.Loop() {
		if _, err := Load(out, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGenerate makes the corpus of weir demo up.
func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		if _, err := Generate(GenerateOptions{Traces: 100}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStats sums the recorded traces up.
func BenchmarkStats(b *testing.B) {
	c, err := Load(material.Path(b, "traces", "weka"), LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.Stats()
	}
}

func dirBytes(tb testing.TB, dir string) int64 {
	files, err := list(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var n int64
	for _, f := range files {
		n += fileSize(f)
	}
	return n
}

// replicate writes n traces, those of dir over and over under other ids.
func replicate(tb testing.TB, dir string, n int) string {
	files, err := list(dir)
	if err != nil {
		tb.Fatal(err)
	}
	out := tb.TempDir()
	for i := range n {
		text, err := os.ReadFile(files[i%len(files)])
		if err != nil {
			tb.Fatal(err)
		}
		id := fmt.Sprintf(`{"id":"copy_%04d",`, i)
		end := 0
		for text[end] != ',' {
			end++
		}
		text = append([]byte(id), text[end+1:]...)
		if err := os.WriteFile(filepath.Join(out, fmt.Sprintf("copy_%04d.json", i)), text, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	runtime.GC()
	return out
}
