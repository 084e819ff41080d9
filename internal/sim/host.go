package sim

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// host is an initiator: one port, with a link and a session to each array.
type host struct {
	r       *Run
	name    string
	spec    HostSpec
	paths   []*path
	devices []*device // in the order of Run.volumes
	free    *command
	wire    [2]uint64 // bytes of data in, out
	cmds    uint64
	bufs    buffers
	serial  uint64 // of the last command with a timeout
}

// path is a host's way to an array.
type path struct {
	sys   *system
	nexus *scsi.Nexus
	link
	via *link // of the node that forwards; nil: the host is at the owner
}

// device is a LUN as a host knows it.
type device struct {
	h   *host
	p   *path
	v   *volume
	lun uint64 // as SAM writes it
	top esxtop
	// cache, if there is one, takes what guests send.
	cache *cached
	// Primitives that the array refused as unsupported are not tried again.
	noInit, noMove, noLocking bool
}

// esxtop is a device's VAAI statistics by the names that esxtop has: counts since
// the start, and sums of latency and of described bytes for its averages and rates.
type esxtop struct {
	ATS, ATSF, CloneRd, CloneWr, CloneF, Zero, ZeroF, Delete, DeleteF uint64
	MBCRd, MBCWr, MBZero, MBDel                                       uint64 // bytes
	ATSWait, CloneWait, ZeroWait, DeleteWait                          int64  // nanoseconds, of those that succeeded
}

// command is one SCSI command on its way. It comes from the host's pool and goes back
// when done returns.
type command struct {
	h    *host
	d    *device
	task scsi.Task
	cdb  [32]byte
	out  [1][]byte
	one  [1]*scsi.Task
	done func(*command)
	// What the owner keeps with it.
	load    *load
	later   bool // of a load with several laps: of the second or one after it
	disk    *disk
	tx      *session
	replay  *replayIO
	below   *block.Request // of the cache that the command is for
	from    *device        // source of an EXTENDED COPY
	copied  block.Range    // of it
	held    bool           // the source's cache has destaged it
	off     uint64         // bytes on the LUN
	bytes   uint64
	write   bool
	issued  int64
	serial  uint64
	reply   uint64 // bytes of Data-In
	failed  bool
	aborted bool
	sense   uint32 // 0xKKAAQQ of a CHECK CONDITION
	tries   int

	// forward and back are steps at the node that forwards, to the array and from it.
	forward, arrive, back, finish func()
	next                          *command
}

// buffers hands out memory for Data-In. Without payload everybody reads into the same.
type buffers struct{ shared []byte }

func (b *buffers) Get(n int) []byte {
	if len(b.shared) < n {
		b.shared = make([]byte, n)
	}
	return b.shared[:n]
}

// heapBuffers gives each read its own memory, for those that look at it.
type heapBuffers struct{}

func (heapBuffers) Get(n int) []byte { return make([]byte, n) }

func (r *Run) newHost(spec HostSpec) (*host, error) {
	h := &host{r: r, name: spec.Name, spec: spec}
	for _, y := range r.arrays {
		name := "iqn.2026-01.io.arraysim:" + spec.Name
		p := &path{sys: y, nexus: y.target.OpenNexus(name, name+",i,0x00023d000001", 1),
			link: link{bandwidth: uint64(y.p.Link.Bandwidth), command: int64(y.p.Link.Command), latency: int64(y.p.Link.Latency)}}
		h.paths = append(h.paths, p)
		for _, v := range y.vols {
			lun := uint64(v.lun)
			if lun > 255 {
				lun |= 0x4000
			}
			h.devices = append(h.devices, &device{h: h, p: p, v: v, lun: lun << 48})
		}
	}
	return h, h.findNode()
}

// reset forgets what preparation counted.
func (h *host) reset() {
	h.wire, h.cmds = [2]uint64{}, 0
	for _, d := range h.devices {
		d.top = esxtop{}
	}
}

func (h *host) device(v *volume) *device {
	for _, d := range h.devices {
		if d.v == v {
			return d
		}
	}
	return nil
}

// get takes a command from the pool.
func (d *device) get(done func(*command)) *command {
	h := d.h
	c := h.free
	if c == nil {
		c = &command{h: h}
		c.one[0] = &c.task
		c.task.Bufs = &h.bufs
		c.task.Attr = scsi.AttrSimple
		c.task.Done = c.ended
		c.arrive = func() { c.d.p.nexus.Submit(c.one[:]) }
		c.finish = c.complete
		c.forward, c.back = c.forwarded, c.answered
	} else {
		h.free = c.next
	}
	c.d, c.done = d, done
	c.task.LUN = d.lun
	c.task.DataOut, c.task.MaxIn = nil, 0
	c.task.Status, c.task.Aborted, c.task.Sense = scsi.StatusGood, false, nil
	c.load, c.disk, c.tx, c.replay, c.below, c.from, c.held, c.next = nil, nil, nil, nil, nil, nil, false, nil
	c.failed, c.aborted, c.sense, c.tries = false, false, 0, 0
	return c
}

func (h *host) put(c *command) {
	c.next = h.free
	h.free = c
}

// issue sends a command on its way.
func (c *command) issue() {
	c.issued = c.h.r.exec.Now()
	c.h.cmds++
	c.transmit()
}

func (c *command) transmit() {
	if c.from != nil && c.from.cache != nil && !c.held {
		c.holdSource()
		return
	}
	if k := c.d.cache; k != nil && c.below == nil {
		k.submit(c)
		return
	}
	c.around()
}

