package aiperf

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
)

// slices are the metrics of the profiling phase by slices of time, each of the requests that
// began in it, as profile_export_aiperf_timeslices.json and .csv hold them. The first slice
// begins with the first request; a slice without a request is left out, the last one ends with
// the last request.
func (s *summary) slices(c *curves) (js, table []byte, err error) {
	entries := pointers(s.profiling)
	slices.SortStableFunc(entries, func(a, b *entry) int { return int(min(max(a.start-b.start, -1), 1)) })
	begin, end := entries[0].start, entries[0].end
	for _, e := range entries {
		end = max(end, e.end)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	w.Write([]string{"Timeslice", "Start_NS", "End_NS", "Metric", "Unit", "Stat", "Value"})
	list := []map[string]any{}
	for i := 0; i < len(entries); {
		k := (entries[i].start - begin) / s.o.SliceNs
		from := begin + k*s.o.SliceNs
		to := from + s.o.SliceNs
		j := i
		for j < len(entries) && entries[j].start < to {
			j++
		}
		whole := to <= end
		to = min(to, end)
		m := s.o.summarize(entries[i:j], from, to)
		c.metrics(m, from, to)
		i = j
		doc := map[string]any{"start_ns": s.meta.EpochWallNs + from, "end_ns": s.meta.EpochWallNs + to}
		if !whole {
			doc["is_complete"] = false
		}
		for _, tag := range slices.Sorted(maps.Keys(m)) {
			doc[tag] = m[tag]
			for _, stat := range columns {
				if v, ok := m[tag][stat]; ok {
					w.Write([]string{strconv.Itoa(len(list)), strconv.FormatInt(doc["start_ns"].(int64), 10), strconv.FormatInt(doc["end_ns"].(int64), 10),
						header(tag), m[tag]["unit"].(string), stat, cell(v)})
				}
			}
		}
		list = append(list, doc)
	}
	w.Flush() // writing to a buffer never fails
	js, err = encode(map[string]any{"timeslices": list, "input_config": s.o.Input})
	return js, b.Bytes(), err
}
