package cli

import (
	"errors"
	"fmt"
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

// bundleForOutput also refuses a folder that holds a whole bundle, since measurements are not
// overwritten, and one that holds anything else: a bundle would hide what lies below it.
func bundleForOutput(path string) error {
	if err := folderForOutput(path); err != nil {
		return err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	if has(record.CompleteFile) {
		return usagef("-o %s: the folder holds the bundle of a run, which is not overwritten: choose another -o", path)
	}
	if has(record.PointFile) || has(record.FailedFile) {
		return nil // what a run left that did not end well
	}
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return usagef("-o %s: %w", path, err)
	}
	if len(entries) > 0 {
		return usagef("-o %s: the folder holds %s and is no bundle: write -o %s", path, entries[0].Name(), filepath.Join(path, "NAME"))
	}
	return nil
}

// freshFolder is the name of a folder that is not there: path, or path with a number behind it.
func freshFolder(path string) string {
	name := path
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", path, i)
	}
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
