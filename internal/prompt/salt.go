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

// Salt names one tree: the marker of the AgentX client, "[rid:" and twelve hexadecimal digits
// and "]", from the seed of the run, the trace, the play (trees played of it before) and the
// lane, so that equal seeds give equal bytes on every machine. Root and children of a tree
// share it.
//
// A prompt spells the digits in words, "[rid: able about above absolute]", which is the same
// number of tokens for every salt, as digits and letters mixed are not.
func Salt(seed uint64, trace string, play, lane int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d:%d:%d:%s", seed, play, lane, trace))
	return "[rid:" + hex.EncodeToString(h[:6]) + "]"
}

// saltWords is the number of words, or of token ids, that a salt is spelled in: 48 bits for
// a list of 4,096.
const saltWords = 4

// spell gives the words of a salt: its digits where it is a marker, a hash of it otherwise.
func (w *Words) spell(salt string) string {
	n, marker := markerDigits(salt)
	if !marker {
		n = keyOf(salt)
	}
	var b strings.Builder
	for range saltWords {
		b.WriteString(w.word[n%uint64(len(w.word))])
		n /= uint64(len(w.word))
	}
	return b.String()
}

func markerDigits(salt string) (n uint64, ok bool) {
	if len(salt) != len("[rid:0123456789ab]") || !strings.HasPrefix(salt, "[rid:") || salt[len(salt)-1] != ']' {
		return 0, false
	}
	n, err := strconv.ParseUint(salt[5:17], 16, 64)
	return n, err == nil
}

// saltText is a salt as it stands in a message, apart from its text by an empty line. A
// marker is spelled in words; any other text stays as it is.
func (w *Words) saltText(salt string, p Placement) (before, behind string) {
	salt = strings.Trim(salt, "\n")
	if _, ok := markerDigits(salt); ok {
		salt = "[rid:" + w.spell(salt) + "]"
	}
	switch p {
	case NoSalt:
		return "", ""
	case SystemSuffix, FirstTurnSuffix:
		return "", "\n\n" + salt
	}
	return salt + "\n\n", ""
}
