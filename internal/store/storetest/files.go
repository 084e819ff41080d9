package storetest

import (
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/arraysim/arraysim/internal/store"
)

// handle is an open file; it implements both vfs.File and store.DataFile.
type handle struct {
	d    *Disk
	path string
	n    *inode // nil: a folder
	pos  int64  // of Read
}

var (
	_ vfs.File       = (*handle)(nil)
	_ store.DataFile = (*handle)(nil)
)

// check asks for a fault.
func (h *handle) check(op Op, n int) (int, error) {
	if h.d.fault == nil {
		return n, nil
	}
	if h.n != nil {
		return h.d.fault(op, h.n.path, n)
	}
	return h.d.fault(op, h.path, n)
}

func (h *handle) readAt(b []byte, off int64) int {
	if off >= h.n.size {
		return 0
	}
	b = b[:min(int64(len(b)), h.n.size-off)]
	for at := 0; at < len(b); {
		in := (off + int64(at)) % page
		k := min(len(b)-at, int(page-in))
		switch p := h.n.pages[(off+int64(at))/page]; {
		case h.n.medium != nil:
			copy(b[at:at+k], h.n.seen()[off+int64(at):])
		case p == nil:
			clear(b[at : at+k])
		default:
			copy(b[at:at+k], p[in:])
		}
		at += k
	}
	return len(b)
}

// writeAt writes until the file system is full and returns how far it came.
func (h *handle) writeAt(b []byte, off int64) (int, error) {
	n := h.n
	for at := 0; at < len(b); {
		i, in := (off+int64(at))/page, (off+int64(at))%page
		k := min(len(b)-at, int(page-in))
		was := n.pages[i]
		if was == nil || isHole(was) {
			if h.d.free == 0 {
				return at, syscall.ENOSPC
			}
			if h.d.free > 0 {
				h.d.free--
			}
		}
		now := make([]byte, page)
		copy(now, was)
		copy(now[in:], b[at:at+k])
		n.change(i, now, in, k)
		at += k
		n.size = max(n.size, off+int64(at))
	}
	return len(b), nil
}

// change gives a page other contents, in k bytes from in on: the medium has the old ones until the next sync, or
// some of them.
func (n *inode) change(i int64, now []byte, in int64, k int) {
	was := n.pages[i]
	if lost, ok := n.lost[i]; ok {
		n.old[i] = lost
		delete(n.lost, i)
	} else if _, dirty := n.old[i]; !dirty {
		n.old[i] = was
	} else if n.rnd.IntN(4) == 0 {
		// Sectors that are overwritten had been written back before.
		m := make([]byte, page)
		copy(m, n.old[i])
		for s := in / sector; s <= (in+int64(k)-1)/sector; s++ {
			if n.rnd.IntN(2) == 0 {
				copy(m[s*sector:(s+1)*sector], was[s*sector:])
			}
		}
		n.old[i] = m
	}
	n.pages[i] = now
}

// hole is the contents of a page that was punched out: it reads as zeros, and takes no room.
var hole = make([]byte, page)

func isHole(p []byte) bool { return len(p) > 0 && &p[0] == &hole[0] }

// Punch makes zeros, as a write of zeros would, and holes of whole pages. Like that one it survives a cut in part until
// a sync.
func (h *handle) Punch(off, size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if _, err := h.check(Write, int(size)); err != nil {
		return err
	}
	n := h.n
	for end := min(off+size, n.size); off < end; {
		i, in := off/page, off%page
		k := int(min(end-off, page-in))
		switch was := n.pages[i]; {
		case was == nil || isHole(was):
		case k == page:
			if h.d.free >= 0 {
				h.d.free++
			}
			n.change(i, hole, 0, page)
		default:
			now := slices.Clone(was)
			clear(now[in : in+int64(k)])
			n.change(i, now, in, k)
		}
		off += int64(k)
	}
	return nil
}

func (h *handle) vec(op Op, vec [][]byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	total := 0
	for _, b := range vec {
		total += len(b)
	}
	left, err := h.check(op, total)
	if err != nil {
		return 0, err
	}
	if op == Write {
		if h.d.writes++; h.d.image == nil && h.d.writes == h.d.killAt {
			at := 0
			part := int(mix(h.d.seed+uint64(h.d.writes)) % uint64(left+1))
			for _, b := range vec {
				n, _ := h.writeAt(b[:min(len(b), part-at)], off+int64(at))
				at += n
			}
			h.d.image = h.d.kill()
		}
	}
	done := 0
	for _, b := range vec {
		b = b[:min(len(b), left-done)]
		n, err := 0, error(nil)
		if op == Read {
			n = h.readAt(b, off+int64(done))
		} else {
			n, err = h.writeAt(b, off+int64(done))
		}
		done += n
		if err != nil && done == 0 {
			return 0, err
		}
		if n < len(b) {
			break
		}
	}
	return done, nil
}

func (h *handle) Readv(vec [][]byte, off int64) (int, error)  { return h.vec(Read, vec, off) }
func (h *handle) Writev(vec [][]byte, off int64) (int, error) { return h.vec(Write, vec, off) }

// ReadNow always has to wait.
func (h *handle) ReadNow([][]byte, int64) (int, error) { return 0, syscall.EAGAIN }

func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	n, err := h.vec(Read, [][]byte{b}, off)
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

