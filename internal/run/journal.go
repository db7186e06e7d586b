package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// JournalFile is the name of a sweep's journal in its folder.
const JournalFile = "journal.jsonl"

// State is what happened to a point, as the journal says it.
type State string

const (
	Planned  State = "planned"  // expanded and planned, not begun
	Refused  State = "refused"  // by plan or pre-flight; Detail holds the arithmetic
	Started  State = "started"  // a bundle was begun
	Complete State = "complete" // the bundle is whole; Detail holds the validity
	Failed   State = "failed"   // no result; Detail holds class and reason
	Skipped  State = "skipped"  // complete from an earlier run of the same sweep
	Stopped  State = "stopped"  // interrupted; nothing of it was kept
	Damaged  State = "damaged"  // a bundle that was whole is not any more; Detail says why

	Submitted State = "submitted" // to a scheduler; Job names the allocation
	Waiting   State = "waiting"   // for its allocation; Detail holds the scheduler's state
	Chosen    State = "chosen"    // by an adaptive sweep; Detail holds the reason
	Retried   State = "retried"   // failed in a way that may pass; Detail holds class and reason
	NotBegun  State = "not-begun" // and will not be in this run; Detail holds the reason

	// These are about nodes and the sweep and leave a point's state as it is.
	Quarantined State = "quarantined" // Nodes get no more points; Detail holds why
	Released    State = "released"    // Nodes may get points again
	Dirty       State = "dirty"       // a server that points shared was not clean after its stop
)

// Settled says whether a point in this state is not waited for any more.
func (s State) Settled() bool {
	switch s {
	case Complete, Failed, Refused, Skipped, Stopped, NotBegun:
		return true
	}
	return false
}

// An Entry is one line of the journal.
type Entry struct {
	At     time.Time `json:"at"`
	Point  string    `json:"point"` // spec.Point.ID
	Name   string    `json:"name"`
	State  State     `json:"state"`
	Detail string    `json:"detail,omitempty"`
	// Job is the scheduler's job of the point, empty where none is used.
	Job string `json:"job,omitempty"`
	// Nodes are those that an entry is about.
	Nodes []string `json:"nodes,omitempty"`
}

// about says whether the entry tells a point's state.
func (e *Entry) about() bool {
	return e.Point != "-" && e.State != Quarantined && e.State != Released && e.State != Dirty
}

// A Journal is the append-only record of a sweep. Every entry is on disk before Append
// returns. It is not safe for concurrent use.
type Journal struct {
	f       *os.File
	now     func() time.Time
	end     int64        // of the last whole entry
	reserve *record.Room // for entries when the disk is full; nil for none
}

// OpenJournal opens or begins a journal. A last line that a crash left torn is cut off.
func OpenJournal(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	end, err := wholeLines(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Journal{f: f, now: time.Now, end: end}, nil
}

// reserveBytes is room for a thousand entries.
const reserveBytes = 256 << 10

// Reserve takes room on the disk, so that what happens can still be written when it is full. It
// is given back by Close.
func (j *Journal) Reserve() error {
	room, err := record.HoldRoom(j.f.Name()+".reserve", reserveBytes)
	if err != nil {
		return fmt.Errorf("there is no room for the journal: %w", err)
	}
	j.reserve = room
	return nil
}

// wholeLines is the length of the part of f that ends with a newline.
func wholeLines(f *os.File) (int64, error) {
	r := bufio.NewReader(f)
	var end int64
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		end += int64(len(line))
	}
}

// Append writes entries, stamps them and returns when all are on disk.
func (j *Journal) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var all []byte
	at := j.now().UTC()
	for _, e := range entries {
		e.At = at
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		all = append(append(all, b...), '\n')
	}
	err := j.write(all)
	if err != nil && j.reserve.GiveBack(err) {
		err = j.write(all)
	}
	return err
}

// write appends all of b or nothing.
func (j *Journal) write(b []byte) error {
	_, err := j.f.Write(b)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil { // half a line would spoil the next one
		_, seekErr := j.f.Seek(j.end, io.SeekStart)
		return errors.Join(err, j.f.Truncate(j.end), seekErr)
	}
	j.end += int64(len(b))
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	j.reserve.Free()
	return j.f.Close()
}

// ReadJournal returns the entries of a journal in order; a torn last line is left out. A line
// in the middle that is not an entry is an error that names it.
func ReadJournal(path string) ([]Entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for n := 1; len(b) > 0; n++ {
		i := indexNewline(b)
		if i < 0 {
			break
		}
		var e Entry
		if err := json.Unmarshal(b[:i], &e); err != nil {
			return nil, fmt.Errorf("%s:%d: not a journal entry: %w; delete that line, or move the file aside: "+
				"the bundles hold the results, and the sweep that is begun again finds the whole ones and writes a new journal", path, n, err)
		}
		out = append(out, e)
		b = b[i+1:]
	}
	return out, nil
}

func indexNewline(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
	}
	return -1
}
