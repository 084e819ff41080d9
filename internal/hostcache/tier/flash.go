package tier

import (
	"github.com/arraysim/arraysim/internal/block"
)

// member is a flash device that has the dirty data: the host's own, or a peer's. A
// peer's is a copy of the host's own, at the same offsets, of all that a peer needs
// to take over: the journal, and the data of writes that were acknowledged from flash.
type member struct {
	d      *Disk
	medium block.Medium
	peer   *Peer // nil: the host's own
	// present: it has all that it should have, and gets every write.
	present bool
	wanted  bool // is to become present
	lost    bool

	syncing bool
	due     []*part // wait for the sync after the present one
	riding  []*part // wait for the present one
	stale   bool    // something was written since the last sync
}

// write puts data at a byte offset of the flash; the op hears of it.
func (m *member) write(o *op, off uint64, vec [][]byte) {
	p := m.d.newPart(o)
	p.vec = append(p.vec, vec...)
	m.submit(p, true, off)
}

func (m *member) read(o *op, off uint64, vec [][]byte) {
	p := m.d.newPart(o)
	p.vec = append(p.vec, vec...)
	m.submit(p, false, off)
}

func (m *member) submit(p *part, write bool, off uint64) {
	p.m, p.onFlash = m, true
	p.io = block.IO{Write: write, Off: off, Vec: p.vec, N: uint64(block.VecLen(p.vec)), Ctx: p, Done: flashDone}
	if m.lost {
		p.io.Err = errLost
		m.d.exec.Post(func() { flashDone(&p.io) })
		return
	}
	ios := [1]*block.IO{&p.io}
	m.medium.Submit(ios[:])
}

// flashDone is Done of every transfer of a medium.
func flashDone(io *block.IO) {
	p := io.Ctx.(*part)
	m := p.m
	d := m.d
	if io.Err == nil && io.Write {
		m.stale = true
		if d.opt.PowerSafe {
			m.due = append(m.due, p)
			m.sync()
			return
		}
	}
	m.finish(p, io.Err)
	d.pump()
}

// sync makes what was written survive power loss; writes that end while a sync is
// under way share the next one.
func (m *member) sync() {
	if m.syncing || len(m.due) == 0 {
		return
	}
	m.syncing, m.stale = true, false
	m.riding, m.due = m.due, m.riding[:0]
	m.medium.Sync(func(err error) {
		m.syncing = false
		for i, p := range m.riding {
			m.riding[i] = nil
			m.finish(p, err)
		}
		m.sync()
		m.d.pump()
	})
}

// syncFor is a sync for an op that asks for it.
func (m *member) syncFor(o *op) {
	p := m.d.newPart(o)
	p.m, p.onFlash = m, true
	m.due = append(m.due, p)
	m.sync()
}

func (m *member) finish(p *part, err error) {
	o, d := p.o, m.d
	d.freePart(p)
	if err != nil {
		if m.peer == nil {
			o.flash = true
			d.window.errors.flash++
		}
		d.lose(m)
	}
	o.less()
}

// local is the host's own flash.
func (d *Disk) local() *member { return d.members[0] }

// source is the member that dirty data is read from, nil if none has it any more.
func (d *Disk) source() *member {
	for _, m := range d.members {
		if m.present && !m.lost {
			return m
		}
	}
	return nil
}

// lose goes on without a flash device.
func (d *Disk) lose(m *member) {
	if m.lost {
		return
	}
	was := m.present
	m.lost, m.present = true, false
	if m.peer == nil {
		d.stats.FlashLost++
		d.dropClean()
	} else {
		d.stats.PeersLost++
	}
	if was && d.source() == nil {
		// What was dirty is nowhere any more. It must not be read as what it was before.
		d.loseDirty()
	}
	d.review()
	d.tell(block.EventHealth)
}

// loseDirty makes the dirty sectors unreadable until they are written again.
func (d *Disk) loseDirty() {
	d.eachDirty(block.Range{Count: d.info.Sectors}, func(r block.Range) bool {
		d.damaged.add(r)
		d.stats.LostSectors += r.Count
		return true
	})
	d.dropAll()
}

// flashOffset returns where a sector of a frame is on flash, in bytes.
func (d *Disk) flashOffset(frame uint32, sector int) uint64 {
	return d.dataStart + (uint64(frame)*uint64(d.per)+uint64(sector))<<block.SectorShift
}

// Slice returns n bytes of a medium from off on as a medium: several disks share a
// flash device by slices of it.
func Slice(m block.Medium, off, n uint64) block.Medium { return slice{m, off, n} }

type slice struct {
	block.Medium
	off, n uint64
}

func (s slice) Size() uint64 { return s.n }

func (s slice) Submit(ios []*block.IO) {
	for _, io := range ios {
		io.Off += s.off
	}
	s.Medium.Submit(ios)
}

// OnDevice makes a medium of a device, such as the LUN that a peer lends.
func OnDevice(dev block.Device) block.Medium { return deviceMedium{dev} }

type deviceMedium struct{ dev block.Device }

func (m deviceMedium) Size() uint64 { return m.dev.Info().Sectors << block.SectorShift }

func (m deviceMedium) Submit(ios []*block.IO) {
	reqs := make([]*block.Request, len(ios))
	for i, io := range ios {
		r := &block.Request{Op: block.OpRead, Range: block.Range{Start: io.Off >> block.SectorShift, Count: io.N >> block.SectorShift}, Data: io.Vec, Ctx: io}
		if io.Write {
			r.Op = block.OpWrite
		}
		r.Done = func(r *block.Request) {
			io := r.Ctx.(*block.IO)
			io.Err = statusError(r.Status)
			io.Done(io)
		}
		reqs[i] = r
	}
	m.dev.Submit(reqs)
}

func (m deviceMedium) Sync(done func(error)) {
	m.dev.Submit([]*block.Request{{Op: block.OpFlush, Done: func(r *block.Request) { done(statusError(r.Status)) }}})
}
