package corpus

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"math/big"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// seeds are one file of every form.
var seeds = []string{
	worked, mooncakeLines, dagLines,
	`{"timestamp":1000,"session_id":"a","input_length":1100,"output_length":80,"hash_ids":[1,2,3],"delay":3}`,
	`{"chat_id":159,"parent_chat_id":-1,"timestamp":61.1,"input_length":40,"output_length":9,"type":"text","turn":1,"hash_ids":[1,2,3]}`,
	`{"session_id":"s1","turns":[{"text":"list","output_length":40},{"texts":[{"name":"q","contents":["a"]}],"delay":1500}]}`,
	`[{"id":"x","conversations":[{"from":"human","value":"h\u00e9"},{"from":"gpt","value":"ok"}]}]`,
	`{"timestamp":1700000000,"request":{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[1]},"response":{"usage":{"prompt_tokens":300},"choices":[{"message":{"role":"assistant","content":"x"}}]},"duration_ms":2}`,
	"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,x\n",
	"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,472,18\n",
	`{"timestamp":0,"session_id":"t","input_length":70,"output_length":1,"hash_ids":[1,2],"weir":{"trace":"t","kind":"root","model":"m","parent":-1,"spawn":-1,"join":-1,"block_size":64,"tail_id":1}}`,
	"[" + worked + "," + worked + "]",
}

// readAny reads a file in memory, in the form that sniff finds.
func readAny(data []byte) *item {
	it := &item{file: "f"}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	s := newScanner(data, "f")
	f, keys := sniff(data[:min(len(data), 64<<10)])
	if f == UnknownFormat {
		it.fail(unknownForm(s, keys))
		return it
	}
	readers[f](it, s, &LoadOptions{})
	return it
}

// FuzzRead: whatever the bytes, a reader gives faults with names or traces that keep the
// promises of the types, and such a trace survives being written and read.
func FuzzRead(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		it := readAny(data)
		if len(it.traces)+len(it.faults) == 0 {
			t.Fatal("neither a trace nor a fault")
		}
		for _, err := range it.faults {
			if err == nil || err.Error() == "" {
				t.Fatal("a fault without a message")
			}
		}
		if len(it.traces) > 20 {
			return
		}
		c := &Corpus{Traces: it.traces, Fingerprint: fingerprint(it.digests)}
		c.Stats()
		var tree bytes.Buffer
		for _, tr := range it.traces {
			if err := tr.check(); err != nil {
				t.Fatal(err)
			}
			if err := WriteTree(&tree, tr); err != nil {
				t.Fatal(err)
			}
			if utf8.ValidString(tr.ID) {
				assertSurvives(t, tr)
			}
		}
	})
}

// FuzzForms gives any bytes to the reader of every form, recognised or not.
func FuzzForms(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, form uint8) {
		read := readers[Weka+Format(form)%(Compiled-Weka)]
		it := &item{file: "f"}
		read(it, newScanner(data, "f"), &LoadOptions{})
		for _, tr := range it.traces {
			if err := tr.check(); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range it.faults {
			if err == nil || err.Error() == "" {
				t.Fatal("a fault without a message")
			}
		}
	})
}

// assertSurvives writes a trace in every form that can hold it and compares content.
func assertSurvives(t *testing.T, tr *Trace) {
	want := digest(tr)
	var b bytes.Buffer
	if err := WriteWeka(&b, tr); err == nil {
		it := readAny(b.Bytes())
		if len(it.digests) != 1 || !bytes.Equal(it.digests[0], want) {
			t.Fatalf("%v: written as Weka it is another: %.2000s", it.faults, b.Bytes())
		}
	}
	b.Reset()
	var key [keyBytes]byte
	if err := encodeCompiled(&b, &Corpus{Traces: []*Trace{tr}}, key); err != nil {
		t.Fatal(err)
	}
	c, err := decodeCompiled(b.Bytes())
	if err != nil || !bytes.Equal(digest(c.Traces[0]), want) {
		t.Fatalf("compiled it is another: %v", err)
	}
}

