package plan

import (
	"regexp"
	"strconv"
)

// A Version is what an image tag says about the engine in it.
type Version struct {
	Text                string // "v0.5.16", "20260719"; empty where the tag says nothing
	Major, Minor, Patch int    // of a release; all 0 for a nightly
	Date                int    // of a nightly, YYYYMMDD; 0 where unknown
}

var (
	releaseTag = regexp.MustCompile(`[:\-_]v?(\d+)\.(\d+)\.(\d+)`)
	dateTag    = regexp.MustCompile(`(20[2-9]\d[01]\d[0-3]\d)`)
)

// ParseVersion reads the version of an engine from an image reference. An image that names
// none gives the zero Version, which is unknown, not old.
func ParseVersion(image string) Version {
	if m := dateTag.FindStringSubmatch(image); m != nil && releaseTag.FindString(image) == "" {
		d, _ := strconv.Atoi(m[1])
		return Version{Text: m[1], Date: d}
	}
	m := releaseTag.FindStringSubmatch(image)
	if m == nil {
		return Version{}
	}
	v := Version{Text: "v" + m[1] + "." + m[2] + "." + m[3]}
	v.Major, _ = strconv.Atoi(m[1])
	v.Minor, _ = strconv.Atoi(m[2])
	v.Patch, _ = strconv.Atoi(m[3])
	return v
}

// Known says whether the tag named a version at all.
func (v Version) Known() bool { return v.Text != "" }

// AtLeast says whether a release is not older than the given one; false for nightlies.
func (v Version) AtLeast(major, minor, patch int) bool {
	if v.Date != 0 || !v.Known() {
		return false
	}
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}
