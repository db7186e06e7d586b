package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// A field is one member of a JSON object, its value as JSON.
type field struct {
	name  string
	value []byte
}

// fields are the members of a request besides its prompt, in order.
type fields []field

// set replaces the value of a member or appends it; null takes it away, as a server reads it.
func (f fields) set(name string, value []byte) fields {
	null := string(value) == "null"
	for i := range f {
		if f[i].name == name {
			if null {
				return append(f[:i], f[i+1:]...)
			}
			f[i].value = value
			return f
		}
	}
	if null {
		return f
	}
	return append(f, field{name, value})
}

func (f fields) str(name, value string) fields { return append(f, field{name, quote(value)}) }

func (f fields) raw(name, value string) fields { return append(f, field{name, []byte(value)}) }

func (f fields) num(name string, value int64) fields {
	return append(f, field{name, strconv.AppendInt(nil, value, 10)})
}

func (f fields) merge(extra fields) fields {
	for _, e := range extra {
		f = f.set(e.name, e.value)
	}
	return f
}

// append writes the members, each with a comma behind it.
func (f fields) append(dst []byte) []byte {
	for _, e := range f {
		dst = append(dst, quote(e.name)...)
		dst = append(dst, ':')
		dst = append(dst, e.value...)
		dst = append(dst, ',')
	}
	return dst
}

// parseFields reads a JSON object; nothing is an empty one. The names in taken belong to the
// prompt and are refused.
func parseFields(object []byte, taken ...string) (fields, error) {
	if len(bytes.TrimSpace(object)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	tok, err := dec.Token()
	if err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("extra fields %.60q: want a JSON object", object)
	}
	var f fields
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("extra fields: byte %d: %w", dec.InputOffset(), err)
		}
		name := tok.(string)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("extra field %q: byte %d: %w", name, dec.InputOffset(), err)
		}
		for _, t := range taken {
			if name == t {
				return nil, fmt.Errorf("extra field %q: it holds the prompt, which the trace gives; take it out", name)
			}
		}
		var c bytes.Buffer
		if err := json.Compact(&c, v); err != nil {
			return nil, fmt.Errorf("extra field %q: %w", name, err)
		}
		f = append(f, field{name, c.Bytes()})
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("extra fields: byte %d: %w", dec.InputOffset(), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("extra fields: byte %d: something follows the object", dec.InputOffset())
	}
	return f, nil
}

// quote is s as a JSON string, with <, > and & as they are.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		return []byte(`""`)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