// FuzzCompiled: a compiled file with right checksums and any content ends in an error or in
// traces that keep the promises of the types.
func FuzzCompiled(f *testing.F) {
	for _, s := range seeds {
		it := readAny([]byte(s))
		var b bytes.Buffer
		if err := encodeCompiled(&b, &Corpus{Traces: it.traces}, [keyBytes]byte{}); err != nil {
			f.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(b.Bytes()[16:])
		f.Add(b.Bytes()[compiledHeader+n:], b.Bytes()[compiledHeader:compiledHeader+n])
	}
	f.Fuzz(func(t *testing.T, table, array []byte) {
		data := make([]byte, compiledHeader)
		copy(data, compiledMagic)
		binary.LittleEndian.PutUint64(data[8:], uint64(len(table)))
		binary.LittleEndian.PutUint64(data[16:], uint64(len(array)))
		binary.LittleEndian.PutUint32(data[24:], crc32.Checksum(table, castagnoli))
		binary.LittleEndian.PutUint32(data[28:], crc32.Checksum(array, castagnoli))
		binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
		data = append(append(data, array...), table...)
		c, err := decodeCompiled(data)
		if err != nil {
			return
		}
		for _, tr := range c.Traces {
			if err := tr.check(); err != nil {
				t.Fatal(err)
			}
		}
		c.Stats()
	})
}

// FuzzSkip compares the scanner with encoding/json: both accept the same values.
func FuzzSkip(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	for _, s := range []string{`{}`, `[]`, `[{},[],""]`, `{"a":[1,2,{"b":null}],"c":-1.5e+3}`, `[1,]`, `{"a":}`, `01`, `"\ud800"`, `tru`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScanner(data, "f")
		s.skip()
		s.end()
		if s.err != nil && bytes.Contains([]byte(s.err.Msg), []byte("nested deeper")) {
			return
		}
		if got, want := s.err == nil, json.Valid(data); got != want {
			t.Fatalf("%.200q: accepted %v, encoding/json %v: %v", data, got, want, s.err)
		}
	})
}

// FuzzString compares strings with encoding/json.
func FuzzString(f *testing.F) {
	for _, s := range []string{`"a"`, `"\u00e9\n\ud83d\ude00"`, `"\ud800x"`, `"\\\"\/"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScanner(data, "f")
		got := string(s.str())
		s.end()
		var want string
		err := json.Unmarshal(data, &want)
		if len(data) > 0 && bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
			return
		}
		if (s.err == nil) != (err == nil) || err == nil && utf8.Valid(data) && got != want {
			t.Fatalf("%q: got %q, %v; want %q, %v", data, got, s.err, want, err)
		}
		if err == nil && utf8.ValidString(got) {
			again := newScanner(appendString(nil, got), "f")
			if back := string(again.str()); back != got {
				t.Fatalf("%q written and read is %q", got, back)
			}
		}
	})
}

// FuzzDecimal compares times with exact arithmetic.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0", "134.227", "-1.5", "1e3", "0.0000000005", "9223372036.854775807", "123456789.0123456789"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !isNumber([]byte(text)) || len(text) > 40 {
			return
		}
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			return
		}
		exact.Mul(exact, big.NewRat(1_000_000_000, 1))
		got, ok := decimal([]byte(text), 1_000_000_000)
		want, _ := exact.Float64()
		if !ok {
			if math.Abs(want) < 1e17 {
				t.Fatalf("%s was refused", text)
			}
			return
		}
		diff := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(got))
		limit := big.NewRat(1, 2)
		if bytes.ContainsAny([]byte(text), "eE") {
			limit = new(big.Rat).Add(limit, new(big.Rat).SetFloat64(math.Abs(want)*1e-15))
		}
		if diff.Abs(diff).Cmp(limit) > 0 {
			t.Fatalf("%s became %d ns", text, got)
		}
	})
}

// FuzzFiles reads whole files, compressed or not, through Load.
func FuzzFiles(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), uint8(0))
		f.Add(gzipOf(s), uint8(1))
		f.Add(zstdOf(s), uint8(2))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, skip uint8) {
		name := filepath.Join(dir, "f.json")
		write(t, dir, "f.json", string(data))
		c, err := Load(name, LoadOptions{SkipBroken: skip%2 == 1})
		if err == nil && len(c.Traces) == 0 {
			t.Fatal("a corpus without traces")
		}
	})
}
