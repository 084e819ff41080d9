package handlers

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
)

// unit is a volume behind a ring. Commands go to the SCSI layer as tasks, all of a
// wake-up in one entry of the executor. Those that end while Serve is at work are
// answered by it, outside the executor; later ones by finisher.
type unit struct {
	array  *Array
	exec   block.Executor // its target's
	dev    *tcmu.Device
	spec   VolumeSpec
	domain *domain
	lun    uint64 // as on the wire
	su     *scsi.Unit

	release func()

	writeThrough atomic.Bool // the kernel's emulate_write_cache is 0

	batch []*scsi.Task // Serve's own
	asked <-chan bool  // the same: what configfs was asked, and has not answered in time

	// Each reset that has to wait for commands (see reset) begins a generation of them. The executor guards
	// all; Serve's goroutine alone changes generation.
	generation uint64 // of the commands that come now
	oldest     uint64 // that of running[0]
	running    []int  // commands that the array has, by generation; a reset comes behind each but the last

	mu    sync.Mutex
	ended []*command // guarded by mu
	spare []*command // guarded by mu
	held  bool       // guarded by mu: whoever holds will look at ended
	due   bool       // guarded by mu: a reset comes before the commands in ended are answered
	wake  chan struct{}
	quit  chan struct{}
}

// command is what hangs on a tcmu.Command: its task. It is used again with it.
type command struct {
	task   scsi.Task
	cmd    *tcmu.Command
	unit   *unit
	came   uint64 // its generation
	op     byte   // what the kernel sent
	flush  bool   // a flush has to follow
	synced bool   // it has begun
	caches bool   // the reply tells of the write cache, which is off
	direct bool   // memory of the ring was handed out for Data-In
	pieces [][]byte
	bounce []*buffers.Buffer
}

