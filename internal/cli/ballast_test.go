package cli

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// TestBallast: with the ballast the collector waits for as much again, and as soon as it is dropped it
// does not.
func TestBallast(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := goal()
	b := ballast()
	with := goal()
	runtime.KeepAlive(b)
	if want := before + uint64(len(b)); with < want {
		t.Errorf("the next collection is at %d bytes, without the ballast at %d: want at least %d", with, before, want)
	}
	if after := goal(); after > with-uint64(len(b)) {
		t.Errorf("the next collection stays at %d bytes, with the ballast it was at %d", after, with)
	}
}
