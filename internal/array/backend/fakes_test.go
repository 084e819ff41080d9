package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/crc32c"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const second = 1_000_000_000

var errDisk = errors.New("input/output error")

// rig is a back end whose user writes down what it hears.
type rig struct {
	t        testing.TB
	clock    *block.Virtual
	rows     *nvlog.Rows
	b        *Backend
	seen     []string
	stepping bool
	watching bool
	unwanted map[*Op]bool
	// read, rewrite: what the user does besides.
	read    func(*Op)
	rewrite func(*Mdisk) ([]Rewrite, bool)
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, clock: &block.Virtual{}, unwanted: map[*Op]bool{}}
	r.rows = newRows(t, r.clock)
	r.b = New(r.clock, r.rows, Hooks{
		Read: func(x *Op) {
			r.note("read %s+%d %v", x.d.name, x.IO.Off, x.IO.Err)
			if r.read != nil {
				r.read(x)
			}
		},
		Abandoned: func(x *Op) { r.note("abandoned %s+%d %v", x.d.name, x.IO.Off, x.Ctx) },
		Unwanted:  func(x *Op) bool { return r.unwanted[x] },
		Written:   func(x *Op) { r.note("written %s+%d %v", x.d.name, x.IO.Off, x.IO.Err) },
		Turned: func(d *Mdisk) {
			switch {
			case d.failing.since != 0:
				r.note("%s fails", d.name)
			case d.told:
				r.note("%s is silent", d.name)
			default:
				r.note("%s works", d.name)
			}
		},
		Overdue: func(d *Mdisk, s block.Status) { r.note("overdue %s %v", d.name, s) },
		Watch:   r.watch,
		Synced:  func() { r.note("synced") },
		Lost:    func(d *Mdisk) { r.note("lost %s", d.name) },
		Late: func(d *Mdisk, late bool) {
			if late {
				r.note("late %s", d.name)
			} else {
				r.note("%s is not late", d.name)
			}
		},
		Rewrite: func(d *Mdisk) ([]Rewrite, bool) {
			r.note("rewrite %s", d.name)
			return r.rewrite(d)
		},
		Rewritten: func(d *Mdisk) {
			d.Works()
			r.note("rewritten %s", d.name)
		},
		Step: r.step,
	})
	return r
}

// newRows returns counter rows in NVRAM of their own.
func newRows(t testing.TB, clock *block.Virtual) *nvlog.Rows {
	t.Helper()
	nv, _, err := nvlog.Open(store.NewMemory(clock, store.MemoryOptions{}), "nvram",
		nvlog.Layout{Rows: 512, Pages: 1, LogBytes: nvlog.MinLogBytes})
	if err != nil {
		t.Fatal(err)
	}
	return nvlog.OpenRows(nv, func(h nvlog.RowHead) uint64 { return uint64(h.ID()) })
}

func (r *rig) note(format string, args ...any) {
	r.seen = append(r.seen, fmt.Sprintf("%d: ", r.clock.Now()/second)+fmt.Sprintf(format, args...))
}

// heard returns what was written down since it was called last.
func (r *rig) heard() []string {
	seen := r.seen
	r.seen = nil
	return seen
}

func (r *rig) watch() {
	if r.watching {
		return
	}
	r.watching = true
	r.clock.Call(r.clock.Now()+RetryTime, func() {
		r.watching = false
		if r.b.WaitedFor() > 0 {
			r.watch()
		}
		if trouble, _ := r.b.Look(r.clock.Now()); trouble {
			r.step()
		}
	})
}

func (r *rig) step() {
	if r.stepping {
		return
	}
	r.stepping = true
	for again := true; again; again = r.b.Pending() {
		r.b.Submit()
	}
	r.stepping = false
}

// mdisk attaches an mdisk of a MiB over a medium of its own.
func (r *rig) mdisk(name string, l Limits) (*Mdisk, *medium) {
	m := newMedium(r.clock, 1<<20)
	n := len(r.b.mdisks)
	d := r.b.NewMdisk(Config{ID: uint32(n + 1), Pool: 3, Number: n, Name: name, Size: 1 << 20, Limits: l}, m)
	r.b.Attach(d)
	return d, m
}

// do starts a transfer of whole sectors, without data.
func (r *rig) do(d *Mdisk, write bool, off, n uint64) *Op {
	x := d.Op(write, off, n, block.ReasonDestage)
	x.Bytes[block.OriginHost] = uint32(n)
	if write {
		d.Write(x)
	} else {
		d.Read(x)
	}
	return x
}

