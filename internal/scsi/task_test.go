package scsi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

type heap struct{}

func (heap) Get(n int) []byte { return make([]byte, n) }

// rig is a target in virtual time with two nexuses, a and b, whose unit attentions
// are cleared, and a log of what ended.
type rig struct {
	testing.TB
	exec *block.Virtual
	tg   *scsi.Target
	devs []*scsitest.Device
	a, b *scsi.Nexus
	log  []string

	cscds [][]byte // of the LUNs that copies are between
	token []byte
}

const initiatorA, initiatorB = "iqn.2026-11.org.example:host-a", "iqn.2026-11.org.example:host-b"

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, exec: &block.Virtual{}}
	r.tg, r.devs = scsitest.NewTarget(r.exec)
	r.a, r.b = r.login(initiatorA), r.login(initiatorB)
	r.log = nil
	return r
}

func (r *rig) login(name string) *scsi.Nexus {
	n := r.tg.OpenNexus(name, name+",i,0x1", 1)
	for lun := range uint64(6) {
		for range 3 {
			r.submit(n, r.task("tur", lun, make([]byte, 6)))
			r.exec.Run()
		}
	}
	return n
}

func (r *rig) task(name string, lun uint64, cdb []byte) *scsi.Task {
	t := &scsi.Task{LUN: lun << 48, CDB: cdb, MaxIn: 1 << 20, Bufs: heap{}}
	switch cdb[0] {
	case 0x2A:
		t.DataOut = [][]byte{make([]byte, 512*int(cdb[8]))}
	}
	t.Done = func(t *scsi.Task) {
		switch {
		case t.Aborted:
			name += " aborted"
		case t.Status == scsi.StatusCheckCondition:
			k, a, q := scsitest.SenseCode(t.Sense)
			name += fmt.Sprintf(" %x/%02x/%02x", k, a, q)
		case t.Status != scsi.StatusGood:
			name += fmt.Sprintf(" status %02x", t.Status)
		}
		r.log = append(r.log, name)
	}
	return t
}

func (r *rig) submit(n *scsi.Nexus, tasks ...*scsi.Task) { n.Submit(tasks) }

func (r *rig) manage(n *scsi.Nexus, fn scsi.TMF, lun, tag uint64) {
	before := len(r.log)
	n.Manage(fn, lun<<48, tag, func(resp scsi.TMFResponse) { r.log = append(r.log, fmt.Sprintf("tmf %d", resp)) })
	if len(r.log) != before {
		r.Fatal("an answer came from inside Manage")
	}
}

// ended checks what has ended since the last call, in order.
func (r *rig) ended(want ...string) {
	r.Helper()
	r.exec.Run()
	if !slices.Equal(r.log, want) {
		r.Fatalf("ended %q, want %q", r.log, want)
	}
	r.log = nil
}

func tagged(t *scsi.Task, tag uint64) *scsi.Task { t.Tag = tag; return t }

func attr(t *scsi.Task, a scsi.Attr) *scsi.Task { t.Attr = a; return t }

var read1, write1 = scsitest.CDB(0x28, 0, 1), scsitest.CDB(0x2A, 0, 1)

func TestBatch(t *testing.T) {
	r := newRig(t)
	d := r.devs[0]
	d.Batches = nil
	r.submit(r.a, r.task("1", 0, read1), r.task("2", 0, write1), r.task("inq", 0, []byte{0x12, 0, 0, 0, 96, 0}), r.task("3", 0, read1),
		r.task("4", 2, read1), r.task("5", 0, read1))
	if fmt.Sprint(d.Batches) != "[3 1]" {
		t.Errorf("batches %v, want [3 1]", d.Batches)
	}
	r.exec.Run()
	if slices.Sort(r.log); fmt.Sprint(r.log) != "[1 2 3 4 5 inq]" {
		t.Errorf("ended %q", r.log)
	}
}

func TestAbortTask(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	r.submit(r.a, tagged(r.task("x", 0, read1), 1), tagged(r.task("y", 0, read1), 2))
	r.submit(r.b, tagged(r.task("z", 0, read1), 1))
	r.manage(r.a, scsi.AbortTask, 0, 99)
	r.ended("tmf 1")
	r.manage(r.a, scsi.AbortTask, 77, 1)
	r.ended("tmf 2")
	r.manage(r.a, scsi.AbortTask, 0, 1)
	r.ended("x aborted", "tmf 0")
	r.devs[0].Release(2)
	r.ended("y", "z")
}

