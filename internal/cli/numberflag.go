package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// A boundedFloat is a flag whose number becomes bytes, time or a share: what is not within its
// bounds, NaN among it, is refused by the parser, which names the flag. Where 0 stands for "not
// given", the least that may be given is the smallest that does not round to 0.
type boundedFloat struct {
	to         *float64
	least, top float64
	shown      string
}

// Bounds of flags. Sizes in GB and GiB end where 64 bits of bytes are far from full, even
// multiplied by the ranks of a node.
const (
	oneByteGB  = 1e-9 // the smallest size in GB, and in GiB, that is not 0 bytes
	maxGB      = 1e6
	maxDiskGB  = 1e9
	maxGiB     = 1 << 20
	ppm        = 1e-6 // the smallest share that is not 0
	maxRatio   = 1000
	maxSeconds = 1e9 // 31 years
	minPixels  = 120 // of a chart: axes and one line fit
	maxPixels  = 20_000
	minSpeed   = 0.001 // tokens/s of one request
	maxSpeed   = 1e9
)

// floatVar adds a flag with a bounded number. What *to holds is the default; help shows it
// unless it is outside the bounds, where it stands for "not given".
func floatVar(fs *pflag.FlagSet, to *float64, name string, least, top float64, about string) {
	v := &boundedFloat{to: to, least: least, top: top}
	if *to >= least && *to <= top {
		v.shown = plainFloat(*to)
	}
	fs.Var(v, name, about)
}

func plainFloat(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (v *boundedFloat) String() string { return v.shown }
func (v *boundedFloat) Type() string   { return "float" }

func (v *boundedFloat) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if !(n >= v.least && n <= v.top) { // also what ParseFloat has called out of range, and NaN
		return fmt.Errorf("want a number from %s to %s", plainFloat(v.least), plainFloat(v.top))
	}
	if err != nil {
		return fmt.Errorf("want a number from %s to %s: %w", plainFloat(v.least), plainFloat(v.top), err)
	}
	*v.to, v.shown = n, s
	return nil
}
