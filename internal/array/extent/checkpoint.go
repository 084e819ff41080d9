// What of the maps a checkpoint writes, and in which order, so that a crash between any two batches
// leaves a tree that replay brings to the same end.

package extent

import (
	"slices"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Checkpoint says what of the maps a checkpoint has to write, and in which order. It is fuzzy:
// nodes are written as they are when their turn comes, a few at a time, between edits. As edits are
// blind, doing those again that came after Begin brings every node to the same end.
//
// Its user puts the entries into batches that are durable one after the other. After a crash
// between two of them the old position of the log counts, over nodes of which some are newer:
// replaying from there ends in the same map, too. For that, no batch may leave a node that leads to
// one that the store does not have, or has from an earlier life of the same key:
//
//   - A new node goes there before or with the one that leads to it: Next writes children first.
//   - A node with changes that was cut off while the checkpoint runs is written as an orphan, or the
//     node that has come in its place is: what was written before may lead to its key.
//   - What was cut off before it began leaves the store with the new position or behind it:
//     NextRemoval.
//
// The calls are Begin, Next until it returns false, Seal, and NextRemoval while there is room, with
// Durable behind each batch; a checkpoint that has failed ends with Abort.
type Checkpoint struct {
	arena   *Arena
	put     func(key, value []byte)
	open    bool         // nodes are still being written
	work    []uint32     // nodes to write, the last first
	dead    []node.Key   // keys to remove, the last first: those that were dead in the beginning
	missing node.Missing // what a start has found out
	roots   []uint32     // volumes whose roots to remove, the last first
}

// Checkpoint returns the arena's checkpoint. There is one at a time.
func (a *Arena) Checkpoint() *Checkpoint { return &a.ckpt }

// Begin begins a checkpoint of all that differs from the last one. Every entry goes to put, which
// keeps key and value; it is called inside Next and Seal, and while garbage is collected in
// between.
func (c *Checkpoint) Begin(put func(key, value []byte)) {
	a := c.arena
	c.put, c.open = put, true
	c.work = append(c.work[:0], a.dirty...)
	a.dirty = a.dirty[:0]
	c.dead = c.dead[:0]
	doomed := a.acct.Doom()
	for k := range doomed {
		// The key came to life again and was written before its old node was collected.
		// So it is with one that garbage will be read by: that dies when it is collected.
		if id, ok, stored := a.at(k); stored || ok && a.nodes.At(id).Persisted || a.garbageLacks(k) {
			delete(doomed, k)
			continue
		}
		c.dead = append(c.dead, k)
	}
	slices.SortFunc(c.dead, node.Compare)
	c.roots, a.deadRoots = a.deadRoots, nil
}

// Next writes a node, or finds out what has to be written before it, and reports whether to go on.
// When it returns false, all nodes are written that the roots lead to, and nothing may be edited
// before Seal.
func (c *Checkpoint) Next() bool {
	a := c.arena
	switch {
	case c.missing.Put(c.put):
		return true
	case a.acct.Derived:
		a.acct.PutDerived(c.put)
		return true
	case len(c.work) == 0:
		return c.needRoots()
	}
	id := c.work[len(c.work)-1]
	nd := a.nodes.At(id)
	if nd == nil || !nd.Dirty {
		c.work = c.work[:len(c.work)-1]
		return true
	}
	if now, ok, _ := a.at(nd.Key()); !ok || now != id {
		c.work = c.work[:len(c.work)-1]
		nd.Dirty = false
		c.replaced(nd)
		return true
	}
	n := len(c.work)
	for _, s := range nd.Slots {
		if s.Kind() == window.KindChild && !a.nodes.At(uint32(s.Value())).Persisted {
			c.work = append(c.work, uint32(s.Value()))
		}
	}
	if len(c.work) == n {
		c.work = c.work[:n-1]
		nd.Dirty = false
		c.write(nd)
		a.nodes.Trim()
	}
	return true
}

// needRoots reports whether there are nodes that only roots lead to and that have to be written
// before these.
func (c *Checkpoint) needRoots() bool {
	for _, m := range c.arena.maps {
		if m == nil || !m.writesRoot() {
			continue
		}
		if s := m.root; s.Kind() == window.KindChild && !c.arena.nodes.At(uint32(s.Value())).Persisted {
			c.work = append(c.work, uint32(s.Value()))
		}
	}
	return len(c.work) > 0
}

func (m *Map) writesRoot() bool { return m.rootDirty && !m.abandoned }

// Seal writes the roots. What it writes has to become durable together with the new position.
func (c *Checkpoint) Seal() {
	for _, m := range c.arena.maps {
		if m != nil && m.writesRoot() {
			m.rootDirty = false
			c.put(node.RootKey(m.vol), node.EncodeRoot(m.root, m.levels))
		}
	}
	c.open = false
}

// Durable says that all entries that went to put are durable.
func (c *Checkpoint) Durable() {
	c.arena.away.Settle()
	c.arena.away.vain = 0
}

// Abort ends a checkpoint that could not be written. Nobody knows which of its entries the store has that
// were not durable: their leaves stay in memory. There is no other checkpoint before the next start.
func (c *Checkpoint) Abort() { c.open = false }

// NextRemoval returns a key to remove, nil if there is none left. Preconditions: Seal. The nodes
// were cut off before the checkpoint began, so that with the new position nothing leads to them; a
// key that was written since is spared.
func (c *Checkpoint) NextRemoval() []byte {
	for len(c.dead) > 0 {
		k := c.dead[len(c.dead)-1]
		c.dead = c.dead[:len(c.dead)-1]
		if c.arena.acct.Removed(k) {
			return k.Bytes()
		}
	}
	if n := len(c.roots); n > 0 {
		vol := c.roots[n-1]
		c.roots = c.roots[:n-1]
		return node.RootKey(vol)
	}
	return nil
}

// MoreRemovals reports whether there may be more for NextRemoval.
func (c *Checkpoint) MoreRemovals() bool { return len(c.dead)+len(c.roots) > 0 }

// freed hears of a node that garbage collection frees.
func (c *Checkpoint) freed(nd *node.Node) {
	if c.open && nd.Dirty {
		c.replaced(nd)
	}
}

// replaced hears of a node with changes that is not in the map any more. What was written before
// may lead to its key, so that it has to be there: as it was, or as the node that has come in its
// place.
func (c *Checkpoint) replaced(nd *node.Node) {
	switch now, ok, stored := c.arena.at(nd.Key()); {
	case stored || c.arena.garbageLacks(nd.Key()): // it was written, and garbage may still be read by its page
	case ok:
		c.work = append(c.work, now)
	case nd.Persisted:
		c.writeOrphan(nd)
	}
}

func (c *Checkpoint) write(nd *node.Node) {
	if !nd.Persisted && nd.Level == 0 && len(c.arena.garbage) > 0 { // the store may have the page of one that was cut off
		c.arena.eachCutOff(nd.Key(), c.arena.acct.Overwritten)
	}
	c.arena.acct.Written(nd)
	if c.arena.away.most > 0 && nd.Level == 0 {
		c.arena.away.Written(demandOf(nd.Key()))
	}
	key, page, pool := nd.Key().Bytes(), c.arena.nodes.Encode(nd), uint16(0)
	if nd.Level == 0 {
		pool = c.arena.acct.Pool(nd.Vol)
	}
	c.put(key, page)
	c.put(node.EntryKey(key), node.EncodeEntry(nd.Level, page, nd.Sums, pool))
}

// Account returns what has to go into the same batch as what was put; see account.Account.EndBatch.
func (c *Checkpoint) Account() *account.Account { return &c.arena.acct }

// writeOrphan writes a node that was cut off after the checkpoint began: a page that
// is written already may refer to it. Where it had data or children, or anything that
// the edit that cut it off replaced, the log has what came after.
func (c *Checkpoint) writeOrphan(nd *node.Node) {
	c.arena.acct.Forget(nd)
	plain := *nd
	plain.Notes, plain.Sums = 0, Sums{}
	for i, s := range plain.Slots {
		if !s.Uniform() {
			plain.Slots[i] = window.KindUnmapped
		}
		plain.Sums.Add(c.arena.nodes.Sums(plain.Slots[i], nd.Level))
	}
	c.write(&plain)
}
