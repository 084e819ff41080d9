package lun

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/block"
)

// File is a local file or block device: a block.Medium, for a flash device, and by Device a block.Device.
type File struct {
	exec block.Executor
	f    *os.File
	size uint64
	dev  bool // a block device

	refs    holds  // of its devices
	revoked uint64 // the number of the last failed sync that these know of
	syncs   syncs
	mu      sync.Mutex
	wake    *sync.Cond // guarded by mu
	jobs    []func()   // guarded by mu
	quit    bool       // guarded by mu
	wg      sync.WaitGroup
}

// fileWorkers is the number of transfers at one time: what a flash device needs to be busy.
const fileWorkers = 16

// OpenFile opens a file or block device. A file that is not there is made with the size, if
// one is given. It is locked against other processes.
func OpenFile(exec block.Executor, path string, size uint64) (*File, error) {
	flags := os.O_RDWR
	if size > 0 {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	x := &File{exec: exec, f: f}
	if err := x.prepare(path, size); err != nil {
		f.Close()
		return nil, err
	}
	x.wake = sync.NewCond(&x.mu)
	x.syncs.init(f)
	for range fileWorkers {
		x.wg.Go(x.work)
	}
	return x, nil
}

func (x *File) prepare(path string, size uint64) error {
	if err := unix.Flock(int(x.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s is in use by another arraysim; stop that one, or choose another", path)
	}
	st, err := x.f.Stat()
	if err != nil {
		return err
	}
	x.dev = st.Mode()&os.ModeDevice != 0
	end, err := x.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	x.size = uint64(end)
	switch {
	case x.size == 0 && size > 0 && !x.dev:
		if err := block.Allocate(int(x.f.Fd()), int64(size)); err != nil {
			if !errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("%s cannot get %d bytes: %w", path, size, err)
			}
			if err := x.f.Truncate(int64(size)); err != nil {
				return err
			}
		}
		x.size = size
	case size > x.size:
		return fmt.Errorf("%s has %d bytes, not %d; leave the size out, or choose another", path, x.size, size)
	case size > 0:
		x.size = size
	}
	x.size &^= block.SectorSize - 1
	if x.size == 0 {
		return fmt.Errorf("%s is empty; give it a size", path)
	}
	return nil
}

func (x *File) work() {
	for {
		x.mu.Lock()
		for len(x.jobs) == 0 && !x.quit {
			x.wake.Wait()
		}
		if len(x.jobs) == 0 {
			x.mu.Unlock()
			return
		}
		job := x.jobs[0]
		x.jobs[0] = nil
		if x.jobs = x.jobs[1:]; len(x.jobs) == 0 {
			x.jobs = nil
		}
		x.mu.Unlock()
		job()
	}
}

func (x *File) enqueue(job func()) {
	x.mu.Lock()
	x.jobs = append(x.jobs, job)
	x.mu.Unlock()
	x.wake.Signal()
}

// Close waits for what is under way.
func (x *File) Close() error {
	x.mu.Lock()
	x.quit = true
	x.mu.Unlock()
	x.wake.Broadcast()
	x.wg.Wait()
	return x.f.Close()
}

// Size implements block.Medium.
func (x *File) Size() uint64 { return x.size }

// Submit implements block.Medium.
func (x *File) Submit(ios []*block.IO) {
	for _, io := range ios {
		x.enqueue(func() {
			io.Err = x.transfer(io.Write, io.Vec, int64(io.Off))
			x.exec.Post(func() { io.Done(io) })
		})
	}
}

// Sync implements block.Medium.
func (x *File) Sync(done func(error)) {
	since := x.syncs.lastFailed()
	x.enqueue(func() {
		err := x.syncs.sync(since)
		x.exec.Post(func() { done(err) })
	})
}

func (x *File) transfer(write bool, vec [][]byte, off int64) error {
	for _, b := range vec {
		var err error
		if write {
			_, err = x.f.WriteAt(b, off)
		} else {
			_, err = x.f.ReadAt(b, off)
		}
		if err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// Device makes a block.Device of the file. Offloads are carried out here: by the file
// system where it can, else by writing.
func (x *File) Device(name string, blockSize uint32) block.Device {
	d := &fileDevice{File: x, info: block.Info{Name: name, Sectors: x.size >> block.SectorShift, BlockSize: blockSize, Thin: true, GranuleSectors: 8,
		CopyDomain: "file", Serial: name[max(0, len(name)-32):]}}
	// Locally assigned NAA: 3, then a hash of the name; stable over restarts.
	h := fnv(name)
	d.info.NAA[0] = 0x60
	be.PutUint64(d.info.NAA[8:], h)
	return d
}

// fnv is FNV-1a, 64 bits.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

type fileDevice struct {
	*File
	info block.Info

	listen []func(block.Event)
	told   uint64 // the number of the last failed sync that listeners were told of
}

func (d *fileDevice) Info() block.Info      { return d.info }
func (d *fileDevice) Cancel(*block.Request) {}

func (d *fileDevice) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if r.Op == block.OpHold {
			h := &fileRef{d: d}
			d.refs.watch(&h.held, r)
			r.Ref = h
			d.exec.Post(func() { d.end(r, block.OK) })
			continue
		}
		d.refs.touch(r)
		since := uint64(0)
		if r.Op == block.OpFlush || r.Flags&block.FUA != 0 {
			since = d.syncs.lastFailed()
		}
		d.enqueue(func() {
			s := d.serve(r, since)
			d.exec.Post(func() { d.end(r, s) })
		})
	}
}

// end reports the end of a request. A reference may have been made while it was under way: nobody
// knows which of the two came first.
func (d *fileDevice) end(r *block.Request, s block.Status) {
	d.refs.touch(r)
	if r.Op == block.OpFlush || r.Flags&block.FUA != 0 {
		d.tell()
	}
	r.Status = s
	r.Done(r)
}

// fileRef is a reference to ranges of a file.
type fileRef struct {
	held
	d *fileDevice
}

// serve carries out a request; since is for a flush or FUA.
func (d *fileDevice) serve(r *block.Request, since uint64) block.Status {
	off := int64(r.Range.Start << block.SectorShift)
	var err error
	bad := block.MediumWrite
	switch r.Op {
	case block.OpRead:
		err, bad = d.transfer(false, r.Data, off), block.MediumRead
	case block.OpWrite:
		err = d.transfer(true, r.Data, off)
	case block.OpCompareWrite:
		want := bytes.Join(r.Compare, nil)
		have := make([]byte, len(want))
		if err = d.transfer(false, [][]byte{have}, off); err == nil {
			for i := range have {
				if have[i] != want[i] {
					r.Offset = uint64(i)
					return block.Miscompare
				}
			}
			err = d.transfer(true, r.Data, off)
		}
	case block.OpWriteSame:
		err = d.same(r)
	case block.OpUnmap:
		for _, g := range r.Ranges {
			err = errors.Join(err, d.zeros(g, true))
		}
	case block.OpStatus:
		r.Extents = append(r.Extents[:0], block.Extent{Range: block.Range{Start: r.Range.Start, Count: d.info.Sectors - r.Range.Start}, State: block.Data})
	case block.OpPlace:
		if s := d.place(r); s != block.OK {
			return s
		}
	case block.OpFlush:
		err = d.syncs.flush(since)
	default:
		return block.Unsupported
	}
	switch {
	case err == nil && r.Flags&block.FUA != 0 && r.Op != block.OpRead:
		err = d.syncs.sync(since)
	case errors.Is(err, unix.ENOSPC):
		return block.NoSpace
	}
	if err != nil {
		return bad
	}
	return block.OK
}

// chunk is what is moved at one time where the kernel cannot do it.
const chunk = 1 << 20

func (d *fileDevice) same(r *block.Request) error {
	b := bytes.Join(r.Data, nil)
	if len(bytes.Trim(b, "\x00")) == 0 {
		return d.zeros(r.Range, r.Flags&block.Deallocate != 0)
	}
	return d.repeat(r.Range, b)
}

func (d *fileDevice) repeat(g block.Range, b []byte) error {
	buf := bytes.Repeat(b, chunk/len(b))
	for off, end := g.Start<<block.SectorShift, g.End()<<block.SectorShift; off < end; off += chunk {
		if _, err := d.f.WriteAt(buf[:min(chunk, end-off)], int64(off)); err != nil {
			return err
		}
	}
	return nil
}

func (d *fileDevice) zeros(g block.Range, release bool) error {
	mode := uint32(unix.FALLOC_FL_ZERO_RANGE)
	if release {
		mode = unix.FALLOC_FL_PUNCH_HOLE
	}
	err := block.Again(func() error {
		return unix.Fallocate(int(d.f.Fd()), mode|unix.FALLOC_FL_KEEP_SIZE, int64(g.Start<<block.SectorShift), int64(g.Bytes()))
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return d.repeat(g, make([]byte, block.SectorSize))
	}
	return err
}

func (d *fileDevice) place(r *block.Request) block.Status {
	h, ok := r.Ref.(*fileRef)
	if !ok {
		return block.Unsupported
	}
	var room [4]move
	parts, ok := moves(room[:0], h.ranges, r.RefOffset, r.Range)
	switch {
	case !ok:
		return block.OutOfRange
	case h.d.File == d.File && !arrange(parts):
		return block.Unsupported
	}
	buf := make([]byte, min(r.Range.Bytes(), chunk))
	for i := range parts {
		for m := &parts[i]; m.count > 0; {
			p := m.take(chunk >> block.SectorShift)
			b := buf[:p.count<<block.SectorShift]
			if h.d.transfer(false, [][]byte{b}, int64(p.src<<block.SectorShift)) != nil {
				return block.MediumRead
			}
			switch err := d.transfer(true, [][]byte{b}, int64(p.dst<<block.SectorShift)); {
			case errors.Is(err, unix.ENOSPC):
				return block.NoSpace
			case err != nil:
				return block.MediumWrite
			}
		}
	}
	return block.OK
}
