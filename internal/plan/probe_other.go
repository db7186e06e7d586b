//go:build !linux

package plan

import "context"

// system sees nothing of other systems: engines run on Linux.
func (p *prober) system(context.Context) {
	p.problem("memory, limits, processors and GPUs are read on Linux only")
}

func (p *prober) listener(int) string { return "" }
