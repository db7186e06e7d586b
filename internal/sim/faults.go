package sim

// NoLoadBack makes the host tier useless, or useful again: while it is off, nothing that is on
// the host is loaded to the device.
func (g *Core) NoLoadBack(off bool) {
	for _, r := range g.ranks {
		r.noLoadBack(off)
	}
}
