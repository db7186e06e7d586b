package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sort"
)

// canonicalJSON writes a value that encoding/json decoded (with numbers as json.Number): keys
// sorted, no blanks, ASCII only.
func canonicalJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSONString(b, k), ':')
			b = canonicalJSON(b, v[k])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = canonicalJSON(b, e)
		}
		return append(b, ']')
	case string:
		return appendJSONString(b, v)
	case json.Number:
		return append(b, v...)
	case bool:
		if v {
			return append(b, "true"...)
		}
		return append(b, "false"...)
	}
	return append(b, "null"...)
}

// decoded is the row as a JSON value.
func (r *row) decoded() map[string]any {
	var w rowWriter
	w.row(r, "")
	dec := json.NewDecoder(bytes.NewReader(w.buf))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil { // a row writes JSON
		panic(err)
	}
	return m
}

// recipe is the canonical row without what differs between the points of one curve:
// concurrency and name.
func (r *row) recipe() string {
	m := r.decoded()
	delete(m, "conc")
	delete(m, "exp-name")
	return string(canonicalJSON(nil, m))
}

// fingerprint is the SHA-256 of the recipe in hex, as InferenceX computes it
// (process_changelog.py recipe_fingerprint, 2026-08).
func (r *row) fingerprint() string {
	h := sha256.Sum256([]byte(r.recipe()))
	return hex.EncodeToString(h[:])
}

// mustJSON encodes a value of this package, which always can be.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
