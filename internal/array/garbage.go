package array

import "github.com/arraysim/arraysim/internal/array/alloc"

// garbage is what map edits cut off: subtrees whose references are given back a
// few slots at a time, so that one command that supersedes millions of entries
// delays nobody. Space and dirty data under them stay counted until their turn.
type garbage struct {
	heap []cutOff
}

type cutOff struct {
	pool *Pool
	vol  uint32
	node uint32
	next int // slot to look at next
}

// garbageStep is the number of slots that one step looks at: some 50 us of work.
const garbageStep = 1024

func (g *garbage) empty() bool { return len(g.heap) == 0 }

// reap queues a subtree. A node that is queued is no longer reachable: it leaves
// the checkpoint, too.
func (a *Array) reap(vol uint32, pool *Pool, s slot) {
	a.garbage.heap = append(a.garbage.heap, cutOff{pool: pool, vol: vol, node: uint32(s.value())})
	if !a.arena.recovering {
		a.scheduleGarbage()
	}
}

func (a *Array) scheduleGarbage() {
	if a.garbageQueued || a.garbage.empty() {
		return
	}
	a.garbageQueued = true
	a.exec.At(a.exec.Now(), a.garbageFn)
}

func (a *Array) runGarbage() {
	a.garbageQueued = false
	a.collect(garbageStep)
	a.scheduleGarbage()
	a.endStep()
}

// collect looks at up to n slots of what was cut off and tells whether anything is left.
func (a *Array) collect(n int) bool {
	g := &a.garbage
	for n > 0 && len(g.heap) > 0 {
		top := len(g.heap) - 1
		c := &g.heap[top]
		nd := a.arena.nodes[c.node]
		m := extentMap{arena: &a.arena, pool: c.pool, vol: c.vol}
		descended := false
		for c.next < fanout && n > 0 {
			s := nd.slots[c.next]
			c.next++
			n--
			if s.kind() == kindChild {
				g.heap = append(g.heap, cutOff{pool: c.pool, vol: c.vol, node: uint32(s.value())})
				descended = true
				break
			}
			if !s.uniform() {
				m.dropGarbage(s, nd.index<<fanoutBits|uint64(c.next-1))
			}
		}
		if descended || c.next < fanout {
			continue
		}
		a.freeNode(c.node, nd)
		g.heap = g.heap[:top]
	}
	return len(g.heap) > 0
}

// dropGarbage releases what a window that was cut off refers to. Others may share its home.
func (m *extentMap) dropGarbage(s slot, w uint64) {
	home := alloc.NoGrain
	if !m.arena.recovering {
		home = m.home(s, w)
	}
	m.dropWindow(s)
	if home != alloc.NoGrain && m.pool.space.IsHome(home, m.vol, w) {
		m.pool.space.ClearHome(home)
	}
}

func (a *Array) freeNode(id uint32, nd *node) {
	if a.ckpt.running && !a.ckpt.sealed && nd.dirty {
		a.cutOff(nd)
	}
	if nd.persisted {
		a.deadKeys[nd.key()] = struct{}{}
	}
	nd.live = false
	a.arena.nodes[id] = nil
	a.arena.freeNodes = append(a.arena.freeNodes, id)
	a.arena.liveNodes--
}