// TestAbortStarted: a request that has started cannot be withdrawn; the answer
// waits for it.
func TestAbortStarted(t *testing.T) {
	r := newRig(t)
	r.devs[0].Delay = 1000
	r.submit(r.a, tagged(r.task("x", 0, write1), 1))
	r.manage(r.a, scsi.AbortTask, 0, 1)
	r.manage(r.a, scsi.AbortTask, 0, 1) // twice is no error
	r.exec.RunUntil(r.exec.Now() + 500)
	if len(r.log) != 0 {
		t.Fatalf("%q before the request ended", r.log)
	}
	r.ended("x aborted", "tmf 0", "tmf 0")
}

func TestAbortTaskSet(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	r.submit(r.a, r.task("x", 0, read1), attr(r.task("o", 0, read1), scsi.AttrOrdered), r.task("y", 0, read1), r.task("other", 2, read1))
	r.submit(r.b, r.task("z", 0, read1))
	r.ended("other")
	r.manage(r.a, scsi.AbortTaskSet, 0, 0)
	r.ended("x aborted", "o aborted", "y aborted", "tmf 0")
	r.devs[0].Release(1)
	r.ended("z")
}

func TestClearTaskSet(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	r.submit(r.a, r.task("x", 0, read1))
	r.submit(r.b, r.task("z", 0, read1))
	r.manage(r.a, scsi.ClearTaskSet, 0, 0)
	r.ended("x aborted", "z status 40", "tmf 0")
	r.submit(r.b, r.task("tur", 0, make([]byte, 6)))
	r.ended("tur") // TASK ABORTED has said it (TAS=1), so no unit attention condition does
}

func TestResets(t *testing.T) {
	for _, c := range []struct {
		name   string
		fn     scsi.TMF
		others bool // other units of the nexus are reset too
		ua     string
	}{
		{"logical unit", scsi.LogicalUnitReset, false, "29/03"},
		{"target warm", scsi.TargetWarmReset, true, "29/03"},
		{"target cold", scsi.TargetColdReset, true, "29/00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.devs[0].Hold, r.devs[2].Hold = true, true
			r.submit(r.a, r.task("x", 0, write1), r.task("y", 2, write1))
			r.submit(r.b, r.task("z", 0, write1))
			r.manage(r.a, c.fn, 0, 0)
			if c.others {
				r.ended("x aborted", "z status 40", "y aborted", "tmf 0")
			} else {
				r.ended("x aborted", "z status 40", "tmf 0")
				r.devs[2].Release(1)
				r.ended("y")
			}
			r.submit(r.b, r.task("tur", 0, make([]byte, 6)))
			r.ended("tur 6/" + c.ua)
		})
	}
}

// TestColdResetEndsNexuses: a cold reset ends the nexuses that see a unit that was reset, after it
// was answered; a warm one ends none.
func TestColdResetEndsNexuses(t *testing.T) {
	for _, fn := range []scsi.TMF{scsi.TargetWarmReset, scsi.TargetColdReset} {
		r := newRig(t)
		private := r.tg.AddUnit(scsitest.NewDevice(r.exec, scsitest.Ready(8, 64, 512, true)), scsi.UnitOptions{})
		const hidden = "iqn.2026-11.org.example:hidden"
		if err := r.tg.Map(hidden, 3, private); err != nil {
			t.Fatal(err)
		}
		c := r.tg.OpenNexus(hidden, hidden+",i,0x1", 1)
		r.a.OnReset(func() { r.log = append(r.log, "a ends") })
		r.b.OnReset(func() { r.log = append(r.log, "b ends") })
		c.OnReset(func() { r.log = append(r.log, "c ends") })
		r.devs[0].Late = 1000
		r.submit(r.b, r.task("z", 0, write1))
		r.manage(r.a, fn, 0, 0)
		if fn == scsi.TargetWarmReset {
			r.ended("z status 40", "tmf 0")
		} else {
			r.ended("z status 40", "tmf 0", "a ends", "b ends")
		}
	}
}

