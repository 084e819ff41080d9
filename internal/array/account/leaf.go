// What happens to leaves: their pages are written, overwritten and removed, and a start counts them.

package account

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// Dead is the keys of nodes that are no more and that the store has still; those of leaves have their lists.
type Dead map[node.Key]List

// Freed hears of a node that is no more: all that it referred to was given back.
func (a *Account) Freed(nd *node.Node) {
	if nd.Persisted {
		a.Dead[nd.Key()] = nd.Notes
	} else {
		a.notes.drop(&nd.Notes)
	}
	nd.Notes = 0
}

// Unread hears of a leaf that was cut off and whose page cannot be read: what it refers to stays in the book. When the
// store has the page no more, the batch says that the books have TooMuch. Before that a start finds the page again, and must not
// be told to read all.
func (a *Account) Unread(k node.Key) {
	if a.unread == nil {
		a.unread = map[node.Key]struct{}{}
	}
	a.Dead[k], a.unread[k] = 0, struct{}{}
}

// Doom has the keys removed that are dead, and returns them.
func (a *Account) Doom() Dead {
	a.Dead, a.Doomed = Dead{}, a.Dead
	return a.Doomed
}

// Removed hears that the page of a doomed key is being removed, and reports whether it is doomed still.
func (a *Account) Removed(k node.Key) bool { return a.buried(a.Doomed, k) }

// buried hears that the store has the page of a dead key no more.
func (a *Account) buried(dead Dead, k node.Key) bool {
	l, ok := dead[k]
	if ok {
		a.Settle(k.Vol, &l)
		delete(dead, k)
		if _, unread := a.unread[k]; unread {
			delete(a.unread, k)
			a.over = true
		}
	}
	return ok
}

// Written hears that a node is being written. Of a leaf that was not Persisted before, each that was cut off and had its
// key was Overwritten.
func (a *Account) Written(nd *node.Node) {
	a.buried(a.Dead, nd.Key()) // the key has come to life again
	a.buried(a.Doomed, nd.Key())
	a.Settle(nd.Vol, &nd.Notes)
	nd.Persisted = true
}

// Overwritten hears of a leaf that was cut off, that a slot leads to, and whose page, if it has one, another one's with its
// key takes the place of.
func (a *Account) Overwritten(k node.Key, s *window.Slot) {
	if s.Kind() == window.KindPacked {
		a.Nodes.Unpack(s, k)
	}
	if nd := a.Nodes.At(uint32(s.Value())); nd.Persisted {
		a.Forget(nd)
		nd.Persisted = false
	}
}

// Forget hears that the store has the page of a leaf no more, or one that refers to nothing.
func (a *Account) Forget(nd *node.Node) {
	if nd.Level > 0 || a.Off {
		return
	}
	a.Settle(nd.Vol, &nd.Notes)
	a.Nodes.EachGrainOf(nd, func(g uint64) {
		a.Lost(nd.Vol, g)
		a.Take(&nd.Notes, g)
	})
}

// Count counts the references of a leaf that a start has read: in the book, and in the space. A node above the leaves has
// none. The error is Behind.
func (a *Account) Count(nd *node.Node, t *alloc.Tenant) (err error) {
	if nd.Level > 0 {
		return nil
	}
	space := a.book(nd.Vol).space
	grains := uint64(space.Grains())
	a.Nodes.EachGrainOf(nd, func(g uint64) {
		if g >= grains {
			err = Behind{nd.Vol}
			return
		}
		a.Has(nd.Vol, g)
		space.Recount(g, t)
	})
	return err
}

// Restore is node.Slab.Restore, and LookPage node.Slab.LookPage, of a leaf of a volume. A page with a right checksum may still
// refer to what the space does not have: that is Behind.
func (a *Account) Restore(s *window.Slot, k node.Key, page []byte) (id uint32, nd *node.Node, err error) {
	if id, nd, err = a.Nodes.Restore(s, k, page); err == nil {
		if err = a.within(nd); err != nil {
			a.Nodes.Drop(s)
		}
	}
	return id, nd, err
}

// LookPage is described at Restore.
func (a *Account) LookPage(s window.Slot, k node.Key, page []byte, fn func(nd *node.Node)) (err error) {
	var behind error
	err = a.Nodes.LookPage(s, k, page, func(nd *node.Node) {
		if behind = a.within(nd); behind == nil {
			fn(nd)
		}
	})
	return cmp.Or(err, behind)
}

// within returns Behind if a leaf refers to grains that its space does not have.
func (a *Account) within(nd *node.Node) (err error) {
	if a.Off || a.book(nd.Vol).space == nil { // what it refers to comes to nothing
		return nil
	}
	grains := uint64(a.book(nd.Vol).space.Grains())
	a.Nodes.EachGrainOf(nd, func(g uint64) {
		if g >= grains {
			err = Behind{nd.Vol}
		}
	})
	return err
}

// Behind is the error of a map that leads behind the end of its space.
type Behind struct{ Volume uint32 }

// Error returns what is wrong.
func (b Behind) Error() string {
	return fmt.Sprintf("the map of volume %d points beyond the end of its space", b.Volume)
}

// Recount brings spaces, which count what the store has, in line with what leaves and dead keys have noted. Those of nodes
// that are dirty count, which may be named twice. The error is Behind. tenant returns the tenant of a volume; what has notes has one.
func (a *Account) Recount(nodes []uint32, tenant func(vol uint32) *alloc.Tenant) error {
	dead := slices.SortedFunc(maps.Keys(a.Dead), node.Compare)
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	// What was taken is counted first, so that no grain is free in between that somebody has.
	for _, given := range [...]bool{false, true} {
		for _, id := range nodes {
			nd := a.Nodes.At(id)
			if nd != nil && nd.Dirty && !a.recount(nd.Vol, nd.Notes, given, tenant) {
				return Behind{nd.Vol}
			}
		}
		for _, k := range dead {
			if !a.recount(k.Vol, a.Dead[k], given, tenant) {
				return Behind{k.Vol}
			}
		}
	}
	return nil
}

func (a *Account) recount(vol uint32, l List, given bool, tenant func(vol uint32) *alloc.Tenant) bool {
	if l == 0 {
		return true
	}
	t, space, ok := tenant(vol), a.book(vol).space, true
	a.notes.each(l, given, func(g uint64) {
		switch {
		case g >= uint64(space.Grains()):
			ok = false
		case given:
			space.Uncount(g)
		default:
			space.Recount(g, t)
		}
	})
	return ok
}
