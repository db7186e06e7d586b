package corpus

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func loadNamed(t testing.TB, name, text string, opt LoadOptions) (*Corpus, error) {
	t.Helper()
	return Load(write(t, t.TempDir(), name, text), opt)
}

func mustLoad(t testing.TB, name, text string) *Corpus {
	t.Helper()
	c, err := loadNamed(t, name, text, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range c.Traces {
		if err := tr.check(); err != nil {
			t.Error(err)
		}
	}
	return c
}

const mooncakeLines = `{"timestamp":0,"input_length":1100,"output_length":80,"hash_ids":[1,2,3]}
{"timestamp":3500,"input_length":700,"output_length":5,"hash_ids":[1,9]}
{"timestamp":4000,"input_length":1700,"output_length":60,"hash_ids":[1,2,4,5]}
`

func TestMooncakeFindsConversationsByPrefix(t *testing.T) {
	c := mustLoad(t, "conv.jsonl", mooncakeLines)
	tr := c.Traces[0]
	if len(c.Traces) != 1 || tr.ID != "conv" || tr.BlockSize != 512 || len(tr.Streams) != 2 {
		t.Fatalf("%d traces; %q with %d streams", len(c.Traces), tr.ID, len(tr.Streams))
	}
	root := &tr.Streams[0]
	if len(root.Turns) != 2 || root.Turns[1].StartNs != 4e9 || root.Turns[1].In != 1700 || len(root.Turns[0].Blocks) != 3 {
		t.Errorf("root %+v", root)
	}
	other := &tr.Streams[1]
	if other.Spawn != 0 || other.Join != Unbound || other.StartNs != 3.5e9 || other.Turns[0].Out != 5 {
		t.Errorf("second conversation %+v", other)
	}
	// 0 of 3, 1 of 2, 2 of 4.
	if h := tr.InfiniteHits(); h.HitBlocks != 3 || h.TotalBlocks != 9 {
		t.Errorf("hits %+v", h)
	}
}

func TestMooncakeSessions(t *testing.T) {
	c := mustLoad(t, "s.jsonl", `{"timestamp":1000,"session_id":"a","input_length":1100,"output_length":80,"hash_ids":[1,2,3]}
{"timestamp":1500,"session_id":"b","input_length":10}
{"delay":2500,"session_id":"a","input_length":1700,"output_length":60,"hash_ids":[1,2,3,4]}
`)
	if len(c.Traces) != 2 || c.Traces[0].ID != "a" || len(c.Traces[0].Streams) != 1 {
		t.Fatalf("%d traces", len(c.Traces))
	}
	if turns := c.Traces[0].Streams[0].Turns; len(turns) != 2 || turns[1].StartNs != 2.5e9 {
		t.Errorf("session a: %+v", turns)
	}
	if b := c.Traces[1]; !b.LengthsOnly || b.Streams[0].Turns[0].Out != assumedOut || b.Streams[0].Turns[0].StartNs != 0 {
		t.Errorf("session b: %+v", b)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "256 tokens assumed") {
		t.Errorf("notes %q", c.Notes)
	}
}

func TestBailian(t *testing.T) {
	c := mustLoad(t, "b.jsonl", `{"chat_id":159,"parent_chat_id":-1,"timestamp":61.1,"input_length":40,"output_length":9,"type":"text","turn":1,"hash_ids":[1,2,3]}
{"chat_id":160,"parent_chat_id":-1,"timestamp":62,"input_length":32,"output_length":9,"type":"text","turn":1,"hash_ids":[1,5]}
{"chat_id":161,"parent_chat_id":159,"timestamp":70.25,"input_length":60,"output_length":7,"type":"text","turn":2,"hash_ids":[1,2,3,4]}
`)
	tr := c.Traces[0]
	if tr.BlockSize != 16 || len(tr.Streams) != 2 || len(tr.Streams[0].Turns) != 2 || tr.Streams[0].Turns[1].StartNs != 9.15e9 {
		t.Errorf("%+v", tr)
	}
}

func TestLengthTables(t *testing.T) {
	for _, tc := range []struct{ name, text string }{
		{"burst", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n118,ChatGPT,10,0,10,API log\n"},
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,472,18\r\n2023-11-16 18:16:26.6805900,1087,230\r\n2023-11-16 18:16:26.6805900,0,3\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustLoad(t, tc.name+".csv", tc.text)
			tr := c.Traces[0]
			if !tr.LengthsOnly || len(tr.Streams) != 2 || tr.Streams[1].StartNs != 40e9 || tr.Streams[1].Turns[0].In != 1087 || tr.Streams[1].Turns[0].Out != 230 {
				t.Errorf("%+v", tr)
			}
			if err := c.NeedBlocks("the hit rate"); err == nil || !strings.Contains(err.Error(), "record lengths only") {
				t.Errorf("a question about caches is not refused: %v", err)
			}
			if st := c.Stats(); st.Infinite != nil || st.LengthsOnly != 1 || st.UniqueTokens != nil {
				t.Errorf("unknown hit rates are not unknown: %+v", st)
			}
			if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "1 rows with no tokens") {
				t.Errorf("notes %q", c.Notes)
			}
		})
	}
}

