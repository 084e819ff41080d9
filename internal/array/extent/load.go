// Maps from what a checkpoint has left: the tree from its leaves up, as its nodes come, with the
// references that they have; then homes from the finished tree.

package extent

import (
	"bytes"
	"fmt"
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
// the node that it becomes; see node.Builder.
//
// The calls are AddRoot for all roots, Map.TakeRoot for all maps, then for each node AddEntry or AddNode, and End.
type Loader struct {
	arena *Arena
	roots node.Roots      // that no map has taken
	trees map[uint32]*Map // whose roots lead to nodes that have not come yet
	m     *Map            // whose nodes come now, nil: nobody's
	tree  node.Builder
	last  []byte // key
	nodes int
	Pages int // that were read
}

// NewLoader returns a loader of the maps of an arena. Preconditions: the arena is loading.
func (a *Arena) NewLoader() *Loader {
	l := &Loader{arena: a, roots: node.Roots{}, trees: map[uint32]*Map{}}
	l.tree.Orphan = func(list []node.Built) { l.orphan(l.m, list) }
	return l
}

// Derive says that all pages come by AddNode, and that the account is derived from them. Where the store lacks the entries
// of pages, the next checkpoint puts one for each; where unmarked, the store does not say that its account is not right.
func (l *Loader) Derive(lacks, unmarked bool) {
	l.Missing().Lacks = lacks
	l.arena.acct.Derive(unmarked)
}

// Missing returns what the next checkpoint puts before all else.
func (l *Loader) Missing() *node.Missing { return &l.arena.ckpt.missing }

// Nodes returns the number of nodes that were read.
func (l *Loader) Nodes() int { return l.nodes }

// AddRoot takes an entry with prefix KeyRoot. It copies the value.
func (l *Loader) AddRoot(key, value []byte) error { return l.roots.Add(key, value) }

// TakeRoot gives an empty map the root that a checkpoint has of it, if there is one. Where that leads
// to a node, the map is empty until its nodes have come.
func (m *Map) TakeRoot(l *Loader) error {
	root, levels, found, err := l.roots.Take(m.vol)
	if !found || err != nil {
		return err
	}
	if m.levels = levels; root == window.KindChild {
		l.trees[m.vol] = m
		return nil
	}
	m.root, m.sum = root, m.slotSums(root, levels)
	return nil
}

// next goes on to a node, and returns the map whose node it is, nil if nothing can lead to it.
func (l *Loader) next(k node.Key) (*Map, error) {
	key := k.Bytes()
	if bytes.Compare(l.last, key) >= 0 {
		return nil, fmt.Errorf("the map pages of volume %d come out of their order", k.Vol)
	}
	l.last = key
	l.nodes++
	if l.m == nil || l.m.vol != k.Vol {
		l.endVolume()
		l.m = l.trees[k.Vol]
		delete(l.trees, k.Vol)
	}
	if l.m == nil || k.Level >= l.m.levels {
		return nil, nil
	}
	l.tree.Rise(k.Level)
	return l.m, nil
}

// AddEntry takes the entry of a leaf, which becomes one that is absent. One that nothing leads to is garbage: who
// collects it reads it.
func (l *Loader) AddEntry(key, value []byte) error {
	e, ok := node.DecodeEntry(key, value)
	if !ok || e.Key.Level > 0 {
		return fmt.Errorf("the entry of a map page is damaged")
	}
	a := l.arena
	m, err := l.next(e.Key)
	switch {
	case err != nil:
		return err
	case m != nil:
		s := l.tree.Add(e.Key.Index, e.Leaf)
		a.away.leaves++
		if a.liveNodes++; e.Key.Index == m.end {
			l.Pages++
			m.readAt(s, e.Key.Index)
		}
		return nil
	}
	space := a.acct.OpenGone(e.Key.Vol, e.Pool)
	if space == nil { // its pool is no more, and nobody counts what it has
		a.acct.Dead[e.Key] = 0
		return nil
	}
	a.away.leaves++
	a.liveNodes++
	a.cutOff(&Map{space: space, vol: e.Key.Vol}, e.Leaf, e.Key.Index)
	return nil
}

// AddNode takes a page, an entry with prefix KeyNode, and attaches to it the nodes below it. One that no map
// can have is left for the next checkpoint to remove: what an earlier one had no time to.
func (l *Loader) AddNode(key, value []byte) error {
	if len(key) != node.KeyBytes {
		return fmt.Errorf("a map page has a damaged key")
	}
	l.Pages++
	k, a := node.KeyOf(key), l.arena
	m, err := l.next(k)
	if err != nil {
		return err
	}
	known := m != nil
	if m == nil {
		if m = a.mapOf(k.Vol); m == nil || k.Level > 0 {
			a.acct.Dead[k] = 0
			l.Missing().Page(k, value, Sums{}, node.NoPool)
			return nil
		}
	}
	id, nd := a.newNode(k, window.KindUnmapped)
	nd.Persisted, nd.Dirty = true, false
	a.dirty = a.dirty[:len(a.dirty)-1]
	if err := a.nodes.Decode(nd, value); err != nil {
		return err
	}
	if err := a.acct.Count(nd, m.tenant); err != nil {
		return err
	}
	l.tree.Attach(&a.nodes, nd)
	if l.Missing().Page(k, value, nd.Sums, m.pool); !known {
		l.orphan(m, []node.Built{{Index: k.Index, Slot: window.Child(id)}})
		return nil
	}
	if s := l.tree.Add(k.Index, window.Child(id)); k.Level == 0 {
		l.keep(s, nd)
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

// endVolume attaches the last node of a map to its root.
func (l *Loader) endVolume() {
	if m := l.m; m != nil {
		if root, ok := l.tree.Root(m.levels); ok {
			m.root, m.sum = root, m.slotSums(root, m.levels)
		}
	}
	l.m = nil
}

// orphan forgets nodes of a map that nothing leads to, with all below them, and has the next checkpoint remove
// them.
func (l *Loader) orphan(m *Map, list []node.Built) {
	a := l.arena
	for _, x := range list {
		id, nd := uint32(x.Slot.Value()), (*node.Node)(nil)
		switch x.Slot.Kind() {
		case window.KindAbsent:
			a.cutOff(m, x.Slot, x.Index) // who collects it reads it
			continue
		case window.KindPacked:
			id, nd = a.nodes.Unpack(&x.Slot, node.LeafKey(m.vol, x.Index))
		default:
			nd = a.nodes.At(id)
		}
		m.noting(nd)
		for i, s := range nd.Slots {
			if s.Leads() {
				l.orphan(m, []node.Built{{Index: nd.Index<<node.FanoutBits | uint64(i), Slot: s}})
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
	l.Missing().End()
	a := l.arena
	a.deadRoots = append(a.deadRoots, l.roots.Volumes()...)
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
		return m.arena.acct.LookPage(*s, k, value, fn)
	})
	if err == nil && left != 0 {
		err = Gone(left)
	}
	return err
}

// Gone is the error of a map of which so many absent leaves could not be read. Where they were read for the account, which the
// start derives, what they refer to would count as free.
type Gone int

// Error returns what is wrong.
func (g Gone) Error() string { return fmt.Sprintf("%d map pages are gone", int(g)) }

// FindHomes gives the entitled windows of a loaded map their homes, grains that nobody shares
// first. It reads the pages of absent leaves; where the error is Gone, the windows of others have one. Preconditions: EndLoading,
// and the tenant is entitled.
func (m *Map) FindHomes(read Pages) error {
	if m.tenant.Entitled == 0 { // nearly all thin volumes: no window is
		return nil
	}
	m.arena.nodes.EachWindow(m.root, m.vol, 0, m.homes.Find)
	return m.eachAbsent(read, func(nd *node.Node) { m.arena.nodes.EachWindowOf(nd, m.homes.Find) })
}
