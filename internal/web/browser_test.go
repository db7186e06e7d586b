package web

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/store"
)

// browser is one tab of a real Chromium, driven over its debugging protocol.
type browser struct {
	t  testing.TB
	ws *websocket.Conn

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	events  []string // problems that the page reported
	loaded  chan struct{}
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

const browserDeadline = 3 * time.Minute

// chromium is the one process that all tests of the package share; TestMain ends it.
var chromium struct {
	sync.Mutex
	cmd     *exec.Cmd
	profile string
	port    string
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c := chromium.cmd; c != nil {
		c.Process.Kill()
		c.Wait()
		for range 50 { // its children write into the profile for a moment longer
			if os.RemoveAll(chromium.profile) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	os.Exit(code)
}

// debugPort starts Chromium if that has not happened and returns its debugging port.
func debugPort(path string) (string, error) {
	chromium.Lock()
	defer chromium.Unlock()
	if chromium.cmd != nil || chromium.err != nil {
		return chromium.port, chromium.err
	}
	chromium.profile, chromium.err = os.MkdirTemp("", "weir-chromium-")
	if chromium.err != nil {
		return "", chromium.err
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
		"--remote-debugging-port=0", "--remote-allow-origins=*", "--user-data-dir="+chromium.profile, "--window-size=1440,1400", "about:blank")
	cmd.WaitDelay = 5 * time.Second
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		chromium.err = err
		return "", err
	}
	chromium.cmd = cmd
	found := make(chan string, 1)
	go func() {
		re := regexp.MustCompile(`ws://127\.0\.0\.1:(\d+)/`)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			if m := re.FindStringSubmatch(sc.Text()); m != nil {
				select {
				case found <- m[1]:
				default:
				}
			}
		}
	}()
	select {
	case chromium.port = <-found:
	case <-time.After(browserDeadline):
		chromium.err = errors.New("chromium did not open its debugging port")
	}
	return chromium.port, chromium.err
}

// newBrowser opens a tab; the test is skipped where there is no Chromium.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	port, err := debugPort(material.Tool(t, "chromium"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPut, "http://127.0.0.1:"+port+"/json/new?about:blank", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var tab struct {
		ID  string
		URL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&tab); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, waiting: map[int]chan reply{}, loaded: make(chan struct{}, 16)}
	if b.ws, err = websocket.Dial(tab.URL, "", "http://127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	b.ws.MaxPayloadBytes = 64 << 20
	t.Cleanup(func() {
		b.ws.Close()
		if resp, err := http.Get("http://127.0.0.1:" + port + "/json/close/" + tab.ID); err == nil {
			resp.Body.Close()
		}
	})
	go b.read()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil)
	}
	return b
}

func (b *browser) read() {
	for {
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := websocket.JSON.Receive(b.ws, &m); err != nil {
			return
		}
		b.mu.Lock()
		switch m.Method {
		case "":
			if c := b.waiting[m.ID]; c != nil {
				c <- reply{m.Result, m.Error}
				delete(b.waiting, m.ID)
			}
		case "Page.loadEventFired":
			select {
			case b.loaded <- struct{}{}:
			default:
			}
		case "Runtime.exceptionThrown", "Log.entryAdded":
			if !strings.Contains(string(m.Params), "favicon") {
				b.events = append(b.events, m.Method+" "+string(m.Params))
			}
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	r := b.ask(method, params)
	if r.Error != nil {
		b.t.Fatalf("%s: %s", method, r.Error.Message)
	}
	return r.Result
}

// ask calls a method and returns its answer, also when that is an error.
func (b *browser) ask(method string, params map[string]any) reply {
	b.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	c := make(chan reply, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = c
	err := websocket.JSON.Send(b.ws, map[string]any{"id": id, "method": method, "params": params})
	b.mu.Unlock()
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case r := <-c:
		return r
	case <-time.After(browserDeadline):
		b.t.Fatalf("%s: no answer", method)
	}
	return reply{}
}

// open loads a page and waits until it has loaded.
func (b *browser) open(url string) {
	b.t.Helper()
	for len(b.loaded) > 0 {
		<-b.loaded
	}
	b.call("Page.navigate", map[string]any{"url": url})
	b.wait(url)
	// What had loaded may be the page before, which something had just begun to open.
	b.until(fmt.Sprintf(`location.href.split("#")[0] === %q && document.readyState === "complete"`, url))
}

func (b *browser) wait(what string) {
	b.t.Helper()
	select {
	case <-b.loaded:
	case <-time.After(browserDeadline):
		b.t.Fatalf("%s did not load", what)
	}
}

// eval runs an expression and returns its value; a promise is awaited.
func (b *browser) eval(js string) any {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	raw := b.call("Runtime.evaluate", map[string]any{"expression": js, "returnByValue": true, "awaitPromise": true})
	if err := json.Unmarshal(raw, &r); err != nil {
		b.t.Fatal(err)
	}
	if e := r.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", js, e.Text, e.Exception.Description)
	}
	return r.Result.Value
}

// leave runs what leads to another page; this one may be gone before it can answer.
func (b *browser) leave(js string) {
	b.t.Helper()
	b.ask("Runtime.evaluate", map[string]any{"expression": js, "returnByValue": true})
}

// until waits until an expression is true. While one page gives way to another it may throw, or
// have nowhere to run.
func (b *browser) until(js string) {
	b.t.Helper()
	for end := time.Now().Add(browserDeadline); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r := b.ask("Runtime.evaluate", map[string]any{"expression": js, "returnByValue": true})
		if r.Error == nil && strings.Contains(string(r.Result), `"value":true`) {
			return
		}
	}
	b.t.Fatalf("never true: %s", js)
}

