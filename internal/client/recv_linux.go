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

// keepStamps opens a socket that keeps the kernel noting arrivals for as long as it is open,
// connections or not, and waits until it does so: it begins a moment after the first socket on
// the machine asked. It is -1 where there is no such socket.
func keepStamps() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1
	}
	stampSocket(fd)
	loop := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if unix.Bind(fd, loop) != nil {
		return fd
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		return fd
	}
	r := newReceiver(1)
	for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
		if unix.Sendto(fd, []byte{0}, 0, self) != nil {
			break
		}
		from := time.Now()
		_, lag, err := r.recv(fd)
		// A datagram that was not stamped when it came is stamped when it is read.
		if err == nil && lag > int64(time.Since(from)) {
			break
		}
		time.Sleep(50 * time.Microsecond)
	}
	return fd
}

func closeStamps(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

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
