// Package scsitest has a naive [block.Device] with fault injection and a suite of
// cases that check a SCSI device server through a small Initiator interface, so
// that the same cases run over every front end.
package scsitest

import (
	"bytes"
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
)

// Device is a block.Device in memory that does everything in the plainest way:
// bytes in one slice, a state for each sector. It belongs to its executor.
type Device struct {
	Exec   block.Executor
	Data   []byte
	States []block.State

	// Fault, when set, is asked before each request; a status other than OK ends
	// the request with it.
	Fault func(*block.Request) block.Status
	// Hold keeps requests waiting until Release; Cancel works on these, unless the device is Deaf.
	Hold bool
	Deaf bool
	// Delay, in nanoseconds, is how long each request takes.
	Delay int64
	// Late, in nanoseconds, is how long after its submission a request is carried out; one that
	// has been submitted runs to its end, Cancel does not reach it.
	Late int64

	// Batches has the size of each Submit, Seen counts requests by operation,
	// Refs counts references that are not released.
	Batches []int
	Seen    [block.NumOps]int
	Refs    int
	// Changed, if it is there, is what references answer that are asked whether what they refer to has changed.
	Changed func() bool

	info    block.Info
	waiting []*block.Request
	hear    []func(block.Event)
	gone    bool
}

// Ready are values of Info for a volume: serial and NAA-6 name follow from id.
func Ready(id uint32, sectors uint64, blockSize uint32, thin bool) block.Info {
	info := block.Info{
		Name: "vol" + string(rune('0'+id%10)), ID: id, Pool: "pool0", Sectors: sectors, BlockSize: blockSize,
		Thin: thin, GranuleSectors: 8, AtomicSectors: 64, CopyDomain: "pool0",
	}
	if blockSize == block.SectorSize {
		info.PhysicalExp = 3
	}
	info.NAA[0], info.NAA[1], info.NAA[2], info.NAA[3] = 0x60, 0x12, 0x34, 0x50
	binary.BigEndian.PutUint32(info.NAA[12:], id)
	info.Serial = string(binary.BigEndian.AppendUint32(nil, 0x30303030+id)) + "SERIAL"
	return info
}

// NewDevice makes a device of zeros.
func NewDevice(exec block.Executor, info block.Info) *Device {
	return &Device{Exec: exec, info: info, Data: make([]byte, info.Sectors<<block.SectorShift), States: make([]block.State, info.Sectors)}
}

// Info returns the description.
func (d *Device) Info() block.Info { return d.info }

// Notify registers fn.
func (d *Device) Notify(fn func(block.Event)) { d.hear = append(d.hear, fn) }

// Change edits the description and sends an event.
func (d *Device) Change(kind block.EventKind, edit func(*block.Info)) {
	if edit != nil {
		edit(&d.info)
	}
	if n := int(d.info.Sectors); n > len(d.States) {
		d.Data = append(d.Data, make([]byte, (n-len(d.States))<<block.SectorShift)...)
		d.States = append(d.States, make([]block.State, n-len(d.States))...)
	}
	d.gone = d.gone || kind == block.EventGone
	for _, fn := range d.hear {
		fn(block.Event{Kind: kind})
	}
}

// Submit carries the requests out at once and completes them later.
func (d *Device) Submit(reqs []*block.Request) {
	d.Batches = append(d.Batches, len(reqs))
	for _, r := range reqs {
		d.Seen[r.Op]++
		if d.Hold {
			d.waiting = append(d.waiting, r)
			continue
		}
		if d.Late > 0 {
			d.Exec.At(d.Exec.Now()+d.Late, func() { d.start(r) })
			continue
		}
		d.start(r)
	}
}

func (d *Device) start(r *block.Request) {
	r.Status = block.OK
	switch {
	case d.gone:
		r.Status = block.Gone
	case d.Fault != nil:
		r.Status = d.Fault(r)
	}
	if r.Status == block.OK {
		r.Status = d.do(r)
	}
	if d.Delay > 0 {
		d.Exec.At(d.Exec.Now()+d.Delay, func() { r.Done(r) })
		return
	}
	d.Exec.Post(func() { r.Done(r) })
}

// Waiting returns the number of held requests.
func (d *Device) Waiting() int { return len(d.waiting) }

// Release starts the first n of the held requests.
func (d *Device) Release(n int) {
	run := d.waiting[:n:n]
	d.waiting = d.waiting[n:]
	for _, r := range run {
		d.start(r)
	}
}

// Cancel withdraws a held request.
func (d *Device) Cancel(r *block.Request) {
	if d.Deaf {
		return
	}
	for i, w := range d.waiting {
		if w == r {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			r.Status = block.Cancelled
			d.Exec.Post(func() { r.Done(r) })
			return
		}
	}
}

