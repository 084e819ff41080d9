package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// heldDevice keeps requests until the test ends them.
type heldDevice struct {
	reqs []*block.Request
}

func (d *heldDevice) Info() block.Info {
	return block.Info{Name: "vol", Pool: "pool", Serial: "1", NAA: [16]byte{0x60}, BlockSize: 512, Sectors: 1 << 20}
}
func (d *heldDevice) Submit(r []*block.Request) { d.reqs = append(d.reqs, r...) }
func (d *heldDevice) Notify(func(block.Event))  {}
func (d *heldDevice) Cancel(*block.Request)     {}

// finish ends what the device keeps.
func (d *heldDevice) finish() {
	reqs := d.reqs
	d.reqs = nil
	for _, r := range reqs {
		r.Status = block.OK
		r.Done(r)
	}
}

type heapBuffers struct{}

func (heapBuffers) Get(n int) []byte { return make([]byte, n) }

// lives is a target whose tasks go where the test wants them.
type lives struct {
	exec  *block.Virtual
	dev   *heldDevice
	tg    *Target
	u     *Unit
	n     *Nexus
	delay int64
	tasks []*Task
}

// twoCommands is a READ that goes to the device, and a command that waits for a save.
func twoCommands() *Commands {
	read := func(t *Task) {
		r := t.Request()
		r.Op, r.Range = block.OpRead, block.Range{Count: 1}
		t.Submit((*Task).Good)
	}
	return NewCommands([]*Command{
		{Name: "READ(10)", Op: 0x28, ServiceAction: NoAction, Usage: []byte{0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0}, Run: read, Flags: MediumRead, Kind: counters.Read},
		{Name: "SET IDENTIFYING INFORMATION", Op: 0xA4, ServiceAction: 6, Usage: []byte{0xA4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, Run: (*Task).GoodWhenSaved, Kind: counters.Other},
	}, nil, nil)
}

// noCopies is a copy manager of a target that serves no copies: it finds nothing.
type noCopies struct{ CopyManager }

func withoutCopies(*Target) CopyManager { return noCopies{} }

func (noCopies) Fence(*Unit, *Waiter, Scope, Verdict)      {}
func (noCopies) Stop(*Waiter, func(*ITL) bool)             {}
func (noCopies) Unmap(*ITL, *Waiter)                       {}
func (noCopies) UnmapLeft(*Unit, *Waiter, func(*ITL) bool) {}
func (noCopies) Drop(*ITL)                                 {}
func (noCopies) Revoke(*Unit)                              {}

func newLives() *lives {
	l := &lives{exec: &block.Virtual{}, dev: &heldDevice{}}
	l.tg = NewTarget(Options{Name: "iqn.2026-11.org.example:array", Exec: l.exec, Delay: func(*Task) int64 { return l.delay }}, twoCommands(), withoutCopies)
	// A save never ends.
	l.u = l.tg.AddUnit(l.dev, UnitOptions{MaxTasks: 3, Save: func([]byte, func(error)) {}})
	if err := l.tg.Map("", 0, l.u); err != nil {
		panic(err)
	}
	l.n = l.tg.OpenNexus("iqn.2026-11.org.example:host", "iqn.2026-11.org.example:host", 1)
	l.u.itls[0].ua = 0
	return l
}

func (l *lives) submit(lun uint64, attr sam.Attr, cdb ...byte) {
	t := &Task{LUN: lun << 48, Attr: attr, CDB: cdb, MaxIn: 1 << 20, Bufs: heapBuffers{}, Done: func(*Task) {}}
	l.tasks = append(l.tasks, t)
	l.n.Submit([]*Task{t})
}

func (l *lives) read(attr sam.Attr) { l.submit(0, attr, 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0) }

func (l *lives) abortAll() { l.n.Manage(sam.AbortTaskSet, 0, 0, func(sam.TMFResponse) {}) }

// phases says in which states the tasks are, in the order of their arrival.
func (l *lives) phases() string {
	var names []string
	for _, t := range l.tasks {
		names = append(names, phaseNames[t.state.phase])
	}
	return strings.Join(names, ", ")
}

// steps take tasks through every transition of the table. Each says in which states its tasks
// are afterwards; then the task management function, the device and the clock end them.
var steps = []struct {
	name string
	do   func(*lives)
	want string
}{
	{"a READ", func(l *lives) { l.read(sam.AttrSimple) }, "at the device"},
	{"a READ ends", func(l *lives) { l.read(sam.AttrSimple); l.dev.finish() }, "idle"},
	{"an ORDERED one waits", func(l *lives) { l.read(sam.AttrSimple); l.read(sam.AttrOrdered) }, "at the device, dormant"},
	{"what waits is aborted", func(l *lives) { l.read(sam.AttrSimple); l.read(sam.AttrOrdered); l.abortAll() }, "aborting, completed"},
	{"no unit", func(l *lives) { l.read(sam.AttrSimple); l.submit(5, sam.AttrSimple, 0, 0, 0, 0, 0, 0) }, "at the device, completed"},
	{"a full set", func(l *lives) {
		for range 4 {
			l.read(sam.AttrSimple)
		}
	}, "at the device, at the device, at the device, completed"},
	{"a delay", func(l *lives) { l.delay = 5; l.read(sam.AttrSimple) }, "delayed"},
	{"a delay is over", func(l *lives) {
		l.delay = 5
		l.read(sam.AttrSimple)
		l.exec.RunUntil(l.exec.Now() + 5)
	}, "at the device"},
	{"aborted in its delay", func(l *lives) { l.delay = 5; l.read(sam.AttrSimple); l.abortAll() }, "aborting"},
	{"a save", func(l *lives) { l.submit(0, sam.AttrSimple, 0xA4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, "enabled"},
	{"aborted in a save", func(l *lives) {
		l.submit(0, sam.AttrSimple, 0xA4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		l.abortAll()
	}, "completed"},
	{"ACA is refused", func(l *lives) { l.read(sam.AttrACA) }, "completed"},
	{"the unit goes", func(l *lives) {
		l.read(sam.AttrSimple)
		l.read(sam.AttrOrdered)
		l.submit(0, sam.AttrHeadOfQueue, 0xA4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		l.tg.RemoveUnit(l.u)
	}, "at the device, completed, completed"},
}

// walk takes every step on a target of its own, and returns what went otherwise than it should.
func walk() (msg string) {
	at := ""
	defer func() {
		if r := recover(); r != nil {
			msg = fmt.Sprintf("%s: %v", at, r)
		}
	}()
	for _, s := range steps {
		at = s.name
		l := newLives()
		s.do(l)
		if got := l.phases(); got != s.want {
			return fmt.Sprintf("%s: %s, want %s", at, got, s.want)
		}
		for range 3 { // what was ORDERED runs after the others
			l.abortAll()
			l.exec.Run()
			l.dev.finish()
			l.exec.Run()
		}
		for _, t := range l.tasks {
			if t.state.phase != idle || t.state.u != nil || t.state.continuation != nil {
				return fmt.Sprintf("%s: a task ended %s", at, l.phases())
			}
		}
		if u := l.u; u.size != 0 || u.blockers != 0 || u.heads != 0 || u.first != nil || u.last != nil {
			return fmt.Sprintf("%s: the task set is not empty", at)
		}
	}
	return ""
}

// TestTransitions holds the table against the code in both directions: every change that the
// table has not panics, and there is none that no task makes.
func TestTransitions(t *testing.T) {
	if msg := walk(); msg != "" {
		t.Fatal(msg)
	}
	panics := func(from, to phase) (why string) {
		defer func() {
			if r := recover(); r != nil {
				why = fmt.Sprint(r)
			}
		}()
		st := taskState{phase: from}
		st.to(to)
		if st.phase != to {
			return "the state did not change"
		}
		return ""
	}
	legal := 0
	for to := range numPhases {
		for from := range numPhases {
			may := transitions[to]>>from&1 != 0
			name := fmt.Sprintf("a task that is %s cannot become %s", phaseNames[from], phaseNames[to])
			if why := panics(from, to); may != (why == "") || !may && !strings.Contains(why, name) {
				t.Errorf("from %s to %s: %q, in the table %v", phaseNames[from], phaseNames[to], why, may)
			}
			if !may {
				continue
			}
			legal++
			// Without this entry some task cannot go its way.
			transitions[to] &^= 1 << from
			if msg := walk(); !strings.Contains(msg, name) {
				t.Errorf("no task goes from %s to %s: %q", phaseNames[from], phaseNames[to], msg)
			}
			transitions[to] |= 1 << from
		}
	}
	if legal == 0 || transitions[numPhases-1] == 0 {
		t.Error("the table is empty")
	}
}

// TestElsewhere names the states in which a task does not end when it is aborted.
func TestElsewhere(t *testing.T) {
	for p := range numPhases {
		// Who can be aborted and end at once can become completed by itself.
		atOnce := transitions[completed]>>p&1 != 0
		if p != idle && p != completed && p != aborting && atOnce == p.elsewhere() {
			t.Errorf("%s: elsewhere %v, ends at once %v", phaseNames[p], p.elsewhere(), atOnce)
		}
	}
}
