package inferencex

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestHugeMetrics reads a file that is nearly all time slices. What it allocates in all, not
// only at its peak, stays under a quarter of the file, so a file of gigabytes needs no more
// memory than its series.
func TestHugeMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), ServerFile)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	fmt.Fprint(w, `{"schema_version":"1.0","metrics":{`)
	for m := range 20 {
		fmt.Fprintf(w, `%s"sglang:m%d":{"type":"counter","series":[{"endpoint_url":"http://h/metrics","labels":{"dp_rank":"0"},"stats":{"total":%d},"timeslices":[`, map[bool]string{true: ","}[m > 0], m, m)
		for s := range 20000 {
			fmt.Fprintf(w, `%s{"start_ns":17800000000%08d,"end_ns":17800000000%08d,"total":1.5,"rate":1.5}`, map[bool]string{true: ","}[s > 0], s, s+1)
		}
		fmt.Fprint(w, `]}]}`)
	}
	fmt.Fprint(w, `}}`)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	size, _ := f.Seek(0, 1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := readScraped(path)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if v := total(m.find("sglang:m7"), totals, nil); v == nil || *v != 7 {
		t.Errorf("total %v", v)
	}
	if took := int64(after.TotalAlloc - before.TotalAlloc); took > size/4 {
		t.Errorf("reading %d bytes allocated %d", size, took)
	}
}

// TestUnsliced: the text without its slices is what it was with them emptied, however it comes.
func TestUnsliced(t *testing.T) {
	for in, want := range map[string]string{
		`{"timeslices": [1,[2,"]"],{"a":"\\"}] ,"b":1}`: `{"timeslices": [] ,"b":1}`,
		`{"timeslices":{"a":[1]},"c":[1]}`:              `{"timeslices":{"a":[1]},"c":[1]}`,
		`["timeslices",[1]]`:                            `["timeslices",[1]]`,
		`{"xtimeslices":[1],"timeslicesx":[1]}`:         `{"xtimeslices":[1],"timeslicesx":[1]}`,
		`{"a":"\"timeslices\":[1]","timeslices":[]}`:    `{"a":"\"timeslices\":[1]","timeslices":[]}`,
		`{"timeslices":[1`:                              `{"timeslices":[`,
		`{"a":"timeslices","b":[1]}`:                    `{"a":"timeslices","b":[1]}`,
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			got, err := io.ReadAll(newUnsliced(r))
			if err != nil || string(got) != want {
				t.Errorf("%s became %s (%v), want %s", in, got, err, want)
			}
		}
	}
}

// FuzzUnsliced: of valid JSON nothing is lost but slices.
func FuzzUnsliced(f *testing.F) {
	f.Add(`{"timeslices":[{"a":1}],"b":{"timeslices":[[]]}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want any
		if json.Unmarshal([]byte(in), &want) != nil || strings.Contains(in, `\u`) {
			return
		}
		got, err := io.ReadAll(newUnsliced(strings.NewReader(in)))
		if err != nil {
			t.Fatal(err)
		}
		var have any
		if err := json.Unmarshal(got, &have); err != nil {
			t.Fatalf("%s became %s: %v", in, got, err)
		}
		if empty(want); !reflect.DeepEqual(have, want) {
			t.Fatalf("%s became %s", in, got)
		}
	})
}

// empty clears the arrays under the key "timeslices".
func empty(v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, item := range x {
			if _, ok := item.([]any); ok && k == "timeslices" {
				x[k] = []any{}
				continue
			}
			empty(item)
		}
	case []any:
		for _, item := range x {
			empty(item)
		}
	}
}
