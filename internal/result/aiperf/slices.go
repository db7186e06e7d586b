package aiperf

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	table = append(table, "Timeslice,Start_NS,End_NS,Metric,Unit,Stat,Value\r\n"...)
	titles := map[string]string{}
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
		line := append(strconv.AppendInt(nil, int64(len(list)), 10), ',')
		line = append(strconv.AppendInt(line, s.meta.EpochWallNs+from, 10), ',')
		line = append(strconv.AppendInt(line, s.meta.EpochWallNs+to, 10), ',')
		begins := len(table)
		for _, tag := range slices.Sorted(maps.Keys(m)) {
			st := m[tag]
			doc[tag] = st
			title, ok := titles[tag]
			if !ok {
				title = fields(header(tag), st.unit)
				titles[tag] = title
			}
			for _, k := range columns {
				v, ok := st.get(k)
				if !ok {
					continue
				}
				table = append(append(append(append(append(table, line...), title...), ','), statNames[k]...), ',')
				table = append(appendCell(table, v), "\r\n"...)
			}
		}
		list = append(list, doc)
		if left := min(int64(len(entries)-i), (end-to)/s.o.SliceNs+1); left*int64(len(table)-begins) > int64(cap(table)-len(table)) {
			table = slices.Grow(table, int(min(left, 64))*(len(table)-begins)) // slices are of about one length
		}
	}
	js, err = encode(map[string]any{"timeslices": list, "input_config": s.o.Input})
	return js, table, err
}

// fields are texts as they stand in a line of CSV.
func fields(text ...string) string {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(text)
	w.Flush() // writing to a buffer never fails
	return strings.TrimSuffix(b.String(), "\n")
}
