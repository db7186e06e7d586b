//go:build unix

package scrape

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/client/pace"
	"github.com/weirbench/weir/internal/record"
)

// serverEnv makes the test's program a server of pages, in a process of its own, so that what
// serving costs is not counted as scraping; its value is how many of a thousand lines change.
const serverEnv = "WEIR_TEST_PAGES"

func TestMain(m *testing.M) {
	if v := os.Getenv(serverEnv); v == "pace" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(client.ListenPrefix + "http://" + l.Addr().String())
		pace.Serve(l)
	} else if v != "" {
		changing, err := strconv.Atoi(v)
		if err == nil {
			err = servePages(changing)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bigPage is a page of 2 MB and 18,000 series of which some grow with n.
func bigPage(n, changing int) []byte {
	var t bytes.Buffer
	for i := range 18000 {
		if i%20 == 0 {
			fmt.Fprintf(&t, "# HELP sglang:stage_%d_seconds What it says.\n# TYPE sglang:stage_%d_seconds histogram\n", i/20, i/20)
		}
		v := i
		if i%1000 < changing {
			v += n * (1 + i%7)
		}
		fmt.Fprintf(&t, "sglang:stage_%d_seconds_bucket{engine_type=\"unified\",model_name=\"some/model\",tp_rank=\"0\",worker=\"17\",le=\"%d.0\"} %d.0\n", i/20, i%20, v)
	}
	return t.Bytes()
}

func servePages(changing int) error {
	var pages [8][]byte
	for i := range pages {
		pages[i] = bigPage(i, changing)
	}
	var mu sync.Mutex
	n := map[string]int{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() { // ends with the one who started it
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n[r.URL.Path]++
		p := pages[n[r.URL.Path]%len(pages)]
		mu.Unlock()
		w.Write(p)
	}))
}

func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startPages starts a server of twenty pages and returns their URLs.
func startPages(b *testing.B, changing int) []string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+strconv.Itoa(changing))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	var urls []string
	for i := range 20 {
		urls = append(urls, fmt.Sprintf("http://%s/%d/metrics", strings.TrimSpace(addr), i))
	}
	return urls
}

// BenchmarkTwenty scrapes twenty endpoints of 2 MB at 1 s into a bundle, over HTTP, and reports
// the share of a core that it takes, the system's part for reading included. Every iteration is five
// seconds.
func BenchmarkTwenty(b *testing.B) {
	for _, changing := range []int{0, 50, 100, 200} {
		b.Run(fmt.Sprintf("changing=%d", changing*18), func(b *testing.B) {
			urls := startPages(b, changing)
			w, err := record.CreateBundle(filepath.Join(b.TempDir(), "b"))
			if err != nil {
				b.Fatal(err)
			}
			defer w.Abandon()
			if err := w.Live(); err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			s, err := New(Options{URLs: urls, Now: func() int64 { return int64(time.Since(begin)) }, Write: w.WriteSample})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Baseline(b.Context()); err != nil {
				b.Fatal(err)
			}
			s.Start()
			time.Sleep(1500 * time.Millisecond)
			before, at := processor(), time.Now()
			for b.Loop() {
				time.Sleep(5 * time.Second)
			}
			b.ReportMetric(100*float64(processor()-before)/float64(time.Since(at)), "%core")
			reports, err := s.Stop(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			failed, late := int64(0), int64(0)
			for _, r := range reports {
				failed += r.Failed
				late += r.Late
			}
			b.ReportMetric(float64(failed), "failed")
			b.ReportMetric(float64(late), "late")
			b.ReportMetric(float64(reports[0].Bytes)/1e6, "MB/page")
		})
	}
}

// BenchmarkBesideLoad measures the client's own errors, as its BenchmarkTimestamps does, without and
// with twenty endpoints of 2 MB scraped at 1 s in the same process, by turns, and reports the
// middle one of five of each. The pages are served on the same processors, so their server is in it.
func BenchmarkBesideLoad(b *testing.B) {
	for _, streams := range []int{100, 500} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			urls := startPages(b, 100)
			b.Setenv(serverEnv, "pace")
			url, stop, err := client.StartPace(b.Context(), []string{os.Args[0]}, pace.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer stop()
			load := client.Load{Streams: streams, TTFT: 50 * time.Millisecond, Gap: 10 * time.Millisecond, Tokens: 200, For: 6 * time.Second}
			errors := map[string][]float64{}
			measure := func(name string) {
				c, err := client.Calibrate(b.Context(), url, load)
				if err != nil {
					b.Fatal(err)
				}
				for unit, ns := range map[string]int64{"ttft-err-p50": c.TTFTError.P50, "ttft-err-p99": c.TTFTError.P99, "gap-p99": c.Gap.P99, "itl-err-p99": c.ITLError.P99} {
					errors[name+unit+"-ms"] = append(errors[name+unit+"-ms"], float64(ns)/1e6)
				}
			}
			for b.Loop() {
				for range 5 {
					measure("")
					w, err := record.CreateBundle(filepath.Join(b.TempDir(), "b"))
					if err != nil {
						b.Fatal(err)
					}
					begin := time.Now()
					s, err := New(Options{URLs: urls, Now: func() int64 { return int64(time.Since(begin)) }, Write: w.WriteSample})
					if err != nil {
						b.Fatal(err)
					}
					if err := s.Baseline(b.Context()); err != nil {
						b.Fatal(err)
					}
					s.Start()
					measure("scraping-")
					if _, err := s.Stop(b.Context()); err != nil {
						b.Fatal(err)
					}
					w.Abandon()
				}
			}
			for unit, v := range errors {
				slices.Sort(v)
				b.ReportMetric(v[len(v)/2], unit)
			}
		})
	}
}