func (h *handle) Read(b []byte) (int, error) {
	n, err := h.vec(Read, [][]byte{b}, h.pos)
	h.pos += int64(n)
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

func (h *handle) WriteAt(b []byte, off int64) (int, error) {
	n, err := h.vec(Write, [][]byte{b}, off)
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// Write appends at the handle's position.
func (h *handle) Write(b []byte) (int, error) {
	n, err := h.WriteAt(b, h.pos)
	h.pos += int64(n)
	return n, err
}

func (h *handle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.n.size, nil
}

func (h *handle) Stat() (os.FileInfo, error) { return h.d.Stat(h.path) }

func (h *handle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.n.size = size // only ever grown by the store
	return nil
}

func (h *handle) NextData(off int64) (start, end int64, err error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	for start = off &^ (page - 1); start < h.n.size; start += page {
		if p := h.n.pages[start/page]; p != nil && !isHole(p) {
			return start, start + page, nil
		}
	}
	return off, off, nil
}

// power is called at every sync, with the disk locked, before it takes effect.
func (d *Disk) power() {
	if d.syncs++; d.image == nil && d.syncs == d.cutAt {
		d.image = d.cut()
	}
	if d.image == nil && d.syncs == d.killIn {
		d.image = d.kill()
	}
}

// syncFailed is called when a sync has failed, likewise.
func (d *Disk) syncFailed() {
	if d.failed++; d.image == nil && d.failed == d.diesAt {
		d.image = d.kill()
	}
}

func (h *handle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.d.power()
	_, err := h.check(Sync, 0)
	if h.n != nil && h.n.failed && err == nil {
		err = syscall.EIO
	}
	if err != nil {
		if h.n != nil {
			h.n.failed = false // the kernel says so once
			h.n.flush(0, len(h.n.medium), true)
			// The kernel forgets what it could not write: later syncs succeed without it. What it had of that in memory
			// it may drop at any time.
			for i, was := range h.n.old {
				if _, ok := h.n.lost[i]; !ok {
					h.n.lost[i] = was
				}
			}
			clear(h.n.old)
			h.n.drop()
		}
		h.d.syncFailed()
		return err
	}
	if h.n == nil {
		kept, before := h.d.pending[:0:0], 0
		for i, ch := range h.d.pending { // the journal has what went before another name of a folder, in it and elsewhere
			if ch.dir == h.path && ch.node == nil && ch.from != "" && ch.to != "" {
				before = i
			}
		}
		for i, ch := range h.d.pending {
			if ch.dir != h.path && i >= before {
				kept = append(kept, ch)
				continue
			}
			ch.keep(h.d.stable, h.d.kept)
		}
		h.d.pending = kept
		return nil
	}
	clear(h.n.old)
	h.n.synced = h.n.size
	h.n.flush(0, len(h.n.medium), false)
	return nil
}

func (h *handle) SyncData() error            { return h.Sync() }
func (h *handle) SyncTo(int64) (bool, error) { return true, h.Sync() }
func (h *handle) Close() error               { return nil }
func (h *handle) Preallocate(_, _ int64) error {
	return nil
}
func (h *handle) Prefetch(_, _ int64) error { return nil }
func (h *handle) Fd() uintptr               { return vfs.InvalidFd }

// Map maps the file: what its program writes there survives only by Flush, or by luck.
func (h *handle) Map(size int) (store.Mapping, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	n := h.n
	if h.d.free >= 0 && n.medium == nil && h.d.free < size/page {
		return nil, syscall.ENOSPC
	}
	n.size = int64(size)
	if len(n.medium) != size {
		n.medium = make([]byte, size)
	}
	if n.mapped = n.cached; n.mapped == nil {
		n.mapped = slices.Clone(n.medium)
	}
	n.cached, n.differs.blind = nil, true
	return mapping{h}, nil
}

type mapping struct{ h *handle }

var _ store.Tracker = mapping{}

func (m mapping) Bytes() []byte { return m.h.n.mapped }

func (m mapping) Flush(off, k int) error {
	m.h.d.mu.Lock()
	defer m.h.d.mu.Unlock()
	m.h.d.power()
	_, err := m.h.check(Sync, 0)
	m.h.n.flush(off, k, err != nil)
	if err != nil {
		m.h.d.syncFailed()
		return err
	}
	m.h.n.synced = m.h.n.size // msync is fdatasync, which keeps a size that is needed to read the data
	return nil
}

// Dirty has the kernel take pages for written.
func (m mapping) Dirty(off, k int) {
	m.h.d.mu.Lock()
	defer m.h.d.mu.Unlock()
	for i := off / page; i*page < off+k; i++ {
		delete(m.h.n.clean, i)
	}
}

// Track has the program say what it writes, but for n bytes from off on.
func (m mapping) Track(off, n int) {
	m.h.d.mu.Lock()
	defer m.h.d.mu.Unlock()
	d := &m.h.n.differs
	d.blind, d.untold, d.untoldEnd = false, off, off+n
}

// Wrote says what it writes.
func (m mapping) Wrote(off, n int) {
	m.h.d.mu.Lock()
	defer m.h.d.mu.Unlock()
	m.h.n.differs.add(off, off+n)
}

// Unmap ends the mapping of a program that stopped: what it wrote is in the kernel's memory.
func (m mapping) Unmap() error {
	m.h.d.mu.Lock()
	defer m.h.d.mu.Unlock()
	m.h.n.cached, m.h.n.mapped = m.h.n.mapped, nil
	return nil
}
