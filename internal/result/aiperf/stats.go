package aiperf

import (
	"math"
	"slices"
	"strconv"

	"github.com/weirbench/weir/internal/result"
)

// A stat is one number of a metric.
type stat uint8

// The stats in the order of their names.
const (
	statAvg stat = iota
	statCount
	statMax
	statMin
	statP1
	statP10
	statP25
	statP5
	statP50
	statP75
	statP90
	statP95
	statP99
	statStd
	statSum
	statN
)

var statNames = [statN]string{"avg", "count", "max", "min", "p1", "p10", "p25", "p5", "p50", "p75", "p90", "p95", "p99", "std", "sum"}

// percentiles are those of every distribution.
var percentiles = []struct {
	q int64
	stat
}{{1, statP1}, {5, statP5}, {10, statP10}, {25, statP25}, {50, statP50}, {75, statP75}, {90, statP90}, {95, statP95}, {99, statP99}}

// columns are the stats of a table, in its order.
var columns = []stat{statAvg, statMin, statMax, statSum, statP1, statP5, statP10, statP25, statP50, statP75, statP90, statP95, statP99, statStd}

// stats are the numbers of one metric; only an average for one that has no distribution. A
// number that is not defined is absent.
type stats struct {
	unit string
	has  uint16 // a bit for each stat
	v    [statN]float64
}

// single is a metric of one number.
func single(unit string, v float64) *stats {
	s := &stats{unit: unit}
	s.set(statAvg, v)
	return s
}

func (s *stats) set(k stat, v float64) {
	s.v[k] = v
	s.has |= 1 << k
}

func (s *stats) get(k stat) (float64, bool) { return s.v[k], s.has&(1<<k) != 0 }

// sum of a metric; 0 for one that is not there.
func (s *stats) sum() float64 {
	if s == nil {
		return 0
	}
	return s.v[statSum]
}

// appendCell writes a number with two digits.
func appendCell(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && n > -1e15 && n < 1e15 && (n != 0 || !math.Signbit(v)) {
		return append(strconv.AppendInt(b, n, 10), ".00"...)
	}
	return strconv.AppendFloat(b, v, 'f', 2, 64)
}

func (s *stats) json(w *jsonWriter) {
	if s == nil {
		w.b = append(w.b, "null"...)
		return
	}
	first := w.open('{')
	for k := range statN {
		if v, ok := s.get(k); ok {
			w.next(&first)
			w.b = append(append(append(w.b, '"'), statNames[k]...), `": `...)
			w.number(v)
		}
	}
	w.key(&first, "unit")
	w.text(s.unit)
	w.close(first, '}')
}

// distribution computes AIPerf's statistics: linear percentiles, the population's deviation.
// It sorts v.
func distribution(unit string, v []float64) *stats {
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	n := float64(len(v))
	mean, sq := sum/n, 0.0
	for _, x := range v {
		sq += (x - mean) * (x - mean)
	}
	s := &stats{unit: unit}
	s.set(statAvg, mean)
	s.set(statMin, v[0])
	s.set(statMax, v[len(v)-1])
	s.set(statStd, math.Sqrt(sq/n))
	s.set(statCount, n)
	s.set(statSum, sum)
	for _, p := range percentiles {
		s.set(p.stat, result.Percentile(v, p.q))
	}
	return s
}

// adjusted are the statistics of sorted values and as many infinite ones as requests failed:
// percentiles by the nearest rank, ties to the even one. What is infinite is absent.
func adjusted(unit string, sorted []float64, failed int) *stats {
	n := len(sorted) + failed
	s := &stats{unit: unit}
	s.set(statCount, float64(n))
	s.set(statMin, sorted[0])
	for _, p := range percentiles {
		if i := int(math.RoundToEven(float64(p.q) / 100 * float64(n-1))); i < len(sorted) {
			s.set(p.stat, sorted[i])
		}
	}
	return s
}
