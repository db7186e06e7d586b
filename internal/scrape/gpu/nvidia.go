package gpu

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// nvidiaFields are the fields that nvidia-smi is asked for, with what they tell (nvidia-smi
// --help-query-gpu, releases 525 to 580). A release that does not know one says so and gets none
// of it; the newer spelling of the reasons is asked for before the older.
var nvidiaFields = []struct {
	name     string
	quantity Quantity
	scale    float64
}{
	{"index", None, 0}, {"uuid", None, 0}, {"name", None, 0},
	{"power.draw", Power, 1000}, {"memory.used", MemoryUsed, mib}, {"memory.total", MemoryTotal, mib},
	{"utilization.gpu", Utilization, 10}, {"clocks.sm", Clock, 1}, {"clocks.mem", MemoryClock, 1},
	{"temperature.gpu", Temperature, 1000}, {"temperature.memory", MemoryTemperature, 1000},
	{"ecc.errors.corrected.volatile.total", Corrected, 1}, {"ecc.errors.uncorrected.volatile.total", Uncorrected, 1},
	{"clocks_event_reasons.active", Throttle, 0}, {"clocks_throttle_reasons.active", Throttle, 0},
}

// nvidia is how nvidia-smi is asked and understood.
type nvidia struct {
	fields []int // indexes of nvidiaFields
}

func newNvidia() *nvidia {
	n := &nvidia{}
	for i, f := range nvidiaFields {
		if f.name != "clocks_throttle_reasons.active" {
			n.fields = append(n.fields, i)
		}
	}
	return n
}

func (n *nvidia) args(devices []string) []string {
	var names []string
	for _, i := range n.fields {
		names = append(names, nvidiaFields[i].name)
	}
	args := []string{"--query-gpu=" + strings.Join(names, ","), "--format=csv,noheader,nounits"}
	if len(devices) > 0 {
		args = append(args, "--id="+strings.Join(devices, ","))
	}
	return args
}

var unknownField = regexp.MustCompile(`Field "([\w.]+)" is not a valid field to query`)

// learn takes a field out that this release does not know; false when out complains of none.
func (n *nvidia) learn(out []byte) bool {
	learned := false
	for _, m := range unknownField.FindAllSubmatch(out, -1) {
		bad := string(m[1])
		for k, i := range n.fields {
			if nvidiaFields[i].name != bad {
				continue
			}
			n.fields = append(n.fields[:k:k], n.fields[k+1:]...)
			if bad == "clocks_event_reasons.active" {
				n.fields = append(n.fields, len(nvidiaFields)-1)
			}
			learned = true
			break
		}
	}
	return learned
}

// read understands what nvidia-smi printed. A line of another shape, such as the complaint about
// a device that fell off the bus, leaves that device out; an answer without any device is an error
// with its first line.
func (n *nvidia) read(out []byte) ([]Device, error) {
	r := csv.NewReader(bytes.NewReader(out))
	r.FieldsPerRecord, r.LazyQuotes, r.TrimLeadingSpace, r.ReuseRecord = -1, true, true, true
	var devices []Device
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(rec) != len(n.fields) {
			continue
		}
		d := Device{Values: map[Quantity]int64{}}
		for k, i := range n.fields {
			text, f := strings.TrimSpace(rec[k]), &nvidiaFields[i]
			switch f.name {
			case "index":
				d.Index = text
			case "uuid":
				if strings.HasPrefix(text, "GPU-") || strings.HasPrefix(text, "MIG-") {
					d.UUID = text
				}
			case "name":
				if !unknown(text) {
					d.Name = text
				}
			default:
				v, ok := int64(0), false
				if f.quantity == Throttle {
					v, ok = mask(text)
				} else {
					v, ok = number(text, f.scale)
				}
				if ok && v >= 0 {
					d.Values[f.quantity] = v
				}
			}
		}
		if _, err := strconv.Atoi(d.Index); err != nil {
			continue
		}
		devices = append(devices, d)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("no device in what nvidia-smi printed: %s", firstLine(out))
	}
	return devices, nil
}

// unknown are the ways in which tools say that they do not know.
func unknown(s string) bool {
	s = strings.Trim(strings.TrimSpace(s), "[]")
	switch strings.ToLower(s) {
	case "", "n/a", "not supported", "unknown error", "gpu is lost", "gpu requires reset", "insufficient permissions", "err!", "unknown":
		return true
	}
	return strings.HasPrefix(strings.ToLower(s), "unknown")
}

func mask(s string) (int64, bool) {
	h, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(h, 16, 64)
	return v, err == nil && v >= 0 && v < 1<<52
}

// firstLine is the first line of an answer that says something, shortened.
func firstLine(out []byte) string {
	for l := range strings.Lines(string(out[:min(len(out), 4096)])) {
		if l = strings.TrimSpace(strings.ToValidUTF8(l, "?")); l != "" {
			if len(l) > 160 {
				l = strings.ToValidUTF8(l[:160], "") + "..."
			}
			return strconv.Quote(l)
		}
	}
	return "nothing"
}
