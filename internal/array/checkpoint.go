package array

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// A checkpoint puts what the log's records changed since the last one into the
// meta store, in durable batches, and moves the log's tail with the last of them. It is fuzzy: nodes are
// written as they are when their turn comes, a few at a time, between commands. As
// edits are blind, replaying the log from where the checkpoint began brings every
// node to the same end.
//
// Batches are bounded, because the meta store's are. After a crash between two of them the old position
// counts, over nodes of which some are newer: replaying from there ends in the same map, too. For that, no batch may
// leave a node that leads to one that the store does not have, or has from an earlier life of the same key:
// a new node goes there before or with the one that leads to it, and what is cut off leaves the store
// with the new position or behind it.
//
// Keys:
//
//	o                          objects, JSON
//	b                          bad sectors, see bad.go
//	c                          seq u64, tail u64: where replay begins; last u64: the last record it may have
//	g                          number and digest, see meta.go
//	r vol u32                  root slot u64, levels u8
//	n vol u32 level u8 idx u64 a node: 256 slots u64, then for each detail slot in
//	                           order: layers u8, zero u64 x2, anchored u64 x2, {phys u64, mask u64 x2} x layers
//
// Integers in keys are big endian, in values little endian.
const (
	keyObjects    = "o"
	keyCheckpoint = "c"
	keyRoot       = "r"
	keyNode       = "n"
)

// checkpointStep is the number of nodes that one step writes: some 50 us of work.
const checkpointStep = 48

type nodeKey struct {
	vol   uint32
	level uint8
	index uint64
}

func (k nodeKey) bytes() []byte {
	b := binary.BigEndian.AppendUint32([]byte(keyNode), k.vol)
	b = append(b, k.level)
	return binary.BigEndian.AppendUint64(b, k.index)
}

func rootKey(vol uint32) []byte { return binary.BigEndian.AppendUint32([]byte(keyRoot), vol) }

func checkpointValue(seq uint64, tail int, last uint64) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, seq), uint64(tail)), last)
}

type checkpointer struct {
	running bool
	sealed  bool      // the batch with the new position is complete, and may be on its way or committed
	first   bool      // the one that ends a recovery
	step    int       // nodes a step; tests set it lower
	limit   int       // bytes of a batch, about; tests set it lower
	work    []uint32  // nodes to write, the last first
	dead    []nodeKey // keys to remove, those of doomed
	doomed  map[nodeKey]struct{}
	roots   []uint32   // volumes whose roots to remove
	batch   []block.KV // that is being filled
	bytes   int        // of it
	out     []block.KV // that is complete
	seq     uint64
	tail    int
	baseSeq uint64 // the position that the store has
	base    int
	count   uint64 // checkpoints that were committed
	since   int64  // when the batch went to the meta store, 0: none is there
}

// checkpointBytes bounds a batch: far below the 4 GiB that Pebble takes, and what it takes of memory.
const checkpointBytes = 32 << 20

// checkpoint starts one when the log is half full, or when it is forced and there
// is anything to write.
func (a *Array) checkpoint(force bool) {
	if a.ckpt.running || a.meta == nil || a.journal.off {
		return
	}
	if used := a.journal.used(); used < len(a.journal.ring)/2 && !((force || a.journal.starved) && used > 0) {
		return
	}
	a.beginCheckpoint()
	a.exec.At(a.exec.Now(), a.checkpointSteps)
}

func (a *Array) beginCheckpoint() {
	ck := &a.ckpt
	ck.running, ck.sealed = true, false
	a.journal.starved = false
	ck.seq, ck.tail = a.journal.seq, a.journal.head
	ck.work = append(ck.work[:0], a.arena.dirty...)
	a.arena.dirty = a.arena.dirty[:0]
	ck.batch, ck.bytes, ck.dead = nil, 0, ck.dead[:0]
	ck.doomed, a.deadKeys = a.deadKeys, map[nodeKey]struct{}{}
	for k := range ck.doomed {
		// The key came to life again and was written before its old node was collected.
		if id, ok := a.idAt(k); ok && a.arena.nodes[id].persisted {
			delete(ck.doomed, k)
			continue
		}
		ck.dead = append(ck.dead, k)
	}
	slices.SortFunc(ck.dead, func(x, y nodeKey) int {
		return cmp.Or(cmp.Compare(x.vol, y.vol), cmp.Compare(x.level, y.level), cmp.Compare(x.index, y.index))
	})
	ck.roots, a.rootsDead = a.rootsDead, nil
}

func (a *Array) checkpointSteps() {
	if !a.fillBatch(a.ckpt.step) {
		a.exec.At(a.exec.Now(), a.checkpointSteps)
		return
	}
	a.afterFlush(a.commitCheckpoint)
}

