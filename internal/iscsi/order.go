package iscsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

// The SCSI layer keeps the order that task attributes ask for (SAM-5 8.6) among
// the commands that it has. Those that still collect Data-Out it does not have:
// here an ORDERED command waits until all older ones of its logical unit are
// submitted, and the younger ones wait for it. HEAD OF QUEUE waits for nobody.
//
// A command waits before it takes memory and asks for data, so that none that
// waits for its turn holds what an older one needs. Without an ORDERED command
// in the portal none of this costs anything.

// mustWait tells whether an older command has to be submitted first.
func (c *conn) mustWait(cmd *command) bool {
	t := &cmd.task
	if t.Attr == scsi.AttrHeadOfQueue {
		return false
	}
	for _, o := range c.open {
		if o.seq < cmd.seq && scsi.SameLUN(o.task.LUN, t.LUN) && (t.Attr == scsi.AttrOrdered || o.task.Attr == scsi.AttrOrdered) {
			return true
		}
	}
	return false
}

// park makes a command wait for its turn.
func (c *conn) park(cmd *command) {
	c.open[cmd.itt] = cmd
	i := len(c.parked)
	for i > 0 && c.parked[i-1].seq > cmd.seq {
		i--
	}
	c.parked = slices.Insert(c.parked, i, cmd)
}

// unpark goes on with the commands whose turn has come, oldest first: each may
// have been what the next one waits for.
func (c *conn) unpark() {
	list := c.parked
	c.parked = c.parked[:0]
	for _, cmd := range list {
		if c.mustWait(cmd) {
			c.parked = append(c.parked, cmd)
			continue
		}
		c.proceed(cmd)
	}
	clear(list[len(c.parked):])
}

// leave takes a command that is submitted or ends out of the books.
func (c *conn) leave(cmd *command) {
	delete(c.open, cmd.itt)
	if cmd.task.Attr == scsi.AttrOrdered {
		c.ordered--
	}
}
