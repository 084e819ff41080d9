// What a batch of a checkpoint has, and the position that ends it.

package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// key is that of the position.
const key = "c"

var le = binary.LittleEndian

// Position is where replay of the log begins.
type Position struct {
	Seq  uint64 // number of the record before
	Tail int    // bytes into the log
}

// value encodes a position; last is the last record that the nodes beside it may have.
func (p Position) value(last uint64) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, p.Seq), uint64(p.Tail)), last)
}

// Load reads the position that the meta store has, and the last record that its nodes may have;
// without one, the beginning of an empty log. It waits.
func Load(meta *metadata.Ledger) (at Position, last uint64, err error) {
	v, err := meta.Get(key)
	if err != nil || v == nil {
		return at, 0, err
	}
	if len(v) == 16 { // format version 1
		v = append(v[:16:16], v[:8]...)
	}
	if len(v) != 24 {
		return at, 0, fmt.Errorf("the checkpoint's position is damaged")
	}
	return Position{le.Uint64(v), int(le.Uint64(v[8:]))}, le.Uint64(v[16:]), nil
}

// Start takes over the position that Load has found.
func (c *Checkpointer) Start(base Position) { c.base = base }

// put adds an entry to the batch.
func (c *Checkpointer) put(key, value []byte) {
	c.batch = append(c.batch, block.KV{Key: key, Value: value})
	c.bytes += len(key) + len(value)
}

// close makes the batch one that can be committed. What is written from now on goes to the next
// one.
func (c *Checkpointer) close() {
	c.Maps.Account().EndBatch(c.put)
	c.out, c.batch, c.bytes = c.batch, nil, 0
}

// fill goes on with up to n nodes and reports whether a batch is complete.
func (c *Checkpointer) fill(n int) bool {
	for ; n > 0; n-- {
		switch {
		case c.sealed: // only removals are left
			c.removeDead()
			c.close()
			return true
		case c.bytes+c.Maps.Account().Touched() >= c.BatchBytes:
			// The old position, and the last record that these nodes may have.
			c.put([]byte(key), c.base.value(c.Log.Seq()))
			c.close()
			return true
		case !c.Maps.Next():
			c.finish()
			c.close()
			return true
		}
	}
	return false
}

// finish adds the roots and the new position, and removes what has room: nothing may be added
// behind it.
func (c *Checkpointer) finish() {
	if c.first {
		c.first = false
		c.Meta.VerifyByParts()
		c.at.Seq = c.Log.Renumber()
	}
	c.Maps.Seal()
	c.Hooks.Add(c.put)
	c.put([]byte(key), c.at.value(c.Log.Seq()))
	c.sealed = true
	c.removeDead()
}

// removeDead adds removals to the batch, as long as there is room.
func (c *Checkpointer) removeDead() {
	for c.bytes+c.Maps.Account().Touched() < c.BatchBytes {
		key := c.Maps.NextRemoval()
		if key == nil {
			return
		}
		c.put(key, nil)
		if node.IsPage(key) {
			c.put(node.EntryKey(key), nil)
		}
	}
}
