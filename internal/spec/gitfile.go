package spec

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gitTimeout ends a call of git that does not.
const gitTimeout = 30 * time.Second

// GitFile reads a file as it stands in a revision of the git repository that holds it. name is a
// path of the file system; ref is anything that git takes as a revision.
func GitFile(ctx context.Context, ref, name string) ([]byte, error) {
	if ref == "" || strings.HasPrefix(ref, "-") {
		return nil, fmt.Errorf("revision %q is no name of a revision; give a commit, a tag or a branch", ref)
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	// "./" makes the path relative to dir and not to the top of the repository.
	cmd := exec.CommandContext(ctx, "git", "-C", dir, "show", ref+":./"+base)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		msg := strings.TrimSpace(stderr.String())
		if msg == "" {
			msg = err.Error()
		}
		return nil, fmt.Errorf("%s at %s cannot be read: %s", name, ref, msg)
	}
	return out, nil
}

// LoadRevision is Load on the files as they stand in a revision of git. Places in messages read
// "REF:file".
func LoadRevision(ctx context.Context, ref string, masters []string, runnersFile string) (*Set, error) {
	files := append([]string{}, masters...)
	if runnersFile != "" {
		files = append(files, runnersFile)
	}
	data := make([][]byte, len(files))
	for i, f := range files {
		b, err := GitFile(ctx, ref, f)
		if err != nil {
			return nil, err
		}
		data[i], files[i] = b, ref+":"+f
	}
	return parseSet(files, data, runnersFile != "")
}