// medium is a disk with a volatile cache. By default it completes everything inside Submit.
type medium struct {
	clock   *block.Virtual
	content []byte          // what reads give
	durable []byte          // what a loss of power leaves
	dirty   map[uint64]bool // sectors that a sync has to write
	batches [][]transfer
	syncs   int
	silent  bool
	held    []*block.IO
	// What an operation takes, how it ends, and how a sync does; nil: no time, well, well.
	delay    func() int64
	fail     func(*block.IO) error
	failSync func() error
	// loses tells whether a failed sync loses a sector that reads still gave.
	loses func() bool
}

type transfer struct {
	at     int64
	write  bool
	off, n uint64
}

func newMedium(clock *block.Virtual, size int) *medium {
	return &medium{clock: clock, content: make([]byte, size), durable: make([]byte, size), dirty: map[uint64]bool{}}
}

func (m *medium) Size() uint64 { return uint64(len(m.content)) }

func (m *medium) Submit(ios []*block.IO) {
	var batch []transfer
	for _, io := range ios {
		batch = append(batch, transfer{m.clock.Now(), io.Write, io.Off, io.N})
	}
	m.batches = append(m.batches, batch)
	for _, io := range ios {
		m.take(io)
	}
}

func (m *medium) take(io *block.IO) {
	if m.silent {
		m.held = append(m.held, io)
		return
	}
	if m.delay != nil {
		if ns := m.delay(); ns > 0 {
			m.clock.Call(m.clock.Now()+ns, func() {
				if m.silent {
					m.held = append(m.held, io)
					return
				}
				m.finish(io)
			})
			return
		}
	}
	m.finish(io)
}

// answer ends the silence.
func (m *medium) answer() {
	m.silent = false
	held := m.held
	m.held = nil
	for _, io := range held {
		m.take(io)
	}
}

func (m *medium) finish(io *block.IO) {
	if m.fail != nil {
		if err := m.fail(io); err != nil { // who keeps an old error keeps it
			io.Err = err
		}
	}
	at := io.Off
	for _, b := range io.Vec {
		switch {
		case !io.Write:
			copy(b, m.content[at:])
		case io.Err == nil:
			copy(m.content[at:], b)
		}
		at += uint64(len(b))
	}
	for s := io.Off; io.Write && io.Err == nil && s < at; s += block.SectorSize {
		m.dirty[s] = true
	}
	io.Done(io)
}

// Sync makes what is written now durable, or forgets that it is not.
func (m *medium) Sync(done func(error)) {
	m.syncs++
	was := map[uint64][]byte{}
	for s := range m.dirty {
		was[s] = append([]byte(nil), m.content[s:s+block.SectorSize]...)
	}
	clear(m.dirty)
	end := func() {
		var err error
		if m.failSync != nil {
			err = m.failSync()
		}
		for s, b := range was {
			switch {
			case err == nil:
				copy(m.durable[s:], b)
			case m.dirty[s]: // it was written anew meanwhile
			case m.loses != nil && m.loses():
				copy(m.content[s:s+block.SectorSize], m.durable[s:])
			}
		}
		done(err)
	}
	if m.delay != nil {
		if ns := m.delay(); ns > 0 {
			m.clock.Call(m.clock.Now()+ns, end)
			return
		}
	}
	end()
}

// Abandon gives the buffers of a read back.
func (m *medium) Abandon(io *block.IO) { io.Vec = nil }

// deaf is a medium that does not give buffers back.
type deaf struct{ block.Medium }

// stamped returns a page whose sectors say which they are and of which version, with their checksums.
func stamped(version uint64) (data []byte, sums [layout.PageSectors]uint32) {
	data = make([]byte, layout.PageBytes)
	for s := range sums {
		b := data[s*block.SectorSize : (s+1)*block.SectorSize]
		binary.LittleEndian.PutUint64(b, version)
		b[8] = byte(s)
		binary.LittleEndian.PutUint64(b[block.SectorSize-8:], version)
		sums[s] = crc32c.Sector(b)
	}
	return data, sums
}

// versionOf returns the version of a sector; false: it is none.
func versionOf(b []byte) (uint64, bool) {
	v := binary.LittleEndian.Uint64(b)
	return v, v == binary.LittleEndian.Uint64(b[block.SectorSize-8:])
}
