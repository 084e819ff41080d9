// Maps from what a checkpoint has left: the tree from its leaves up, as its nodes come, with the
// references that they have; then homes from the finished tree.

package extent

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// The prefixes of the keys of roots and nodes.
const (
	KeyRoot = node.RootPrefix
	KeyNode = node.Prefix
)

// Loader makes the maps of an arena what a checkpoint has left of them. It takes the entries in the
// order of their keys, so that the nodes below one come before it, and keeps nothing of an entry but
// the node that it becomes: what it takes of memory beside the maps are eight bytes for each node of
// two levels of one volume.
//
// The calls are AddRoot for all roots, Map.TakeRoot for all maps, AddNode for all nodes, and End.
type Loader struct {
	arena *Arena
	roots map[uint32][]byte // that no map has taken
	trees map[uint32]*Map   // whose roots lead to nodes that have not come yet
	m     *Map              // whose nodes come now, nil: nobody's
	level uint8             // of those that come now
	below []loaded          // nodes of the level below that nothing leads to yet, by index
	here  []loaded          // nodes of this level, by index
	last  []byte            // key
	nodes int
}

// loaded is a node that nothing leads to yet, and the slot that will.
type loaded struct {
	index uint64
	slot  window.Slot
}

// NewLoader returns a loader of the maps of an arena. Preconditions: the arena is loading.
func (a *Arena) NewLoader() *Loader {
	return &Loader{arena: a, roots: map[uint32][]byte{}, trees: map[uint32]*Map{}}
}

// Nodes returns the number of nodes that were read.
func (l *Loader) Nodes() int { return l.nodes }

// AddRoot takes an entry with prefix KeyRoot. It copies the value.
func (l *Loader) AddRoot(key, value []byte) error {
	vol, ok := node.RootVolume(key, value)
	if !ok {
		return fmt.Errorf("the root of a map is damaged")
	}
	l.roots[vol] = append([]byte(nil), value...)
	return nil
}

// ErrRoot says that the root of a map means nothing.
var ErrRoot = errors.New("the root of the map is damaged")

// TakeRoot gives an empty map the root that a checkpoint has of it, if there is one. Where that leads
// to a node, the map is empty until its nodes have come.
func (m *Map) TakeRoot(l *Loader) error {
	b := l.roots[m.vol]
	if b == nil {
		return nil
	}
	delete(l.roots, m.vol)
	root, levels, ok := node.DecodeRoot(b)
	if !ok {
		return ErrRoot
	}
	if m.levels = levels; root == window.KindChild {
		l.trees[m.vol] = m
		return nil
	}
	m.root, m.sum = root, m.slotSums(root, levels)
	return nil
}

// AddNode takes an entry with prefix KeyNode, and attaches to it the nodes below it. One that no map
// can have is left for the next checkpoint to remove: what an earlier one had no time to.
func (l *Loader) AddNode(key, value []byte) error {
	if len(key) != node.KeyBytes {
		return fmt.Errorf("a map page has a damaged key")
	}
	if bytes.Compare(l.last, key) >= 0 {
		return fmt.Errorf("the map pages of volume %d come out of their order", node.KeyOf(key).Vol)
	}
	l.last = append(l.last[:0], key...)
	l.nodes++
	k, a := node.KeyOf(key), l.arena
	if l.m == nil || l.m.vol != k.Vol {
		l.endVolume()
		l.m, l.level = l.trees[k.Vol], 0
		delete(l.trees, k.Vol)
	}
	m := l.m
	if m == nil || k.Level >= m.levels {
		if m = a.mapOf(k.Vol); m == nil || k.Level > 0 {
			a.acct.Dead[k] = 0
			return nil
		}
	} else {
		l.rise(k.Level)
	}
	id, nd := a.newNode(k, window.KindUnmapped)
	nd.Persisted, nd.Dirty = true, false
	a.dirty = a.dirty[:len(a.dirty)-1]
	if err := a.nodes.Decode(nd, value); err != nil {
		return err
	}
	if err := m.count(nd); err != nil {
		return err
	}
	if l.m == nil {
		l.orphan(m, []loaded{{k.Index, window.Child(id)}})
		return nil
	}
	l.attach(nd)
	l.here = append(l.here, loaded{k.Index, window.Child(id)})
	if k.Level == 0 {
		l.keep(&l.here[len(l.here)-1].slot, nd)
	}
	return nil
}

// keep packs a leaf, or has it leave at once, where there are too many.
func (l *Loader) keep(s *window.Slot, nd *node.Node) {
	switch a := l.arena; {
	case a.away.most > 0 && a.over() && nd.Index != l.m.end:
		a.nodes.Drop(s)
		a.away.leaves++
	case a.nodes.LooseBytes() > a.nodes.LeafBytes:
		a.nodes.Pack(s)
	}
}