func TestMultiTurn(t *testing.T) {
	long := strings.Repeat("abcd", 200)
	c := mustLoad(t, "m.jsonl", `{"session_id":"s1","turns":[{"text":"`+long+`","output_length":40},{"text":"now open main.go","delay":1500,"output_length":200}]}
{"session_id":"s2","turns":[{"texts":[{"name":"query","contents":["`+long+`"]}],"output_length":1}]}`)
	if len(c.Traces) != 2 || !c.Traces[0].Estimated {
		t.Fatal("two estimated traces wanted")
	}
	turns := c.Traces[0].Streams[0].Turns
	if turns[0].In != 204 || turns[1].In != 204+4+40+4+4 || turns[1].StartNs != 1.5e9 {
		t.Errorf("%+v", turns)
	}
	if n := commonPrefix(turns[0].Blocks, turns[1].Blocks); n != 3 || n != len(turns[0].Blocks) {
		t.Errorf("the second prompt shares %d of %d blocks with the first", n, len(turns[0].Blocks))
	}
	if c.Traces[1].Streams[0].Turns[0].In != 204 {
		t.Errorf("named texts: %+v", c.Traces[1].Streams[0].Turns[0])
	}
}

func TestShareGPT(t *testing.T) {
	c := mustLoad(t, "sg.json", `[{"id":"x","conversations":[{"from":"human","value":"hello there, friend"},{"from":"gpt","value":"hi and good morning"},{"from":"human","value":"bye"},{"from":"gpt","value":"goodbye"}]},
{"id":"x","conversations":[{"from":"human","value":"你好"},{"from":"gpt","value":"ok"}]},
{"id":"z","conversations":[]}]`)
	if len(c.Traces) != 2 || c.Traces[0].ID != "x" || c.Traces[1].ID != "x+" {
		t.Fatalf("%d traces", len(c.Traces))
	}
	turns := c.Traces[0].Streams[0].Turns
	if len(turns) != 2 || turns[0].Out != 5 || turns[1].Out != 2 || turns[1].In <= turns[0].In+turns[0].Out {
		t.Errorf("%+v", turns)
	}
}

const dagLines = `{"session_id":"root","turns":[{"messages":[{"role":"user","content":"plan"}],"max_tokens":8,"spawns":[{"children":["w1","w2"],"join_at":2}]},{"messages":[{"role":"user","content":"meanwhile"}],"delay":1000},{"messages":[{"role":"user","content":"merge"}],"forks":[{"child":"f","background":true}]}]}
{"session_id":"w1","turns":[{"messages":[{"role":"user","content":"part 1"}],"max_tokens":16}]}
{"session_id":"w2","turns":[{"messages":[{"role":"user","content":"part 2"}],"delay":300,"spawns":["w3"]}]}
{"session_id":"w3","turns":[{"messages":[{"role":"user","content":"deep"}]}]}
{"session_id":"f","turns":[{"messages":[{"role":"user","content":"on"}]}]}
`

