package client

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A receiver reads sockets with recvmsg and learns, from SO_TIMESTAMPNS, how long the kernel
// had had the bytes. When several segments are taken at once the kernel gives the instant of
// the last one. It belongs to one goroutine.
type receiver struct {
	buf []byte
	msg unix.Msghdr
	iov unix.Iovec
	oob [64]byte
}

// stampSocket asks the kernel to note when bytes arrive; without support it changes nothing.
func stampSocket(fd int) { unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) }

func newReceiver(size int) *receiver {
	r := &receiver{}
	r.aim(make([]byte, size))
	return r
}

// aim sets the buffer that the next reads fill.
func (r *receiver) aim(p []byte) {
	r.buf = p
	r.iov.Base = &p[0]
	r.iov.SetLen(len(p))
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	r.msg.Control = &r.oob[0]
}

// recv reads once without waiting. lag is how long before the call's return the bytes had
// arrived, in nanoseconds, -1 when the kernel does not say.
func (r *receiver) recv(fd int) (n int, lag int64, err error) {
	r.msg.SetControllen(len(r.oob))
	got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
	if errno != 0 {
		return 0, -1, errno
	}
	return int(got), r.lag(), nil
}

// lag reads the control message that recvmsg left.
func (r *receiver) lag() int64 {
	const size = unix.SizeofCmsghdr + int(unsafe.Sizeof(unix.Timespec{}))
	if int(r.msg.Controllen) < size {
		return -1
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&r.oob[0]))
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SO_TIMESTAMPNS {
		return -1
	}
	at := (*unix.Timespec)(unsafe.Pointer(&r.oob[unix.CmsgLen(0)]))
	return time.Now().UnixNano() - at.Nano()
}
