package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// overH2 are the two ways to speak HTTP/2.
var overH2 = []struct {
	name     string
	protocol Protocol
}{{"h2", HTTP2}, {"h2c", H2C}}

// certified is a TLS configuration for a server on this machine and the client's for it.
func certified(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{http2.NextProtoTLS}},
		&tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}

// An h2Peer is the server's end of one connection, frame by frame.
type h2Peer struct {
	t   *testing.T
	n   int // of the connection, from 0
	tcp net.Conn
	fr  *http2.Framer
	dec *hpack.Decoder
	all *heard
}

// heard is how often each request was whole at a server, by X-Request-ID.
type heard struct {
	mu    sync.Mutex
	times map[string]int
}

func (h *heard) count(r *Target, seq uint64) int {
	q := request(seq)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[r.cfg.requestHeaders(&q)[0][1]]
}

func (h *heard) most() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.times {
		n = max(n, k)
	}
	return n
}

// rawH2 serves every connection with a function and returns a configuration for it.
func rawH2(t *testing.T, protocol Protocol, serve func(p *h2Peer)) (Config, *heard) {
	cfg := Config{Protocol: protocol}
	var server *tls.Config
	if protocol == HTTP2 {
		server, cfg.TLS = certified(t)
	}
	all := &heard{times: map[string]int{}}
	url := rawServer(t, func(n int, tcp net.Conn, _ *bufio.Reader) {
		c := tcp
		if server != nil {
			c = tls.Server(tcp, server)
		}
		hello := make([]byte, len(h2Preface))
		if _, err := io.ReadFull(c, hello); err != nil {
			return
		}
		p := &h2Peer{t: t, n: n, tcp: tcp, fr: http2.NewFramer(c, c), dec: hpack.NewDecoder(4096, nil), all: all}
		p.fr.WriteSettings()
		serve(p)
	})
	if server != nil {
		url = strings.Replace(url, "http:", "https:", 1)
	}
	cfg.URLs = []string{url}
	return cfg, all
}

// next waits for a whole request and returns its stream, 0 when the client is gone.
func (p *h2Peer) next() uint32 {
	ids := map[uint32]string{}
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return 0
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				p.fr.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			fields, err := p.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				p.t.Errorf("a head cannot be decoded: %v", err)
				return 0
			}
			for _, h := range fields {
				if h.Name == "x-request-id" {
					ids[f.StreamID] = h.Value
				}
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				p.all.mu.Lock()
				p.all.times[ids[f.StreamID]]++
				p.all.mu.Unlock()
				return f.StreamID
			}
		}
	}
}

func (p *h2Peer) head(stream uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	enc.WriteField(hpack.HeaderField{Name: "content-type", Value: "text/event-stream"})
	p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
}

func (p *h2Peer) answer(stream uint32) {
	p.head(stream)
	p.fr.WriteData(stream, true, []byte(token("a")+doneEvent))
}

// serveRest answers everything that comes.
func (p *h2Peer) serveRest() {
	for s := p.next(); s != 0; s = p.next() {
		p.answer(s)
	}
}