func TestDAG(t *testing.T) {
	c := mustLoad(t, "d.jsonl", dagLines)
	tr := c.Traces[0]
	if len(c.Traces) != 1 || len(tr.Streams) != 5 {
		t.Fatalf("%d traces, %d streams", len(c.Traces), len(tr.Streams))
	}
	by := map[string]*Stream{}
	for i := range tr.Streams {
		by[tr.Streams[i].ID] = &tr.Streams[i]
	}
	w1, w2, w3, f := by["root::sa:w1"], by["root::sa:w2"], by["root::sa:w3"], by["root::sa:f"]
	if w1.Spawn != 0 || w1.Join != 2 || w1.Turns[0].Out != 16 {
		t.Errorf("w1 %+v", w1)
	}
	if w2.Turns[0].StartNs != 0.3e9 || w3.Parent != 2 || w3.Depth != 2 || w3.Join != Unbound || w3.StartNs != 0.3e9 {
		t.Errorf("w2 %+v w3 %+v", w2, w3)
	}
	root := &tr.Streams[0]
	if f.Spawn != 2 || f.Join != Unbound || f.Turns[0].In <= root.Turns[2].In {
		t.Errorf("a fork does not continue its parent: %+v", f)
	}
	if root.Turns[1].StartNs != 1e9 {
		t.Errorf("delay: %+v", root.Turns[1])
	}
}

func TestMessageLogs(t *testing.T) {
	sys := strings.Repeat("You are a careful assistant. ", 40)
	c := mustLoad(t, "log.jsonl", `{"timestamp":1700000000,"request":{"model":"m","messages":[{"role":"system","content":"`+sys+`"},{"role":"user","content":"first"}]},"response":{"usage":{"prompt_tokens":300,"completion_tokens":12}},"duration_ms":2000}
{"timestamp":1700000005.5,"request":{"model":"m","messages":[{"role":"system","content":"`+sys+`"},{"role":"user","content":"first"},{"role":"assistant","content":"answer one"},{"role":"user","content":[{"type":"text","text":"second"}]}]},"response":{"usage":{"prompt_tokens":310,"completion_tokens":20}}}
`)
	tr := c.Traces[0]
	if len(tr.Streams) != 1 || len(tr.Streams[0].Turns) != 2 || !tr.Estimated {
		t.Fatalf("%+v", tr)
	}
	turns := tr.Streams[0].Turns
	if turns[0].In != 300 || turns[1].In != 310 || turns[1].Out != 20 || turns[1].StartNs != 5.5e9 || turns[0].APINs != 2e9 {
		t.Errorf("%+v", turns)
	}
	if n := commonPrefix(turns[0].Blocks, turns[1].Blocks); n != len(turns[0].Blocks) || n != 4 {
		t.Errorf("the prompts share %d blocks of %d", n, len(turns[0].Blocks))
	}
}

