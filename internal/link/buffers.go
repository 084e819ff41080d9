package link

import (
	"math/bits"
	"sync"

	"github.com/arraysim/arraysim/internal/scsi"
)

// Buffers of data come in classes of powers of two; what is longer than a chunk is made of several.
const (
	minClass = 9  // 512 bytes
	maxClass = 22 // 4 MiB
)

type buffer struct {
	b     []byte
	class int8
}

var bufferPools [maxClass - minClass + 1]sync.Pool

// getBuffer returns a buffer with room for n bytes; its contents are arbitrary.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &buffer{b: make([]byte, n), class: -1}
	}
	if b, ok := bufferPools[class-minClass].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 1<<class), class: int8(class)}
}

func putBuffer(b *buffer) {
	if b.class >= 0 {
		bufferPools[b.class-minClass].Put(b)
	}
}

// command is one command at the owner. It is pooled. The reader owns it until it is submitted, the executor until Done, then
// the link's output.
type command struct {
	task  scsi.Task
	link  *serverLink
	id    uint32
	cost  int64 // bytes of the window
	cdb   [maxCDB]byte
	bufs  []*buffer
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
	b := getBuffer(n)
	c.bufs = append(c.bufs, b)
	return b.b[:n]
}

// release gives back the command and all that it holds.
func (c *command) release() {
	for i, b := range c.bufs {
		putBuffer(b)
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
