package tier

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/lab/plug"
)

// Options describe a Disk.
type Options struct {
	Exec  block.Executor
	Below block.Device
	// LocalBelow: Below is a file or block device of this host. With the host's power it loses what
	// was written and not flushed, and nobody reports that.
	LocalBelow bool
	// Flash is the host's own flash; the disk uses all of it.
	Flash block.Medium
	// Volatile keeps no journal: only a write-through cache is possible then, and it
	// begins empty.
	Volatile bool
	// Format gives up what is on the flash.
	Format bool
	// TakeOver: Flash is what a peer has of a host that is gone. Fence is called before
	// anything is read; it keeps that host from writing any more, here and below.
	TakeOver bool
	Fence    func(done func(error))

	BlockSectors int    // a power of two from 8 (4 KiB) to 2048 (1 MiB); 0 is 8
	Eviction     string // policy of the index; "" is "s3-fifo", the best of them on average over disks (see docs/hostcache.md)
	// Plugged makes the index's policy in place of one of its own, see hostcache.Config; Eviction is
	// its name then.
	Plugged func(capacity int64) plug.Eviction
	// Admission says which blocks get onto the flash; nil: all.
	Admission plug.Admission
	// Law says how long writes are held back, in the place of Throttle's; area and threshold are
	// still those of Throttle. nil: Throttle's.
	Law plug.Throttle
	// PowerSafe waits for the flash's sync before an acknowledgement.
	PowerSafe bool

	// ID is a number that no other opening of any cache has; 0 makes one of the clock and the LUN.
	ID uint64
	// Boot identifies the present start of the machine, or 0: without PowerSafe, what was not flushed
	// counts only if it is the same as when it was written.
	Boot uint64
	// Witness says which flash is the newest when the others cannot be asked; nil: nobody does.
	Witness Witness

	Policy   Policy
	Peers    []Peer
	Throttle Throttle
	Destager *Destager // shared by the disks of a host; nil: one of its own
	// DestageSectors is the most that one write below carries, 0 is 512 (256 KiB).
	DestageSectors uint64
	// FillBytes bounds the memory of fills under way; more are skipped. 0 is 16 MiB.
	FillBytes uint64
	// NoPayload says that the flash keeps no payload and that nobody looks at what is read, as in a simulation: no
	// data is copied then.
	NoPayload bool
	// WatchNanos is how often the device below is asked what others have changed, if it can tell; 0 never.
	WatchNanos int64
	// Observer hears of every request; nil: nobody.
	Observer Observer

	piece int    // slots of a piece in tests, whose caches are smaller than one; 0 is pieceSlots
	slack uint64 // bytes of records behind a full snapshot, in tests; 0 is what the flash's size says
}

// Observer hears of the requests of a Disk, on its executor. It must not keep them.
type Observer interface {
	Began(now int64, r *block.Request)
	Ended(r *block.Request, took int64)
}

// Limits of what a Disk does at one time.
const (
	maxDestageSectors = 2048
	defaultFillBytes  = 16 << 20
	noFrame           = ^uint32(0)
)

// Disk is a cached device. It implements block.Device.
type Disk struct {
	opt   Options
	exec  block.Executor
	below block.Device
	info  block.Info

	ix             *hostcache.Index
	per            int    // sectors a block
	grain          uint64 // sectors of a block of the device below: see grain.go
	size           uint64 // bytes that are used of the flash, and of a peer's: see fit
	totalFrames    uint64 // on flash: more than the index has slots, so that one is free at once
	spareFrames    int    // how many more
	pieceBytes     int    // of a snapshot; 0: see there
	cache          uint64 // see label
	incarnation    uint64
	marks          marks
	parked         []*op
	opening        bool
	unreadAtOpen   func() // something dirty cannot be read while opening, and a peer has it
	dataStart      uint64 // bytes
	frameOf        []uint32
	freeFrames     []uint32
	pins           map[hostcache.Slot]int // of ops under way; never iterated
	members        []*member
	j              journal
	recovery       Recovery
	loading        bool
	damaged        rangeSet // what was dirty and is lost
	destageSectors uint64

	active, waiting []*op
	ready           []*op
	pumping         bool
	flushers        []*op // wait until their ranges are clean

	policyState
	throttle throttle
	law      plug.Throttle // how long writes are held back: the throttle's own, or somebody's
	delays   delays
	destager *Destager
	turn     destageState
	stats    Stats
	window   window

	ended, spare []*block.Request
	posted       bool
	drain        func()
	belowDone    func(*block.Request)
	batch        [1]*block.Request
	freeOps      *op
	freeParts    *part
	buffers      buffers
	clipped, vec [][]byte
	fillSegs     []segment
	reserved     uint64 // sectors of writes to the flash that are under way
	flashWrites  int
	volatile     volatileWrites // of the device below
	flushing     int            // flushes of clients that are under way
	sealed       sealState
	losses       uint64 // of power below
	lostWrites   bool   // there was one that no flush has told of
	barriers     bool   // a client asks for durability, by a flush or FUA, or see enduring: what is durable here must not get volatile below
	listeners    []func(block.Event)
	generation   generations
	leaving      *leaving // while another disk copies what is here
	closing      bool     // Close has been called
	closed       bool
}

