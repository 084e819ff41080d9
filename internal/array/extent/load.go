// Maps from what a checkpoint has left: the tree from its root down, then references and homes from
// the finished tree.

package extent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/layout"
)

// Saved are the entries of all maps, as the last checkpoint has left them. The zero value is empty.
type Saved struct {
	roots map[uint32][]byte
	nodes map[nodeKey][]byte
}

// AddRoot takes an entry with prefix KeyRoot. It copies the value.
func (s *Saved) AddRoot(key, value []byte) error {
	if len(key) != rootKeyBytes || len(value) != rootValueBytes {
		return fmt.Errorf("the root of a map is damaged")
	}
	if s.roots == nil {
		s.roots = map[uint32][]byte{}
	}
	s.roots[binary.BigEndian.Uint32(key[1:])] = append([]byte(nil), value...)
	return nil
}

// AddNode takes an entry with prefix KeyNode. It copies the value.
func (s *Saved) AddNode(key, value []byte) error {
	if len(key) != nodeKeyBytes {
		return fmt.Errorf("a map page has a damaged key")
	}
	if s.nodes == nil {
		s.nodes = map[nodeKey][]byte{}
	}
	s.nodes[nodeKeyOf(key)] = append([]byte(nil), value...)
	return nil
}

// ErrRoot says that the root of a map means nothing.
var ErrRoot = errors.New("the root of the map is damaged")

// Load makes an empty map what the checkpoint has of it, from the root down, and takes the nodes
// out of what was saved. sectors is the present size of the volume. Preconditions: the arena is
// loading.
func (m *Map) Load(saved *Saved, sectors uint64) error {
	b := saved.roots[m.vol]
	if b == nil {
		return nil
	}
	delete(saved.roots, m.vol)
	root, levels := slot(le.Uint64(b)), b[8]
	if !root.uniform() && root != kindChild || levels < 1 || levels > maxLevels {
		return ErrRoot
	}
	m.levels = levels
	var err error
	if m.root, m.sum, err = m.loadSlot(root, levels, 0, saved); err != nil {
		return err
	}
	m.Grow(sectors)
	return nil
}

// loadSlot loads what a slot of the given height leads to; index is its first window over its span.
func (m *Map) loadSlot(s slot, height uint8, index uint64, saved *Saved) (slot, Sums, error) {
	if s.kind() != kindChild {
		return s, m.slotSums(s, height), nil
	}
	k := nodeKey{m.vol, height - 1, index}
	b, ok := saved.nodes[k]
	if !ok {
		return kindUnmapped, Sums{}, nil // cut off while the checkpoint was written; the log has the rest
	}
	delete(saved.nodes, k)
	a := m.arena
	id, nd := a.newNode(m.vol, height-1, index, kindUnmapped)
	nd.persisted, nd.dirty = true, false
	a.dirty = a.dirty[:len(a.dirty)-1]
	if err := a.decodeNode(nd, b); err != nil {
		return 0, Sums{}, err
	}
	for i := range nd.slots {
		t, sum, err := m.loadSlot(nd.slots[i], height-1, index<<fanoutBits|uint64(i), saved)
		if err != nil {
			return 0, Sums{}, err
		}
		nd.slots[i] = t
		nd.sums.add(sum)
	}
	return childSlot(id), nd.sums, nil
}

// Discard has the next checkpoint remove the nodes and roots that no map has loaded: what an
// earlier one had no time to remove.
func (a *Arena) Discard(saved *Saved) {
	for k := range saved.nodes {
		a.deadKeys[k] = struct{}{}
	}
	a.deadRoots = slices.AppendSeq(a.deadRoots, maps.Keys(saved.roots))
	slices.Sort(a.deadRoots)
}

// CountReferences counts the references of a loaded map in its space, and takes the grains that
// nobody had yet. It returns false when the map leads behind the end of the space. Preconditions:
// EndLoading.
func (m *Map) CountReferences() (ok bool) {
	ok = true
	m.eachWindow(m.root, func(_ uint64, s slot) {
		m.layers(s, func(base uint64, mask layout.Mask) {
			eachGrain(base, mask, func(g uint64) {
				if int64(g) >= m.space.Grains() {
					ok = false
					return
				}
				m.space.Recount(g, m.tenant)
			})
		})
	})
	return ok
}

// FindHomes gives the entitled windows of a loaded map their homes, grains that nobody shares
// first. Preconditions: the references of all maps of the space are counted, and the tenant is
// entitled.
func (m *Map) FindHomes() {
	m.eachWindow(m.root, func(w uint64, s slot) {
		if m.entitled(s) && !m.adopt(s, w, true) {
			m.adopt(s, w, false)
		}
	})
}

// eachWindow calls fn for every window with data below s.
func (m *Map) eachWindow(s slot, fn func(w uint64, s slot)) {
	if s.kind() != kindChild {
		return
	}
	nd := m.arena.nodes[s.value()]
	for i, t := range nd.slots {
		switch t.kind() {
		case kindData, kindDetail:
			fn(nd.index<<fanoutBits|uint64(i), t)
		case kindChild:
			m.eachWindow(t, fn)
		}
	}
}

// layers calls fn for each layer of a data or detail slot.
func (m *Map) layers(s slot, fn func(base uint64, mask layout.Mask)) {
	if s.kind() == kindData {
		fn(s.value(), layout.MaskOf(0, layout.WindowSectors))
		return
	}
	ds := &m.arena.details
	for i := uint32(s.value()); i != 0; i = ds.at(i).next {
		if d := ds.at(i); !d.mask.Empty() {
			fn(d.phys, d.mask)
		}
	}
}
