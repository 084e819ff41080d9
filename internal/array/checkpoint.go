package array

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/arraysim/arraysim/internal/block"
)

// A checkpoint puts what the log's records changed since the last one into the
// meta store, in one durable batch, and moves the log's tail. It is fuzzy: nodes are
// written as they are when their turn comes, a few at a time, between commands. As
// edits are blind, replaying the log from where the checkpoint began brings every
// node to the same end. A node that a written node refers to is always written, too.
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
	sealed  bool     // the batch is complete and may be on its way
	step    int      // nodes a step; tests set it lower
	work    []uint32 // nodes to write
	batch   []block.KV
	seq     uint64
	tail    int
	count   uint64 // checkpoints that were committed
	since   int64  // when the batch went to the meta store, 0: none is there
}

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
	ck.batch = nil
	dead := make([]nodeKey, 0, len(a.deadKeys))
	for k := range a.deadKeys {
		if a.nodeAt(k) == nil {
			dead = append(dead, k)
		}
	}
	sort.Slice(dead, func(i, j int) bool { return string(dead[i].bytes()) < string(dead[j].bytes()) })
	for _, k := range dead {
		ck.batch = append(ck.batch, block.KV{Key: k.bytes()})
	}
	clear(a.deadKeys)
	for _, vol := range a.rootsDead {
		ck.batch = append(ck.batch, block.KV{Key: rootKey(vol)})
	}
	a.rootsDead = a.rootsDead[:0]
}

func (a *Array) checkpointSteps() {
	if a.writeNodes(a.ckpt.step) {
		a.exec.At(a.exec.Now(), a.checkpointSteps)
		return
	}
	a.finishBatch()
	a.afterFlush(a.commitCheckpoint)
}

// commitCheckpoint commits the batch when NVRAM was flushed behind the last edit in it.
func (a *Array) commitCheckpoint(err error) {
	if err != nil {
		a.exec.At(a.exec.Now()+retryTime, func() { a.afterFlush(a.commitCheckpoint) })
		return
	}
	a.ckpt.since = max(1, a.exec.Now())
	a.commitMeta(a.ckpt.batch, func(err error) {
		a.ckpt.running, a.ckpt.batch, a.ckpt.since = false, nil, 0
		if err != nil {
			a.breakDown(fmt.Sprintf("the checkpoint could not be written: %v", err))
			return
		}
		a.journal.tail, a.journal.starved = a.ckpt.tail, false
		a.ckpt.count++
		a.endStep()
	})
}

// writeNodes adds up to n nodes to the batch and tells whether some are left.
func (a *Array) writeNodes(n int) bool {
	ck := &a.ckpt
	for ; n > 0 && len(ck.work) > 0; n-- {
		id := ck.work[len(ck.work)-1]
		ck.work = ck.work[:len(ck.work)-1]
		nd := a.arena.nodes[id]
		if nd == nil || !nd.dirty {
			continue
		}
		nd.dirty = false
		if at := a.nodeAt(nd.key()); at != nd {
			if at == nil {
				a.writeOrphan(nd)
			}
			continue
		}
		a.writeNode(nd)
		for _, s := range nd.slots {
			if s.kind() == kindChild {
				if c := a.arena.nodes[s.value()]; c.dirty {
					ck.work = append(ck.work, uint32(s.value()))
				}
			}
		}
	}
	return len(ck.work) > 0
}

func (a *Array) writeNode(nd *node) {
	nd.persisted = true
	a.ckpt.batch = append(a.ckpt.batch, block.KV{Key: nd.key().bytes(), Value: a.encodeNode(nd)})
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
	nd.persisted = true
}

// finishBatch adds the roots, with the nodes that only they lead to, and the position.
// Nothing may be added behind it: the batch belongs to the meta store soon.
func (a *Array) finishBatch() {
	ck := &a.ckpt
	defer func() { ck.sealed = true }()
	for _, v := range a.vols {
		if v == nil || v.deleted || !v.m.rootDirty {
			continue
		}
		v.m.rootDirty = false
		if s := v.m.root; s.kind() == kindChild && a.arena.nodes[s.value()].dirty {
			ck.work = append(ck.work, uint32(s.value()))
			a.writeNodes(1 << 30)
		}
		root := v.m.root
		if root.kind() == kindChild {
			root = kindChild
		}
		ck.batch = append(ck.batch, block.KV{Key: rootKey(v.id), Value: append(le.AppendUint64(nil, uint64(root)), v.m.levels)})
	}
	a.saveBad()
	ck.batch = append(ck.batch, block.KV{Key: []byte(keyCheckpoint), Value: checkpointValue(ck.seq, ck.tail, a.journal.seq)})
}

func (nd *node) key() nodeKey { return nodeKey{nd.vol, nd.level, nd.index} }

// nodeAt returns the node that the map has at this key now, nil if it has none.
func (a *Array) nodeAt(k nodeKey) *node {
	if int(k.vol) >= len(a.vols) || a.vols[k.vol] == nil {
		return nil
	}
	m := &a.vols[k.vol].m
	for s := m.root; s.kind() == kindChild; {
		nd := a.arena.nodes[s.value()]
		if nd.level == k.level && nd.index == k.index {
			return nd
		}
		if nd.level <= k.level || k.index>>(fanoutBits*uint(nd.level-k.level)) != nd.index {
			return nil
		}
		s = nd.slots[k.index>>(fanoutBits*uint(nd.level-k.level-1))&(fanout-1)]
	}
	return nil
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
	for _, v := range a.vols {
		if v != nil && !v.deleted {
			v.tell(block.EventHealth)
		}
	}
}
