package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// The caching layer of a host, as internal/hostcache/tier has it, between guests and the LUN:
// guests' reads and writes go to a tier.Disk, which reads and writes the LUN by SCSI commands of
// its own, and flash devices that take the time that they are said to take.

// CacheSpec is the cached device of a volume.
type CacheSpec struct {
	// Name is by default the name of the volume.
	Name   string `yaml:"name"`
	Volume string `yaml:"volume"`
	// Policy as tier.ParsePolicy reads it: off, write_through, write_back+1.
	Policy string `yaml:"policy" jsonschema:"pattern=^(off|write[_-]through|wt|(write[_-]back|wb)([+][0-9]+)?([+][0-9]+)?)$,example=off,example=write_through,example=write_back+1"`
	// Size is the room for blocks; the layer needs some more for itself.
	Size  Size `yaml:"size"`
	Block Size `yaml:"block"`
	// Eviction is a policy of package hostcache, one that is plugged, or wasm: FILE. So are Admission and
	// Throttle; without, every block is admitted, and the law is that of tier.Throttle.
	Eviction  PolicyRef `yaml:"eviction"`
	Admission PolicyRef `yaml:"admission"`
	Throttle  PolicyRef `yaml:"throttle"`
	// Path is the host's own time for each guest I/O, cached or not.
	Path Duration `yaml:"path"`
	// Warm is how much of the beginning of the volume was read before the clock starts, its end first.
	Warm Size `yaml:"warm"`
	// Throttle and destaging, see tier.Throttle and tier.Options; 0 is their default. Shares are
	// thousandths.
	Area      Size  `yaml:"area"`
	Threshold int64 `yaml:"threshold"`
	Gain      int64 `yaml:"gain"`
	Integral  int64 `yaml:"integral"`
	// Destage is the most that one write to the LUN carries.
	Destage Size `yaml:"destage"`
}

// PeerSpec is another host that lends flash to this one.
type PeerSpec struct {
	Name      string    `yaml:"name"`
	Domain    string    `yaml:"domain"` // fault domain; "" is the host's own
	Flash     FlashSpec `yaml:"flash"`
	Bandwidth Size      `yaml:"bandwidth"` // of the link to it, bytes a second each way; 0 is infinite
	Latency   Duration  `yaml:"latency"`   // one way
}

// cached is a host's cache of a volume.
type cached struct {
	name  string
	spec  *CacheSpec
	d     *device
	disk  *tier.Disk
	below *lunBelow
	buf   []byte // what guests read; nobody looks
	spare *guestIO

	// flying are guests' commands under way; while the guest stands still they are held.
	flying int
	still  bool
	held   []*command
	// arriving is the move that copies another cache to this one, which has no clients until that is there.
	arriving *moving
	plugged  cachePolicies

	last    cacheTotals
	top     uint64 // sectors: the highest occupancy of the present interval
	samples []cacheSample
	stats   tier.CacheStats // once finished
}

// guestIO is a guest's command on its way through the cache.
type guestIO struct {
	k     *cached
	c     *command
	req   block.Request
	data  [1][]byte
	batch [1]*block.Request
	start func()
	next  *guestIO
}

func (s *CacheSpec) fill() error {
	if s.Volume == "" {
		return errors.New("a cache has no volume; add one")
	}
	if s.Name == "" {
		s.Name = s.Volume
	}
	if s.Policy == "" {
		s.Policy = tier.WriteThrough.String()
	}
	if s.Block == 0 {
		s.Block = 8 << 10 // the default of vSphere Flash Read Cache
	}
	if _, err := tier.ParsePolicy(s.Policy); err != nil {
		return fmt.Errorf("cache %s: %w", s.Name, err)
	}
	if s.Size < 16*s.Block {
		return fmt.Errorf("cache %s: a size of %s holds fewer than 16 blocks of %s; give more", s.Name, s.Size, s.Block)
	}
	if s.Threshold < 0 || s.Threshold > 1000 || s.Gain < 0 || s.Integral < 0 {
		return fmt.Errorf("cache %s: threshold, gain and integral are thousandths, and a threshold at most 1000", s.Name)
	}
	return nil
}

// volatile tells whether the cache needs no journal: all that it ever does is write through.
func (s *CacheSpec) volatile() bool {
	p, _ := tier.ParsePolicy(s.Policy)
	return p.Mode != tier.WriteBack
}