// mouse moves the pointer to the middle of an element and, with a button, clicks.
func (b *browser) mouse(selector string, click bool) {
	b.t.Helper()
	xy, ok := b.eval(fmt.Sprintf(`(()=>{const e=document.querySelector(%q); if(!e) return null; e.scrollIntoView({block:"center"}); const r=e.getBoundingClientRect(); return [r.x+r.width/2, r.y+r.height/2]})()`, selector)).([]any)
	if !ok {
		b.t.Fatalf("no element %s", selector)
	}
	b.mouseAt(xy[0].(float64), xy[1].(float64), click)
}

func (b *browser) mouseAt(x, y float64, click bool) {
	b.t.Helper()
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": x, "y": y})
	if click {
		for _, kind := range []string{"mousePressed", "mouseReleased"} {
			b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})
		}
	}
}

func (b *browser) key(name string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p := map[string]any{"type": kind, "key": name}
		if len(name) == 1 && kind == "keyDown" {
			p["text"] = name
		}
		b.call("Input.dispatchKeyEvent", p)
	}
}

func (b *browser) scheme(name string) {
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}})
}

// quiet fails the test when the page logged an error: a script that threw, or something that
// the content policy refused.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		b.t.Errorf("the page reports: %s", e)
	}
	b.events = nil
}

// keep saves a picture of the whole page when WEIR_KEEP_PAGES names a folder.
func (b *browser) keep(name string) {
	dir := os.Getenv("WEIR_KEEP_PAGES")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	raw := b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true})
	if err := json.Unmarshal(raw, &r); err != nil {
		b.t.Fatal(err)
	}
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o666); err != nil {
		b.t.Fatal(err)
	}
}

// contrast lists texts of the page whose contrast to what lies behind is under 4.5 to 1.
const contrast = `(() => {
  const lum = (c) => { const f = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : Math.pow((v + .055) / 1.055, 2.4) }; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
  const rgb = (s) => { const v = (s.match(/[\d.]+/g) || []).map(Number); return s.startsWith("color(srgb") ? v.map((x, i) => i < 3 ? x * 255 : x) : v };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > .5) return c } return rgb(getComputedStyle(document.documentElement).backgroundColor) };
  const bad = [];
  for (const e of document.querySelectorAll("p, td, th, a, li, summary, h1, h2, figcaption, pre, svg text:not([class^=on-]), label, .count, .unit")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
    if (!text) continue;
    const s = getComputedStyle(e), svg = e instanceof SVGElement;
    const fg = rgb(svg ? s.fill : s.color), bg = behind(svg ? e.ownerSVGElement : e);
    const a = lum(fg), b = lum(bg), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push(text.slice(0, 30) + " " + ratio.toFixed(2) + " " + (e.getAttribute("class") || e.localName));
  }
  return [...new Set(bad)].join("; ");
})()`

