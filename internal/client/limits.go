package client

import (
	"cmp"
	"fmt"
	"strings"
)

const (
	// spareFiles are the files that a run needs besides its connections: logs, scrapes,
	// pollers, the bundle.
	spareFiles = 64
	// streamsPerConn is how many requests are taken to share a connection of HTTP/2: what
	// servers should allow at the least (RFC 9113, 6.5.2).
	streamsPerConn = 100
	// What a request in flight takes of memory, buffers of its connection included: over plain
	// HTTP/1.1, and where a goroutine reads (docs/measured/client.md).
	bytesPerWire      = 64 << 10
	bytesPerGoroutine = 128 << 10
)

// FilesNeeded is the number of open files that a run needs that keeps n connections.
func FilesNeeded(n int) uint64 { return uint64(n) + spareFiles }

// TooMany says that a run cannot hold what it was asked to hold.
type TooMany struct {
	InFlight   int    // requests that can be in flight at once
	How        string // what makes them so many, empty where it was said by number
	Need, Have uint64 // what that takes and what there is
	What       string // of what
	Fix        string // the smallest change that passes
}

func (e *TooMany) Error() string {
	how := ""
	if e.How != "" {
		how = " (" + e.How + ")"
	}
	return fmt.Sprintf("client: %d requests in flight%s need %d %s and there are %d; %s", e.InFlight, how, e.Need, e.What, e.Have, e.Fix)
}

// A Plan is what a run can have in flight at once.
type Plan struct {
	// Units are lanes, conversations or users, each of which has at most Each requests in
	// flight: 0 units are a number that nobody knows, an Each of 0 is 1.
	Units, Each int
	Unit        string // what the units are called, in the plural
	Of          string // what has Each requests in flight, such as a trace
}

// InFlight is how many requests can be in flight; 0 when nobody knows.
func (p *Plan) InFlight() int { return p.Units * max(p.Each, 1) }

func (p *Plan) how() string {
	if p.Each <= 1 {
		return ""
	}
	return fmt.Sprintf("%d %s x %d of %s", p.Units, p.unit(), p.Each, p.Of)
}

func (p *Plan) unit() string { return cmp.Or(p.Unit, "requests in flight") }

// or is the advice to plan fewer units, so many as have at most n requests in flight.
func (p *Plan) or(n int64) string {
	if n /= int64(max(p.Each, 1)); n > 0 {
		return fmt.Sprintf(" or plan %d %s", n, p.unit())
	}
	return ""
}

// machine is what this machine gives; a number that it does not tell is as large as can be.
type machine struct {
	files, ports, memory uint64
}

// Fits raises the limit of open files to the hard limit and tells, with the arithmetic, why a
// plan cannot be carried out with this configuration: a *TooMany. nil when it can.
func (c *Config) Fits(p *Plan) error {
	m, err := thisMachine()
	if err != nil {
		return err
	}
	return c.fits(p, m)
}

// Room is how many requests of this configuration the machine has room for at once, and what it is that
// bounds them.
func (c *Config) Room() (n int, of string, err error) {
	m, err := thisMachine()
	if err != nil {
		return 0, "", err
	}
	n, of = c.room(m, true)
	return n, of, nil
}

// room counts local ports only when asked to: a name may stand for several addresses, each with as
// many.
func (c *Config) room(m machine, ports bool) (n int, of string) {
	perConn, bytes := c.each()
	most := m.memory / bytes
	of = fmt.Sprintf("%d MiB of memory, %d kB each", m.memory>>20, bytes>>10)
	if files := (m.files - min(m.files, spareFiles)) * uint64(perConn); files < most {
		most, of = files, fmt.Sprintf("%d open files less %d", m.files, spareFiles)
		if perConn > 1 {
			of += fmt.Sprintf(", %d requests a connection", perConn)
		}
	}
	if at := m.ports * uint64(max(len(c.URLs), 1)) * uint64(perConn); ports && at < most {
		most, of = at, fmt.Sprintf("%d local ports towards each of %d base URLs", m.ports, max(len(c.URLs), 1))
	}
	return int(min(most, 1<<40)), of
}

// each is how many requests share a connection and what memory one takes.
func (c *Config) each() (perConn int, bytes uint64) {
	switch {
	case c.Protocol == HTTP2 || c.Protocol == H2C:
		return streamsPerConn, bytesPerGoroutine
	case len(c.URLs) > 0 && strings.HasPrefix(c.URLs[0], "https:"):
		return 1, bytesPerGoroutine
	}
	return 1, bytesPerWire
}

func (c *Config) fits(p *Plan, m machine) error {
	n := p.InFlight()
	if n <= 0 {
		return nil
	}
	perConn, bytes := c.each()
	bad := func(need, have uint64, what, fix string) error {
		return &TooMany{InFlight: n, How: p.how(), Need: need, Have: have, What: what, Fix: fix}
	}
	conns := (n + perConn - 1) / perConn
	if need := FilesNeeded(conns); need > m.files {
		return bad(need, m.files, "open files", fmt.Sprintf("raise the hard limit with ulimit -Hn %d", need)+p.or((int64(m.files)-spareFiles)*int64(perConn)))
	}
	urls := max(len(c.URLs), 1)
	if each := uint64((conns + urls - 1) / urls); each > m.ports {
		return bad(each, m.ports, "local ports towards one base URL", fmt.Sprintf("widen net.ipv4.ip_local_port_range, give %d base URLs",
			(uint64(conns)+m.ports-1)/m.ports)+p.or(int64(m.ports)*int64(urls)*int64(perConn)))
	}
	if need := uint64(n) * bytes; need > m.memory {
		return bad(need, m.memory, fmt.Sprintf("bytes of memory, %d each,", bytes), "free memory"+p.or(int64(m.memory/bytes)))
	}
	return nil
}
