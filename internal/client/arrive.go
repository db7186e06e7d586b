package client

import "net"

// An arrival says when bytes came: at an instant that may be too late by loose, which is
// Unknown when nothing bounds it. stamped says that the kernel told the instant of the last
// of them.
type arrival struct {
	at, loose int64
	stamped   bool
}

// An arriver is a connection that knows when the bytes of its last Read came.
type arriver interface {
	net.Conn
	arrived() arrival
}

// A recordWatch lies under a TLS connection and looks at the headers of the records that pass,
// which are not encrypted (RFC 8446, 5.1). TLS reads on only when it has no whole record left,
// so what it gives was whole with the last read at the latest. That read's instant is exact
// for it when the read ended with the end of a record and held the end of no other.
type recordWatch struct {
	arriver
	head   [5]byte
	have   int // bytes of the header that have come
	left   int // bytes of the record that have not
	single bool
}

// Read reads once.
func (w *recordWatch) Read(p []byte) (int, error) {
	n, err := w.arriver.Read(p)
	if n > 0 {
		w.single = w.pass(p[:n]) == 1 && w.have == 0
	}
	return n, err
}

// pass follows the records and counts those that end.
func (w *recordWatch) pass(p []byte) (ended int) {
	for len(p) > 0 {
		if w.have < len(w.head) {
			n := copy(w.head[w.have:], p)
			w.have, p = w.have+n, p[n:]
			if w.have < len(w.head) {
				break
			}
			w.left = int(w.head[3])<<8 | int(w.head[4])
		}
		n := min(w.left, len(p))
		w.left, p = w.left-n, p[n:]
		if w.left == 0 {
			w.have = 0
			ended++
		}
	}
	return ended
}

func (w *recordWatch) arrived() arrival {
	in := w.arriver.arrived()
	in.stamped = in.stamped && w.single
	return in
}
