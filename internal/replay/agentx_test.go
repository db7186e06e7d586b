package replay

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// TestScheduleEqualsAgentX plays the recorded runs beside AIPerf's AgentX client. The files
// under testdata/agentx hold what its own timing code sent in virtual time, against a server of
// fixed service times (scripts/agentx/schedule.py writes them). Weir sends the same requests
// at the same times, warm-up and profiling, to the millisecond.
func TestScheduleEqualsAgentX(t *testing.T) {
	c := loadRecorded(t)
	files, err := filepath.Glob(filepath.Join("testdata", "agentx", "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded schedules: ", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			lanes, seconds, pressure, errors, slower, mode, want := readSchedule(t, file)
			o := InferenceX(lanes, time.Duration(seconds)*time.Second)
			o.PressureRequests = pressure
			if mode == "time" {
				o.PressureRequests, o.PressureNs = 0, int64(pressure)*second
			}
			o.Burst = mode == "burst"
			o.FailedThreshold = 0
			s, err := NewAgentic(c, o)
			if err != nil {
				t.Fatal(err)
			}
			f := newHeapTarget(func(q *Request) int64 {
				api := int64(float64(q.Trace.Streams[q.Stream].Turns[q.Turn].APINs) * slower)
				if q.Phase != record.Profiling {
					api /= 10
				}
				return max(api, int64(time.Millisecond))
			})
			f.fail = func(q *Request) *record.Failure {
				h := sha256.Sum256(fmt.Appendf(nil, "%s:%d", streamName(q), q.Turn))
				switch {
				case !errors || q.Phase != record.Profiling:
				case h[1]%40 == 0:
					return &record.Failure{Class: record.FailContextOverflow}
				case h[0]%16 == 0:
					return &record.Failure{Class: record.FailStatus, Status: 500}
				}
				return nil
			}
			if err := RunVirtual(context.Background(), s, f, func(*record.Request) {}); err != nil {
				t.Fatal(err)
			}
			if len(f.sent) != want.n {
				t.Errorf("%d requests, AgentX sends %d", len(f.sent), want.n)
			}
			off := 0
			for _, q := range f.sent {
				phase, at := "warmup", q.Queued
				if q.Phase == record.Profiling {
					phase, at = "profiling", q.Queued-s.Counts().ProfilingStart
				}
				key := fmt.Sprintf("%s %s/%d", phase, streamName(&q), q.Turn)
				if !want.take(key, float64(at)/1e9) {
					if off++; off <= 5 {
						t.Errorf("%s goes out at %.3f s, which AgentX does not do (%v)", key, float64(at)/1e9, want.at[key])
					}
				}
			}
			if off > 5 {
				t.Errorf("and %d more", off-5)
			}
		})
	}
}

// streamName is the name of a request's stream, which is AgentX's own.
func streamName(q *Request) string { return q.Trace.Streams[q.Stream].ID }

// schedule holds the times of each request that is still to be found.
type schedule struct {
	n  int
	at map[string][]float64
}

// take removes a request at about a time.
func (s *schedule) take(key string, at float64) bool {
	for i, x := range s.at[key] {
		if math.Abs(x-at) < 0.002 {
			s.at[key] = append(s.at[key][:i:i], s.at[key][i+1:]...)
			return true
		}
	}
	return false
}

func readSchedule(t *testing.T, file string) (lanes, seconds, pressure int, errors bool, slower float64, mode string, s *schedule) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s = &schedule{at: map[string][]float64{}}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		line := scan.Text()
		if head, args, ok := strings.Cut(line, "; "); ok && strings.HasPrefix(head, "#") {
			var e int
			if _, err := fmt.Sscan(args, &lanes, &seconds, &slower, &pressure, &e, &mode); err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
			errors = e == 1
			continue
		}
		var phase, turn string
		var at float64
		if _, err := fmt.Sscan(line, &phase, &at, &turn); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		s.at[phase+" "+turn] = append(s.at[phase+" "+turn], at)
		s.n++
	}
	if scan.Err() != nil {
		t.Fatal(scan.Err())
	}
	return lanes, seconds, pressure, errors, slower, mode, s
}