func TestUnsupportedTMF(t *testing.T) {
	r := newRig(t)
	r.manage(r.a, scsi.ClearACA, 0, 0)
	r.manage(r.a, scsi.TMF(77), 0, 0)
	r.ended("tmf 5", "tmf 255")
}

func TestOrdered(t *testing.T) {
	r := newRig(t)
	d := r.devs[0]
	d.Hold = true
	r.submit(r.a, r.task("s1", 0, read1), r.task("s2", 0, read1), attr(r.task("o1", 0, read1), scsi.AttrOrdered),
		r.task("s3", 0, read1), attr(r.task("o2", 0, read1), scsi.AttrOrdered), attr(r.task("h", 0, read1), scsi.AttrHeadOfQueue))
	if d.Waiting() != 3 { // s1, s2, h
		t.Fatalf("%d requests started, want 3", d.Waiting())
	}
	d.Release(2)
	r.ended("s1", "s2")
	if d.Waiting() != 1 {
		t.Fatal("a task went ahead of HEAD OF QUEUE")
	}
	d.Release(1)
	r.ended("h")
	for _, want := range []string{"o1", "s3", "o2"} {
		if d.Waiting() != 1 {
			t.Fatalf("%d requests started before %s, want 1", d.Waiting(), want)
		}
		d.Release(1)
		r.ended(want)
	}
	r.submit(r.a, r.task("s4", 0, read1), r.task("s5", 0, read1))
	if d.Waiting() != 2 {
		t.Fatal("SIMPLE tasks wait for nothing")
	}
	d.Release(2)
	r.ended("s4", "s5")
}

// TestOrderedChain ends many ORDERED tasks that need no medium: each lets the
// next one run.
func TestOrderedChain(t *testing.T) {
	r := newRig(t)
	r.b.Close(func() {}) // who is alone may have the whole task set
	r.exec.Run()
	r.devs[0].Hold = true
	tasks := []*scsi.Task{r.task("first", 0, read1)}
	want := []string{"first"}
	for i := range 3000 {
		name := fmt.Sprint("o", i)
		tasks = append(tasks, attr(r.task(name, 0, make([]byte, 6)), scsi.AttrOrdered))
		want = append(want, name)
	}
	r.submit(r.a, tasks...)
	r.ended()
	r.devs[0].Release(1)
	r.exec.Run()
	slices.Sort(want)
	if slices.Sort(r.log); !slices.Equal(r.log, want) {
		t.Fatalf("%d tasks ended, want %d", len(r.log), len(want))
	}
}

func TestTaskSetFull(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 1024, 512, true))
	if err := r.tg.Map("", 0, r.tg.AddUnit(d, scsi.UnitOptions{MaxTasks: 2})); err != nil {
		t.Fatal(err)
	}
	n := r.login(initiatorA)
	r.log = nil
	d.Hold = true
	r.submit(n, r.task("1", 0, read1), r.task("2", 0, read1), r.task("3", 0, read1))
	r.ended("3 status 28")
	d.Release(1)
	r.ended("1")
	r.submit(n, r.task("4", 0, read1))
	d.Release(2)
	r.ended("2", "4")
}

// TestTaskSetIsShared: an initiator, with however many sessions, leaves half of a unit's task set to the others that see it, and
// may have all of it where there are none.
func TestTaskSetIsShared(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 1024, 512, true))
	if err := r.tg.Map("", 0, r.tg.AddUnit(d, scsi.UnitOptions{MaxTasks: 4})); err != nil {
		t.Fatal(err)
	}
	a1, a2 := r.login(initiatorA), r.tg.OpenNexus(initiatorA, initiatorA+",i,0x400002370002", 1)
	for range 3 { // until its unit attentions are told
		r.submit(a2, r.task("tur", 0, make([]byte, 6)))
	}
	b := r.login(initiatorB)
	r.log = nil
	d.Hold = true
	r.submit(a1, r.task("1", 0, read1))
	r.submit(a2, r.task("2", 0, read1), r.task("3", 0, read1))
	r.submit(a1, r.task("4", 0, read1))
	r.ended("3 status 28", "4 status 28")
	r.submit(b, r.task("5", 0, read1), r.task("6", 0, read1), r.task("7", 0, read1))
	r.ended("7 status 28")
	b.Close(func() { r.log = append(r.log, "closed") })
	r.ended("5 aborted", "6 aborted", "closed")
	r.submit(a1, r.task("8", 0, read1), r.task("9", 0, read1), r.task("10", 0, read1))
	r.ended("10 status 28")
	d.Release(4)
	r.ended("1", "2", "8", "9")
}

