package torture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/storetest"
)

// rig is an array that runs a program.
type rig struct {
	setup Setup
	prof  *profile.Profile
	exec  *block.Virtual
	mem   *store.Memory
	disk  *storetest.Disk
	files *store.Files
	rng   *rand.Rand
	arr   *array.Array
	tg    *scsi.Target
	units [hosts]*scsi.Nexus
	token [tokens][]byte
	seen  []*witness // by LUN
	tag   uint64
	lists uint32

	exports   []*scsi.Unit // by LUN
	saves     saves
	beside    *beside
	besideRng *rand.Rand
}

func volume(lun int) string { return fmt.Sprintf("v%d", lun) }

func newRig(s Setup) (*rig, error) {
	p, err := profile.Load(s.Profile)
	if err != nil {
		return nil, err
	}
	r := &rig{setup: s, prof: p, exec: &block.Virtual{}, rng: rand.New(rand.NewPCG(1, 2)), besideRng: rand.New(rand.NewPCG(uint64(s.Beside), 3))}
	if s.Store == "memory" {
		r.mem = store.NewMemory(r.exec, store.MemoryOptions{})
	} else {
		r.disk = storetest.NewDisk(1)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	var failed error
	ended := 0
	pool := func(_ *array.Pool, err error) { ended, failed = ended+1, errors.Join(failed, err) }
	r.arr.CreatePool(array.PoolSpec{Name: "a", CopyData: s.CopyData, Mdisks: []array.MdiskSpec{{Name: "m0", Size: 64 << 20}, {Name: "m1", Size: 64 << 20}}}, pool)
	r.arr.CreatePool(array.PoolSpec{Name: "b", CopyData: s.CopyData, Mdisks: []array.MdiskSpec{{Name: "m", Size: 64 << 20}}}, pool)
	for i := range s.Pools {
		r.arr.CreatePool(array.PoolSpec{Name: fmt.Sprintf("other%d", i), Mdisks: []array.MdiskSpec{{Name: "m", Size: 4 << 20}}}, pool)
	}
	if r.until(func() bool { return ended == 2+s.Pools }); failed != nil || ended != 2+s.Pools { // the store makes their mdisks
		return nil, fmt.Errorf("making the pools: %w", failed)
	}
	for i, l := range luns {
		r.arr.CreateVolume(array.VolumeSpec{Name: volume(i), Pool: l.pool, Sectors: l.sectors, BlockSize: uint32(512 * l.block), Thin: l.thin},
			func(_ *array.Volume, err error) { pool(nil, err) })
	}
	all := 2 + s.Pools + len(luns)
	if s.Beside > 0 {
		all++
		r.makeFull(func(err error) { pool(nil, err) })
	}
	if r.until(func() bool { return ended == all }); failed != nil || ended != all {
		return nil, fmt.Errorf("making the volumes: %w", failed)
	}
	return r, r.login()
}

// open starts the array over what the store has.
func (r *rig) open() error {
	var inner block.Store = r.mem
	if r.disk != nil {
		later := func(fn func()) { r.exec.At(r.exec.Now()+r.rng.Int64N(1e6), fn) }
		files, err := store.OpenFiles(r.exec, "/data", store.FilesOptions{FS: r.disk, Later: later})
		if err != nil {
			return err
		}
		r.files, inner = files, files
	}
	policy, err := r.prof.Array()
	if err != nil {
		return err
	}
	cache := int64(1 << 20)
	if r.setup.Beside > 0 { // floors that have room for something
		cache = 8 << 20
	}
	r.arr, err = array.Open(array.Options{Exec: r.exec, Store: r.prof.Timed(inner, r.exec, func(string) string { return "" }, 7),
		CacheBytes: cache, LogBytes: 64 << 10, CounterRows: 512, UUID: 1, Policy: policy, Discard: true, DiscardDelay: 1e7})
	return err
}

// login makes the target and the hosts' sessions.
func (r *rig) login() error {
	random := rand.NewChaCha8([32]byte{byte(r.exec.Now()), 9})
	opt := scsi.Options{Name: "iqn.2026-01.io.arraysim:array", Vendor: "ARRAYSIM", Product: "array", Exec: r.exec, Random: func(b []byte) { _, _ = random.Read(b) }}
	if e := r.prof.NewEngine(r.exec); e != nil {
		opt.Delay = e.Delay
	}
	r.tg, r.seen, r.exports = scsi.NewTarget(opt), nil, nil
	for i := range luns {
		blob := "unit." + volume(i)
		state, err := scsi.ParseUnitState(r.arr.Blob(blob))
		if err != nil {
			return err
		}
		seen := &witness{Volume: r.arr.Volume(volume(i)), r: r}
		r.seen = append(r.seen, seen)
		var dev block.Device = seen
		if r.setup.Sabotage != "" {
			dev = saboteur{dev, r.exec, r.setup.Sabotage}
		}
		u := r.tg.AddUnit(dev, scsi.UnitOptions{State: state, Save: func(b []byte, done func(error)) { r.save(i, b, done) }})
		r.exports = append(r.exports, u)
		if err := r.tg.Map("", uint16(i), u); err != nil {
			return err
		}
	}
	for h := range r.units {
		name := fmt.Sprintf("iqn.2026-01.host:%d", h)
		r.units[h] = r.tg.OpenNexus(name, name+",i,0x1", 1)
	}
	return r.startBeside()
}

// crash ends this life of the array: by the death of the process, or by a loss of power.
func (r *rig) crash(power bool) error {
	exec := &block.Virtual{}
	exec.RunUntil(r.exec.Now())
	if r.mem != nil {
		r.mem = r.mem.Reopen(exec)
	} else {
		old := r.disk
		if power {
			r.disk = old.Cut()
		} else {
			r.disk = old.Kill()
		}
		if err := r.files.Close(); err != nil {
			return err
		}
	}
	r.exec = exec
	if err := r.open(); err != nil {
		return fmt.Errorf("the array does not start again: %w", err)
	}
	return r.login()
}

// stop stops the array, as a daemon does that is about to end.
func (r *rig) stop() error {
	r.tg.RevokeTokens()
	ended := false
	var err error
	r.arr.Stop(func(e error) { ended, err = true, e })
	if r.until(func() bool { return ended }); !ended {
		return errors.New("the array does not stop")
	}
	return err
}

// until runs the clock until something has happened; nothing takes an hour.
func (r *rig) until(cond func() bool) {
	for limit := r.exec.Now() + 3600e9; !cond() && r.exec.Now() < limit && r.exec.Step(); {
	}
}

type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

// running is a command that was sent.
type running struct {
	task *scsi.Task
	over bool
}

// send starts a command.
func (r *rig) send(host, lun int, cdb, out []byte, in int, ordered bool) *running {
	r.tag++
	x := &running{task: &scsi.Task{LUN: uint64(lun) << 48, Tag: r.tag, Attr: scsi.AttrSimple, CDB: cdb, MaxIn: in, Bufs: heap{}}}
	if ordered {
		x.task.Attr = scsi.AttrOrdered
	}
	if out != nil {
		x.task.DataOut = [][]byte{out}
	}
	x.task.Done = func(*scsi.Task) { x.over = true }
	r.units[host].Submit([]*scsi.Task{x.task})
	return x
}

// do sends a command and waits for its end.
func (r *rig) do(host, lun int, cdb, out []byte, in int) *running {
	x := r.send(host, lun, cdb, out, in, false)
	r.until(func() bool { return x.over })
	return x
}

// device carries out a request behind the SCSI layer, where nobody's reservation is.
func (r *rig) device(lun int, q *block.Request) error {
	over := false
	q.Done = func(*block.Request) { over = true }
	r.arr.Volume(volume(lun)).Submit([]*block.Request{q})
	if r.until(func() bool { return over }); !over || q.Status != block.OK {
		return fmt.Errorf("LUN %d: %v of %v ended %v (%v)", lun, q.Op, q.Range, over, q.Status)
	}
	return nil
}

func (x *running) in() []byte { return bytes.Join(x.task.DataIn, nil) }

// naa is the CSCD descriptor of a LUN.
func (r *rig) naa(lun int) []byte { return r.naaOf(volume(lun)) }

func (r *rig) naaOf(name string) []byte {
	id := r.arr.Volume(name).Info()
	b := make([]byte, 32)
	b[0], b[4], b[5], b[7] = 0xE4, 1, 3, 16
	copy(b[8:], id.NAA[:])
	binary.BigEndian.PutUint32(b[28:], id.BlockSize)
	return b
}

// informs are commands that only ask. What they answer must not depend on the setup.
var informs = []struct {
	cdb []byte
	in  int
}{
	{make([]byte, 6), 0},
	{[]byte{0x12, 0, 0, 0, 255, 0}, 255},
	{[]byte{0x12, 1, 0x00, 0, 255, 0}, 255},
	{[]byte{0x12, 1, 0x80, 0, 255, 0}, 255},
	{[]byte{0x12, 1, 0x83, 2, 0, 0}, 512},
	{[]byte{0x12, 1, 0x8F, 2, 0, 0}, 512},
	{[]byte{0x12, 1, 0xB0, 0, 255, 0}, 255},
	{[]byte{0x12, 1, 0xB1, 0, 255, 0}, 255},
	{[]byte{0x12, 1, 0xB2, 0, 255, 0}, 255},
	{[]byte{0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 8},
	{[]byte{0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0}, 32},
	{[]byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 256},
	{[]byte{0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 256},
	{[]byte{0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0}, 4096},
	{[]byte{0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 256},
	{[]byte{0x5A, 0, 0x3F, 0, 0, 0, 0, 1, 0, 0}, 256},
	{[]byte{0x1A, 0, 0x0A, 0, 64, 0}, 64},
	{[]byte{0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0}, 256},
	{[]byte{0x5E, 1, 0, 0, 0, 0, 0, 1, 0, 0}, 256},
	{[]byte{0x5E, 2, 0, 0, 0, 0, 0, 1, 0, 0}, 256},
	{[]byte{0x5E, 3, 0, 0, 0, 0, 0, 1, 0, 0}, 256},
	{[]byte{0x03, 0, 0, 0, 18, 0}, 18},
	{scsitest.CDB16(0x84, 3, 256), 256},
	{[]byte{0x1B, 0, 0, 0, 1, 0}, 0},
	{[]byte{0xB7, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0}, 8},
	{[]byte{0xC1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
}

// cdb returns a command's bytes: where it goes, CDB, data-out, room for data-in.
func (r *rig) cdb(c Command, out []byte) (lun int, cdb, list []byte, in int) {
	block := int(512 * luns[c.LUN].block)
	forms := func(ops map[int]byte) []byte {
		b := scsitest.CDB(ops[c.Form], c.LBA, int(c.N))
		if c.Form > 6 {
			b[1] = c.Flags
		}
		return b
	}
	switch c.Op {
	case "inform":
		return c.LUN, informs[c.Form].cdb, nil, informs[c.Form].in
	case "read":
		return c.LUN, forms(map[int]byte{6: 0x08, 10: 0x28, 12: 0xA8, 16: 0x88}), nil, int(c.N) * block
	case "write":
		return c.LUN, forms(map[int]byte{6: 0x0A, 10: 0x2A, 12: 0xAA, 16: 0x8A}), out, 0
	case "write-verify":
		return c.LUN, forms(map[int]byte{10: 0x2E, 12: 0xAE, 16: 0x8E}), out, 0
	case "verify":
		return c.LUN, forms(map[int]byte{10: 0x2F, 12: 0xAF, 16: 0x8F}), out, 0
	case "or":
		return c.LUN, scsitest.CDB(0x8B, c.LBA, int(c.N)), out, 0
	case "atomic":
		b := scsitest.CDB(0x9C, c.LBA, 0)
		clear(b[10:])
		binary.BigEndian.PutUint16(b[12:], uint16(c.N))
		return c.LUN, b, out, 0
	case "caw":
		b := make([]byte, 16)
		b[0], b[13] = 0x89, byte(c.N)
		binary.BigEndian.PutUint64(b[2:], c.LBA)
		return c.LUN, b, out, 0
	case "same":
		if c.Form == 32 {
			b := make([]byte, 32)
			b[0], b[7], b[9], b[10] = 0x7F, 0x18, 0x0D, c.Flags
			binary.BigEndian.PutUint64(b[12:], c.LBA)
			binary.BigEndian.PutUint32(b[28:], uint32(c.N))
			return c.LUN, b, out, 0
		}
		return c.LUN, forms(map[int]byte{10: 0x41, 16: 0x93}), out, 0
	case "unmap":
		l := make([]byte, 24)
		l[1], l[3] = 22, 16
		binary.BigEndian.PutUint64(l[8:], c.LBA)
		binary.BigEndian.PutUint32(l[16:], uint32(c.N))
		return c.LUN, []byte{0x42, c.Flags, 0, 0, 0, 0, 0, 0, 24, 0}, l, 0
	case "prefetch":
		return c.LUN, forms(map[int]byte{10: 0x34, 16: 0x90}), nil, 0
	case "status":
		b := scsitest.CDB16(0x9E, 0x12, 8+16*256)
		binary.BigEndian.PutUint64(b[2:], c.LBA)
		return c.LUN, b, nil, 8 + 16*256
	case "sync":
		if c.Form == 16 {
			return c.LUN, scsitest.CDB(0x91, 0, 0), nil, 0
		}
		return c.LUN, scsitest.CDB(0x35, 0, 0), nil, 0
	case "copy-many":
		l := r.copyMany(c)
		return c.to(), scsitest.CopyCDB4(l), l, 0
	case "unmap-many":
		cdb, l := c.unmapMany()
		return c.LUN, cdb, l, 0
	case "copy", "copy4", "copy-offset":
		to := c.to()
		cscds := [][]byte{r.naa(c.From), r.naa(c.LUN)}
		segment := scsitest.Segment02(0, 1, int(c.N), c.FromLBA, c.LBA, true)
		if c.Op == "copy-offset" {
			segment = scsitest.Segment0A(0, 1, int(c.N)*block, c.FromLBA, c.LBA, 0, 0)
		}
		if c.Op == "copy4" {
			r.lists++
			l := scsitest.CopyList4(r.lists, 2, c.Flags, cscds, [][]byte{segment})
			return to, scsitest.CopyCDB4(l), l, 0
		}
		l := scsitest.CopyList(0, 3, cscds, [][]byte{segment})
		return to, scsitest.CopyCDB(l), l, 0
	case "populate":
		l := scsitest.PopulateList(0, 3600, 0, scsitest.Extent{LBA: c.LBA, Blocks: uint32(c.N)})
		r.lists++
		return c.LUN, scsitest.TokenCDB(0x10, r.lists, l), l, 0
	case "use":
		l := scsitest.WriteTokenList(c.Flags, 0, r.token[c.From], scsitest.Extent{LBA: c.LBA, Blocks: uint32(c.N)})
		r.lists++
		return c.LUN, scsitest.TokenCDB(0x11, r.lists, l), l, 0
	case "sanitize", "format", "overwrite":
		cdb, l := c.eraseCDB()
		return c.LUN, cdb, l, 0
	case "reserve6":
		return c.LUN, []byte{0x16, 0, 0, 0, 0, 0}, nil, 0
	case "release6":
		return c.LUN, []byte{0x17, 0, 0, 0, 0, 0}, nil, 0
	}
	return c.LUN, prOut(c), prList(c), 0
}

func key(host int) uint64 { return 0xA0 + uint64(host) }

func prOut(c Command) []byte {
	sa := map[string]byte{"register": 6, "unregister": 6, "reserve": 1, "release": 2, "clear": 3, "preempt": 4}[c.Op]
	return []byte{0x5F, sa, c.Flags, 0, 0, 0, 0, 0, 24, 0}
}

func prList(c Command) []byte {
	b := make([]byte, 24)
	binary.BigEndian.PutUint64(b, key(c.Host))
	switch c.Op {
	case "register":
		binary.BigEndian.PutUint64(b[8:], key(c.Host))
		if aptpl(c.LUN) {
			b[20] = 1
		}
	case "unregister":
		if aptpl(c.LUN) {
			b[20] = 1
		}
	case "preempt":
		binary.BigEndian.PutUint64(b[8:], key(c.From))
	}
	return b
}

// dsense flips the format of a unit's sense data, as an initiator would: it asks for the page and sends it back.
func (r *rig) dsense(c Command) *running {
	x := r.do(c.Host, c.LUN, []byte{0x5A, 8, 0x0A, 0, 0, 0, 0, 0, 64, 0}, nil, 64)
	page := x.in()
	if x.task.Status != scsi.StatusGood || len(page) < 20 {
		return x
	}
	clear(page[:8])
	page[8] &= 0x3F
	page[10] ^= 4
	return r.do(c.Host, c.LUN, []byte{0x55, 0x10, 0, 0, 0, 0, 0, 0, byte(len(page)), 0}, page, 0)
}

// answer is how a task ended, in a few words.
func answer(t *scsi.Task) string {
	if t.Aborted {
		return "aborted"
	}
	k, a, q := scsitest.SenseCode(t.Sense)
	return codes(t.Status, int(k)<<16|int(a)<<8|int(q))
}

func codes(status byte, sense int) string {
	if status != scsi.StatusCheckCondition {
		return fmt.Sprintf("status %02x", status)
	}
	return fmt.Sprintf("status 02 sense %06x", sense)
}

func ordinal(i int) string { return fmt.Sprintf("sector %d", i) }
