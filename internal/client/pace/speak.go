package pace

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// Options say what a server speaks: HTTP/1.1 in the clear by default.
type Options struct {
	// TLS makes it speak TLS with a certificate that is made for the occasion and that nobody
	// has signed.
	TLS bool
	// H2 makes it speak HTTP/2, and nothing else.
	H2 bool
}

// Scheme is that of the server's base URL.
func (o Options) Scheme() string {
	if o.TLS {
		return "https"
	}
	return "http"
}

// secure is the configuration of TLS, nil without it.
func (o Options) secure() (*tls.Config, error) {
	if !o.TLS {
		return nil, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	name := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, name, name, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, NextProtos: []string{"http/1.1"}}
	if o.H2 {
		c.NextProtos = []string{http2.NextProtoTLS}
	}
	return c, nil
}

func (s *server) serveTLS(c net.Conn, secure *tls.Config) {
	tc := tls.Server(c, secure)
	if tc.Handshake() != nil {
		return
	}
	if tc.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS {
		s.serveH2(tc)
		return
	}
	s.serve(tc)
}

func (s *server) serveH2(c net.Conn) {
	(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		read := Now()
		p, err := parsePlan(q.Header.Get(Header))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.answer(h2Answer{w}, p, read)
	})})
}

// An h2Answer answers on a stream of HTTP/2, a DATA frame a frame.
type h2Answer struct{ w http.ResponseWriter }

func (a h2Answer) send(f []byte, first, last bool) error {
	if first {
		a.w.Header().Set("Content-Type", "text/event-stream")
	}
	if _, err := a.w.Write(f); err != nil {
		return err
	}
	if last {
		if _, err := io.WriteString(a.w, done); err != nil {
			return err
		}
	}
	return http.NewResponseController(a.w).Flush()
}
