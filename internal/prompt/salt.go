package prompt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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

// Salt is the text that makes the prompts of one tree its own: the marker "[rid:" and twelve
// digits and "]" of the AgentX client, from the seed of the run, the trace, the play (trees the
// lane has played before) and the lane, so that equal seeds give equal bytes on every machine.
// Root and children of a tree share it. The digits are decimal, which makes every salt the
// same number of tokens in a tokenizer that splits digits by ones or by threes.
func Salt(seed uint64, trace string, play, lane int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%d:%d:%s", seed, play, lane, trace)
	n := binary.BigEndian.Uint64(h.Sum(nil)) % 1e12
	return fmt.Sprintf("[rid:%012d]", n)
}

// saltText is a salt as it stands in a message, apart from its text by an empty line.
func saltText(salt string, p Placement) (before, behind string) {
	switch {
	case salt == "":
		return "", ""
	case p == SystemSuffix || p == FirstTurnSuffix:
		return "", "\n\n" + salt
	case p == NoSalt:
		return "", ""
	}
	return salt + "\n\n", ""
}