func TestFormatFaults(t *testing.T) {
	for _, tc := range []struct{ name, file, text, want string }{
		{"unknown", "x.json", `{"a":1,"b":2}`, "no known form: the fields of the first object are [a, b]"},
		{"array", "x.json", `[1,2]`, "want an object as the first element of the array, found a number"},
		{"empty array", "x.json", `[]`, "the array is empty"},
		{"mooncake back", "x.jsonl", `{"timestamp":5,"input_length":3,"output_length":1}` + "\n" + `{"timestamp":4,"input_length":3,"output_length":1}`, "x.jsonl:2:1: timestamp: 0.004 s is before the line above it"},
		{"mooncake blocks", "x.jsonl", `{"timestamp":5,"input_length":513,"output_length":1,"hash_ids":[1,2,3]}`, "x.jsonl:1:1: hash_ids: 3 ids of 512 tokens for an input_length of 513"},
		{"mooncake negative", "x.jsonl", `{"timestamp":-5,"input_length":513}`, "timestamp: -5 lies outside"},
		{"mooncake text", "x.jsonl", `{"timestamp":5,"input_length":1,"messages":[]}`, "messages: text beside lengths"},
		{"mooncake twice", "x.jsonl", `{"input_length":5,"input_length":6}`, "input_length: the field comes twice"},
		{"csv columns", "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "x.csv:2:1: timestamp: the row has 2 columns, the header 3"},
		{"csv negative", "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,-2,3\n", "x.csv:2:3: contexttokens: -2 is negative"},
		{"csv number", "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,x\n", `generatedtokens: want a whole number, found "x"`},
		{"csv back", "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2,2,1\n1,2,1\n", "x.csv:3:1: timestamp: -1 s is before the row above it"},
		{"csv empty", "x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request with tokens"},
		{"multi_turn", "x.jsonl", `{"session_id":"a","turns":[{"output_length":3}]}`, "turns[0]: the turn has no field \"text\""},
		{"multi_turn empty", "x.jsonl", `{"session_id":"a","turns":[]}`, `conversation "a" has no turns`},
		{"multi_turn twice", "x.jsonl", strings.Repeat(`{"session_id":"a","turns":[{"text":"x"}]}`+"\n", 2), `trace "a" is also in`},
		{"sharegpt", "x.json", `[{"conversations":[{"from":1}]}]`, "[0].conversations[0].from: want a string"},
		{"dag circle", "x.jsonl", `{"session_id":"a","turns":[{"messages":[],"spawns":["b"]}]}` + "\n" + `{"session_id":"b","turns":[{"messages":[],"spawns":["a"]}]}`, "start each other in a circle"},
		{"dag missing", "x.jsonl", `{"session_id":"a","turns":[{"messages":[],"spawns":["b"]}]}`, `starts "b", which is in no line`},
		{"dag twice", "x.jsonl", `{"session_id":"a","turns":[{"messages":[]}]}` + "\n" + `{"session_id":"a","turns":[{"messages":[]}]}`, `"a" is also the session of line 1`},
		{"dag join", "x.jsonl", `{"session_id":"a","turns":[{"messages":[],"spawns":[{"children":["b"],"join_at":1}]}]}`, "turns[0].spawns: join_at 1: want a turn behind turn 0 and before turn 1"},
		{"messages empty", "x.jsonl", `{"messages":[]}`, `no field "messages", or it is empty`},
		{"messages back", "x.jsonl", `{"messages":[{"role":"user","content":"x"}],"timestamp":2}` + "\n" + `{"messages":[{"role":"user","content":"x"}],"timestamp":1}`, "x.jsonl:2:1: timestamp: -1 s is before the request above it"},
		{"not gzip", "x.json.gz", "\x1f\x8bgarbage", "can't decompress"},
		{"cut zstd", "x.json.zst", string(zstdOf(worked)[:60]), "can't decompress"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadNamed(t, tc.file, tc.text, LoadOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func zstdOf(text string) []byte {
	var b bytes.Buffer
	w, _ := zstd.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

func gzipOf(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

// TestOneContentManyForms: the same traces in a directory, a file with a trace a line, an
// array, compressed or not, have one fingerprint.
func TestOneContentManyForms(t *testing.T) {
	flat := strings.ReplaceAll(strings.TrimSpace(worked), "\n", "")
	second := strings.Replace(strings.Replace(flat, "tr1", "tr2", 1), `"out":70`, `"out":71`, 1)
	dir := t.TempDir()
	write(t, dir, "a.json", worked)
	write(t, dir, "b.json", second)
	c, err := Load(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"lines.jsonl":     flat + "\n" + second + "\n",
		"reverse.jsonl":   second + "\r\n\n" + flat,
		"bom.jsonl":       "\xef\xbb\xbf" + flat + "\n" + second,
		"array.json":      "[" + worked + "," + second + "]",
		"many.json":       worked + second,
		"lines.jsonl.gz":  string(gzipOf(flat + "\n" + second + "\n")),
		"lines.jsonl.zst": string(zstdOf(flat + "\n" + second + "\n")),
		"pretty.json.gz":  string(gzipOf(worked + "\n" + second)),
	} {
		d := mustLoad(t, name, text)
		if d.Fingerprint != c.Fingerprint || len(d.Traces) != 2 {
			t.Errorf("%s: %d traces, fingerprint %s, want %s", name, len(d.Traces), d.Fingerprint, c.Fingerprint)
		}
	}
	if d := mustLoad(t, "one.json", worked); d.Fingerprint == c.Fingerprint {
		t.Error("a part of the corpus has the fingerprint of the whole")
	}
}

// TestLinesOfAFile: faults of a file with a trace a line name the line, and the others go on
// with SkipBroken.
func TestLinesOfAFile(t *testing.T) {
	flat := strings.ReplaceAll(strings.TrimSpace(worked), "\n", "")
	text := flat + "\n{\"id\":\"x\",\n\n" + strings.Replace(flat, "tr1", "tr2", 1)
	_, err := loadNamed(t, "x.jsonl", text, LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), "x.jsonl:2:") {
		t.Errorf("got %v", err)
	}
	c, err := loadNamed(t, "x.jsonl", text, LoadOptions{SkipBroken: true})
	if err != nil || len(c.Traces) != 2 || len(c.Skipped) != 1 {
		t.Errorf("%v, %+v", err, c)
	}
}
