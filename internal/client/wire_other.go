//go:build !linux

package client

// Elsewhere every connection has a goroutine of its own.
type (
	wire      struct{}
	idleWires struct{}
	poller    struct{ health *readHealth }
)

func (t *Target) poll() error   { return nil }
func (p *poller) close()        {}
func (x *exchange) runWire()    {}
func (x *exchange) cancelWire() {}
func (h *host) closeWires()     {}
