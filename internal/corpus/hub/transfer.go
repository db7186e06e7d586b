package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// file brings one file into the cache and returns how many bytes came over the network.
func (c *Client) file(ctx context.Context, repo, commit string, f file) (int64, error) {
	blob := c.blob(repo, f)
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return 0, err
	}
	unlock, err := lock(ctx, filepath.Join(c.Cache, ".locks", filepath.Base(c.place(repo)), f.key+".lock"))
	if err != nil {
		return 0, err
	}
	defer unlock()
	if info, err := os.Stat(blob); err == nil && info.Size() == f.size {
		return 0, c.link(repo, commit, f)
	}
	part := blob + ".incomplete"
	var fetched int64
	for try := 0; ; try++ {
		n, err := c.download(ctx, repo, commit, f, part)
		fetched += n
		if err != nil {
			return fetched, err
		}
		got, err := f.sum(part)
		if err != nil {
			return fetched, err
		}
		if got == f.key {
			break
		}
		// What was there before the last transfer may have been broken: once from the start.
		if err := os.Remove(part); err != nil {
			return fetched, err
		}
		if try > 0 {
			return fetched, fmt.Errorf("%s of %s: wrong content: its hash is %s, the hub promises %s; nothing was kept", f.name, repo, got, f.key)
		}
	}
	if err := os.Rename(part, blob); err != nil {
		return fetched, err
	}
	return fetched, c.link(repo, commit, f)
}

// sum is the hash of a file by which the hub names it.
func (f *file) sum(name string) (string, error) {
	in, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	var h hash.Hash
	if f.lfs {
		h = sha256.New()
	} else {
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.size)
	}
	if _, err := io.Copy(h, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// download appends to part until it has the file's size.
func (c *Client) download(ctx context.Context, repo, commit string, f file, part string) (fetched int64, err error) {
	parts := strings.Split(f.name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	at := fmt.Sprintf("%s/datasets/%s/resolve/%s/%s", c.Endpoint, repo, commit, strings.Join(parts, "/"))
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if have > f.size {
		have = 0
	}
	err = c.retry(ctx, at, func(ctx context.Context) (bool, error) {
		if have == f.size {
			return false, nil
		}
		n, err := c.piece(ctx, at, f, out, &have)
		fetched += n
		return n > 0, err
	})
	if err != nil {
		return fetched, c.explain(err, f, have, part)
	}
	if err := out.Truncate(f.size); err != nil {
		return fetched, err
	}
	return fetched, out.Sync()
}

// explain adds to an error of writing what it means for the transfer.
func (c *Client) explain(err error, f file, have int64, part string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s: no room for the rest: %d of %d bytes are there, %d are missing; make room and fetch again, it goes on from there: %w",
			part, have, f.size, f.size-have, err)
	}
	if passing(err) {
		return fmt.Errorf("%s: %d of %d bytes are there, and the next fetch goes on from there: %w", f.name, have, f.size, err)
	}
	return err
}

// piece asks for the rest of a file and appends what comes; have follows what is written.
func (c *Client) piece(ctx context.Context, at string, f file, out *os.File, have *int64) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(c.idle(), func() {
		cancel(fmt.Errorf("nothing came for %s", c.idle()))
	})
	defer watch.Stop()
	header := map[string]string{}
	if *have > 0 {
		header["Range"] = fmt.Sprintf("bytes=%d-", *have)
	}
	resp, err := c.get(ctx, at, header)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		*have = 0
	case http.StatusPartialContent:
		var from int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &from); err != nil || from != *have {
			*have = 0
			return 0, &netError{fmt.Errorf("%s: asked for the bytes from %d, the answer is %q", at, *have, resp.Header.Get("Content-Range"))}
		}
	case http.StatusRequestedRangeNotSatisfiable:
		*have = 0
		return 0, &netError{fmt.Errorf("%s: the part that is there is longer than the file", at)}
	default:
		return 0, c.refusal(resp, at)
	}
	if _, err := out.Seek(*have, io.SeekStart); err != nil {
		return 0, err
	}
	var got int64
	buf := make([]byte, 256<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			watch.Reset(c.idle())
			if *have+int64(n) > f.size {
				*have = 0
				return got, fmt.Errorf("%s: more bytes than the %d that the hub promises", at, f.size)
			}
			w, werr := out.Write(buf[:n])
			*have += int64(w)
			got += int64(w)
			if werr != nil {
				return got, werr
			}
			if c.Progress != nil {
				c.Progress(f.name, *have, f.size)
			}
		}
		switch {
		case err == io.EOF && *have == f.size:
			return got, nil
		case err == io.EOF:
			return got, &netError{fmt.Errorf("%s: the transfer ended after %d of %d bytes", at, *have, f.size)}
		case err != nil:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return got, &netError{fmt.Errorf("%s: the transfer was cut after %d of %d bytes: %w", at, *have, f.size, err)}
		}
	}
}

// room refuses a fetch that can't fit, before anything is written.
func (c *Client) room(repo string, files []file) error {
	if err := os.MkdirAll(c.place(repo), 0o755); err != nil {
		return err
	}
	var need int64
	for _, f := range files {
		blob := c.blob(repo, f)
		if info, err := os.Stat(blob); err == nil && info.Size() == f.size {
			continue
		}
		need += f.size
		if info, err := os.Stat(blob + ".incomplete"); err == nil {
			need -= min(info.Size(), f.size)
		}
	}
	free, ok := freeBytes(c.place(repo))
	if ok && need > free {
		return fmt.Errorf("%s: %d bytes are missing and %d are free in %s: make %d bytes of room, or name another place with HF_HUB_CACHE",
			repo, need, free, c.Cache, need-free)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
