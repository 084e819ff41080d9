package sim

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

// outstandingOffloads is the number of offload commands that a host has under way for
// one job unless the scenario says otherwise: the depth of ESXi's data mover.
const outstandingOffloads = 32

func (j *job) depth() int {
	if j.spec.Outstanding > 0 {
		return j.spec.Outstanding
	}
	return outstandingOffloads
}

// zero makes an eager zeroed disk: every block of it is zeroed, in order.
func (j *job) zero(d *device) {
	if !*d.h.spec.VAAI.Init || d.noInit {
		// The mover's window goes over the whole disk, not block by block.
		at := uint64(0)
		const chunk = 64 * blockBytes
		var next func()
		next = func() {
			n := min(chunk, j.total-at)
			j.bytes = at
			if n == 0 || !j.running {
				j.stop()
				return
			}
			at += n
			began := j.r.exec.Now()
			d.writeZeros(at-n, n, func() {
				j.ios++
				j.observe(n, began)
				next()
			})
		}
		next()
		return
	}
	at := uint64(0)
	j.pump(func(done func(uint64)) bool {
		if at >= j.total || !j.running {
			return false
		}
		n := min(blockBytes, j.total-at)
		at += n
		began := j.r.exec.Now()
		d.zeroRange(at-n, n, func() {
			j.observe(n, began)
			done(n)
		})
		return true
	})
}

// observe books the response time of one operation.
func (j *job) observe(bytes uint64, began int64) {
	wait := j.r.exec.Now() - began
	j.count(bytes, wait)
	j.phase[1].ios++
	j.phase[1].wait += wait
	j.phase[1].end = j.r.now()
	record(j.latency, wait)
}

// pump keeps as many operations under way as the job's depth says. one starts the next and
// tells whether there was one; the job ends when none is left.
func (j *job) pump(one func(done func(bytes uint64)) bool) {
	inside := false
	var more func()
	ended := func(n uint64) {
		j.flying--
		j.bytes += n
		j.ios++
		more()
	}
	more = func() {
		if inside {
			return
		}
		inside = true
		for j.flying < j.depth() {
			j.flying++
			if !one(ended) {
				j.flying--
				break
			}
		}
		inside = false
		if j.flying == 0 {
			j.stop()
		}
	}
	more()
}

// unmap deletes a file: UNMAP of its blocks, in the order of their addresses.
func (j *job) unmap(d *device) {
	ranges := max(1, j.spec.Ranges)
	per := uint64(blockBytes)
	if j.spec.IO != 0 {
		per = uint64(j.spec.IO)
	}
	at := uint64(0)
	j.pump(func(done func(uint64)) bool {
		if at >= j.total || !j.running {
			return false
		}
		bs := uint64(d.v.info.BlockSize)
		list := make([]byte, 8, 8+16*ranges)
		be := binary.BigEndian
		sum := uint64(0)
		for range ranges {
			n := min(per, j.total-at)
			if n == 0 {
				break
			}
			list = be.AppendUint64(list, at/bs)
			list = be.AppendUint32(list, uint32(n/bs))
			list = append(list, 0, 0, 0, 0)
			at += n
			sum += n
		}
		be.PutUint16(list, uint16(len(list)-2))
		be.PutUint16(list[2:], uint16(len(list)-8))
		c := d.get(func(c *command) {
			if c.failed || c.aborted {
				d.top.DeleteF++
				j.failed++
			} else {
				d.top.Delete++
				d.top.MBDel += sum
				d.top.DeleteWait += j.r.exec.Now() - c.issued
			}
			done(sum)
		})
		b := c.cdb[:10]
		clear(b)
		b[0] = 0x42
		be.PutUint16(b[7:], uint16(len(list)))
		c.task.CDB = b
		c.out[0] = list
		c.task.DataOut = c.out[:]
		c.issue()
		return true
	})
}

// clone copies the beginning of one LUN to another: by EXTENDED COPY, or by the
// host's own mover where that is off, was refused, or the LUNs are of two arrays.
func (j *job) clone(from, to *device) {
	size := j.transferSize(from)
	at := uint64(0)
	offload := *j.h.spec.VAAI.Move && (j.spec.Offload == nil || *j.spec.Offload)
	if !offload {
		size = uint64(j.h.spec.Mover.Size)
	}
	j.pump(func(done func(uint64)) bool {
		if at >= j.total || !j.running {
			return false
		}
		n := min(size, j.total-at)
		at += n
		if offload && !to.noMove && from.p == to.p {
			j.copyRange(from, to, at-n, n, done)
		} else {
			j.moveRange(from, to, at-n, n, done)
		}
		return true
	})
}