// names lists what assistive technology could not name.
const names = `(() => {
  const bad = [];
  for (const s of document.querySelectorAll("svg:not([aria-hidden])")) {
    const ids = (s.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    if (s.getAttribute("role") !== "img" || !ids.length || !ids.every((i) => document.getElementById(i))) bad.push("svg without a name");
  }
  const seen = new Set();
  for (const e of document.querySelectorAll("[id]")) { if (seen.has(e.id)) bad.push("id twice: " + e.id); seen.add(e.id) }
  for (const e of document.querySelectorAll("a[href], button")) if (!e.textContent.trim() && !e.getAttribute("aria-label") && !e.querySelector("[aria-label]")) bad.push("link without text: " + e.outerHTML.slice(0, 80));
  for (const e of document.querySelectorAll("select, input:not([type=hidden])")) if (!e.labels || !e.labels.length) bad.push("field without label: " + e.name);
  for (const e of document.querySelectorAll("th:not([scope])")) bad.push("th without scope: " + e.textContent);
  if (!document.documentElement.lang) bad.push("no language");
  if (document.querySelectorAll("h1").length !== 1) bad.push("not one h1");
  return bad.join("; ");
})()`

func (b *browser) accessible(t *testing.T) {
	t.Helper()
	for _, s := range []string{"dark", "light"} {
		b.scheme(s)
		if bad := b.eval(contrast); bad != "" {
			t.Errorf("%s: too little contrast: %v", s, bad)
		}
	}
	if bad := b.eval(names); bad != "" {
		t.Errorf("%v", bad)
	}
}

// TestBrowserReport opens a report from disk: nothing is loaded, hovering a mark lights its row
// and its other pictures, and both schemes have contrast.
func TestBrowserReport(t *testing.T) {
	material.RealTime(t)
	b := newBrowser(t)
	path := filepath.Join(t.TempDir(), "report.html")
	rs := sweep(t)
	if err := os.WriteFile(path, []byte(report(t, rs)), 0o666); err != nil {
		t.Fatal(err)
	}
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
	b.open("file://" + path)
	id := rs[len(rs)-1].ID
	b.mouse(fmt.Sprintf(`.frontier .hit[data-id="%s"] .target`, id), false)
	b.until(fmt.Sprintf(`document.querySelectorAll('[data-id="%s"].lit').length >= 4`, id)) // the mark, the row and the pictures below
	b.until(`(()=>{const t=document.getElementById("tip"); return !t.hidden && t.textContent.includes("64 agents") && t.textContent.includes("TTFT p90")})()`)
	b.mouse("tbody tr[data-id] td", true)
	b.mouse(".top h1", false)
	b.until(`document.querySelectorAll("tr.pinned").length === 1`)
	b.key("Escape")
	b.until(`document.querySelectorAll(".pinned, .lit").length === 0`)
	b.eval(`document.querySelector("tbody tr[data-id]").focus()`)
	b.key("ArrowDown")
	b.until(fmt.Sprintf(`document.activeElement.getAttribute("data-id") === %q`, rs[1].ID))
	b.key("/")
	b.call("Input.insertText", map[string]any{"text": "hicache 16"})
	b.until(`document.getElementById("found").textContent === "1 of 14 runs"`)
	b.key("Escape")
	b.until(`document.getElementById("found").textContent === "" && !document.querySelector(".miss")`)
	b.key("?")
	b.until(`document.getElementById("keys").open`)
	b.eval(`document.getElementById("keys").close()`)
	b.accessible(t)
	if w := b.eval(`document.documentElement.scrollWidth - innerWidth`); w.(float64) > 0 {
		t.Errorf("the page is %v px too wide", w)
	}
	b.keep("report-light")
	b.scheme("dark")
	b.keep("report-dark")
	b.quiet()
}

