package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/weirbench/weir/internal/record"
)

// folderForOutput refuses, before anything runs, a path that can't be a folder to write into.
func folderForOutput(path string) error {
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		switch {
		case err == nil && !info.IsDir() && p == filepath.Clean(path):
			return usagef("-o %s: a file of that name is there and a folder is needed: choose another -o", path)
		case err == nil && !info.IsDir():
			return usagef("-o %s: %s is a file and not a folder: choose another -o", path, p)
		case err == nil:
			return nil
		case p == filepath.Dir(p):
			return nil
		}
	}
}

// bundleForOutput also refuses a folder that holds a whole bundle: measurements are not
// overwritten.
func bundleForOutput(path string) error {
	if err := folderForOutput(path); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(path, record.CompleteFile)); err == nil {
		return usagef("-o %s: the folder holds the bundle of a run, which is not overwritten: choose another -o", path)
	}
	return nil
}

// fileForOutput refuses a path that can't be a file to write.
func fileForOutput(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return usagef("-o %s: that is a folder and a file is needed: write -o %s", path, filepath.Join(path, "NAME"))
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return usagef("-o %s: there is no folder %s", path, dir)
	case err == nil && !info.IsDir():
		return usagef("-o %s: %s is a file and not a folder", path, dir)
	}
	return nil
}