// commitCheckpoint commits a batch when NVRAM was flushed behind the last edit in it.
func (a *Array) commitCheckpoint(err error) {
	if err != nil {
		a.exec.At(a.exec.Now()+retryTime, func() { a.afterFlush(a.commitCheckpoint) })
		return
	}
	a.ckpt.since = max(1, a.exec.Now())
	a.commitMeta(a.checkpointBatch, func(err error) {
		a.ckpt.since = 0
		if err != nil {
			a.ckpt.running, a.ckpt.out = false, nil
			a.breakDown(fmt.Sprintf("the checkpoint could not be written: %v", err))
			return
		}
		a.batchDone()
		if a.ckpt.running {
			a.exec.At(a.exec.Now(), a.checkpointSteps)
		}
		a.endStep()
	})
}

func (a *Array) checkpointBatch() []block.KV { return a.ckpt.out }

// batchDone hears that the batch is durable.
func (a *Array) batchDone() {
	ck := &a.ckpt
	ck.out = nil
	if !ck.sealed {
		return
	}
	if ck.baseSeq != ck.seq || ck.base != ck.tail || a.journal.tail != ck.tail {
		ck.baseSeq, ck.base = ck.seq, ck.tail
		a.journal.tail, a.journal.starved = ck.tail, false
		ck.count++
	}
	ck.running = len(ck.dead)+len(ck.roots) > 0
}

// put adds an entry to the batch.
func (ck *checkpointer) put(key, value []byte) {
	ck.batch = append(ck.batch, block.KV{Key: key, Value: value})
	ck.bytes += len(key) + len(value)
}

// complete makes the batch one that can be committed. What is written from now on goes to the next one.
func (ck *checkpointer) complete() {
	ck.out, ck.batch, ck.bytes = ck.batch, nil, 0
}

// fillBatch goes on with up to n nodes and tells whether a batch is complete.
func (a *Array) fillBatch(n int) bool {
	ck := &a.ckpt
	for ; n > 0; n-- {
		switch {
		case ck.sealed: // only removals are left
			a.removeDead()
			ck.complete()
			return true
		case ck.bytes >= ck.limit:
			// The old position, and the last record that these nodes may have.
			ck.put([]byte(keyCheckpoint), checkpointValue(ck.baseSeq, ck.base, a.journal.seq))
			ck.complete()
			return true
		case len(ck.work) > 0:
			a.writeNext()
		case !a.needRoots():
			a.finishBatch()
			ck.complete()
			return true
		}
	}
	return false
}

// writeNext writes the next node, or finds out what has to be written before it.
func (a *Array) writeNext() {
	ck := &a.ckpt
	id := ck.work[len(ck.work)-1]
	nd := a.arena.nodes[id]
	if nd == nil || !nd.dirty {
		ck.work = ck.work[:len(ck.work)-1]
		return
	}
	now, ok := a.idAt(nd.key())
	if ok && now == id {
		n := len(ck.work)
		for _, s := range nd.slots {
			if s.kind() == kindChild && !a.arena.nodes[s.value()].persisted {
				ck.work = append(ck.work, uint32(s.value()))
			}
		}
		if len(ck.work) > n {
			return
		}
		ck.work = ck.work[:n-1]
		nd.dirty = false
		a.writeNode(nd)
		return
	}
	ck.work = ck.work[:len(ck.work)-1]
	nd.dirty = false
	a.cutOff(nd)
}

// cutOff hears of a node with changes that is not in the map any more. What was written before may lead to its key, so
// that it has to be there: as it was, or as the node that has come in its place.
func (a *Array) cutOff(nd *node) {
	if now, ok := a.idAt(nd.key()); ok {
		a.ckpt.work = append(a.ckpt.work, now)
	} else if nd.persisted {
		a.writeOrphan(nd)
	}
}

func (a *Array) writeNode(nd *node) {
	nd.persisted = true
	delete(a.deadKeys, nd.key()) // the key has come to life again
	delete(a.ckpt.doomed, nd.key())
	a.ckpt.put(nd.key().bytes(), a.encodeNode(nd))
}

// writeOrphan writes a node that was cut off after the checkpoint began: a page that
// is written already may refer to it. Where it had details or children, or anything that
// the edit that cut it off replaced, the log has what came after.
func (a *Array) writeOrphan(nd *node) {
	plain := *nd
	for i, s := range plain.slots {
		if s.kind() == kindDetail || s.kind() == kindChild {
			plain.slots[i] = kindUnmapped
		}
	}
	a.writeNode(&plain)
}

// needRoots tells whether there are nodes that only roots lead to and that have to be written before these.
func (a *Array) needRoots() bool {
	ck := &a.ckpt
	for _, v := range a.vols {
		if v == nil || v.deleted || !v.m.rootDirty {
			continue
		}
		if s := v.m.root; s.kind() == kindChild && !a.arena.nodes[s.value()].persisted {
			ck.work = append(ck.work, uint32(s.value()))
		}
	}
	return len(ck.work) > 0
}