func (d *Device) bytes(r block.Range) []byte {
	return d.Data[r.Start<<block.SectorShift : r.End()<<block.SectorShift]
}

func (d *Device) set(r block.Range, s block.State) {
	for i := r.Start; i < r.End(); i++ {
		d.States[i] = s
	}
}

func (d *Device) unmap(r block.Range, anchor bool) {
	clear(d.bytes(r))
	if anchor {
		d.set(r, block.Anchored)
	} else {
		d.set(r, block.Unmapped)
	}
}

type ref struct {
	d    *Device
	data []byte
	held bool
}

func (r *ref) Sectors() uint64 { return uint64(len(r.data)) >> block.SectorShift }

func (r *ref) Release() {
	if !r.held {
		panic("scsitest: reference released twice")
	}
	r.held = false
	r.d.Refs--
}

// vulnerable is a reference of a device that cannot keep what it refers to.
type vulnerable struct{ *ref }

func (v vulnerable) Changed() bool { return v.d.Changed() }

func join(v [][]byte) []byte { return bytes.Join(v, nil) }

func (d *Device) do(r *block.Request) block.Status {
	for _, x := range append([]block.Range{r.Range}, r.Ranges...) {
		if !x.Within(d.info.Sectors) {
			return block.OutOfRange
		}
	}
	switch r.Op {
	case block.OpRead, block.OpWrite, block.OpOrWrite, block.OpCompareWrite:
		if uint64(block.VecLen(r.Data)) != r.Range.Bytes() {
			panic("scsitest: data is not as long as the range")
		}
	}
	if d.info.ReadOnly && r.Op != block.OpRead && r.Op != block.OpStatus && r.Op != block.OpHold && r.Op != block.OpFlush {
		return block.ReadOnly
	}
	switch r.Op {
	case block.OpRead:
		b := d.bytes(r.Range)
		for _, v := range r.Data {
			b = b[copy(v, b):]
		}
	case block.OpWrite:
		copy(d.bytes(r.Range), join(r.Data))
		d.set(r.Range, block.Data)
	case block.OpOrWrite:
		b := d.bytes(r.Range)
		for i, c := range join(r.Data) {
			b[i] |= c
		}
		d.set(r.Range, block.Data)
	case block.OpCompareWrite:
		b := d.bytes(r.Range)
		for i, c := range join(r.Compare) {
			if b[i] != c {
				r.Offset = uint64(i)
				return block.Miscompare
			}
		}
		copy(b, join(r.Data))
		d.set(r.Range, block.Data)
	case block.OpWriteSame:
		switch {
		case r.Data != nil:
			b, p := d.bytes(r.Range), join(r.Data)
			if len(p) != int(d.info.BlockSize) {
				panic("scsitest: the pattern is not one block")
			}
			for len(b) > 0 {
				b = b[copy(b, p):]
			}
			d.set(r.Range, block.Data)
		case r.Flags&block.Deallocate != 0:
			d.unmap(r.Range, r.Flags&block.Anchor != 0)
		default:
			clear(d.bytes(r.Range))
			d.set(r.Range, block.Zero)
		}
	case block.OpUnmap:
		for _, x := range r.Ranges {
			d.unmap(x, r.Flags&block.Anchor != 0)
		}
	case block.OpFlush:
	case block.OpStatus:
		r.Extents = r.Extents[:0]
		for at := r.Range.Start; at < r.Range.End(); {
			end := at
			for end < r.Range.End() && d.States[end] == d.States[at] {
				end++
			}
			if len(r.Extents) == cap(r.Extents) {
				break
			}
			r.Extents = append(r.Extents, block.Extent{Range: block.Range{Start: at, Count: end - at}, State: d.States[at]})
			at = end
		}
	case block.OpHold:
		h := &ref{d: d, held: true}
		for _, x := range r.Ranges {
			h.data = append(h.data, d.bytes(x)...)
		}
		d.Refs++
		r.Ref = h
		if d.Changed != nil {
			r.Ref = vulnerable{h}
		}
	case block.OpPlace:
		h, ok := r.Ref.(*ref)
		if !ok {
			h = r.Ref.(vulnerable).ref
		}
		if !h.held {
			panic("scsitest: reference used after its release")
		}
		from := r.RefOffset << block.SectorShift
		copy(d.bytes(r.Range), h.data[from:from+r.Range.Bytes()])
		d.set(r.Range, block.Data)
	default:
		return block.Unsupported
	}
	return block.OK
}

var _ block.Device = (*Device)(nil)
