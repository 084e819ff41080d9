package link

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// item is something that goes to the owner.
type item struct {
	kind kind
	n    *nexus
	task *scsi.Task // of a command
	slot uint32     // of a command that has its place in the window; of an answer to a pause its number
	turn uint64     // likewise: a slot serves one command behind another
	call *call      // of a task management function
	why  string     // of an answer to a pause
	// again: the nexus was open at the same process before. Another one says by 29/xx that all may be another.
	again bool
}

// flight is a command that has its place in the window.
type flight struct {
	task    *scsi.Task
	n       *nexus
	cost    int64
	written atomic.Bool // all of it was given to the connection
	// turn is that of the item that the writer may take. It takes it by a swap with 0, and so does who takes it back.
	turn atomic.Uint64
	// gaveUp: it is not to be executed, though the writer may have begun it. Nothing is said of what was sent in full.
	gaveUp atomic.Bool
}

// call is a task management function in progress.
type call struct {
	n        *nexus
	id       uint32
	fn       scsi.TMF
	lun, tag uint64
	done     func(scsi.TMFResponse)
}

// nexus is an I_T nexus of a session of this node. It implements iscsi.Nexus.
type nexus struct {
	c               *Client
	id              uint32
	target          byte
	port            uint16
	initiator, name string
	opened          bool        // at the owner that is linked now
	at              incarnation // the owner at which it was opened last
	closed          bool
	known           memory
	queue           ring[*scsi.Task] // beyond the window
	turning         bool             // it is in turns, or in those of its host that wait
	host            *hostWindow
	flying          int    // commands in the window
	bytes           int64  // of them
	closing         func() // called when it is gone at the owner
	onReset         func()
}

// target implements iscsi.Handler.
type target struct {
	c      *Client
	number byte
}

// Target returns one of the array's targets, for the portal.
func (c *Client) Target(number int) iscsi.Handler { return target{c, byte(number)} }

func (t target) Exec() block.Executor { return t.c.exec }

// Visible reports true: which initiators have a LUN the owner alone knows, and discovery waits for nobody.
func (t target) Visible(string) bool { return true }

// OpenNexus makes a nexus here and, while there is a link, at the owner.
func (t target) OpenNexus(initiator, port string, targetPort uint16) iscsi.Nexus {
	c := t.c
	c.last++
	n := &nexus{c: c, id: c.last, target: t.number, port: targetPort, initiator: iscsi.FoldName(initiator), name: strings.ToLower(port)}
	c.nexuses = append(c.nexuses, n)
	n.host = c.hostOf(n.initiator)
	n.host.nexuses++
	if c.up {
		c.openAt(n)
	} else {
		n.inherit()
	}
	return n
}

func (c *Client) openAt(n *nexus) {
	c.send(item{kind: kindOpen, n: n, again: n.at == c.present})
	n.opened, n.at = true, c.present
}

// OnReset registers what ends the session when the target has had a cold reset.
func (n *nexus) OnReset(fn func()) { n.onReset = fn }

// CountRemaps counts nothing: which LUNs a host has the owner alone knows, and takes commands as coming when they reach it.
func (n *nexus) CountRemaps(func() uint64, uint64) {}

// Submit forwards tasks, in order, or answers them.
func (n *nexus) Submit(tasks []*scsi.Task) {
	c := n.c
	for _, t := range tasks {
		t.Status, t.Sense, t.DataIn, t.InTotal, t.OutTotal, t.Aborted = scsi.StatusGood, nil, nil, 0, 0, false
		switch {
		case n.closed:
			t.Aborted = true
			c.endLater(t)
		case !c.up:
			c.answer(n, t)
		case t.MaxIn > maxTransfer || block.VecLen(t.DataOut) > maxTransfer:
			check(t, senseInvalidField)
			c.endLater(t)
		case n.queue.len() >= maxQueued:
			t.Status = scsi.StatusTaskSetFull
			c.endLater(t)
		default:
			n.queue.push(t)
			n.turn()
		}
	}
	c.pump()
}

