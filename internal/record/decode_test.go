package record

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// asWritten is a request's line as a bundle has it.
func asWritten(t interface{ Fatal(...any) }, q *Request) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(q); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// drawn makes up a value, with pointers and lists that may be nil.
func drawn(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			drawn(t, v.Field(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			drawn(t, v.Elem())
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			x := reflect.New(v.Type().Elem()).Elem()
			drawn(t, x)
			v.Set(reflect.Append(v, x))
		}
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "a", "profiling", "http://h:1/v1", "t::sa:1", `"`, "é", "<&>", "\x00", "\\u0041"}).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "yes"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.OneOf(rapid.Int64Range(-2, 20), rapid.Int64()).Draw(t, "number"))
	case reflect.Uint64:
		v.SetUint(rapid.OneOf(rapid.Uint64Range(0, 20), rapid.Uint64()).Draw(t, "number"))
	default:
		t.Fatalf("a field of kind %s: let this test make one up", v.Kind())
	}
}

// TestAppendRequest: a request's line has the bytes that encoding/json gives it, failures included.
func TestAppendRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Request
		drawn(t, reflect.ValueOf(&q).Elem())
		got, err := appendRequest([]byte("x"), &q)
		if want := "x" + string(asWritten(t, &q)) + "\n"; err != nil || string(got) != want {
			t.Fatalf("%v\nhave %s\nwant %s", err, got, want)
		}
	})
}

// TestDecodeRequest: every record that can be written reads back as it was, alone and after another one.
func TestDecodeRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var last, q Request
		drawn(t, reflect.ValueOf(&last).Elem())
		drawn(t, reflect.ValueOf(&q).Elem())
		sameAsJSON(t, asWritten(t, &q), &last)
	})
}

// TestDecodeWithoutReflection: the records of runs are read by the decoder itself, not by
// encoding/json in its place.
func TestDecodeWithoutReflection(t *testing.T) {
	for i := range 20 {
		q := request(i)
		q.Failure, q.BadCount = nil, ""
		q.Chunks = []Chunk{{1, 1}, {2, Unknown}}
		q.Doubt, q.Wire, q.LocalOutput = &Doubt{1, 2, 3}, &Wire{Reused: true, DNSNs: 1, Written: Never}, new(int64)
		line := asWritten(t, q)
		d, got := decoder{b: line}, unreported()
		if d.request(got, &Request{}); d.bad || d.at != len(line) {
			t.Fatalf("the decoder stops at %d of %s", d.at, line)
		}
		if !reflect.DeepEqual(got, q) {
			t.Fatalf("read %+v, written %+v", got, q)
		}
	}
}

func sameAsJSON(t interface {
	Fatalf(string, ...any)
}, line []byte, last *Request) {
	got, want := unreported(), unreported()
	err, wantErr := decodeRequest(line, got, last), json.Unmarshal(line, want)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s\nread %+v, %v\nwant %+v, %v", line, got, err, want, wantErr)
	}
}

// FuzzDecodeRequest compares what is read from any line with what encoding/json reads.
func FuzzDecodeRequest(f *testing.F) {
	for i := range 8 {
		f.Add(asWritten(f, request(i)))
	}
	for _, s := range []string{
		`{}`, `null`, `{"seq":-0}`, `{"seq":1,"seq":2}`, `{"SEQ":1}`, `{"lane":01}`, `{"lane":1e2}`, `{"lane":-}`, `{"chunks":[]}`,
		`{"chunks":[{"at":1,"tokens":2}],"chunks":[{"at":3}]}`, `{"chunks":[{"at":1,"tokens":2},]}`, `{"wire":{"reused":true}}`, `{"wire":null}`,
		`{"hits":{"host":9}}`, `{"doubt":{}} `, `{"seq":1,}`, `{"want_in":9999999999999999999}`, `{"lane":3000000000}`, `{"local_output":0}`, `{"tree":"a"`, `{"unknown":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) { sameAsJSON(t, line, &Request{Tree: "a", Phase: Profiling}) })
}