// rise goes on with nodes of a level: what lies below the one under it has no node above it.
func (l *Loader) rise(level uint8) {
	for ; l.level < level; l.level++ {
		l.orphan(l.m, l.below)
		l.below, l.here = l.here, l.below[:0]
	}
}

// attach puts the nodes that a new one leads to below it, and sums up what it has. One that the store
// lacks was cut off while the checkpoint was written; the log has the rest.
func (l *Loader) attach(nd *node.Node) {
	for i, s := range nd.Slots {
		if s.Kind() == window.KindChild {
			index, n := nd.Index<<node.FanoutBits|uint64(i), 0
			for n < len(l.below) && l.below[n].index < index {
				n++
			}
			l.orphan(l.m, l.below[:n])
			l.below = l.below[n:]
			nd.Slots[i] = window.KindUnmapped
			if len(l.below) > 0 && l.below[0].index == index {
				nd.Slots[i] = l.below[0].slot
				l.below = l.below[1:]
			}
		}
		nd.Sums.Add(l.m.slotSums(nd.Slots[i], nd.Level))
	}
}

// endVolume attaches the last node of a map to its root.
func (l *Loader) endVolume() {
	if m := l.m; m != nil {
		l.rise(m.levels)
		if len(l.below) > 0 && l.below[0].index == 0 {
			m.root = l.below[0].slot
			m.sum = m.slotSums(m.root, m.levels)
			l.below = l.below[1:]
		}
		l.orphan(m, l.below)
	}
	l.m, l.below, l.here = nil, l.below[:0], l.here[:0]
}

// orphan forgets nodes of a map that nothing leads to, with all below them, and has the next checkpoint remove
// them.
func (l *Loader) orphan(m *Map, list []loaded) {
	a := l.arena
	for _, x := range list {
		id, nd := uint32(x.slot.Value()), (*node.Node)(nil)
		switch x.slot.Kind() {
		case window.KindAbsent:
			a.cutOff(m, x.slot, x.index) // who collects it reads it
			continue
		case window.KindPacked:
			id, nd = a.nodes.Unpack(&x.slot, node.LeafKey(m.vol, x.index))
		default:
			nd = a.nodes.At(id)
		}
		m.noting(nd)
		for i, s := range nd.Slots {
			if s.Leads() {
				l.orphan(m, []loaded{{nd.Index<<node.FanoutBits | uint64(i), s}})
			} else {
				m.dropWindow(s)
			}
		}
		a.freeNode(id, nd)
	}
}

// End ends the load: no more nodes come. What no map has the next checkpoint removes.
func (l *Loader) End() {
	l.endVolume()
	a := l.arena
	a.deadRoots = slices.AppendSeq(a.deadRoots, maps.Keys(l.roots))
	slices.Sort(a.deadRoots)
}

// Pages calls fn for the pages of leaves whose keys have a prefix, in their order.
type Pages func(prefix []byte, fn func(key, value []byte) error) error

// eachAbsent calls fn for each absent leaf of a map as a node, with what reads its page. fn looks at nothing
// that is packed.
func (m *Map) eachAbsent(read Pages, fn func(nd *node.Node)) error {
	if m.arena.away.leaves == 0 {
		return nil
	}
	left := m.arena.nodes.Absent(m.root)
	prefix := node.LeafKey(m.vol, 0).Bytes()[:node.KeyBytes-8]
	err := read(prefix, func(key, value []byte) error {
		k := node.KeyOf(key)
		s := m.arena.slotAt(k)
		if s == nil || s.Kind() != window.KindAbsent {
			return nil
		}
		left--
		return m.arena.nodes.LookPage(*s, k, value, fn)
	})
	if err == nil && left != 0 { // what it refers to would count as free
		err = fmt.Errorf("%d map pages of volume %d are gone since they were read", left, m.vol)
	}
	return err
}

// FindHomes gives the entitled windows of a loaded map their homes, grains that nobody shares
// first. It reads the pages of absent leaves. Preconditions: EndLoading, and the tenant is entitled.
func (m *Map) FindHomes(read Pages) error {
	if m.tenant.Entitled == 0 { // nearly all thin volumes: no window is
		return nil
	}
	m.arena.nodes.EachWindow(m.root, m.vol, 0, m.homes.Find)
	return m.eachAbsent(read, func(nd *node.Node) { m.arena.nodes.EachWindowOf(nd, m.homes.Find) })
}