// send has a message sent that is no command. What is about nexuses and functions goes ahead of the commands that the writer has
// not begun. The nexus that it is about has none of these that it could concern: they are taken back. Those of others, each of
// which tells the owner that this node lives, would keep fresh what an end or a function is to stop there.
func (c *Client) send(it item) {
	if it.kind == kindPaused {
		c.out = append(c.out, it)
	} else {
		c.ahead = append(c.ahead, it)
		c.pressed.Store(true)
	}
	c.signal()
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Manage forwards a task management function. What was not sent yet ends here. Behind a broken link the function waits with the
// commands that it may be about: who resets a unit is not told that nothing is there while something may be.
func (n *nexus) Manage(fn scsi.TMF, lun, tag uint64, done func(scsi.TMFResponse)) {
	c := n.c
	all := fn == scsi.TargetWarmReset || fn == scsi.TargetColdReset
	some := fn == scsi.AbortTaskSet || fn == scsi.ClearTaskSet || fn == scsi.LogicalUnitReset
	hits := n.abortUnsent(func(t *scsi.Task) bool {
		return all || scsi.SameLUN(t.LUN, lun) && (some || fn == scsi.AbortTask && t.Tag == tag)
	})
	k := &call{n: n, fn: fn, lun: lun, tag: tag, done: done}
	switch {
	case fn == scsi.AbortTask && hits > 0:
		c.callLater(func() { done(scsi.TMFComplete) })
	case c.callsOf.Left(n.initiator, maxManages) < 1:
		c.callLater(func() { done(scsi.TMFRejected) })
	case c.up, c.limbo != nil: // behind a broken link it has its answer with the commands that it may be about
		c.last++
		k.id = c.last
		c.calls[k.id] = k
		c.callsOf.Add(n.initiator, 1)
		if c.up {
			c.send(item{kind: kindManage, n: n, call: k})
		}
	default:
		c.callLater(k.fail)
	}
}

// answered takes a function away that has its answer.
func (c *Client) answered(k *call) {
	delete(c.calls, k.id)
	c.callsOf.Add(k.n.initiator, -1)
}

// fail answers a function that nobody carries out. Preconditions: no command of the nexus waits for its fate. So there is no such
// task any more; what is about more than one task has to be asked of an owner.
func (k *call) fail() {
	if k.fn == scsi.AbortTask {
		k.done(scsi.TMFNoTask)
		return
	}
	k.done(scsi.TMFRejected)
}

// abortUnsent ends commands that were not sent: those that wait for the window, and those that the writer has not begun. Nothing
// of these goes to the owner any more. One that the writer has begun goes there as a whole, and the owner does not execute it
// unless all of it was on its way by now.
func (n *nexus) abortUnsent(match func(*scsi.Task) bool) (hits int) {
	c := n.c
	end := func(t *scsi.Task) {
		t.Aborted = true
		c.endLater(t)
		hits++
	}
	for slot := range c.flights {
		if f := &c.flights[slot]; f.n == n && match(f.task) {
			if turn := f.turn.Load(); turn != 0 && f.turn.CompareAndSwap(turn, 0) {
				end(c.land(uint32(slot)))
			} else {
				f.gaveUp.Store(true) // the writer ends it with a stamp that says so
			}
		}
	}
	for left := n.queue.len(); left > 0; left-- {
		t := *n.queue.first()
		n.queue.pop()
		if match(t) {
			end(t)
		} else {
			n.queue.push(t)
		}
	}
	c.pump()
	return hits
}

// Close ends the nexus. done is called when no command of it is in progress any more, as far as the owner can be asked.
func (n *nexus) Close(done func()) {
	c := n.c
	if n.closed {
		c.callLater(done)
		return
	}
	n.closed = true
	n.abortUnsent(func(*scsi.Task) bool { return true })
	if !c.up {
		n.bequeath()
	}
	n.forget()
	switch {
	case n.opened && c.up:
		n.closing = done
		c.send(item{kind: kindClose, n: n})
	case c.inLimbo(n):
		n.closing = done
	default:
		c.forget(n)
		c.callLater(done)
	}
}

// inLimbo reports whether commands or functions of the nexus wait for their fate.
func (c *Client) inLimbo(n *nexus) bool {
	for slot := range c.flights {
		if c.flights[slot].n == n {
			return true
		}
	}
	for _, k := range c.calls {
		if k.n == n {
			return true
		}
	}
	return false
}

func (c *Client) forget(n *nexus) {
	if n.host.nexuses--; n.host.nexuses == 0 {
		delete(c.hosts, n.initiator)
	}
	c.nexuses = slices.DeleteFunc(c.nexuses, func(m *nexus) bool { return m == n })
}