// TestH2Again has servers that end streams in every way: what they say was not processed is sent
// again, once, and counted; nothing else ever is.
func TestH2Again(t *testing.T) {
	const none = ""
	for _, tc := range []struct {
		name   string
		serve  func(p *h2Peer)
		class  record.Class // of the last request, none when it succeeds
		detail string
		resent bool
		times  int // that the last request was whole at the server
	}{
		{name: "GOAWAY below the stream", resent: true, times: 2, serve: func(p *h2Peer) {
			one := p.next()
			if p.n == 0 {
				p.next()
				p.fr.WriteGoAway(one, http2.ErrCodeNo, nil)
			}
			p.answer(one)
			p.serveRest()
		}},
		{name: "GOAWAY below the stream with an error", resent: true, times: 2, serve: func(p *h2Peer) {
			one := p.next()
			if p.n == 0 {
				p.answer(one)
				p.next()
				p.fr.WriteGoAway(one, http2.ErrCodeEnhanceYourCalm, []byte("enough"))
				return
			}
			p.answer(one)
			p.serveRest()
		}},
		{name: "a last GOAWAY behind one that lets all stand", resent: true, times: 2, serve: func(p *h2Peer) {
			one := p.next()
			p.answer(one)
			if p.n == 0 {
				p.next()
				p.fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
				p.fr.WriteGoAway(one, http2.ErrCodeNo, nil)
				return
			}
			p.serveRest()
		}},
		{name: "GOAWAY at the stream", class: record.FailResetBefore, times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			p.fr.WriteGoAway(p.next(), http2.ErrCodeNo, nil)
		}},
		{name: "a refusal whose text has no end", class: record.FailStatus, detail: "boom", times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			stream := p.next()
			var block bytes.Buffer
			hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "500"})
			p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
			p.fr.WriteData(stream, false, []byte("boom"))
			p.next()
		}},
		{name: "GOAWAY at the stream, which is answered", times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			two := p.next()
			p.fr.WriteGoAway(two, http2.ErrCodeNo, nil)
			p.answer(two)
		}},
		{name: "GOAWAY twice below the stream", class: record.FailResetBefore, detail: "sent again", resent: true, times: 2, serve: func(p *h2Peer) {
			one := p.next()
			if p.n == 0 {
				p.answer(one)
				p.next()
				p.fr.WriteGoAway(one, http2.ErrCodeNo, nil)
				return
			}
			p.fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		}},
		{name: "refused", resent: true, times: 2, serve: func(p *h2Peer) {
			p.answer(p.next())
			p.fr.WriteRSTStream(p.next(), http2.ErrCodeRefusedStream)
			p.serveRest()
		}},
		{name: "refused twice", class: record.FailResetBefore, detail: "REFUSED_STREAM), also when it was sent again", resent: true, times: 2, serve: func(p *h2Peer) {
			p.answer(p.next())
			for s := p.next(); s != 0; s = p.next() {
				p.fr.WriteRSTStream(s, http2.ErrCodeRefusedStream)
			}
		}},
		{name: "refused, then below a GOAWAY", class: record.FailResetBefore, detail: "GOAWAY), also", resent: true, times: 2, serve: func(p *h2Peer) {
			one := p.next()
			p.answer(one)
			p.fr.WriteRSTStream(p.next(), http2.ErrCodeRefusedStream)
			p.next()
			p.fr.WriteGoAway(one, http2.ErrCodeNo, nil)
		}},
		{name: "refused behind its head", class: record.FailResetAfter, times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			two := p.next()
			p.head(two)
			p.fr.WriteRSTStream(two, http2.ErrCodeRefusedStream)
			p.serveRest()
		}},
		{name: "ended by an error of the server", class: record.FailResetBefore, times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			p.fr.WriteRSTStream(p.next(), http2.ErrCodeInternal)
			p.serveRest()
		}},
		{name: "closed", class: record.FailResetBefore, times: 1, serve: func(p *h2Peer) {
			p.answer(p.next())
			p.next()
		}},
	} {
		for _, way := range overH2 {
			t.Run(tc.name+"/"+way.name, func(t *testing.T) {
				cfg, all := rawH2(t, way.protocol, tc.serve)
				r := newRig(t, cfg)
				if strings.HasPrefix(tc.name, "GOAWAY below the stream") && !strings.HasSuffix(tc.name, "error") { // both at once
					r.Send(request(1))
					r.Send(request(2))
					resent := 0
					for range 2 {
						q := r.wait(t)
						if q.Failure != nil {
							t.Errorf("request %d: %+v", q.Seq, q.Failure)
						}
						if q.Resent {
							resent++
						}
					}
					if resent != 1 || all.most() != 2 {
						t.Errorf("%d requests were sent again, one came %d times; want 1 and 2", resent, all.most())
					}
					return
				}
				if q := r.do(t, request(1)); q.Failure != nil || q.Resent {
					t.Fatalf("%+v resent %v", q.Failure, q.Resent)
				}
				q := r.do(t, request(2))
				switch f := q.Failure; {
				case tc.class == none && f != nil:
					t.Errorf("failed: %+v", f)
				case tc.class != none && (f == nil || f.Class != tc.class || !strings.Contains(f.Detail, tc.detail)):
					t.Errorf("%+v, want %s with %q", f, tc.class, tc.detail)
				}
				if q.Resent != tc.resent || all.most() != tc.times {
					t.Errorf("resent %v, %d times at the server; want %v and %d", q.Resent, all.most(), tc.resent, tc.times)
				}
			})
		}
	}
}