// deaf is a device that withdraws nothing, as one whose mdisk does not answer.
type deaf struct{ *scsitest.Device }

func (deaf) Cancel(*block.Request) {}

// TestTaskSetBehindLogouts: tasks that do not end count for their initiator when its session has ended: it does not get the
// other half of the task set by logging in again.
func TestTaskSetBehindLogouts(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 1024, 512, true))
	if err := r.tg.Map("", 0, r.tg.AddUnit(deaf{d}, scsi.UnitOptions{MaxTasks: 4})); err != nil {
		t.Fatal(err)
	}
	a, b := r.login(initiatorA), r.login(initiatorB)
	d.Hold = true
	r.submit(a, r.task("1", 0, read1), r.task("2", 0, read1))
	a.Close(func() { r.log = append(r.log, "closed") })
	a = r.login(initiatorA)
	r.log = nil
	r.submit(a, r.task("3", 0, read1))
	r.ended("3 status 28")
	r.submit(b, r.task("4", 0, read1), r.task("5", 0, read1))
	d.Release(1)
	r.ended("1 aborted")
	r.submit(a, r.task("tur", 0, make([]byte, 6)))
	r.ended("tur 6/29/07")
	r.submit(a, r.task("6", 0, read1))
	r.submit(a, r.task("7", 0, read1))
	r.ended("7 status 28")
	d.Release(4)
	r.ended("2 aborted", "4", "5", "6", "closed")
	r.submit(a, r.task("8", 0, read1), r.task("9", 0, read1), r.task("10", 0, read1))
	r.ended("10 status 28")
	d.Release(2)
	r.ended("8", "9")
}

func TestCloseNexus(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	r.submit(r.a, r.task("x", 0, write1), r.task("y", 0, write1))
	r.submit(r.b, r.task("z", 0, write1))
	r.a.Close(func() { r.log = append(r.log, "closed") })
	r.ended("x aborted", "y aborted", "closed")
	r.submit(r.a, r.task("late", 0, read1))
	r.ended("late 5/25/00")
	r.devs[0].Release(1)
	r.ended("z")
	r.a.Close(func() { r.log = append(r.log, "closed") })
	r.ended("closed")
}

func TestRemoveUnit(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 1024, 512, true))
	u := r.tg.AddUnit(d, scsi.UnitOptions{})
	if err := r.tg.Map("", 0, u); err != nil {
		t.Fatal(err)
	}
	n := r.login(initiatorA)
	r.log = nil
	d.Hold = true
	r.submit(n, r.task("x", 0, read1), attr(r.task("o", 0, read1), scsi.AttrOrdered))
	r.tg.RemoveUnit(u)
	r.ended("x 5/25/00", "o 5/25/00")
	r.submit(n, r.task("y", 0, read1))
	r.ended("y 5/25/00")
	if err := r.tg.Map("", 1, u); err == nil {
		t.Error("a removed unit can be mapped")
	}
}

func TestPreemptAndAbort(t *testing.T) {
	r := newRig(t)
	pr := func(n *scsi.Nexus, sa, kind byte, key, action byte) {
		k := r.task("pr", 0, []byte{0x5F, sa, kind, 0, 0, 0, 0, 0, 24, 0})
		k.DataOut = [][]byte{append(append(make([]byte, 7), key), append(append(make([]byte, 7), action), make([]byte, 8)...)...)}
		r.submit(n, k)
	}
	pr(r.a, 6, 0, 0, 0xA)
	pr(r.b, 6, 0, 0, 0xB)
	pr(r.b, 1, 5, 0xB, 0)
	r.ended("pr", "pr", "pr")
	r.devs[0].Delay = 1000
	r.submit(r.b, r.task("b", 0, write1))
	r.submit(r.a, r.task("a", 0, write1))
	pr(r.a, 5, 1, 0xA, 0xB)
	r.ended("b status 40", "pr", "a")
	r.submit(r.b, r.task("b", 0, write1))
	r.submit(r.b, r.task("tur", 0, make([]byte, 6)))
	r.ended("b status 18", "tur 6/2a/05")
}

