package hostcache

import (
	"fmt"

	"github.com/arraysim/arraysim/lab/plug"
)

// plugged is a policy of somebody else's. It keeps all blocks on one list, whose order means
// nothing, and asks who leaves.
type plugged struct {
	ix       *Index
	make     func(capacity int64) plug.Eviction
	by       plug.Eviction
	capacity int64
	pinned   func(slot int) bool // made once: it is handed over with every question
	failed   error
}

func newPlugged(ix *Index) *plugged {
	p := &plugged{ix: ix, make: ix.cfg.Plugged}
	p.pinned = func(slot int) bool { return p.holds(slot) && ix.meta[uint32(slot)+numLists]&pinMask != 0 }
	return p
}

func (p *plugged) name() string       { return p.ix.cfg.Policy }
func (p *plugged) ghosts(int64) int64 { return 0 }

// resize begins again with an empty policy; adopt tells it what is resident.
func (p *plugged) resize(capacity int64) { p.capacity, p.by = capacity, p.make(capacity) }

func (p *plugged) hit(s uint32) { p.by.Hit(int(s) - numLists) }

func (p *plugged) place(s uint32, state uint8) {
	p.ix.push(s, state)
	p.by.Insert(int(s)-numLists, p.ix.nodes[s].key.Block())
}

func (p *plugged) drop(s uint32) {
	p.ix.pull(s)
	p.by.Remove(int(s) - numLists)
}

func (p *plugged) admit(Key, uint32, int64) (uint8, bool) {
	ix := p.ix
	for ix.used >= p.capacity {
		if p.failed != nil || ix.pinned == ix.resident {
			return 0, false
		}
		v := p.by.Victim(p.pinned)
		if p.failed = p.wrong(v); p.failed != nil {
			return 0, false
		}
		s := uint32(v) + numLists
		ix.pull(s)
		p.by.Remove(v)
		ix.evict(s)
	}
	return inCache, true
}

// holds reports whether a slot has a block.
func (p *plugged) holds(slot int) bool {
	return slot >= 0 && int64(slot) < p.capacity && p.ix.meta[uint32(slot)+numLists]&stateMask == inCache
}

// wrong says why a victim cannot leave.
func (p *plugged) wrong(slot int) error {
	if err := p.err(); err != nil {
		return err
	}
	switch {
	case !p.holds(slot):
		return fmt.Errorf("eviction policy %s named slot %d, which holds no block", p.name(), slot)
	case p.ix.meta[uint32(slot)+numLists]&pinMask != 0:
		return fmt.Errorf("eviction policy %s named slot %d, which is pinned", p.name(), slot)
	}
	return nil
}

// err is why the policy failed, as far as it can tell.
func (p *plugged) err() error {
	if p.failed != nil {
		return p.failed
	}
	if f, ok := p.by.(plug.Failing); ok {
		if err := f.Err(); err != nil {
			return fmt.Errorf("eviction policy %s: %w", p.name(), err)
		}
	}
	return nil
}

func (p *plugged) order(r, g []uint32) ([]uint32, []uint32) { return p.ix.collect(r, inCache), g }

func (p *plugged) adopt(resident, _ []uint32) int {
	for _, s := range resident {
		p.ix.setCount(s, 0)
		p.place(s, inCache)
	}
	return 0
}

// Err returns why the eviction policy failed, if it is one of [Config.Plugged]. From then on the
// index takes no more blocks.
func (ix *Index) Err() error {
	if p, ok := ix.policy.(*plugged); ok {
		return p.err()
	}
	return nil
}
