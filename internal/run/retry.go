package run

import (
	"errors"
	"os"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// retries are how often a point is tried again after a failure of a class.
var retries = map[string]int{"node": 3, "start": 1, "crash": 1}

// retries is how often a point is tried again after this failure. A disk that is full stays full.
func (f *Failure) retries() int {
	if noRoom(f) || strings.HasPrefix(f.Reason, "pre-flight of ") && strings.Contains(f.Reason, ": disk: ") {
		return 0
	}
	return retries[f.Class]
}

// noRoom says whether an error is that of a full disk, whoever reports it.
func noRoom(err error) bool {
	if record.NoRoom(err) {
		return true
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}

// roomIn is the error of writing a little into a folder.
func roomIn(dir string) error {
	f, err := os.CreateTemp(dir, ".room-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// classed is an error as a Failure: what has no class of its own is the client's, and a full disk
// is the node's.
func classed(err error) *Failure {
	var f *Failure
	switch {
	case noRoom(err):
		return &Failure{Class: "node", Reason: strings.TrimPrefix(err.Error(), "node: ")}
	case errors.As(err, &f):
		return f
	}
	return &Failure{Class: "client", Reason: err.Error()}
}