func TestDeviceErrors(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		status block.Status
		want   string
	}{
		{block.NoSpace, "w 7/27/07"}, {block.MediumWrite, "w 3/0c/00"}, {block.Hardware, "w 4/44/00"},
		{block.Resources, "w status 08"}, {block.Gone, "w 5/25/00"}, {block.ReadOnly, "w 7/27/00"},
	} {
		r.devs[0].Fault = func(*block.Request) block.Status { return c.status }
		r.submit(r.a, r.task("w", 0, write1))
		r.ended(c.want)
	}
}

func TestAttentions(t *testing.T) {
	r := newRig(t)
	d := r.devs[0]
	tur := func(want string) {
		t.Helper()
		for _, n := range []*scsi.Nexus{r.a, r.b} {
			r.submit(n, r.task("tur", 0, make([]byte, 6)))
			r.ended(want)
		}
	}
	d.Change(block.EventCapacity, func(i *block.Info) { i.Sectors *= 2 })
	tur("tur 6/2a/09")
	r.submit(r.a, r.task("read", 0, scsitest.CDB(0x28, scsitest.Sectors+5, 1)))
	r.ended("read")
	d.Change(block.EventCapacity, func(i *block.Info) { i.Thin = false }) // it stands in VPD pages
	tur("tur 6/3f/03")
	d.Change(block.EventCapacity, func(i *block.Info) { i.Sectors *= 2; i.Thin = true })
	tur("tur 6/2a/09")
	tur("tur 6/3f/03")
	tur("tur")
	d.Change(block.EventThreshold, nil)
	tur("tur 6/38/07")
	tur("tur")
	d.Change(block.EventHealth, func(i *block.Info) { i.ReadOnly = true })
	r.submit(r.a, r.task("write", 0, write1))
	r.ended("write 7/27/00")

	// A changed LUN map: on all nexuses it concerns; REPORT LUNS clears it.
	luns := []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0}
	r.tg.Unmap("", 5)
	r.submit(r.a, r.task("luns", 0, luns), r.task("tur", 0, make([]byte, 6)), r.task("tur", 2, make([]byte, 6)))
	r.ended("luns", "tur", "tur")
	r.submit(r.b, r.task("tur", 0, make([]byte, 6)), r.task("gone", 5, make([]byte, 6)), r.task("tur", 0, make([]byte, 6)))
	r.ended("tur 6/3f/0e", "gone 5/25/00", "tur")
}

// TestOwnMap: an initiator with a map of its own sees nothing else.
func TestOwnMap(t *testing.T) {
	r := newRig(t)
	if !r.tg.Visible("iqn.anybody") {
		t.Error("the map for everybody is not visible")
	}
	u := r.tg.AddUnit(scsitest.NewDevice(r.exec, scsitest.Ready(9, 1024, 512, true)), scsi.UnitOptions{})
	if err := r.tg.Map(initiatorA, 7, u); err != nil {
		t.Fatal(err)
	}
	r.submit(r.a, r.task("old", 0, make([]byte, 6)), r.task("new", 7, make([]byte, 6)), r.task("new", 7, make([]byte, 6)), r.task("new", 7, make([]byte, 6)))
	r.ended("old 5/25/00", "new 6/29/00", "new 6/3f/0e", "new")
	r.submit(r.b, r.task("old", 0, make([]byte, 6)), r.task("new", 7, make([]byte, 6)))
	r.ended("old", "new 5/25/00")
	if err := r.tg.Map("", 0, u); err == nil {
		t.Error("a LUN was mapped twice")
	}
	if err := r.tg.Map("", 1<<14, u); err == nil {
		t.Error("a LUN above flat space addressing was mapped")
	}
	r.tg.Unmap(initiatorA, 7)
	if r.tg.Visible(initiatorA) {
		t.Error("an empty map is visible")
	}
}

