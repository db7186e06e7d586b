package cli

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
)

// rawNumber is how package strconv says that a text is no number, rawTime how package time says
// that one is no duration.
var (
	rawNumber = regexp.MustCompile(`strconv\.(\w+): parsing ("(?:[^"\\]|\\.)*"): (invalid syntax|value out of range)`)
	rawTime   = regexp.MustCompile(`time: (?:invalid duration|missing unit in duration|unknown unit "(?:[^"\\]|\\.)*" in duration) ("(?:[^"\\]|\\.)*")`)
)

// plainText is an error as people read it: what the libraries below say of files, numbers and
// times is put into words that say what is wrong and what is wanted.
func plainText(err error) string {
	msg := err.Error()
	for _, pe := range pathErrors(err) {
		switch {
		case errors.Is(pe.Err, fs.ErrNotExist):
			msg = strings.ReplaceAll(msg, pe.Error(), pe.Path+": there is no such file or folder")
		case errors.Is(pe.Err, fs.ErrPermission):
			msg = strings.ReplaceAll(msg, pe.Error(), pe.Path+": permission denied")
		}
	}
	msg = rawNumber.ReplaceAllStringFunc(msg, func(s string) string {
		m := rawNumber.FindStringSubmatch(s)
		what := "a whole number"
		switch m[1] {
		case "ParseFloat":
			what = "a number"
		case "ParseBool":
			what = "true or false"
		}
		if m[3] == "value out of range" {
			return m[2] + " is too large or too small for " + what
		}
		return m[2] + " is not " + what
	})
	return rawTime.ReplaceAllString(msg, "$1 is not a time such as 90s, 15m or 1h30m")
}

// pathErrors are all errors of the file system that an error wraps.
func pathErrors(err error) []*fs.PathError {
	if err == nil {
		return nil
	}
	if pe, ok := err.(*fs.PathError); ok {
		return []*fs.PathError{pe}
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return pathErrors(u.Unwrap())
	case interface{ Unwrap() []error }:
		var out []*fs.PathError
		for _, e := range u.Unwrap() {
			out = append(out, pathErrors(e)...)
		}
		return out
	}
	return nil
}
