package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Placement says where in a prompt the salt of its tree stands. Prompts of two plays of a
// trace share nothing behind it.
type Placement uint8

const (
	NoSalt          Placement = iota // prompts of all plays of a trace are the same
	SystemPrefix                     // before the system message: plays share nothing
	SystemSuffix                     // behind the system message: plays share it
	FirstTurnPrefix                  // before the first user message: plays share what is before it
	FirstTurnSuffix                  // behind the first user message
)

var placementNames = [...]string{"none", "system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"}

func (p Placement) String() string { return placementNames[p] }

// MarshalText writes the name of a placement.
func (p Placement) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads none, system_prefix, system_suffix, first_turn_prefix or
// first_turn_suffix.
func (p *Placement) UnmarshalText(b []byte) error {
	for i, n := range placementNames {
		if n == string(b) {
			*p = Placement(i)
			return nil
		}
	}
	return fmt.Errorf("salt placement %q: use one of %s", b, strings.Join(placementNames[:], ", "))
}

// Salt is the text that makes the prompts of one tree its own: the marker of the AgentX
// client, "[rid:" and twelve hexadecimal digits and "]", from the seed of the run, the trace,
// the play (trees played of it before) and the lane, so that equal seeds give equal bytes on
// every machine. Root and children of a tree share it.
func Salt(seed uint64, trace string, play, lane int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d:%d:%d:%s", seed, play, lane, trace))
	return evenSalt("[rid:" + hex.EncodeToString(h[:6]) + "]")
}

// evenSalt writes a marker with decimal digits, which are hexadecimal ones too: tokenizers
// split digits by ones or by threes, so that all markers are the same number of tokens, while
// letters among digits make it differ. Any other text stays what it is.
func evenSalt(salt string) string {
	salt = strings.Trim(salt, "\n")
	if len(salt) != len("[rid:012345678901]") || !strings.HasPrefix(salt, "[rid:") || salt[len(salt)-1] != ']' {
		return salt
	}
	n, err := strconv.ParseUint(salt[5:17], 16, 64)
	if err != nil {
		return salt
	}
	if _, err := strconv.ParseUint(salt[5:17], 10, 64); err == nil {
		return salt // decimal already
	}
	return fmt.Sprintf("[rid:%012d]", n%1e12)
}

// saltText is a salt as it stands in a message, apart from its text by an empty line.
func saltText(salt string, p Placement) (before, behind string) {
	salt = evenSalt(salt)
	switch p {
	case NoSalt:
		return "", ""
	case SystemSuffix, FirstTurnSuffix:
		return "", "\n\n" + salt
	}
	return salt + "\n\n", ""
}
