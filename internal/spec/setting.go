package spec

import "strings"

// A Setting is a variable of a cluster's processes.
type Setting struct {
	Name   string   `json:"name"`
	Values []string `json:"values,omitempty"` // one
	Drop   bool     `json:"drop,omitempty"`   // null in the file
	At     Pos      `json:"at"`
}

// scalarText is a scalar as it is written.
func (n *node) scalarText() string {
	if n.y.Kind != yamlScalar {
		n.fail("is "+n.text()+", but must be one value", "write it in quotes")
		return ""
	}
	return n.y.Value
}

// readSettings reads NAME: value.
func readSettings(n *node) []Setting {
	var out []Setting
	for _, p := range n.object(nil).pairs {
		s := Setting{Name: p.key, At: p.keyPos()}
		if p.key == "" || p.key[0] >= '0' && p.key[0] <= '9' || strings.ContainsAny(p.key, " =-") {
			p.failAt(p.keyPos(), "is not the name of a variable", "use letters, digits and _")
		}
		if p.isNull() {
			s.Drop = true
		} else {
			s.Values = []string{p.scalarText()}
		}
		out = append(out, s)
	}
	return out
}