// around sends a command to the array, whether there is a cache or not.
func (c *command) around() {
	p, x := c.d.p, c.h.r.exec
	now := x.Now()
	bytes := uint64(block.VecLen(c.task.DataOut))
	c.h.wire[1] += bytes
	next := c.arrive
	if p.via != nil {
		next = c.forward
	}
	if t := p.send(&p.out, now, p.command, bytes); t > now {
		x.CallIn(block.LaneOut, t, next)
		return
	}
	x.Post(next)
}

// forwarded: the command is at a node, which sends it to the owner.
func (c *command) forwarded() {
	l, x := c.d.p.via, c.h.r.exec
	x.CallIn(block.LaneOut, l.send(&l.out, x.Now(), l.command, uint64(block.VecLen(c.task.DataOut))), c.arrive)
}

// ended is the task's Done: the response goes back over the link.
func (c *command) ended(t *scsi.Task) {
	x := c.h.r.exec
	c.reply = uint64(block.VecLen(t.DataIn))
	c.h.wire[0] += c.reply
	if l := c.d.p.via; l != nil {
		x.CallIn(block.LaneIn, l.send(&l.in, x.Now(), 0, c.reply), c.back)
		return
	}
	c.answered()
}

// answered: the response goes to the host, from the owner or from the node that forwards.
func (c *command) answered() {
	p, x := c.d.p, c.h.r.exec
	now := x.Now()
	if t := p.send(&p.in, now, 0, c.reply); t > now {
		x.CallIn(block.LaneIn, t, c.finish)
		return
	}
	c.complete()
}

// Sense codes that initiators act upon.
const (
	senseUnitAttention = 0x06
	senseIllegal       = 0x05
	invalidOpcode      = 0x052000
	invalidField       = 0x052400
)

const (
	busyRetry = 10_000_000 // nanoseconds after BUSY and TASK SET FULL
	maxTries  = 64
)

// complete looks at the outcome: what an initiator's mid layer retries is sent again.
func (c *command) complete() {
	t := &c.task
	switch {
	case t.Aborted:
		c.aborted = true
	case t.Status == scsi.StatusGood:
	case t.Status == scsi.StatusCheckCondition:
		c.sense = senseOf(t.Sense)
		if c.sense>>16 == senseUnitAttention && c.tries < maxTries {
			c.tries++
			c.transmit()
			return
		}
		c.failed = true
	case (t.Status == scsi.StatusBusy || t.Status == scsi.StatusTaskSetFull) && c.tries < maxTries:
		c.tries++
		c.h.r.exec.Call(c.h.r.exec.Now()+busyRetry, c.transmit)
		return
	case t.Status == scsi.StatusTaskAborted:
		c.aborted = true
	default:
		c.failed = true
	}
	c.finished()
}

// finished hands the outcome to the command's owner.
func (c *command) finished() {
	c.serial, c.task.Tag = 0, 0
	c.done(c)
	c.h.put(c)
}

// senseOf returns key, additional code and qualifier of fixed or descriptor sense data.
func senseOf(b []byte) uint32 {
	switch {
	case len(b) >= 4 && b[0]&0x7F >= 0x72:
		return uint32(b[1]&0x0F)<<16 | uint32(b[2])<<8 | uint32(b[3])
	case len(b) >= 14:
		return uint32(b[2]&0x0F)<<16 | uint32(b[12])<<8 | uint32(b[13])
	}
	return 0
}

// unsupported tells whether the array said that it does not know the command: the
// host does not try the primitive again on this device.
func (c *command) unsupported() bool { return c.sense == invalidOpcode || c.sense == invalidField }

// rw makes a READ(16) or WRITE(16). off and bytes are on the LUN.
func (c *command) rw(write bool, off, bytes uint64) {
	bs := uint64(c.d.v.info.BlockSize)
	op := byte(0x88)
	c.write, c.off, c.bytes = write, off, bytes
	c.task.DataOut, c.task.MaxIn = nil, int(bytes)
	if write {
		op = 0x8A
		c.out[0] = zeros[:bytes]
		c.task.DataOut, c.task.MaxIn = c.out[:], 0
	}
	c.cdb16(op, 0, off/bs, uint32(bytes/bs))
}

func (c *command) cdb16(op, b1 byte, lba uint64, n uint32) {
	b := c.cdb[:16]
	clear(b)
	b[0], b[1] = op, b1
	binary.BigEndian.PutUint64(b[2:], lba)
	binary.BigEndian.PutUint32(b[10:], n)
	c.task.CDB = b
}

// writeSame makes a WRITE SAME(16) of zeros, with the block of zeros that ESXi sends.
func (c *command) writeSame(off, bytes uint64) {
	bs := uint64(c.d.v.info.BlockSize)
	c.write, c.off, c.bytes = true, off, bytes
	c.out[0] = zeros[:bs]
	c.task.DataOut = c.out[:]
	c.cdb16(0x93, 0, off/bs, uint32(bytes/bs))
}

// countIO books a read or write of the volume as hosts see it: with a cache, what the cache
// sends, and not what guests do.
func (c *command) countIO(now int64) {
	if c.d.cache != nil && c.below == nil {
		return
	}
	dir := 0
	if c.write {
		dir = 1
	}
	s := &c.d.v.host
	s.ops[dir]++
	s.bytes[dir] += c.bytes
	s.wait[dir] += now - c.issued
	if r := c.h.r; r.watch != nil {
		r.watch(IO{Issued: c.issued - r.start, Done: now - r.start, Write: c.write, Offset: c.off, Bytes: c.bytes, Volume: c.d.v.name, Host: c.h.name})
	}
}
