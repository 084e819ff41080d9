package tcmutest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Call is a command that was sent.
type Call struct {
	id     uint16
	in     int
	blocks []int
	kept   bool
	ended  bool
	got    Response
	done   chan struct{}
}

// Response is how a command ended.
type Response struct {
	Status byte
	Sense  [96]byte
	// Data is what the initiator gets; Short says that the handler gave its length.
	Data    []byte
	Short   bool
	Unknown bool // the handler did not know the entry
	Broken  bool // the ring is broken
}

// ID is the kernel's number for the command.
func (c *Call) ID() uint16 { return c.id }

// Done is closed when the command has ended.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait waits for the end.
func (c *Call) Wait() Response {
	<-c.done
	return c.got
}

func (c *Call) finish(r Response) {
	if !c.ended {
		c.ended = true
		c.got = r
		close(c.done)
	}
}

// Send puts a command into the ring: with out as its data, or, when that is nil,
// asking for in bytes. It fails with ErrFull when there is no room.
func (k *Kernel) Send(cdb, out []byte, in int) (*Call, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := in
	if out != nil {
		n, in = len(out), 0
	}
	blocks, ok := k.allocate((n + blockSize - 1) / blockSize)
	if !ok {
		return nil, ErrFull
	}
	iovs := k.vector(blocks, n)
	base := max(cmdSize, reqIov+iovSize*len(iovs))
	size := base + (len(cdb)+7)&^7
	c := &Call{in: in, blocks: blocks, done: make(chan struct{})}
	entry := k.reserve(size)
	if entry == nil {
		k.free = append(k.free, blocks...)
		return nil, ErrFull
	}
	c.id = k.newID()
	k.calls[c.id] = c
	k.scatter(c, out)
	ne := binary.NativeEndian
	wipe(entry)
	ne.PutUint32(entry[hdrLenOp:], uint32(size)|OpCmd)
	ne.PutUint16(entry[hdrID:], c.id)
	ne.PutUint32(entry[reqIovCnt:], uint32(len(iovs)))
	ne.PutUint64(entry[reqCDBOff:], uint64(mbSize)+uint64(k.head)+uint64(base))
	for i, v := range iovs {
		ne.PutUint64(entry[reqIov+i*iovSize:], uint64(v[0]))
		ne.PutUint64(entry[reqIov+i*iovSize+8:], uint64(v[1]))
	}
	copy(entry[base:], cdb)
	k.push(size)
	return c, nil
}

// Manage puts a task management entry into the ring.
func (k *Kernel) Manage(function byte, ids ...uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	size := (tmrIDs + 2*len(ids) + 7) &^ 7
	entry := k.reserve(size)
	if entry == nil {
		return ErrFull
	}
	ne := binary.NativeEndian
	wipe(entry)
	ne.PutUint32(entry[hdrLenOp:], uint32(size)|OpTMR)
	entry[tmrType] = function
	ne.PutUint32(entry[tmrCount:], uint32(len(ids)))
	for i, id := range ids {
		ne.PutUint16(entry[tmrIDs+2*i:], id)
	}
	k.push(size)
	return nil
}

// Raw puts these bytes into the ring as an entry, whatever they are. The head moves by
// move bytes. A command number in them is registered, so that a response is
// expected.
func (k *Kernel) Raw(entry []byte, move int, id uint16) (*Call, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	room := k.reserve(max(len(entry), move))
	if room == nil {
		return nil, ErrFull
	}
	copy(room, entry)
	c := &Call{id: id, done: make(chan struct{})}
	if id != 0 {
		k.calls[id] = c
	}
	k.push(move)
	return c, nil
}

// Head is where the next entry goes, from the start of the command ring.
func (k *Kernel) Head() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.head
}

// reserve finds room at the head. An entry does not wrap: the end of the ring is
// filled by a pad.
func (k *Kernel) reserve(size int) []byte {
	total := len(k.ring)
	used := (int(k.head) - int(k.cleaned) + total) % total
	toEnd := total - int(k.head)
	pad := 0
	if size > toEnd {
		pad = toEnd
	}
	if k.broken != nil || used+pad+size >= total {
		return nil
	}
	if pad > 0 {
		binary.NativeEndian.PutUint32(k.ring[k.head:], uint32(pad)|OpPad)
		k.advance(pad)
	}
	return k.ring[k.head : int(k.head)+size]
}

// wipe clears an entry before it is written. A handler that was not told of a reset may look at it meanwhile.
func wipe(entry []byte) {
	for i := 0; i < len(entry); i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&entry[i])), 0)
	}
}

