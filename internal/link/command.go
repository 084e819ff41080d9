package link

import (
	"sync"

	"github.com/arraysim/arraysim/internal/buffers"
	"github.com/arraysim/arraysim/internal/scsi"
)

// command is one command at the owner. It is pooled. The reader owns it until it is submitted, the executor until Done, then
// the link's output.
type command struct {
	task  scsi.Task
	link  *serverLink
	id    uint32
	cost  int64 // bytes of the window
	cdb   [maxCDB]byte
	bufs  []*buffers.Buffer
	stamp [stampLen]byte
}

var commandPool sync.Pool

func getCommand(l *serverLink) *command {
	c, ok := commandPool.Get().(*command)
	if !ok {
		c = new(command)
		c.task.Ctx, c.task.Bufs, c.task.Done, c.task.Stale = c, c, commandDone, commandStale
	}
	c.link = l
	return c
}

// Get implements scsi.Buffers. It is called on the executor.
func (c *command) Get(n int) []byte {
	b := buffers.Get(n)
	c.bufs = append(c.bufs, b)
	return b.B[:n]
}

// release gives back the command and all that it holds.
func (c *command) release() {
	for i, b := range c.bufs {
		b.Put()
		c.bufs[i] = nil
	}
	c.bufs = c.bufs[:0]
	t := &c.task
	clear(t.DataOut)
	t.DataOut, t.DataIn, t.Sense = t.DataOut[:0], nil, nil
	t.Status, t.InTotal, t.OutTotal, t.Aborted = 0, 0, 0, false
	c.link, c.cost = nil, 0
	commandPool.Put(c)
}
