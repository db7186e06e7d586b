package record

// Class says whose fault a failed request was and in which phase it failed.
type Class string

const (
	FailDNS             Class = "dns"
	FailConnect         Class = "connect"
	FailTLS             Class = "tls"
	FailTimeoutHeaders  Class = "timeout-headers"  // nothing came back in time
	FailTimeoutFirst    Class = "timeout-first"    // headers, but no token in time
	FailTimeoutStream   Class = "timeout-stream"   // tokens stopped coming
	FailResetBefore     Class = "reset-before"     // closed before the first byte of an answer
	FailResetAfter      Class = "reset-after"      // closed in the middle of an answer
	FailStatus          Class = "http-status"      // an HTTP status other than 2xx
	FailContextOverflow Class = "context-overflow" // the server says the prompt is too long
	FailMalformed       Class = "malformed-stream" // bytes that are not the stream they claim
	FailStreamError     Class = "error-in-stream"  // an error object inside a 200 stream
	FailNoTokens        Class = "no-tokens"        // a clean end without one token
	FailCancelled       Class = "cancelled"        // Weir stopped it
	FailClient          Class = "client"           // Weir's own fault
)

// Failure says why a request failed.
type Failure struct {
	Class  Class  `json:"class"`
	Status int    `json:"status,omitempty"` // HTTP status, 0 when there was none
	Detail string `json:"detail,omitempty"` // one line, with an excerpt of the body, at most 500 bytes
}
