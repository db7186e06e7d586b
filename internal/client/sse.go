package client

import (
	"bytes"
	"errors"
)

// errFrameTooLong ends a stream whose frame is longer than the limit.
var errFrameTooLong = errors.New("a frame of the stream is longer than the limit")

// eventStream splits bytes into events by the grammar of the HTML standard, 9.2.5 and 9.2.6
// (read 2026-07): lines end with CR, LF or CRLF wherever a read was split, one byte order mark
// at the start is dropped, a line that starts with a colon is a comment, several data lines
// are joined with LF, one space after the colon is dropped, an event without a data line is
// none.
//
// It differs in one point: what stands behind the last blank line when the body ends cleanly
// is an event all the same (finish), since servers forget the last blank line.
//
// It allocates nothing as long as events are not split over reads.
type eventStream struct {
	limit int // longest event in bytes

	line    []byte // an unfinished line of earlier reads
	joined  []byte // data of the event under way, when it does not lie in one piece in this read
	name    []byte // event type of the event under way
	direct  []byte // data of the event under way, in the bytes of this read
	hasData bool
	begun   bool // a line was seen, so that a byte order mark means nothing any more
	skipLF  bool // the last byte was a CR
}

// An eventSink takes events. name and data are only valid during the call. An error ends
// the stream.
type eventSink interface {
	event(name, data []byte) error
}

// feed takes the next bytes of the stream. It returns the first error of the sink.
func (s *eventStream) feed(p []byte, sink eventSink) error {
	for len(p) > 0 {
		if s.skipLF {
			s.skipLF = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := lineEnd(p)
		if end < 0 {
			if len(s.line)+len(p) > s.limit {
				return errFrameTooLong
			}
			s.line = append(s.line, p...)
			break
		}
		line := p[:end]
		s.skipLF = p[end] == '\r'
		p = p[end+1:]
		split := len(s.line) > 0
		if split {
			if len(s.line)+len(line) > s.limit {
				return errFrameTooLong
			}
			s.line = append(s.line, line...)
			line = s.line
		}
		err := s.take(line, split, sink)
		s.line = s.line[:0]
		if err != nil {
			return err
		}
	}
	if s.direct != nil { // it will not outlive this read
		s.joined = append(s.joined[:0], s.direct...)
		s.direct = nil
	}
	s.shrink()
	return nil
}

// finish takes what was left without a blank line when the body ended cleanly.
func (s *eventStream) finish(sink eventSink) error {
	if len(s.line) > 0 {
		err := s.take(s.line, true, sink)
		s.line = s.line[:0]
		if err != nil {
			return err
		}
	}
	return s.dispatch(sink)
}

// pending tells whether bytes were taken that no event has delivered yet.
func (s *eventStream) pending() bool { return len(s.line) > 0 || s.hasData }

func lineEnd(p []byte) int {
	lf := bytes.IndexByte(p, '\n')
	if lf < 0 {
		return bytes.IndexByte(p, '\r')
	}
	if cr := bytes.IndexByte(p[:lf], '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// take handles one whole line. split says that it lies in s.line and not in the read.
func (s *eventStream) take(line []byte, split bool, sink eventSink) error {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if len(line) == 0 {
		return s.dispatch(sink)
	}
	field, value := line, []byte(nil)
	if colon := bytes.IndexByte(line, ':'); colon >= 0 {
		field, value = line[:colon], line[colon+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch string(field) {
	case "data":
		return s.data(value, split)
	case "event":
		s.name = append(s.name[:0], value...)
	}
	return nil // a comment, id, retry or a field that the standard says to ignore
}

func (s *eventStream) data(value []byte, split bool) error {
	if !s.hasData {
		s.hasData = true
		s.joined = s.joined[:0]
		if !split && value != nil {
			s.direct = value
			return nil
		}
		s.joined = append(s.joined, value...)
		return nil
	}
	if s.direct != nil {
		s.joined = append(s.joined[:0], s.direct...)
		s.direct = nil
	}
	if len(s.joined)+1+len(value) > s.limit {
		return errFrameTooLong
	}
	s.joined = append(s.joined, '\n')
	s.joined = append(s.joined, value...)
	return nil
}

func (s *eventStream) dispatch(sink eventSink) error {
	var err error
	if s.hasData {
		data := s.direct
		if data == nil {
			data = s.joined
		}
		err = sink.event(s.name, data)
	}
	s.hasData, s.direct = false, nil
	s.joined, s.name = s.joined[:0], s.name[:0]
	return err
}

// shrink gives back the memory of a huge frame, so that thousands of streams that each saw
// one do not keep it.
func (s *eventStream) shrink() {
	const keep = 64 << 10
	if cap(s.line) > keep && len(s.line) == 0 {
		s.line = nil
	}
	if cap(s.joined) > keep && !s.hasData {
		s.joined = nil
	}
}