// transferSize is what one EXTENDED COPY of this host covers.
func (j *job) transferSize(d *device) uint64 {
	v := &j.h.spec.VAAI
	if v.Reported {
		return uint64(v.Largest)
	}
	return uint64(v.MaxTransfer)
}

// segmentBytes bounds a segment: its 16-bit number of blocks, in whole MiB.
func segmentBytes(blockSize uint32) uint64 {
	return min(uint64(blockSize)*0xFFFF&^(blockBytes-1), 30<<20)
}

// copyRange sends one EXTENDED COPY(LID1); if it fails, the host copies the range itself.
func (j *job) copyRange(from, to *device, off, n uint64, done func(uint64)) {
	be := binary.BigEndian
	bs := uint64(from.v.info.BlockSize)
	list := make([]byte, 16, 16+64+28*8)
	list[1] = 3 << 3 // LIST ID USAGE: none is held
	be.PutUint16(list[2:], 64)
	for _, v := range []*volume{from.v, to.v} {
		var d [32]byte
		d[0], d[4], d[5], d[7] = 0xE4, 1, 3, 16 // binary, NAA
		copy(d[8:], v.info.NAA[:])
		be.PutUint32(d[28:], v.info.BlockSize)
		list = append(list, d[:]...)
	}
	most := segmentBytes(from.v.info.BlockSize)
	for at := uint64(0); at < n; {
		k := min(most, n-at)
		var s [28]byte
		s[0], s[3] = 0x02, 0x18
		be.PutUint16(s[6:], 1)
		be.PutUint16(s[10:], uint16(k/bs))
		be.PutUint64(s[12:], (off+at)/bs)
		be.PutUint64(s[20:], (off+at+uint64(j.spec.Skew))/bs)
		list = append(list, s[:]...)
		at += k
	}
	be.PutUint32(list[8:], uint32(len(list)-80))
	c := to.get(func(c *command) {
		if c.failed || c.aborted {
			to.top.CloneF++
			j.failed++
			if c.unsupported() {
				to.noMove = true
			}
			j.r.event("job %s: XCOPY of %d MiB failed with sense %06x; the host copies it", j.spec.Name, n>>20, c.sense)
			j.moveRange(from, to, off, n, done)
			return
		}
		wait := j.r.exec.Now() - c.issued
		from.top.CloneRd++
		from.top.MBCRd += n
		to.top.CloneWr++
		to.top.MBCWr += n
		to.top.CloneWait += wait
		j.observe(n, c.issued)
		done(n)
	})
	b := c.cdb[:16]
	clear(b)
	b[0] = opExtendedCopy
	be.PutUint32(b[10:], uint32(len(list)))
	c.task.CDB = b
	c.out[0] = list
	c.task.DataOut = c.out[:]
	c.from, c.copied = from, block.Range{Start: off / block.SectorSize, Count: n / block.SectorSize}
	c.off, c.bytes, c.write = off+uint64(j.spec.Skew), n, true
	c.issue()
	if t := j.spec.Timeout; t > 0 {
		c.expire(int64(t), j)
	}
}

// moveRange copies a range by reads and writes, one after the other.
func (j *job) moveRange(from, to *device, off, n uint64, done func(uint64)) {
	end, whole := off+n, n
	var next func()
	next = func() {
		if off >= end {
			done(whole)
			return
		}
		k := min(uint64(j.h.spec.Mover.Size), end-off)
		rd := from.get(func(c *command) {
			c.countIO(j.r.exec.Now())
			data := c.task.DataIn
			wr := to.get(func(c *command) {
				c.countIO(j.r.exec.Now())
				off += k
				next()
			})
			wr.rw(true, off+uint64(j.spec.Skew), k)
			if len(data) > 0 {
				wr.out[0] = data[0]
			}
			wr.issue()
		})
		rd.rw(false, off, k)
		if to.v.sys.spec.Store == "memory" {
			rd.task.Bufs = heapBuffers{}
		}
		rd.issue()
	}
	next()
}