var _ block.Device = (*Disk)(nil)

func newDisk(opt Options) (*Disk, error) {
	d := &Disk{opt: opt, exec: opt.Exec, below: opt.Below, info: opt.Below.Info(), pins: map[hostcache.Slot]int{}}
	d.drain, d.belowDone = d.drainEnded, d.partDone
	o := &d.opt
	if o.BlockSectors == 0 {
		o.BlockSectors = hostcache.MinBlockSectors
	}
	if o.Eviction == "" {
		o.Eviction = "s3-fifo"
	}
	if o.Admission == nil {
		o.Admission = admitAll{}
	}
	if d.law = o.Law; d.law == nil {
		d.law = &d.throttle
	}
	if o.FillBytes == 0 {
		o.FillBytes = defaultFillBytes
	}
	if o.DestageSectors == 0 {
		o.DestageSectors = 512
	}
	d.destageSectors = min(o.DestageSectors, maxDestageSectors)
	d.buffers = newBuffers(d.destageSectors, o.NoPayload)
	if d.destager = o.Destager; d.destager == nil {
		d.destager = NewDestager(0)
	}
	d.requested = o.Policy
	d.lastToken = o.ID & (1<<48 - 1) // one of an earlier opening is none of this one; every reader of JSON has so many bits
	d.volatile.ended = 1             // whoever was here before may have left something in the cache below
	d.barriers = d.enduring()
	d.members = []*member{{d: d, medium: o.Flash, state: memberPresent, writes: 1}}
	for i := range o.Peers {
		d.members = append(d.members, &member{d: d, medium: o.Peers[i].Medium, peer: &o.Peers[i]})
	}
	if !o.Volatile && d.info.NAA == [16]byte{} {
		return nil, fmt.Errorf("hostcache: %s has no unique designator on VPD page 83h (NAA, EUI-64, UUID, SCSI name or T10 vendor ID), "+
			"so its flash device could be mistaken for another LUN's; have the array give it one", d.info.Name)
	}
	if d.per = o.BlockSectors; d.per&(d.per-1) != 0 || d.per < hostcache.MinBlockSectors || d.per > hostcache.MaxBlockSectors {
		return nil, fmt.Errorf("hostcache: a block of %d sectors is not possible; give a power of two from %d to %d (4KiB to 1MiB)", d.per, hostcache.MinBlockSectors, hostcache.MaxBlockSectors)
	}
	d.grain = min(max(uint64(d.info.BlockSize)>>block.SectorShift, 1), uint64(d.per))
	d.destageSectors = max(d.destageSectors-d.destageSectors%d.grain, d.grain)
	if most := hostcache.MaxBlocks * uint64(d.per); d.info.Sectors > most {
		return nil, fmt.Errorf("hostcache: %s has %d sectors of 512 bytes; with cache blocks of %d KiB, a LUN may have %d at most", d.info.Name, d.info.Sectors, d.per/2, most)
	}
	d.j = journal{d: d, on: !o.Volatile}
	if o.Volatile || o.Format { // no label says anything of the layout
		if err := d.fit(); err != nil {
			return nil, fmt.Errorf("hostcache: %w", err)
		}
	}
	return d, nil
}

// Info describes the device below: a cached device keeps its identity.
func (d *Disk) Info() block.Info { return d.info }

// Recovery returns what Open found.
func (d *Disk) Recovery() Recovery { return d.recovery }

// Notify registers a listener; see block.Device.
func (d *Disk) Notify(fn func(block.Event)) { d.listeners = append(d.listeners, fn) }

func (d *Disk) tell(k block.EventKind) {
	d.exec.Post(func() {
		for _, fn := range d.listeners {
			fn(block.Event{Kind: k})
		}
	})
}

// event hears of the device below.
func (d *Disk) event(e block.Event) {
	switch e.Kind {
	case block.EventGeneration:
		d.generationChanged()
	case block.EventPowerLoss:
		d.powerLost()
	case block.EventCapacity, block.EventThreshold:
		d.resized()
	}
	for _, fn := range d.listeners {
		fn(e)
	}
	d.pump()
}

// resized follows the size that the device below has now.
func (d *Disk) resized() {
	was := d.info.Sectors
	d.info = d.below.Info()
	d.info.Sectors = min(d.info.Sectors, hostcache.MaxBlocks*uint64(d.per)) // it has grown: the rest stays out of reach
	if d.info.Sectors < was {
		d.shrunk(block.Range{Start: d.info.Sectors, Count: was - d.info.Sectors})
	}
}