func TestLUNFormats(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name string
		lun  uint64
		want string
	}{
		{"peripheral", 0x0002 << 48, "x"},
		{"flat", 0x4002 << 48, "x"},
		{"flat above 255", (0x4000 | scsitest.Distant) << 48, "x 6/29/00"},
		{"peripheral on bus 1", 0x0102 << 48, "x 5/25/00"},
		{"second level", 0x0002_0001 << 32, "x 5/25/00"},
		{"logical unit addressing", 0x8002 << 48, "x 5/25/00"},
		{"well known", 0xC101 << 48, "x 5/25/00"},
	} {
		k := r.task("x", 0, make([]byte, 6))
		k.LUN = c.lun
		r.submit(r.a, k)
		t.Run(c.name, func(*testing.T) { r.ended(c.want) })
	}
}

type fixed struct{ buf []byte }

func (f *fixed) Get(n int) []byte { return f.buf[:n] }

// sink is a device that completes when told, and allocates nothing.
type sink struct {
	info block.Info
	got  []*block.Request
	free []*block.Request
	hear func(block.Event)
}

func (s *sink) Info() block.Info              { return s.info }
func (s *sink) Submit(r []*block.Request)     { s.got = append(s.got, r...) }
func (s *sink) Cancel(*block.Request)         {}
func (s *sink) Notify(fn func(e block.Event)) { s.hear = fn }
func (s *sink) complete() {
	run := s.got
	s.got = s.free[:0]
	for _, r := range run {
		r.Status = block.OK
		if r.Op == block.OpHold {
			r.Ref = emptyRef{}
		}
		r.Done(r)
	}
	s.free = run[:0]
}

type emptyRef struct{}

func (emptyRef) Sectors() uint64 { return 0 }
func (emptyRef) Release()        {}

// bigRig has one unit of just under 16 TiB with blocks of 4096 bytes.
func bigRig(t *testing.T) (*rig, *sink) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := &sink{info: scsitest.Ready(1, 32<<30-8, 4096, true)}
	if err := r.tg.Map("", 0, r.tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	r.a = r.login(initiatorA)
	r.log = nil
	return r, d
}

func TestTooLong(t *testing.T) {
	r, d := bigRig(t)
	r.submit(r.a, r.task("r", 0, scsitest.CDB(0x88, 0, 8193)), r.task("w", 0, scsitest.CDB(0x8A, 0, 8193)), r.task("ok", 0, scsitest.CDB(0x88, 0, 8192)))
	r.ended("r 5/24/00", "w 5/24/00")
	d.complete()
	r.ended("ok")
	// NUMBER OF BLOCKS 0 to the end, but that is more than MAXIMUM WRITE SAME LENGTH.
	k := r.task("ws", 0, scsitest.CDB(0x93, 0, 0))
	k.DataOut = [][]byte{make([]byte, 4096)}
	r.submit(r.a, k)
	d.complete()
	r.ended("ws")
	k = r.task("unmap", 0, []byte{0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0})
	half := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0} // 2^31 blocks
	k.DataOut = [][]byte{slices.Concat([]byte{0, 38, 0, 32, 0, 0, 0, 0}, half, half)}
	r.submit(r.a, k)
	d.complete()
	r.ended("unmap")
	k = r.task("ws", 0, scsitest.CDB(0x93, 0, 0))
	k.DataOut = [][]byte{make([]byte, 4096)}
	d.info.Sectors = 64 << 30
	d.hear(block.Event{Kind: block.EventCapacity})
	r.submit(r.a, r.task("tur", 0, make([]byte, 6)), k)
	r.ended("tur 6/2a/09", "ws 5/24/00")
}

// TestCopyStatusUnits: more than 4 GiB is told in KiB.
func TestCopyStatusUnits(t *testing.T) {
	r, d := bigRig(t)
	s := &scsitest.Session{TB: t, Initiator: &direct{t, r.exec, r.a}}
	var segs [][]byte
	for i := range 32 {
		segs = append(segs, scsitest.Segment02(0, 0, 0xFFFF, uint64(i), 1<<20, false))
	}
	list := scsitest.CopyList(1, 0, [][]byte{s.NAA6(0, 4096)}, segs)
	k := r.task("copy", 0, scsitest.CopyCDB(list))
	k.DataOut = [][]byte{list}
	r.submit(r.a, k)
	status := func() []byte { return s.Do(scsitest.Command{CDB: []byte{0x84, 0, 1, 13: 12, 15: 0}, In: 12}).In }
	if b := status(); b[4] != 0 {
		t.Errorf("status %x, want in progress", b)
	}
	for len(d.got) > 0 {
		d.complete()
	}
	r.ended("copy")
	const kib = 32 * 0xFFFF * 4
	if b := status(); b[4] != 1 || b[7] != 1 || int(b[8])<<24|int(b[9])<<16|int(b[10])<<8|int(b[11]) != kib {
		t.Errorf("status %x, want %d KiB", b, kib)
	}
}

