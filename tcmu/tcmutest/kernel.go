// Package tcmutest is the kernel's side of a TCMU ring in plain memory: it makes
// entries, takes responses, and says where a handler breaks the protocol. It
// needs neither root nor a kernel that has TCMU.
//
// The layout is written down here once more, in offsets, so that tests of package
// tcmu against this one hold the two against each other.
package tcmutest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Offsets in struct tcmu_mailbox and its values.
const (
	mbVersion  = 0
	mbFlags    = 2
	mbCmdrOff  = 4
	mbCmdrSize = 8
	mbHead     = 12
	mbTail     = 64
	mbSize     = 128
)

// Offsets in entries.
const (
	hdrLenOp  = 0
	hdrID     = 4
	hdrUflags = 7
	hdrSize   = 8
	reqIovCnt = 8
	reqCDBOff = 24
	reqIov    = 48
	iovSize   = 16
	rspStatus = 8
	rspRead   = 12
	rspSense  = 16
	cmdSize   = 112
	tmrType   = 8
	tmrCount  = 12
	tmrIDs    = 32
)

// Operation codes of entries and flags of responses.
const (
	OpPad = 0
	OpCmd = 1
	OpTMR = 2

	flagUnknownOp = 1
	flagReadLen   = 2
	flagKeepBuf   = 4
)

// Capabilities that the mailbox announces.
const (
	CapOutOfOrder = 1
	CapReadLen    = 2
	CapTMR        = 4
	CapKeepBuf    = 8
	CapAll        = 15
)

const (
	blockSize = 4096
	// poison fills blocks that belong to no command.
	poison = 0xDB
)

// Options describe a ring; zero values give a small one with all capabilities.
type Options struct {
	RingBytes int    // of the command ring: a multiple of 8; 8192 when 0
	Blocks    int    // of the data area, 4 KiB each; 64 when 0
	Caps      uint16 // CapAll when 0
	// Scatter takes blocks at random, by Seed, so that the data of a command lies in
	// pieces. Without it blocks are taken in order.
	Scatter bool
	Seed    uint64
	// OtherFabrics is what the device says of fabrics but iSCSI that have it; nil says that there are none.
	OtherFabrics func() ([]string, error)
	// Memory is where the ring lies, if it is not nil: 128 bytes of mailbox, RingBytes and Blocks. It
	// is aligned as a mapping is.
	Memory []byte
}

// ErrFull means that a command has no room now; the kernel would try again later.
var ErrFull = errors.New("tcmutest: no room in the ring or the data area")

// Kernel is the kernel's side of one ring. It implements tcmu.Link; its methods
// may be called from any goroutine.
type Kernel struct {
	mem   []byte
	ring  []byte
	data  []byte
	start int // of data in mem

	mu       sync.Mutex
	head     uint32 // all below guarded by mu
	cleaned  uint32
	calls    map[uint16]*Call
	lastID   uint16
	free     []int // blocks
	random   *rand.Rand
	plugged  bool
	broken   error
	events   uint32
	seen     uint32
	stopped  bool
	closed   bool
	notified int
	wake     *sync.Cond
	attribs  map[string]string

	others func() ([]string, error)
}

// New makes a ring that is empty.
func New(o Options) *Kernel {
	if o.RingBytes == 0 {
		o.RingBytes = 8192
	}
	if o.Blocks == 0 {
		o.Blocks = 64
	}
	if o.Caps == 0 {
		o.Caps = CapAll
	}
	size, mem := mbSize+o.RingBytes+o.Blocks*blockSize, o.Memory
	if mem == nil {
		words := make([]uint64, size/8) // aligned as the entries want it
		mem = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	}
	mem = mem[:size]
	k := &Kernel{mem: mem, start: mbSize + o.RingBytes, calls: map[uint16]*Call{}, attribs: map[string]string{}}
	k.wake = sync.NewCond(&k.mu)
	if k.others = o.OtherFabrics; k.others == nil {
		k.others = func() ([]string, error) { return nil, nil }
	}
	k.ring, k.data = mem[mbSize:k.start], mem[k.start:]
	ne := binary.NativeEndian
	ne.PutUint16(mem[mbVersion:], 2)
	ne.PutUint16(mem[mbFlags:], o.Caps)
	ne.PutUint32(mem[mbCmdrOff:], mbSize)
	ne.PutUint32(mem[mbCmdrSize:], uint32(o.RingBytes))
	for i := range k.data {
		k.data[i] = poison
	}
	for i := range o.Blocks {
		k.free = append(k.free, i)
	}
	if o.Scatter {
		k.random = rand.New(rand.NewPCG(o.Seed, 0))
	}
	return k
}

// Memory is the mapping.
func (k *Kernel) Memory() []byte { return k.mem }

// Wait blocks until an event was announced since the last call.
func (k *Kernel) Wait() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.events == k.seen && !k.stopped {
		k.wake.Wait()
	}
	if k.stopped {
		return io.EOF
	}
	k.seen = k.events
	return nil
}

// Stop makes Wait return for good.
func (k *Kernel) Stop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.wake.Broadcast()
	return nil
}

// Close gives up the mapping; to use it afterwards is an error of the handler's.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		k.breakRing("closed twice")
	}
	k.closed = true
	return nil
}

// Closed tells whether the handler has given up the mapping.
func (k *Kernel) Closed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed
}

// Notifications is how often the handler called Notify.
func (k *Kernel) Notifications() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.notified
}

// InFlight is the number of commands without a response.
func (k *Kernel) InFlight() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, c := range k.calls {
		if !c.kept {
			n++
		}
	}
	return n
}

// Err tells how the handler broke the protocol, if it did: a kernel would fail all
// commands from then on.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

func (k *Kernel) breakRing(format string, args ...any) {
	if k.broken == nil {
		k.broken = fmt.Errorf("tcmutest: "+format, args...)
	}
	for _, c := range k.calls {
		c.finish(Response{Broken: true})
	}
}

// Attribute reads what SetAttribute stored, by the handler or the test: the device's
// folder in configfs.
func (k *Kernel) Attribute(name string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.attribs[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return v, nil
}

// OtherFabrics returns what the option does.
func (k *Kernel) OtherFabrics(string) ([]string, error) { return k.others() }

// SetAttribute stores an attribute.
func (k *Kernel) SetAttribute(name, value string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attribs[name] = value
	return nil
}

// Plug holds back events until Unplug, so that one wake-up brings several commands.
func (k *Kernel) Plug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugged = true
}

// Unplug announces what has been sent since Plug.
func (k *Kernel) Unplug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugged = false
	k.announce()
}

func (k *Kernel) announce() {
	if !k.plugged {
		k.events++
		k.wake.Broadcast()
	}
}

// Reset is action/reset_ring=1: commands in flight end as busy, the ring is empty.
func (k *Kernel) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, c := range k.calls {
		delete(k.calls, id)
		k.release(c)
		c.finish(Response{Status: 0x08})
	}
	k.broken, k.stopped, k.closed = nil, false, false
	k.head, k.cleaned = 0, 0
	k.publish(mbHead, 0)
	k.publish(mbTail, 0)
}

func (k *Kernel) publish(off int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&k.mem[off])), v)
}
