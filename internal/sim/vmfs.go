package sim

import (
	"encoding/binary"
	"fmt"
)

// blockBytes is the file block of VMFS: the unit of allocation and of zeroing.
const blockBytes = 1 << 20

// lockBlocks is the number of blocks that a thin disk takes from a resource cluster
// under one on-disk lock.
const lockBlocks = 200

// Disk kinds.
const (
	diskRaw   = "raw"
	diskEager = "eager"
	diskLazy  = "lazy"
	diskThin  = "thin"
)

// State of a block of a disk.
const (
	blockFresh = iota // not zeroed since it was allocated
	blockBusy         // being zeroed
	blockReady
)

// disk is a virtual disk on a VMFS-like file system of one LUN: lazy zeroed and thin
// ones zero a block before the first guest write to it, and guests wait. The file
// is contiguous from the start of the LUN on.
type disk struct {
	d     *device
	kind  string
	bytes uint64
	state []uint8 // by block; nil for raw disks and eager ones that are made
	left  uint64  // blocks that are not ready
	// waiting are the guest's commands by the block that they wait for.
	waiting map[uint64]*waiters
	full    int64 // when the last block was ready, in the run's time; -1
	locks   uint64
}

// waiters is a FIFO of commands.
type waiters struct{ head, tail *command }

func (w *waiters) push(c *command) {
	c.next = nil
	if w.tail == nil {
		w.head = c
	} else {
		w.tail.next = c
	}
	w.tail = c
}

func newDisk(d *device, kind string, bytes uint64) (*disk, error) {
	size := d.v.info.Sectors * 512
	if bytes == 0 {
		bytes = size
	}
	if bytes > size || kind != diskRaw && bytes%blockBytes != 0 {
		return nil, fmt.Errorf("a disk of %d bytes on volume %s of %d; disks must be whole MiB and fit", bytes, d.v.name, size)
	}
	k := &disk{d: d, kind: kind, bytes: bytes, full: -1}
	if kind == diskLazy || kind == diskThin {
		k.left = bytes / blockBytes
		k.state = make([]uint8, k.left)
		k.waiting = map[uint64]*waiters{}
	}
	return k, nil
}

// submit carries out a guest's read or write, whose command is made already.
func (k *disk) submit(c *command) {
	if k.left > 0 {
		for b := c.off / blockBytes; b <= (c.off+c.bytes-1)/blockBytes; b++ {
			if k.state[b] == blockReady {
				continue
			}
			if !c.write {
				// The file system answers reads of what was never written itself.
				k.d.h.r.exec.Post(c.finish)
				return
			}
			w := k.waiting[b]
			if w == nil {
				w = &waiters{}
				k.waiting[b] = w
			}
			w.push(c)
			if k.state[b] == blockFresh {
				k.state[b] = blockBusy
				k.prepare(b)
			}
			return
		}
	}
	c.send()
}

// send is issue for a command whose response time began when the guest gave it.
func (c *command) send() {
	c.h.cmds++
	c.transmit()
}

// prepare makes a block ready: a thin disk allocates it under a lock, then it is zeroed.
func (k *disk) prepare(b uint64) {
	if k.kind == diskThin && k.locks%lockBlocks == 0 {
		k.locks++
		k.lock(func() { k.zero(b) })
		return
	}
	if k.kind == diskThin {
		k.locks++
	}
	k.zero(b)
}

// lock takes an on-disk lock of the file system: by COMPARE AND WRITE, or by a
// reservation of the whole LUN where that is off or was refused.
func (k *disk) lock(then func()) {
	d := k.d
	if !*d.h.spec.VAAI.Locking || d.noLocking {
		d.simple([]byte{0x16, 0, 0, 0, 0, 0}, func(*command) {
			d.simple([]byte{0x17, 0, 0, 0, 0, 0}, func(*command) { then() })
		})
		return
	}
	c := d.get(func(c *command) {
		if c.failed || c.aborted {
			d.top.ATSF++
			d.noLocking = d.noLocking || c.unsupported()
			d.h.r.event("host %s volume %s: ATS failed with sense %06x", d.h.name, d.v.name, c.sense)
		} else {
			d.top.ATS++
			d.top.ATSWait += d.h.r.exec.Now() - c.issued
		}
		then()
	})
	bs := uint64(d.v.info.BlockSize)
	b := c.cdb[:16]
	clear(b)
	// The lock's sector is the last of the LUN; it holds zeros before and after, which keeps
	// it out of the way of what guests verify.
	b[0], b[13] = 0x89, 1
	binary.BigEndian.PutUint64(b[2:], d.v.info.Sectors*512/bs-1)
	c.task.CDB = b
	c.out[0] = zeros[:2*bs]
	c.task.DataOut = c.out[:]
	c.issue()
}

// simple sends a command without data.
func (d *device) simple(cdb []byte, done func(*command)) {
	c := d.get(done)
	c.task.CDB = append(c.cdb[:0], cdb...)
	c.issue()
}

// zero zeroes a block, by WRITE SAME or by writes.
func (k *disk) zero(b uint64) {
	k.d.zeroRange(b*blockBytes, blockBytes, func() {
		k.state[b] = blockReady
		if k.left--; k.left == 0 {
			k.full = k.d.h.r.now()
		}
		w := k.waiting[b]
		delete(k.waiting, b)
		for c := w.head; c != nil; {
			next := c.next
			c.next = nil
			k.submit(c)
			c = next
		}
	})
}

// zeroRange makes a range of the LUN zeros and then calls done.
func (d *device) zeroRange(off, bytes uint64, done func()) {
	if !*d.h.spec.VAAI.Init || d.noInit {
		d.writeZeros(off, bytes, done)
		return
	}
	c := d.get(func(c *command) {
		if c.failed || c.aborted {
			d.top.ZeroF++
			if c.unsupported() && !d.noInit {
				d.noInit = true
				d.h.r.event("host %s volume %s: WRITE SAME is not supported (sense %06x); zeroing by writes from now on", d.h.name, d.v.name, c.sense)
			}
			d.writeZeros(off, bytes, done)
			return
		}
		d.top.Zero++
		d.top.MBZero += bytes
		d.top.ZeroWait += d.h.r.exec.Now() - c.issued
		done()
	})
	c.writeSame(off, bytes)
	c.issue()
}

// writeZeros is zeroRange by plain writes: the host's data mover.
func (d *device) writeZeros(off, bytes uint64, done func()) {
	m := d.h.spec.Mover
	end := off + bytes
	flying := 0
	var more func()
	one := func(c *command) {
		c.countIO(d.h.r.exec.Now())
		flying--
		more()
	}
	more = func() {
		for off < end && flying < m.Outstanding {
			n := min(uint64(m.Size), end-off)
			c := d.get(one)
			c.rw(true, off, n)
			off += n
			flying++
			c.issue()
		}
		if flying == 0 && off >= end {
			done()
		}
	}
	more()
}