// shop serves a store with a sweep of real bundles.
func shop(t *testing.T, concs ...int) (*httptest.Server, []store.Entry) {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	root := t.TempDir()
	var entries []store.Entry
	for _, off := range []string{"none", "dram"} {
		for _, c := range concs {
			r, dir := deriveAt(t, filepath.Join(root, fmt.Sprint(off, c)), cliffPoint(off, c), nil)
			entries = append(entries, store.Entry{Result: r, Sweep: "monday", Bundle: dir})
		}
	}
	if len(entries) > 0 {
		if err := s.Put(context.Background(), entries...); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(NewHandler(s))
	t.Cleanup(srv.Close)
	return srv, entries
}

// TestBrowserServe: the URL is the state, the back button works, a run's page draws its timeline.
func TestBrowserServe(t *testing.T) {
	material.RealTime(t)
	b := newBrowser(t)
	srv, entries := shop(t, 1, 8, 32, 64)
	b.open(srv.URL + "/")
	b.accessible(t)
	b.keep("serve-index")
	b.leave(`(()=>{const s=document.querySelector("select[name=x]"); s.value="ttft_p90"; s.dispatchEvent(new Event("change"))})()`)
	b.until(`location.search.includes("x=ttft_p90") && document.readyState === "complete"`)
	b.until(`document.querySelector(".frontier").textContent.includes("Time to first token, p90 (s)")`)
	b.leave(`history.back()`)
	b.until(`location.search === "" && document.querySelector(".frontier").textContent.includes("interactivity")`)
	b.leave(`[...document.querySelectorAll(".facet a")].find((a) => a.textContent.startsWith("none")).click()`)
	b.until(`location.search.includes("offload=none")`)
	b.until(`document.querySelector(".top").textContent.includes("4 of 8 runs, the rest is hidden by filters")`)

	// Shift adds a second run, and the two can be compared.
	b.open(srv.URL + "/")
	b.until(`!!document.querySelector("tr[data-id]")`)
	for i, e := range []store.Entry{entries[2], entries[6]} {
		b.eval(fmt.Sprintf(`document.querySelector('tr[data-id="%s"] td:nth-child(2)').dispatchEvent(new MouseEvent("click", {bubbles: true, shiftKey: %v}))`, e.Result.ID, i > 0))
	}
	b.until(`document.querySelectorAll("tr.pinned").length === 2 && !document.getElementById("basket").hidden`)
	b.leave(`document.querySelector("#basket a").click()`)
	b.until(`location.pathname === "/compare" && document.querySelector(".sentence").textContent.includes("times the throughput per GPU of A: better")`)
	b.accessible(t)
	b.keep("serve-compare")

	b.open(srv.URL + "/run/" + entries[6].Result.ID)
	b.until(`!!document.querySelector("#timeline[data-ready]")`)
	painted := `(()=>{const c=document.querySelector("canvas.main"),d=c.getContext("2d").getImageData(0,0,c.width,c.height).data; const n=new Set(); for(let i=0;i<d.length;i+=4*97) n.add(d[i]<<16|d[i+1]<<8|d[i+2]); return n.size})()`
	b.until(painted + ` >= 5`)
	b.accessible(t)
	b.keep("serve-run")
	before := b.eval(`location.hash`)
	xy := b.eval(`(()=>{const c=document.querySelector("canvas.main"); c.scrollIntoView({block:"center"}); const r=c.getBoundingClientRect(); return [r.x+r.width/2, r.y+60]})()`).([]any)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": xy[0], "y": xy[1], "deltaX": 0, "deltaY": -1400})
	b.until(fmt.Sprintf(`location.hash !== %q && location.hash.startsWith("#t=")`, before))
	b.eval(`document.querySelector("canvas.main").focus()`)
	b.key("n")
	b.until(`!document.querySelector("#timeline .detail").hidden`)
	b.until(`document.querySelector("#timeline .detail").textContent.includes('"ceiling_tokens"')`)
	b.keep("serve-run-zoomed")
	b.quiet()
}

// TestBrowserPrint prints a report to a PDF of a few pages.
func TestBrowserPrint(t *testing.T) {
	material.RealTime(t)
	b := newBrowser(t)
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(report(t, sweep(t))), 0o666); err != nil {
		t.Fatal(err)
	}
	b.open("file://" + path)
	var r struct{ Data string }
	if err := json.Unmarshal(b.call("Page.printToPDF", map[string]any{"landscape": true, "printBackground": true}), &r); err != nil {
		t.Fatal(err)
	}
	pdf, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil || !strings.HasPrefix(string(pdf), "%PDF") {
		t.Fatalf("no PDF: %v", err)
	}
	if n := strings.Count(string(pdf), "/Type /Page\n") + strings.Count(string(pdf), "/Type /Page "); n < 1 || n > 4 {
		t.Errorf("%d pages", n)
	}
	if dir := os.Getenv("WEIR_KEEP_PAGES"); dir != "" {
		os.WriteFile(filepath.Join(dir, "report.pdf"), pdf, 0o666)
	}
	b.quiet()
}
