package corpus

import "fmt"

var kindNames = [...]string{Root: "root", SubAgent: "sub-agent", FlatAgent: "flat agent", WorkerGroup: "worker group", Aux: "side call"}

// String is the name of the kind in tables.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}
