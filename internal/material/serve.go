package material

import (
	"context"
	"net"
	"testing"
)

// Serve runs a server on loopback until the test ends, which fails when the server did, and returns
// its base URL.
func Serve(t testing.TB, s interface {
	Serve(ctx context.Context, l net.Listener) error
}) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}
