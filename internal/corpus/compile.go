package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// compiledVersion is part of every key: a file that an older reader made is made again.
const compiledVersion = "weir-compiled-2"

// lockWait is how long one compiler waits for another.
var lockWait = 10 * time.Minute

// SourceKey names the content of what a corpus is read from: the bytes of its files and their
// names below path, and the options that change what is read. It never depends on a seed, a
// date or the place of the files.
func SourceKey(path string, opt LoadOptions) ([]byte, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	sums := make([][sha256.Size]byte, len(files))
	err = inParallel(len(files), func(i int) (err error) {
		sums[i], err = sumFile(files[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %v %d\n", compiledVersion, fingerprintVersion, opt.SkipBroken, opt.BlockSize)
	for i, f := range files {
		rel, err := filepath.Rel(path, f)
		if err != nil || rel == "." {
			rel = ""
		}
		name := filepath.ToSlash(rel)
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(name)))
		h.Write(size[:])
		io.WriteString(h, name)
		h.Write(sums[i][:])
	}
	return h.Sum(nil)[:keyBytes], nil
}

func sumFile(name string) (sum [sha256.Size]byte, err error) {
	f, err := openRegular(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, f, make([]byte, 1<<20)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// A Compilation says what Compile did.
type Compilation struct {
	Corpus  *Corpus
	Fresh   bool   // the file held this content already and was left as it is
	Torn    error  // what was wrong with the file that was replaced; nil when nothing was
	Bytes   int64  // size of the file
	Content string // key of the source, in hexadecimal
}

// Compile writes the corpus at path, in the form that loads in place, to out. Nothing is
// written when out holds this content already; a torn file is replaced. Of two that compile
// into one directory at once the second waits and finds the work done.
func Compile(path, out string, opt LoadOptions) (*Compilation, error) {
	if info, err := os.Stat(out); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: want the name of a file", out)
	}
	unlock, err := lockDir(filepath.Dir(out))
	if err != nil {
		return nil, err
	}
	defer unlock()
	key, err := SourceKey(path, opt)
	if err != nil {
		return nil, err
	}
	done := &Compilation{Content: fmt.Sprintf("%x", key)}
	old, err := compiledKey(out)
	switch {
	case err == nil && bytes.Equal(old[:], key):
		c, err := loadCompiled(out)
		if err == nil {
			done.Corpus, done.Fresh = c, true
			done.Bytes = fileSize(out)
			return done, nil
		}
		done.Torn = err
	case errors.Is(err, ErrTorn):
		done.Torn = err
		if !wasCompiled(out) {
			return nil, fmt.Errorf("%s exists and is no compiled corpus: name another file, or remove it", out)
		}
	}
	c, err := Load(path, opt)
	if err != nil {
		return nil, err
	}
	var k [keyBytes]byte
	copy(k[:], key)
	if err := writeFile(out, func(w io.Writer) error { return encodeCompiled(w, c, k) }); err != nil {
		return nil, err
	}
	done.Corpus, done.Bytes = c, fileSize(out)
	return done, nil
}

// wasCompiled reports whether a damaged file looks as if it had been a compiled corpus: it is
// empty, begins like one, or its beginning was lost.
func wasCompiled(name string) bool {
	f, err := openRegular(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(compiledMagic))
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false
	}
	head = head[:n]
	return bytes.HasPrefix([]byte(compiledMagic), head) || len(bytes.Trim(head, "\x00")) == 0
}

func fileSize(name string) int64 {
	if info, err := os.Stat(name); err == nil {
		return info.Size()
	}
	return 0
}

// WriteCompiled writes a corpus that is in memory in the compiled form. Its key is that of no
// source, so Compile never takes the file for the work of another.
func WriteCompiled(name string, c *Corpus) error {
	sum := sha256.Sum256([]byte("memory " + c.Fingerprint))
	var key [keyBytes]byte
	copy(key[:], sum[:])
	return writeFile(name, func(w io.Writer) error { return encodeCompiled(w, c, key) })
}