// TestMixedBlock: a logical block whose sectors differ counts as mapped.
func TestMixedBlock(t *testing.T) {
	r := newRig(t)
	states := r.devs[scsitest.Large].States
	for i := range states {
		if i >= 12 && i < 24 {
			states[i] = block.Data
		}
	}
	s := &scsitest.Session{TB: t, Initiator: &direct{t, r.exec, r.a}}
	cdb := scsitest.CDB16(0x9E, 0x12, 8+3*16)
	in := s.Do(scsitest.Command{LUN: scsitest.Large, CDB: cdb, In: 256}).In
	want := "[0 0 0 52 0 0 0 0 " +
		"0 0 0 0 0 0 0 0 0 0 0 1 1 0 0 0 " +
		"0 0 0 0 0 0 0 1 0 0 0 2 0 0 0 0 " +
		"0 0 0 0 0 0 0 3 0 0 0 253 1 0 0 0]"
	if fmt.Sprint(in) != want {
		t.Errorf("GET LBA STATUS\n got %v\nwant %s", in, want)
	}
}

// TestLongVerify compares what does not fit one piece.
func TestLongVerify(t *testing.T) {
	r := newRig(t)
	exec := r.exec
	d := scsitest.NewDevice(exec, scsitest.Ready(9, 8192, 512, true))
	if err := r.tg.Map(initiatorA, 9, r.tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	r.submit(r.a, r.task("x", 9, make([]byte, 6)), r.task("x", 9, make([]byte, 6)))
	r.exec.Run()
	r.log = nil
	for i := range d.Data {
		d.Data[i] = byte(i >> 3)
	}
	verify := func(name string, data []byte) *scsi.Task {
		cdb := scsitest.CDB(0x8F, 0, len(data)/512)
		cdb[1] = 2
		k := r.task(name, 9, cdb)
		k.DataOut = [][]byte{data[:1000], data[1000:]}
		r.submit(r.a, k)
		return k
	}
	data := slices.Clone(d.Data[:3<<20])
	verify("same", data)
	r.ended("same")
	data[2<<20+77]++
	k := verify("differs", data)
	r.ended("differs e/1d/00")
	if off := int(k.Sense[4])<<16 | int(k.Sense[5])<<8 | int(k.Sense[6]); off != 2<<20+77 {
		t.Errorf("INFORMATION %d, want %d", off, 2<<20+77)
	}
}

// batchOf32 makes a batch of READs and WRITEs and what submits and completes it.
func batchOf32(tb testing.TB) func() {
	exec := &block.Virtual{}
	tg := scsi.NewTarget(scsi.Options{Exec: exec})
	d := &sink{info: scsitest.Ready(1, 1<<20, 512, true)}
	if err := tg.Map("", 0, tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		tb.Fatal(err)
	}
	n := tg.OpenNexus(initiatorA, initiatorA, 1)
	bufs := &fixed{make([]byte, 4096)}
	done := 0
	var tasks []*scsi.Task
	for i := range 32 {
		op := []byte{0x88, 0x8A}[i%2]
		tasks = append(tasks, &scsi.Task{CDB: scsitest.CDB(op, uint64(i*8), 8), MaxIn: 4096, DataOut: [][]byte{bufs.buf},
			Bufs: bufs, Done: func(*scsi.Task) { done++ }})
	}
	n.Submit(tasks[:1]) // takes the unit attention
	exec.Run()
	return func() {
		done = 0
		n.Submit(tasks)
		d.complete()
		if done != len(tasks) || tasks[0].Status != scsi.StatusGood {
			tb.Fatalf("%d tasks ended, status %02x", done, tasks[0].Status)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	run := batchOf32(t)
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations for 32 commands", n)
	}
}

func BenchmarkBatchOf32(b *testing.B) {
	run := batchOf32(b)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/command")
}
