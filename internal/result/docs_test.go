package result

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestDocumented: every number of a result and every code is on the page that defines them.
func TestDocumented(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := f.Type
			for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice || at.Kind() == reflect.Map {
				at = at.Elem()
			}
			if at.PkgPath() != reflect.TypeFor[Result]().PkgPath() && path != "" && at.Kind() == reflect.Struct {
				continue
			}
			if path != "" && !strings.Contains(page, name) {
				t.Errorf("docs/metrics.md does not name %s.%s", path, name)
			}
			if at.Kind() == reflect.Struct && at.PkgPath() == reflect.TypeFor[Result]().PkgPath() {
				walk(at, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	}
	walk(reflect.TypeFor[Result](), "")
	for _, c := range []Code{RootWarmup, ErrorRate, Overflow, NoOutput, Coverage, Cancelled, ClientBound, CacheNotClean, OffloadInert, GPUMismatch, Stalled,
		UnsafeOverride, RunFailed, RunCut, UsageMissing, UsageImplausible, PromptDrift, OffloadMismatch, HitsExceed, AboveCeiling, ShortWindow, FewSamples, MetricsMissing, SamplesThinned, PoolMismatch, DeviceErrors, DeviceSlowed, DeviceGaps, DeviceCount, OutputMismatch, PassesFit} {
		if !strings.Contains(page, "`"+string(c)+"`") {
			t.Errorf("docs/metrics.md does not name %s", c)
		}
	}
	if !strings.Contains(page, "`"+Definitions+"`") {
		t.Errorf("docs/metrics.md is not the page of %s", Definitions)
	}
}