// flashBytes is the flash that a disk needs to have room for Size.
func (s *CacheSpec) flashBytes() uint64 {
	blocks := uint64(s.Size / s.Block)
	// Besides: frames that are kept free, a sixty-fourth of all, 1 to 4096.
	bytes := (blocks + min(max(blocks/63, 1), 4096)) * uint64(s.Block)
	if !s.volatile() {
		bytes += uint64(s.Block) // where the journal ends inside a block
		// And two halves of a journal: a snapshot of at most 12 bytes and two bits a sector for
		// each block, and slack.
		bytes += 2 * ((blocks+4096)*(12+uint64(s.Block)/512/4+1) + max(min(bytes/64, 4<<20), 192<<10) + 4096)
	}
	return bytes
}

// addCaches makes the caches of a host; they are open when the clock starts.
func (h *host) addCaches() error {
	specs := h.spec.Cache
	if len(specs) == 0 {
		return nil
	}
	total := uint64(0)
	for i := range specs {
		total += specs[i].flashBytes()
	}
	flash := newFlash(h.r, h.spec.Flash, total)
	var peers []*linkedFlash
	for i := range h.spec.Peers {
		p := &h.spec.Peers[i]
		peers = append(peers, &linkedFlash{spec: p, inner: newFlash(h.r, p.Flash, total)})
	}
	destager := tier.NewDestager(h.spec.DestageSlots)
	off := uint64(0)
	for i := range specs {
		s := &specs[i]
		v := h.r.volumeNamed(s.Volume)
		if v == nil {
			return fmt.Errorf("cache %s: there is no volume %q", s.Name, s.Volume)
		}
		d := h.device(v)
		if d.cache != nil {
			return fmt.Errorf("cache %s: volume %s has a cache on this host already", s.Name, s.Volume)
		}
		policy, err := tier.ParsePolicy(s.Policy)
		if err != nil {
			return fmt.Errorf("cache %s: %w", s.Name, err)
		}
		k := &cached{name: s.Name, spec: s, d: d, below: &lunBelow{d: d}, buf: make([]byte, 1<<20)}
		if err := k.plug(h.r); err != nil {
			return fmt.Errorf("cache %s: %w", s.Name, err)
		}
		n := s.flashBytes()
		opt := tier.Options{NoPayload: true, Exec: h.r.exec, Below: k.below, Flash: tier.Slice(flash, off, n), Volatile: s.volatile(), Format: true,
			BlockSectors: int(s.Block / block.SectorSize), Eviction: s.Eviction.String(), Plugged: k.plugged.eviction, Admission: k.plugged.admission, Law: k.plugged.throttle, Policy: policy, Destager: destager, DestageSectors: uint64(s.Destage / block.SectorSize),
			Throttle: tier.Throttle{Area: uint64(s.Area), Threshold: s.Threshold, Gain: s.Gain, Integral: s.Integral}}
		for _, p := range peers {
			opt.Peers = append(opt.Peers, tier.Peer{Name: p.spec.Name, Domain: p.spec.Domain, Medium: tier.Slice(p, off, n)})
		}
		off += n
		if err := k.open(opt); err != nil {
			return fmt.Errorf("cache %s: %w", s.Name, err)
		}
		d.cache = k
		h.r.caches = append(h.r.caches, k)
	}
	return nil
}

func (k *cached) open(opt tier.Options) error {
	var failed error
	done := false
	x := opt.Exec.(*block.Virtual)
	tier.Open(opt, func(d *tier.Disk, err error) { k.disk, failed, done = d, err, true })
	for !done && x.Step() {
	}
	if err := k.d.h.r.problem; err != nil { // its eviction policy could not be made
		return err
	}
	if failed != nil {
		return failed
	}
	for k.disk.State().Why != "" && x.Step() {
	}
	if why := k.disk.State().Why; why != "" {
		return fmt.Errorf("policy %s has no effect: %s", opt.Policy, why)
	}
	return k.warm(x)
}