func (k *Kernel) advance(n int) {
	k.head = uint32((int(k.head) + n) % len(k.ring))
	k.publish(mbHead, k.head)
}

func (k *Kernel) push(size int) {
	k.advance(size)
	k.announce()
}

func (k *Kernel) newID() uint16 {
	for {
		k.lastID++
		if k.lastID != 0 && k.calls[k.lastID] == nil {
			return k.lastID
		}
	}
}

// Data area.

func (k *Kernel) allocate(n int) ([]int, bool) {
	if n > len(k.free) {
		return nil, false
	}
	var got []int
	for range n {
		i := 0
		if k.random != nil {
			i = k.random.IntN(len(k.free))
		}
		b := k.free[i]
		k.free = slices.Delete(k.free, i, i+1)
		if at := k.block(b); bytes.Count(at, []byte{poison}) != len(at) {
			k.breakRing("memory of a command was written to after its end")
		}
		got = append(got, b)
	}
	return got, true
}

func (k *Kernel) block(b int) []byte { return k.data[b*blockSize : (b+1)*blockSize] }

func (k *Kernel) release(c *Call) {
	for _, b := range c.blocks {
		at := k.block(b)
		for i := range at {
			at[i] = poison
		}
	}
	k.free = append(k.free, c.blocks...)
	c.blocks = nil
}

// vector describes n bytes in blocks: adjacent ones are one piece.
func (k *Kernel) vector(blocks []int, n int) [][2]int {
	var v [][2]int
	for i, b := range blocks {
		size := min(blockSize, n-i*blockSize)
		if i > 0 && blocks[i-1] == b-1 {
			v[len(v)-1][1] += size
			continue
		}
		v = append(v, [2]int{k.start + b*blockSize, size})
	}
	return v
}

func (k *Kernel) scatter(c *Call, out []byte) {
	for i, b := range c.blocks {
		if at := i * blockSize; at < len(out) {
			copy(k.block(b), out[at:])
		}
	}
}

func (k *Kernel) gather(c *Call, n int) []byte {
	out := make([]byte, 0, n)
	for _, b := range c.blocks {
		at := k.block(b)
		out = append(out, at[:min(len(at), n-len(out))]...)
	}
	return out
}

// Notify takes the responses up to the tail.
func (k *Kernel) Notify() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notified++
	tail := atomic.LoadUint32((*uint32)(unsafe.Pointer(&k.mem[mbTail])))
	total := uint32(len(k.ring))
	for k.broken == nil && k.cleaned != tail {
		left := (tail + total - k.cleaned) % total
		if tail >= total || left > (k.head+total-k.cleaned)%total {
			k.breakRing("tail at %d, head at %d", tail, k.head)
			break
		}
		entry := k.ring[k.cleaned:]
		ne := binary.NativeEndian
		lenOp := ne.Uint32(entry[hdrLenOp:])
		size := lenOp &^ 7
		if size < hdrSize || size > left {
			k.breakRing("tail at %d is inside of the entry at %d", tail, k.cleaned)
			break
		}
		if op := lenOp & 7; op == OpCmd {
			k.respond(entry[:size])
		} else if op > OpTMR && entry[hdrUflags]&flagUnknownOp == 0 {
			k.breakRing("entry with operation %d was not refused", op)
		}
		k.cleaned = (k.cleaned + size) % total
	}
	return nil
}

func (k *Kernel) respond(entry []byte) {
	ne := binary.NativeEndian
	id := ne.Uint16(entry[hdrID:])
	c := k.calls[id]
	if c == nil || c.kept {
		k.breakRing("response to command %d, which is not in flight", id)
		return
	}
	flags := entry[hdrUflags]
	r := Response{Status: entry[rspStatus], Unknown: flags&flagUnknownOp != 0}
	n := c.in
	if given := ne.Uint32(entry[rspRead:]); flags&flagReadLen != 0 && given != 0 && c.in > 0 {
		r.Short = true
		n = int(min(uint64(n), uint64(given)))
	}
	if r.Status == 0x02 {
		copy(r.Sense[:], entry[rspSense:])
	}
	if r.Status != 0x02 || r.Short {
		r.Data = k.gather(c, n)
	}
	if flags&flagKeepBuf != 0 {
		c.kept = true
	} else {
		delete(k.calls, id)
		k.release(c)
	}
	c.finish(r)
}

// FreeKept is a write of the number to action/free_kept_buf.
func (k *Kernel) FreeKept(id uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.calls[id]
	if c == nil || !c.kept {
		k.breakRing("command %d has no kept buffer", id)
		return k.broken
	}
	delete(k.calls, id)
	k.release(c)
	return nil
}
