// COMPARE AND WRITE and ORWRITE read, decide and write as one: under a lock on their range, which
// keeps writes and edits of the map out until they have ended.

package request

import (
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// lock takes the exclusive lock of a compare-and-write and goes on with its read. While it waited for the
// lock its volume may have become smaller: then there is nothing to compare with.
func (o *op) lock() {
	v := o.v
	if s := o.barred(); s != block.OK {
		o.end(s)
		return
	}
	if o.lacksLeaf() {
		return
	}
	if v.conflict(o, o.req.Range) {
		o.await(&v.lockWait)
		return
	}
	v.locks = append(v.locks, o)
	n := int(o.req.Range.Bytes())
	if cap(o.buf) < n {
		o.buf = make([]byte, n)
	}
	o.buf = o.buf[:n]
	o.to(fetching)
	if o.fns.compare == nil {
		o.fns.compare = o.compare
	}
	o.e.readInto(o, o.buf, o.fns.compare)
}

// compare compares or combines what was read and writes the result under the lock.
func (o *op) compare(s block.Status) {
	r := o.req
	if s == block.OK && o.state == unwanted {
		s = block.Cancelled
	}
	o.to(running)
	if s != block.OK {
		o.end(s)
		return
	}
	if o.e.payload {
		switch r.Op {
		case block.OpCompareWrite:
			if i := block.MismatchVec(o.buf, r.Compare); i >= 0 {
				r.Offset = uint64(i)
				o.end(block.Miscompare)
				return
			}
			o.src = block.Cursor{Vec: r.Data}
		case block.OpOrWrite:
			block.Or(o.buf, r.Data)
			o.src = block.Cursor{Vec: [][]byte{o.buf}}
		}
	}
	e := o.e // o may be gone when write returns
	o.write(false)
	e.EndStep()
}

// conflict reports whether somebody else has locked a part of a range.
func (v *Volume) conflict(o *op, r block.Range) bool {
	return slices.ContainsFunc(v.locks, func(l *op) bool { return l != o && l.req.Range.Overlaps(r) })
}

// unlock gives the lock of an op back, if it has one, and lets those go on that wait for a lock:
// what is in their way, if anything, they find out themselves.
func (v *Volume) unlock(o *op) {
	if i := slices.Index(v.locks, o); i >= 0 {
		v.locks = slices.Delete(v.locks, i, i+1)
		v.lockWait.WakeAll()
	}
}
