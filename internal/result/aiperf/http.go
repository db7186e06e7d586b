package aiperf

import "github.com/weirbench/weir/internal/record"

// wired adds what is known of a request's way over its connection, under the names that AIPerf
// has from k6. AIPerf's instants are those of its HTTP library. A request of Weir's never waits for a
// connection: it makes one.
func wired(q *record.Request, m *measured) {
	w := q.Wire
	if w == nil {
		return
	}
	at := q.Times
	ms := func(tag string, ns int64) {
		if ns >= 0 {
			m.add(tag, "ms", float64(ns)/1e6)
		}
	}
	ms("http_req_blocked", 0)
	ms("http_req_dns_lookup", w.DNSNs)
	ms("http_req_connecting", w.ConnectNs)
	ms("http_req_connection_overhead", w.DNSNs+w.ConnectNs)
	ms("http_req_duration", at.End-at.Sent)
	if w.Written >= 0 && w.Body >= w.Written {
		ms("http_req_sending", w.Written-at.Sent)
		ms("http_req_waiting", w.Body-w.Written)
	}
	if w.Body >= 0 {
		ms("http_req_receiving", at.End-w.Body)
		ms("http_req_total", w.DNSNs+w.ConnectNs+at.End-at.Sent)
	}
	reused := int64(0)
	if w.Reused {
		reused = 1
	}
	m.count("http_req_connection_reused", "ratio", reused)
	// AIPerf's help says heads and bodies; what it adds up are the bodies.
	out, in := w.BodyOut, w.BodyIn
	if out == 0 && in == 0 {
		out, in = w.BytesOut, w.BytesIn // an older record
	}
	m.add("http_req_data_sent", "KB", float64(out)/1024)
	m.add("http_req_data_received", "KB", float64(in)/1024)
	// AIPerf counts what its HTTP library is handed, and a JSON body is handed over in one piece. How many
	// writes it took stands in the bundle's records.
	m.count("http_req_chunks_sent", "count", min(w.Writes, 1))
	m.count("http_req_chunks_received", "count", w.Reads)
}
