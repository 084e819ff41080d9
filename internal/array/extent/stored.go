// What the store has of references, kept right while leaves are edited, written, cut off and removed; see
// package account.

package extent

import (
	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/array/window"
)

// noting says which leaf is edited.
func (m *Map) noting(nd *node.Node) {
	if m.notes = &nd.Notes; m.arena.acct.Off {
		m.notes = nil
	}
}

// eachCutOff calls fn for the slots that lead to leaves with a key that are among the garbage and in memory. No
// leaf is packed meanwhile.
func (a *Arena) eachCutOff(k node.Key, fn func(k node.Key, s *window.Slot)) {
	a.nodes.Hold(func() bool {
		a.eachBelow(k, func(s *window.Slot) {
			if s.Kind() != window.KindAbsent {
				fn(k, s)
			}
		})
		return false
	})
}

// Account returns what the store has of references.
func (a *Arena) Account() *account.Account { return &a.acct }

// StartLoading begins the time in which maps are loaded and what the log says is done again: spaces count what
// the store has, edits note by what they differ from that, and no garbage is announced. Before EndLoading all
// garbage that is Collectable has to be collected.
func (a *Arena) StartLoading() { a.loading = true }

// EndLoading ends what StartLoading began: spaces count what maps and garbage refer to. An error says that what
// was loaded or done again means nothing.
func (a *Arena) EndLoading() error {
	if a.loading = false; a.away.err != nil {
		return a.away.err
	}
	return a.acct.Recount(a.dirty, func(vol uint32) *alloc.Tenant { return a.maps[vol].tenant })
}

// Announce says that there is garbage that the start has left. What it has made of nodes nobody has to pay for.
func (a *Arena) Announce() {
	if a.debt = 0; len(a.garbage) > 0 {
		a.onGarbage()
	}
}

// readDoomed has the absent leaf with a key read that is garbage, while maps are loaded; see Missing.
func (m *Map) readDoomed(k node.Key) {
	if m.arena.loading && m.arena.garbageLacks(k) {
		m.readAt(m.arena.garbageSlot(k), k.Index)
	}
}