// TestH2IdleClosed closes an idle connection while the head of the next request is about to be
// written: the request goes out again on a new one, and says so.
func TestH2IdleClosed(t *testing.T) {
	for _, way := range overH2 {
		t.Run(way.name, func(t *testing.T) {
			hangUp, hungUp := make(chan struct{}), make(chan struct{})
			cfg, all := rawH2(t, way.protocol, func(p *h2Peer) {
				p.answer(p.next())
				if p.n == 0 {
					select {
					case <-hangUp:
						goodbye(t, p.tcp)
						close(hungUp)
					case <-t.Context().Done():
					}
					return
				}
				p.serveRest()
			})
			clock := &closingClock{MonoClock: replay.NewClock(), in: "Write", act: func() { close(hangUp); <-hungUp }}
			cfg.Clock = clock
			r := newRig(t, cfg)
			if q := r.do(t, request(1)); q.Failure != nil || q.Resent {
				t.Fatalf("%+v resent %v", q.Failure, q.Resent)
			}
			clock.left.Store(1)
			q := r.do(t, request(2))
			if q.Failure != nil || !q.Resent || all.most() != 1 {
				t.Errorf("%+v resent %v, %d times at the server", q.Failure, q.Resent, all.most())
			}
		})
	}
}

// A door is a listener whose connections come from one that lasts longer.
type door struct {
	net.Listener
	in   <-chan net.Conn
	shut chan struct{}
	once *sync.Once
}

func (d door) Accept() (net.Conn, error) {
	select {
	case c := <-d.in:
		return c, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d door) Close() error {
	d.once.Do(func() { close(d.shut) })
	return nil
}

// TestH2Shutdown restarts a server of net/http again and again under requests. Its GOAWAY names
// the last stream that it took, so nothing is served twice, and what fails was refused twice.
func TestH2Shutdown(t *testing.T) {
	material.RealTime(t)
	for _, way := range overH2 {
		t.Run(way.name, func(t *testing.T) {
			cfg := Config{Protocol: way.protocol}
			var secure *tls.Config
			if way.protocol == HTTP2 {
				secure, cfg.TLS = certified(t)
			}
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			in := make(chan net.Conn)
			go func() {
				for c, err := tcp.Accept(); err == nil; c, err = tcp.Accept() {
					select {
					case in <- c:
					case <-t.Context().Done():
						c.Close()
					}
				}
			}()
			cfg.URLs = []string{map[bool]string{false: "http://", true: "https://"}[secure != nil] + tcp.Addr().String()}
			all := &heard{times: map[string]int{}}
			handler := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				all.mu.Lock()
				all.times[q.Header.Get("X-Request-ID")]++
				all.mu.Unlock()
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, token("a")+doneEvent)
			})
			begin := func() *http.Server {
				s := &http.Server{Handler: handler, Protocols: new(http.Protocols), TLSConfig: secure}
				d := door{tcp, in, make(chan struct{}), new(sync.Once)}
				if secure != nil {
					s.Protocols.SetHTTP2(true)
					go s.ServeTLS(d, "", "")
				} else {
					s.Protocols.SetUnencryptedHTTP2(true)
					go s.Serve(d)
				}
				return s
			}
			r := newRig(t, cfg)
			const requests, flying, every = 3000, 16, 50
			resent, failed, s := 0, 0, begin()
			sent := uint64(0)
			for range flying {
				sent++
				r.Send(request(sent))
			}
			for ended := 1; ended <= requests; ended++ {
				q := r.wait(t)
				if f := q.Failure; f != nil && !(q.Resent && strings.Contains(f.Detail, "GOAWAY), also when it was sent again")) {
					t.Errorf("request %d: %+v, resent %v", q.Seq, f, q.Resent)
				}
				served := all.count(r.Target, q.Seq)
				if want := map[bool]int{true: 1, false: 0}[q.Failure == nil]; served != want {
					t.Errorf("request %d was served %d times: %+v", q.Seq, served, q.Failure)
				}
				if q.Failure != nil {
					failed++
				}
				if q.Resent {
					resent++
				}
				if ended%every == 0 { // under those that are in flight and those that follow
					old := s
					s = begin()
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), hang)
						defer cancel()
						old.Shutdown(ctx)
					}()
				}
				if sent < requests {
					sent++
					r.Send(request(sent))
				}
			}
			s.Close()
			t.Logf("of %d requests %d were sent again, %d of them in vain", requests, resent, failed)
		})
	}
}
