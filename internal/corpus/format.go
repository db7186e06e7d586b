package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A Format is a form in which traces are recorded.
type Format uint8

// The forms that Load reads. docs/corpus.md has the schema of each.
const (
	UnknownFormat Format = iota
	Weka                 // one trace an object: kv-cache-tester, SemiAnalysis cc-traces
	Mooncake             // a request a line, with hash_ids of 512 tokens
	Bailian              // a request a line, with hash_ids of 16 tokens and chats
	DAG                  // AIPerf dag_jsonl: a session a line, with forks and spawns
	MultiTurn            // AIPerf multi_turn: a session a line
	ShareGPT             // conversations of human and gpt
	Messages             // OpenAI-style logs: a request with its messages a line
	BurstGPT             // CSV of lengths
	Azure                // CSV of lengths
	Compiled             // Weir's own prepared file
)

var formatNames = [...]string{"unknown", "weka", "mooncake", "bailian", "dag_jsonl", "multi_turn", "sharegpt", "messages", "burstgpt", "azure", "compiled"}

func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("format %d", uint8(f))
}

// sniff recognises a form by the beginning of a file. keys are the members of the first
// object, as far as the beginning shows them; csv is the first line when it is no JSON.
func sniff(head []byte) (f Format, keys []string) {
	s := newScanner(head, "")
	if s.peek() == '[' {
		s.pos++
	}
	if c := s.peek(); c != '{' {
		if c == '"' || c == 0 || s.pos > 0 && head[s.pos-1] == '[' {
			return UnknownFormat, nil
		}
		line, _, _ := bytes.Cut(head[s.pos:], []byte{'\n'})
		return sniffCSV(line), nil
	}
	var turn []string
	s.object(func(key []byte) {
		keys = append(keys, string(key))
		if string(key) == "turns" && s.peek() == '[' {
			s.array(func(i int) {
				if i > 0 || s.peek() != '{' {
					s.skip()
					return
				}
				s.object(func(key []byte) {
					turn = append(turn, string(key))
					s.skip()
				})
			})
			return
		}
		s.skip()
	})
	has := func(k string) bool { return slices.Contains(keys, k) }
	switch {
	case has("requests") || has("hash_id_scope") || has("block_size") || has("tool_tokens"):
		return Weka, keys
	case has("conversations"):
		return ShareGPT, keys
	case has("turns") && (slices.Contains(turn, "messages") || has("pre_session_spawns")):
		return DAG, keys
	case has("turns"):
		return MultiTurn, keys
	case has("chat_id") && has("hash_ids"):
		return Bailian, keys
	case has("input_length"):
		return Mooncake, keys
	case has("messages") || has("body") || has("request"):
		return Messages, keys
	}
	return UnknownFormat, keys
}

func sniffCSV(line []byte) Format {
	cols := splitHeader(string(line))
	switch {
	case slices.Contains(cols, "contexttokens") && slices.Contains(cols, "generatedtokens"):
		return Azure
	case slices.Contains(cols, "request tokens") && slices.Contains(cols, "response tokens"):
		return BurstGPT
	}
	return UnknownFormat
}

// splitHeader returns the columns of a CSV file in lower case.
func splitHeader(line string) []string {
	cols := strings.Split(strings.TrimRight(line, "\r"), ",")
	for i, c := range cols {
		cols[i] = strings.ToLower(strings.Trim(strings.TrimSpace(c), `"`))
	}
	return cols
}

// unknownForm is the fault of a file whose form nobody recognised.
func unknownForm(s *scanner, keys []string) *FormatError {
	c := s.peek()
	array, where := c == '[', "an object, an array or a CSV header"
	if array { // what the array begins with is what is wrong
		s.pos++
		if c = s.peek(); c == ']' {
			return &FormatError{File: s.file, Msg: "the array is empty: there is no trace in it"}
		}
		where = "an object as the first element of the array"
	}
	switch {
	case !array && c == 0 && s.pos >= len(s.buf):
		return &FormatError{File: s.file, Msg: "the file is empty"}
	case c == '{':
		// What is wrong with the object is more useful than that its form is not known.
		at := s.pos
		s.skip()
		s.failAt(at, "no known form: the fields of the first object are [%s]; Weir reads %s", strings.Join(keys[:min(len(keys), 20)], ", "), knownForms)
	default:
		s.fail("want %s, found %s; Weir reads %s", where, s.found(), knownForms)
	}
	return s.err
}

const knownForms = "Weka traces, Mooncake, Bailian, AIPerf dag_jsonl and multi_turn, ShareGPT, OpenAI-style message logs, BurstGPT and Azure CSV"

// A reader reads a whole file of one form.
type reader func(it *item, s *scanner, opt *LoadOptions)

var readers = [...]reader{
	Weka:      readWekaObjects,
	Mooncake:  readMooncake,
	Bailian:   readMooncake,
	DAG:       readDAG,
	MultiTurn: readMultiTurn,
	ShareGPT:  readShareGPT,
	Messages:  readMessages,
	BurstGPT:  readCSV,
	Azure:     readCSV,
	Compiled:  nil,
}
