package extent

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
	"github.com/arraysim/arraysim/internal/block"
)

// bound has leaves of the arena leave memory, if they are to.
func (r *rig) bound() {
	r.pending, r.hung = nil, nil
	if r.mapBytes > 0 {
		r.arena.Bound(r.mapBytes, r, demand.Hooks{Heard: func() {}, Asked: func() {}, Turned: func() {}, Now: func() int64 { return 0 }})
	}
}

// errPage is why a page is not read.
var errPage = errors.New("input/output error")

// Read implements demand.Source: the store answers when deliver is called, with what it has then or had when it was asked. With
// faults some answers are errors, or half a page, and others do not come before heal.
func (r *rig) Read(key []byte, done func([]byte, error)) {
	value, arena := bytes.Clone(r.ckpt.store[string(key)]), r.arena
	if value == nil {
		r.fatalf("page %x is to be read, and is not there", key)
	}
	early, hangs, err := r.rnd.IntN(2) == 0, false, error(nil)
	if r.faults && r.rnd.IntN(4) == 0 {
		switch r.faulty++; r.rnd.IntN(3) {
		case 0:
			err = errPage
		case 1:
			value, early = value[:len(value)/2], true
		default:
			hangs = true
		}
	}
	answer := func() {
		if !early {
			value = r.ckpt.store[string(key)]
		}
		if r.arena != arena {
			return
		}
		if err != nil {
			value = nil
		}
		done(value, err)
	}
	if hangs {
		r.hung = append(r.hung, answer)
	} else {
		r.pending = append(r.pending, answer)
	}
}

// Hurry implements demand.Source.
func (r *rig) Hurry([]byte) {}

// ReadNow implements demand.Source.
func (r *rig) ReadNow(key []byte) ([]byte, error) { return r.ckpt.store[string(key)], nil }

// heal has the store answer what has hung, too.
func (r *rig) heal() { r.pending, r.hung = append(r.pending, r.hung...), nil }

// deliver has the store answer so many reads, in any order.
func (r *rig) deliver(n int) {
	for ; n > 0 && len(r.pending) > 0; n-- {
		i := r.rnd.IntN(len(r.pending))
		answer := r.pending[i]
		r.pending = slices.Delete(r.pending, i, i+1)
		answer()
	}
}

// pump has the store answer what garbage waits for.
func (r *rig) pump() {
	for r.arena.GarbageReads(r.space) != nil {
		if len(r.pending) == 0 {
			r.heal()
		}
		r.deliver(1)
	}
}

// collect collects all garbage.
func (r *rig) collect() {
	for r.arena.Collect(1000) {
		r.pump()
	}
}

// need waits for the leaves that a use of a range needs, while others make changes. It returns false if the volume or the
// range has gone meanwhile, or a leaf could not be read, or not in time: then a command ends with an error, and changes nothing.
func (r *rig) need(v *volume, g block.Range, use Use) bool {
	var pins demand.Pins
	defer pins.Release()
	failing := error(nil)
	heard := func(err error) { failing = cmp.Or(failing, err) }
	for slices.Contains(r.vols, v) && g.End() <= uint64(len(v.sectors)) {
		if !v.m.Fetch(g, use, heard) {
			return true
		}
		if r.waited++; pins.Empty() {
			v.m.Keep(&pins, g, use)
		}
		if r.depth < 3 && r.rnd.IntN(3) == 0 {
			r.depth++
			r.change()
			r.depth--
		}
		if r.faults && r.rnd.IntN(8) == 0 {
			r.arena.Demand().Late(0)
		}
		r.deliver(1 + r.rnd.IntN(3))
		if r.rnd.IntN(3) == 0 {
			r.arena.Evict(1 << 20)
		}
		if failing != nil {
			r.failed++
			return false
		}
	}
	return false
}

// checkAbsent verifies that each absent leaf is in the store as it says, and that no other one has its key.
func (r *rig) checkAbsent() {
	r.t.Helper()
	seen, leaves := map[node.Key]bool{}, 0
	var below func(s window.Slot, k node.Key, next int, garbage bool)
	below = func(s window.Slot, k node.Key, next int, garbage bool) {
		switch s.Kind() {
		case window.KindChild:
			if nd := r.arena.nodes.At(uint32(s.Value())); nd.Level > 0 {
				for i := next; i < node.Fanout; i++ {
					below(nd.Slots[i], node.KeyAt(k.Vol, nd.Level-1, k.Index<<node.FanoutBits|uint64(i)), 0, garbage)
				}
				return
			}
		case window.KindAbsent:
			leaves++
			if seen[k] {
				r.fatalf("two absent leaves have the key %+v", k)
			}
			seen[k] = true
			if err := r.arena.nodes.LookPage(s, k, r.ckpt.store[string(k.Bytes())], func(*node.Node) {}); err != nil {
				r.fatalf("leaf %+v is not in the store as it was: %v", k, err)
			}
			return
		case window.KindPacked:
		default:
			return
		}
		if seen[k] && !garbage {
			r.fatalf("a leaf has the key %+v of one of the garbage that is absent", k)
		}
	}
	for _, g := range r.arena.garbage {
		for _, c := range g.list {
			level := uint8(0)
			if c.slot.Kind() == window.KindChild {
				level = r.arena.nodes.At(uint32(c.slot.Value())).Level
			}
			below(c.slot, node.KeyAt(c.vol, level, c.index), c.next, true)
		}
	}
	for _, m := range r.arena.maps {
		if m != nil {
			below(m.root, node.KeyAt(m.vol, m.levels-1, 0), 0, false)
		}
	}
	if leaves != r.arena.away.leaves {
		r.fatalf("%d leaves are absent, not %d", leaves, r.arena.away.leaves)
	}
}