// warm reads the beginning of the volume, the end of it first.
func (k *cached) warm(x *block.Virtual) error {
	left := min(uint64(k.spec.Warm), k.d.v.info.Sectors*block.SectorSize)
	done, failed := false, block.OK
	q := &block.Request{Op: block.OpRead, Data: make([][]byte, 1)}
	q.Done = func(*block.Request) {
		if q.Status != block.OK {
			failed = q.Status
		}
		if left == 0 || failed != block.OK {
			done = true
			return
		}
		n := min(left, uint64(len(k.buf)))
		left -= n
		q.Range = block.Range{Start: left / block.SectorSize, Count: n / block.SectorSize}
		q.Data[0] = k.buf[:n]
		k.disk.Submit([]*block.Request{q})
	}
	q.Done(q)
	for !done && x.Step() {
	}
	if k.checkPolicy(k.d.h.r); k.d.h.r.problem != nil {
		return k.d.h.r.problem
	}
	if failed != block.OK {
		return fmt.Errorf("it cannot be warmed: %s", failed)
	}
	return nil
}

// submit takes a guest's command: its SCSI command says what it is.
func (k *cached) submit(c *command) {
	if k.still {
		k.held = append(k.held, c)
		return
	}
	g := k.spare
	if g == nil {
		g = &guestIO{k: k}
		g.req.Done = g.done
		g.batch[0] = &g.req
		g.start = func() { g.k.disk.Submit(g.batch[:]) }
	} else {
		k.spare = g.next
	}
	g.c = c
	r := &g.req
	r.Range = block.Range{Start: c.off / block.SectorSize, Count: c.bytes / block.SectorSize}
	r.Flags, r.Origin, r.Ranges, r.Data, r.Ref = 0, block.OriginHost, nil, g.data[:], nil
	switch op := c.task.CDB[0]; op {
	case opRead16:
		r.Op, g.data[0] = block.OpRead, k.read(c.bytes)
		if h, ok := c.task.Bufs.(heapBuffers); ok { // a mover writes elsewhere what it reads
			g.data[0] = h.Get(int(c.bytes))
		}
	case opWrite16:
		r.Op, g.data[0] = block.OpWrite, c.out[0]
	case opWriteSame16:
		r.Op, g.data[0] = block.OpWriteSame, c.out[0][:block.SectorSize]
	case opUnmap:
		r.Op, r.Data = block.OpUnmap, nil
		r.Ranges = unmapRanges(c.out[0], uint64(k.d.v.info.BlockSize))
	case opExtendedCopy:
		r.Op, r.Origin, r.Data = block.OpPlace, block.OriginXCopy, nil
		r.Ref, r.RefOffset = &copySource{c, c.copied.Count}, 0
	default: // locks of the file system, which is on no block that guests read
		k.put(g)
		c.around()
		return
	}
	k.flying++
	k.checkArriving()
	if p := int64(k.spec.Path); p > 0 && k.d.h.r.started {
		x := k.d.h.r.exec
		x.Call(x.Now()+p, g.start)
		return
	}
	g.start()
}

func (k *cached) read(n uint64) []byte {
	if uint64(len(k.buf)) < n {
		k.buf = make([]byte, n)
	}
	return k.buf[:n]
}

func (k *cached) put(g *guestIO) {
	g.c, g.next = nil, k.spare
	k.spare = g
}

// done is the cache's answer.
func (g *guestIO) done(r *block.Request) {
	c := g.c
	g.k.flying--
	if _, ok := c.task.Bufs.(heapBuffers); ok && r.Op == block.OpRead {
		c.task.DataIn = [][]byte{g.data[0]}
	}
	g.k.put(g)
	c.task.Status, c.task.Sense = scsiGood, nil
	if r.Status != block.OK {
		c.failed = true
	}
	c.finished()
}

// SCSI operations that hosts of scenarios send.
const (
	opUnmap        = 0x42
	opRead16       = 0x88
	opWrite16      = 0x8A
	opWriteSame16  = 0x93
	opExtendedCopy = 0x83
	opSync16       = 0x91
	scsiGood       = 0
)

// unmapRanges reads a parameter list of UNMAP.
func unmapRanges(b []byte, blockSize uint64) []block.Range {
	var out []block.Range
	for at := 8; at+16 <= len(b); at += 16 {
		lba, n := binary.BigEndian.Uint64(b[at:]), uint64(binary.BigEndian.Uint32(b[at+8:]))
		out = append(out, block.Range{Start: lba * blockSize / block.SectorSize, Count: n * blockSize / block.SectorSize})
	}
	return out
}

