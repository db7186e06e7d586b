package sim

// NoLoadBack makes the host tier useless, or useful again: while it is off, nothing that is on
// the host is loaded to the device.
func (g *Core) NoLoadBack(off bool) {
	for _, r := range g.ranks {
		r.noLoadBack(off)
	}
}

// ClearStorage empties the third tier of every rank; false while something is fetched from it.
func (g *Core) ClearStorage() bool {
	for _, r := range g.ranks {
		if s, ok := r.(*sglang); ok && s.cache.storage != nil && s.cache.storage.busy > 0 {
			return false
		}
	}
	for _, r := range g.ranks {
		if s, ok := r.(*sglang); ok && s.cache.storage != nil {
			s.cache.storage.reset()
		}
	}
	return true
}