// finishBatch adds the roots and the new position, and removes what has room: nothing may be added behind it.
func (a *Array) finishBatch() {
	ck := &a.ckpt
	if ck.first {
		ck.first = false
		a.journal.seq += 1 << 32 // more than a ring can hold
		ck.seq = a.journal.seq
	}
	for _, v := range a.vols {
		if v == nil || v.deleted || !v.m.rootDirty {
			continue
		}
		v.m.rootDirty = false
		root := v.m.root
		if root.kind() == kindChild {
			root = kindChild
		}
		ck.put(rootKey(v.id), append(le.AppendUint64(nil, uint64(root)), v.m.levels))
	}
	a.saveBad()
	ck.put([]byte(keyCheckpoint), checkpointValue(ck.seq, ck.tail, a.journal.seq))
	ck.sealed = true
	a.removeDead()
}

// removeDead adds removals to the batch, as long as there is room. The nodes were cut off before the checkpoint began, so
// that with the new position nothing leads to them; a key that was written since is not doomed any more.
func (a *Array) removeDead() {
	ck := &a.ckpt
	for len(ck.dead) > 0 && ck.bytes < ck.limit {
		k := ck.dead[len(ck.dead)-1]
		ck.dead = ck.dead[:len(ck.dead)-1]
		if _, ok := ck.doomed[k]; ok {
			ck.put(k.bytes(), nil)
		}
	}
	for len(ck.roots) > 0 && ck.bytes < ck.limit {
		ck.put(rootKey(ck.roots[len(ck.roots)-1]), nil)
		ck.roots = ck.roots[:len(ck.roots)-1]
	}
}

func (nd *node) key() nodeKey { return nodeKey{nd.vol, nd.level, nd.index} }

// idAt returns the node that the map has at this key now.
func (a *Array) idAt(k nodeKey) (id uint32, ok bool) {
	if int(k.vol) >= len(a.vols) || a.vols[k.vol] == nil {
		return 0, false
	}
	m := &a.vols[k.vol].m
	for s := m.root; s.kind() == kindChild; {
		nd := a.arena.nodes[s.value()]
		if nd.level == k.level && nd.index == k.index {
			return uint32(s.value()), true
		}
		if nd.level <= k.level || k.index>>(fanoutBits*uint(nd.level-k.level)) != nd.index {
			return 0, false
		}
		s = nd.slots[k.index>>(fanoutBits*uint(nd.level-k.level-1))&(fanout-1)]
	}
	return 0, false
}

func (a *Array) encodeNode(nd *node) []byte {
	b := make([]byte, 0, fanout*8+64)
	for _, s := range nd.slots {
		switch s.kind() {
		case kindChild, kindDetail:
			s = s.kind()
		}
		b = le.AppendUint64(b, uint64(s))
	}
	ds := &a.arena.details
	for _, s := range nd.slots {
		if s.kind() != kindDetail {
			continue
		}
		head := uint32(s.value())
		h := ds.at(head)
		at := len(b)
		b = append(b, 0)
		for _, w := range [...]uint64{h.zero[0], h.zero[1], h.anchored[0], h.anchored[1]} {
			b = le.AppendUint64(b, w)
		}
		for i := head; i != 0; i = ds.at(i).next {
			d := ds.at(i)
			if d.mask.empty() {
				continue
			}
			b[at]++
			b = le.AppendUint64(b, d.phys)
			b = le.AppendUint64(b, d.mask[0])
			b = le.AppendUint64(b, d.mask[1])
		}
	}
	return b
}

// decodeNode fills a new node from a value; children are attached by the caller.
func (a *Array) decodeNode(nd *node, b []byte) error {
	if len(b) < fanout*8 {
		return fmt.Errorf("a map page of volume %d is %d bytes long, less than %d", nd.vol, len(b), fanout*8)
	}
	rest := b[fanout*8:]
	for i := range nd.slots {
		s := slot(le.Uint64(b[i*8:]))
		if s.kind() > kindChild || s.kind() <= kindAnchored && !s.uniform() || nd.level > 0 && (s.kind() == kindData || s.kind() == kindDetail) || nd.level == 0 && s.kind() == kindChild {
			return fmt.Errorf("a map page of volume %d has an entry %#x that means nothing", nd.vol, uint64(s))
		}
		nd.slots[i] = s
		if s.kind() != kindDetail {
			continue
		}
		if len(rest) < 33 || len(rest) < 33+24*int(rest[0]) {
			return fmt.Errorf("a map page of volume %d is cut off", nd.vol)
		}
		id, h := a.arena.details.alloc()
		h.zero = mask128{le.Uint64(rest[1:]), le.Uint64(rest[9:])}
		h.anchored = mask128{le.Uint64(rest[17:]), le.Uint64(rest[25:])}
		layers := rest[33 : 33+24*int(rest[0])]
		rest = rest[33+len(layers):]
		m := extentMap{arena: &a.arena}
		for ; len(layers) > 0; layers = layers[24:] {
			m.addLayer(id, le.Uint64(layers), mask128{le.Uint64(layers[8:]), le.Uint64(layers[16:])})
		}
		nd.slots[i] = detailSlot(id)
	}
	return nil
}

// breakDown stops all changes after an error of the log's surroundings: what was
// acknowledged stays readable.
func (a *Array) breakDown(why string) {
	if a.broken == "" {
		a.broken = why
	}
	a.tellHealth()
}
