package iscsi

import (
	"math/bits"
	"sync/atomic"
)

// tagTable has the initiator task tags of the commands in progress. One goroutine
// adds, any may drop. An entry lies within tagReach slots of where its tag hashes
// to; a stray, further away, makes every addition look at all slots until it is
// gone.
type tagTable struct {
	slots  []atomic.Uint64 // a tag and tagTaken, or 0
	shift  uint8
	strays atomic.Int32
}

const (
	tagTaken = 1 << 32
	tagReach = 4
)

// init makes room for n tags.
func (t *tagTable) init(n int) {
	log := max(bits.Len(uint(2*n-1)), 3)
	t.slots = make([]atomic.Uint64, 1<<log)
	t.shift = uint8(32 - log)
}

func (t *tagTable) home(itt uint32) uint32 { return itt * 0x9E3779B1 >> t.shift } // 2^32 / golden ratio

// add enters a tag; ok is false when it is there already.
func (t *tagTable) add(itt uint32) (slot uint32, ok bool) {
	v, mask, home := tagTaken|uint64(itt), uint32(len(t.slots)-1), t.home(itt)
	free := -1
	reach := uint32(tagReach)
	for i := uint32(0); i < reach; i++ {
		k := (home + i) & mask
		switch t.slots[k].Load() {
		case v:
			return 0, false
		case 0:
			if free < 0 {
				free = int(i)
			}
		}
		if i == tagReach-1 && (free < 0 || t.strays.Load() > 0) {
			reach = mask + 1
		}
	}
	if free < 0 {
		panic("iscsi: internal error: more commands in progress than the window has")
	}
	if free >= tagReach {
		t.strays.Add(1)
	}
	slot = (home + uint32(free)) & mask
	t.slots[slot].Store(v)
	return slot, true
}

// drop takes out the tag that add put into slot.
func (t *tagTable) drop(slot uint32) {
	v := t.slots[slot].Load()
	t.slots[slot].Store(0)
	if (slot-t.home(uint32(v)))&uint32(len(t.slots)-1) >= tagReach {
		t.strays.Add(-1)
	}
}