func newUnit(a *Array, d *tcmu.Device, su *scsi.Unit, spec VolumeSpec, release func()) *unit {
	return &unit{array: a, exec: su.Target().Exec(), dev: d, su: su, spec: spec, release: release, running: []int{0}, wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

// Serve implements tcmu.Handler.
func (u *unit) Serve(batch []*tcmu.Command) {
	u.hold()
	u.batch = u.batch[:0]
	for _, c := range batch {
		if u.conflicts(c) {
			c.Complete(scsi.StatusCheckCondition, conflictSense[:], 0)
			continue
		}
		through := u.writeThrough.Load()
		if through && isModeSelect(c.CDB) && u.dev.Guard(func() { turnWCE(c.CDB[0], c.Data) }) != nil {
			c.Complete(scsi.StatusCheckCondition, faultSense[:], 0)
			continue
		}
		x, ok := c.Ctx.(*command)
		if !ok {
			x = &command{cmd: c, unit: u}
			x.task.Ctx, x.task.Bufs, x.task.Done = x, x, taskDone
			c.Ctx = x
		}
		x.flush, x.synced, x.caches = false, false, false
		x.came = u.generation
		if through {
			x.op, x.flush, x.caches = c.CDB[0], forceFUA(c.CDB), isModeSense(c.CDB)
		}
		t := &x.task
		t.LUN, t.Tag, t.Attr = u.lun, uint64(c.ID()), scsi.AttrSimple
		t.CDB, t.DataOut, t.MaxIn = c.CDB, c.Data, c.Len()
		u.batch = append(u.batch, t)
	}
	enter(u.exec, func() {
		u.running[len(u.running)-1] += len(u.batch)
		u.domain.nexus.Submit(u.batch)
	})
	u.finish()
}

// enter runs fn with the executor held. If memory of a ring is taken away in there, which its device
// found present, the process ends: nobody can say what of the array's state was half changed, and a
// start finds all that was acknowledged. To pass the fault on, as one of the ring alone, would leave
// the executor locked, and with it all units of the I/O group.
func enter(exec block.Executor, fn func()) {
	left := false
	defer func() {
		if left {
			return
		}
		if r := recover(); r != nil {
			panic(fmt.Sprintf("handlers: the core was interrupted: %v", r))
		}
	}()
	exec.Lock()
	fn()
	exec.Unlock()
	left = true
}

// Get implements scsi.Buffers. It is called on the executor. Where the kernel's
// memory is in one piece, the array reads into that.
func (x *command) Get(n int) []byte {
	if d := x.cmd.Data; !x.direct && len(d) > 0 && n <= len(d[0]) {
		x.direct = true
		return d[0][:n]
	}
	b := buffers.Get(n)
	x.bounce = append(x.bounce, b)
	return b.B[:n]
}

// Pieces implements scsi.Scattered: the kernel's memory as it lies.
func (x *command) Pieces(n int) [][]byte {
	if x.direct {
		return nil
	}
	x.pieces = x.pieces[:0]
	for _, d := range x.cmd.Data {
		k := min(n, len(d))
		if n -= k; k > 0 {
			x.pieces = append(x.pieces, d[:k:k])
		}
	}
	if n > 0 {
		return nil
	}
	x.direct = true
	return x.pieces
}

// taskDone is Done of every task: the executor calls it.
func taskDone(t *scsi.Task) {
	x := t.Ctx.(*command)
	u := x.unit
	last := u.depart(x)
	u.mu.Lock()
	u.due = u.due || last
	u.ended = append(u.ended, x)
	wake := !u.held
	u.mu.Unlock()
	if wake {
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
}

// hold says that finish will be called.
func (u *unit) hold() {
	u.mu.Lock()
	u.held = true
	u.mu.Unlock()
}

// finish answers all commands that have ended.
func (u *unit) finish() {
	for {
		u.mu.Lock()
		list := u.ended
		if len(list) == 0 {
			u.held = false
			u.mu.Unlock()
			return
		}
		u.ended = u.spare[:0]
		u.spare = nil
		due := u.due
		u.due = false
		u.mu.Unlock()
		if due {
			enter(u.exec, u.resetBehind)
		}
		for i, x := range list {
			list[i] = nil
			x.finish()
		}
		u.mu.Lock()
		u.spare = list[:0]
		u.mu.Unlock()
	}
}

// finisher answers commands that end when nobody holds.
func (u *unit) finisher() {
	for {
		select {
		case <-u.quit:
			return
		case <-u.wake:
		}
		u.dev.Hold()
		u.finish()
		u.dev.Flush()
	}
}

// finish answers the command, which must not be touched afterwards.
func (x *command) finish() {
	t, c := &x.task, x.cmd
	status, sense, n := t.Status, t.Sense, tcmu.All
	if x.flush && status == scsi.StatusGood && !t.Aborted {
		x.sync()
		return
	}
	if t.Aborted { // the initiator hears nothing, but the kernel waits for its memory
		status, sense = scsi.StatusTaskAborted, nil
	}
	switch {
	case status != scsi.StatusGood && t.OutTotal == 0:
		n = 0 // its memory may hold what other commands left there
	case status == scsi.StatusGood && t.OutTotal == 0 && !x.synced:
		if u := x.unit; u.dev.Guard(func() { n = x.gather() }) != nil {
			status, sense, n = scsi.StatusCheckCondition, faultSense[:], 0
		}
	}
	for i, b := range x.bounce {
		b.Put()
		x.bounce[i] = nil
	}
	clear(x.pieces)
	x.pieces, x.bounce, x.direct = x.pieces[:0], x.bounce[:0], false
	t.CDB, t.DataOut, t.DataIn = nil, nil, nil
	c.Complete(status, sense, n)
}

// faultSense is HARDWARE ERROR, INTERNAL TARGET FAILURE in fixed format.
var faultSense = [18]byte{0: 0x70, 2: 0x04, 7: 10, 12: 0x44}

// gather puts Data-In where the kernel wants it and returns its length. What lies in its place
// already stays.
func (x *command) gather() int {
	to, at, n := x.cmd.Data, 0, 0
	for _, from := range x.task.DataIn {
		n += len(from)
		for len(from) > 0 && len(to) > 0 {
			room := to[0][at:]
			if len(room) == 0 {
				to, at = to[1:], 0
				continue
			}
			k := min(len(room), len(from))
			if &room[0] != &from[0] {
				copy(room, from[:k])
			}
			from, at = from[k:], at+k
		}
	}
	if x.caches {
		clearWCE(x.op, x.cmd.Data)
	}
	return n
}

// Manage implements tcmu.TaskManager: the kernel has given commands up and waits for
// their memory, so what still waits in the array is withdrawn.
func (u *unit) Manage(m tcmu.TMR) {
	if m.Function == tcmu.TMRLUNReset {
		u.reset() // what ends while it asks is answered meanwhile
		return
	}
	u.hold()
	enter(u.exec, func() { u.abort(m) })
	u.finish()
}

// abort withdraws the commands of a TMR. The executor is held.
func (u *unit) abort(m tcmu.TMR) {
	for _, id := range m.IDs {
		u.domain.nexus.Manage(scsi.AbortTask, u.lun, uint64(id), func(scsi.TMFResponse) {})
	}
	if m.Function == tcmu.TMRLUNResetPRO {
		// The kernel names the commands of this ring alone. Copies that came by other rings and use the
		// unit may be of whom it fenced: all of them end, and whoever may copy does so again.
		scsi.EndCopies(u.domain.nexus, u.lun)
	}
}

// Close implements tcmu.Handler.
func (u *unit) Close() {
	u.exec.Lock()
	u.su.Medium().WriteThrough = false // the unit may outlive the device
	u.array.leave(u)
	u.exec.Unlock()
	close(u.quit)
	u.release()
}
