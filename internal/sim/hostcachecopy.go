package sim

import "github.com/arraysim/arraysim/internal/block"

// EXTENDED COPY of a guest beneath the caches of its host. As in the daemon, the source's cache first
// makes the array have what it is about to read; then the destination's sends the command on, and
// forgets what it has of the range. Either of the volumes may have no cache.

// copySource is a reference of a copy's source by its name and range: the array reads what is there when
// the command comes to it.
type copySource struct {
	c *command // the guest's EXTENDED COPY
	n uint64   // sectors
}

func (s *copySource) Sectors() uint64 { return s.n }
func (s *copySource) Release()        {}

// holdSource lets the cache of the source destage what is dirty there, and then sends the
// command to its destination.
func (c *command) holdSource() {
	q := &block.Request{Op: block.OpHold, Origin: block.OriginXCopy, Ranges: []block.Range{c.copied}}
	q.Done = func(*block.Request) {
		if q.Status != block.OK {
			c.failed = true
			c.finished()
			return
		}
		c.held = true
		c.transmit()
	}
	c.from.cache.disk.Submit([]*block.Request{q})
}

// place makes the copy that a cache forwards one of its own commands: the guest's, once more.
func (c *command) place(s *copySource) {
	c.cdb, c.out[0], c.write = s.c.cdb, s.c.out[0], true
	c.task.CDB = c.cdb[:len(s.c.task.CDB)]
	c.task.DataOut = c.out[:]
}