// Submit starts requests; see block.Device.
func (d *Disk) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		d.begin(r)
	}
	d.pump()
}

func (d *Disk) begin(r *block.Request) {
	if d.closed {
		r.Status = block.Gone
		d.reply(r)
		return
	}
	o := d.newOp(r, freeMode)
	r.Priv = o
	if d.opt.Observer != nil {
		d.opt.Observer.Began(o.start, r)
	}
	switch r.Op {
	case block.OpUnmap, block.OpHold:
		o.ranges = r.Ranges
	case block.OpFlush:
	default:
		o.one[0] = r.Range
		o.ranges = o.one[:]
	}
	d.route(o)
}

// route starts an op by what its request asks for. One that was parked comes here again: the device below may have shrunk since.
func (d *Disk) route(o *op) {
	r := o.req
	if r.Op != block.OpStatus && !o.within(d.info.Sectors) {
		d.answer(o, block.OutOfRange)
		d.close(o)
		return
	}
	if d.sealed != sealNone && changes(r.Op) {
		d.parked = append(d.parked, o)
		d.unseal()
		return
	}
	d.noteChange(o)
	switch r.Op {
	case block.OpRead:
		o.mode = readMode
		d.lock(o, startRead)
	case block.OpWrite:
		if r.Flags&block.Atomic == 0 && r.Range.Count > 0 && d.writeBack() {
			o.mode = flashMode
			d.lock(o, startFlashWrite)
			return
		}
		o.mode = belowMode
		d.enter(o)
	case block.OpWriteSame, block.OpUnmap, block.OpPlace:
		o.mode = belowMode
		d.enter(o)
	case block.OpCompareWrite, block.OpOrWrite:
		o.mode = beforeMode
		d.enter(o)
	case block.OpHold:
		o.mode = holdMode
		d.lock(o, startHold)
	case block.OpFlush:
		d.lock(o, startFlush)
	case block.OpStatus:
		d.lock(o, startStatus)
	default:
		d.answer(o, block.Unsupported)
		d.close(o)
	}
}

// enter starts an op that changes the device below.
func (d *Disk) enter(o *op) {
	d.noteChange(o) // it may have been routed before a copy began, and get below behind it
	switch {
	case o.cancelled:
		d.answer(o, block.Cancelled)
		d.close(o)
	case d.park(o):
	case o.mode == beforeMode:
		d.lock(o, startHold)
	default:
		d.lock(o, startBelow)
	}
}

// pin keeps a block in its frame while an op is at work on it.
func (d *Disk) pin(o *op, s hostcache.Slot) bool {
	n := d.pins[s]
	if n == 0 && !d.ix.Pin(s) {
		return false
	}
	d.pins[s] = n + 1
	o.frames = append(o.frames, s)
	return true
}

func (d *Disk) unpin(o *op) {
	for _, s := range o.frames {
		if n := d.pins[s]; n > 1 {
			d.pins[s] = n - 1
		} else {
			delete(d.pins, s)
			d.ix.Unpin(s)
		}
	}
	o.frames = o.frames[:0]
}

// frameFor returns the slot of a block, which gets a frame if it has none; None if
// there is no room now or the block is not admitted; write says that a guest writes it. The slot
// is pinned.
func (d *Disk) frameFor(o *op, b uint64, write bool) hostcache.Slot {
	k := hostcache.MakeKey(0, b)
	s := d.ix.Lookup(k)
	if s == hostcache.None {
		if len(d.freeFrames) == 0 {
			return hostcache.None
		}
		if !d.opt.Admission.Admit(b, write) {
			return hostcache.None
		}
		was := d.window.evicted
		s = d.ix.Insert(k)
		d.window.made(d, d.window.evicted-was)
		if s == hostcache.None {
			return hostcache.None
		}
		last := len(d.freeFrames) - 1
		d.frameOf[s], d.freeFrames = d.freeFrames[last], d.freeFrames[:last]
	} else {
		d.ix.Touch(s)
	}
	if !d.pin(o, s) {
		return hostcache.None
	}
	return s
}

// admitAll is the admission that there is if nobody asks for another one.
type admitAll struct{}

func (admitAll) Admit(uint64, bool) bool { return true }

// PolicyErr returns why the eviction policy of Options.Plugged failed; nil: it did not.
func (d *Disk) PolicyErr() error { return d.ix.Err() }

// evicted hears of a block that leaves the index.
func (d *Disk) evicted(s hostcache.Slot, _ hostcache.Key) {
	d.window.evicted++
	frame := d.frameOf[s]
	d.frameOf[s] = noFrame
	if !d.loading {
		d.j.forgotten(frame)
	}
}

// clean tells whether the flash has nothing that the device below lacks.
func (d *Disk) clean() bool { return d.ix.DirtySectors() == 0 && d.flashWrites == 0 }