// lunBelow is the LUN as the cache sees it: requests become commands of the host.
type lunBelow struct{ d *device }

var _ block.Device = (*lunBelow)(nil)

func (b *lunBelow) Info() block.Info          { return b.d.v.info }
func (b *lunBelow) Notify(func(block.Event))  {}
func (b *lunBelow) Cancel(req *block.Request) {}
func (b *lunBelow) Submit(r []*block.Request) {
	for _, r := range r {
		c := b.d.get(lunDone)
		c.below = r
		switch r.Op {
		case block.OpRead, block.OpWrite:
			c.rw(r.Op == block.OpWrite, r.Range.Start*block.SectorSize, r.Range.Bytes())
		case block.OpWriteSame:
			c.writeSame(r.Range.Start*block.SectorSize, r.Range.Bytes())
		case block.OpUnmap:
			c.unmap(r.Ranges)
		case block.OpPlace:
			c.place(r.Ref.(*copySource))
		case block.OpHold: // nothing is below to hold: the array's copy reads what is there
			r.Status = block.OK
			b.d.h.r.exec.Post(func() { r.Done(r) })
			b.d.h.put(c)
			continue
		case block.OpFlush:
			c.cdb16(opSync16, 0, 0, 0)
		default:
			r.Status = block.Unsupported
			b.d.h.r.exec.Post(func() { r.Done(r) })
			b.d.h.put(c)
			continue
		}
		c.issue()
	}
}

// lunDone is the end of a command of the cache's own.
func lunDone(c *command) {
	r := c.below
	r.Status = block.OK
	switch {
	case c.aborted:
		r.Status = block.Cancelled
	case c.failed && c.write:
		r.Status = block.MediumWrite
		if s, ok := r.Ref.(*copySource); ok { // its host acts upon what the array said
			s.c.sense = c.sense
		}
		if c.sense>>8 == senseNoSpace {
			r.Status = block.NoSpace
		}
	case c.failed:
		r.Status = block.MediumRead
	case r.Op == block.OpRead || r.Op == block.OpWrite:
		c.countIO(c.h.r.exec.Now())
	}
	r.Done(r)
}

// senseNoSpace is DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT, without the qualifier.
const senseNoSpace = 0x0727

// unmap makes an UNMAP of ranges in sectors.
func (c *command) unmap(ranges []block.Range) {
	bs := uint64(c.d.v.info.BlockSize) / block.SectorSize
	be := binary.BigEndian
	list := make([]byte, 8, 8+16*len(ranges))
	for _, r := range ranges {
		list = be.AppendUint64(list, r.Start/bs)
		list = be.AppendUint32(list, uint32(r.Count/bs))
		list = append(list, 0, 0, 0, 0)
	}
	be.PutUint16(list, uint16(len(list)-2))
	be.PutUint16(list[2:], uint16(len(list)-8))
	b := c.cdb[:10]
	clear(b)
	b[0] = opUnmap
	be.PutUint16(b[7:], uint16(len(list)))
	c.write = true
	c.task.CDB = b
	c.out[0] = list
	c.task.DataOut = c.out[:]
}

// cacheable tells whether a job can be one of a cached device.
func (j *job) cacheable(d *device) error {
	switch {
	case d.cache == nil:
		return nil
	case j.spec.Timeout > 0:
		return fmt.Errorf("volume %s has a cache on host %s; its commands have no timeout", d.v.name, d.h.name)
	}
	return nil
}

// fillCache checks the host's caching layer.
func (h *HostSpec) fillCache() error {
	for i := range h.Cache {
		if err := h.Cache[i].fill(); err != nil {
			return err
		}
	}
	if err := h.Flash.fill(); err != nil {
		return err
	}
	for i := range h.Peers {
		p := &h.Peers[i]
		if p.Name == "" {
			p.Name = fmt.Sprintf("peer%d", i+1)
		}
		if err := p.Flash.fill(); err != nil {
			return fmt.Errorf("peer %s: %w", p.Name, err)
		}
	}
	if h.DestageSlots < 0 {
		return fmt.Errorf("destage_slots is %d; it is not negative", h.DestageSlots)
	}
	return nil
}
