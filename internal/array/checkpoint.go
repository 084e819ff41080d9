package array

import (
	"encoding/binary"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/ticket"
	"github.com/arraysim/arraysim/internal/block"
)

// A checkpoint puts what the log's records changed since the last one into the
// meta store, in durable batches, and moves the log's tail with the last of them. It is fuzzy: nodes of the maps are
// written as they are when their turn comes, a few at a time, between commands. As
// edits are blind, replaying the log from where the checkpoint began brings every
// node to the same end.
//
// Batches are bounded, because the meta store's are. After a crash between two of them the old position
// counts, over nodes of which some are newer: replaying from there ends in the same map, too. What has to be
// written before what for that is extent.Checkpoint's; the batches and positions are kept here.
//
// Keys:
//
//	o        objects, JSON
//	b        bad sectors, see backend.BadSectors
//	c        seq u64, tail u64: where replay begins; last u64: the last record it may have
//	g        number and digest, see the package metadata
//	r, n     roots and nodes of the maps, see extent
//
// Integers in values are little endian.
const (
	keyObjects    = "o"
	keyCheckpoint = "c"
	keyBad        = "b"
)

var le = binary.LittleEndian

// checkpointStep is the number of nodes that one step writes: some 50 us of work.
const checkpointStep = 48

func checkpointValue(seq uint64, tail int, last uint64) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, seq), uint64(tail)), last)
}

type checkpointer struct {
	running bool
	sealed  bool // the batch with the new position is complete, and may be on its way or committed
	first   bool // the one that ends a recovery
	step    int  // nodes a step; tests set it lower
	limit   int  // bytes of a batch, about; tests set it lower
	maps    *extent.Checkpoint
	batch   []block.KV // that is being filled
	bytes   int        // of it
	out     []block.KV // that is complete
	seq     uint64
	tail    int
	baseSeq uint64 // the position that the store has
	base    int
	count   uint64 // checkpoints that were committed
	since   int64  // when the batch went to the meta store, 0: none is there
	late    bool   // volumes were told that it takes too long
}

// checkpointBytes bounds a batch: far below the 4 GiB that Pebble takes, and what it takes of memory.
const checkpointBytes = 32 << 20

// checkpoint starts one when the log is half full, or when it is forced and there
// is anything to write. When the array is broken the log stays as it is for the next start.
func (a *Array) checkpoint(force bool) {
	if a.ckpt.running || a.meta.Closed() || !a.payload || a.broken != "" {
		return
	}
	if used := a.log.Used(); used < a.log.Size()/2 && !((force || a.log.Starved()) && used > 0) {
		return
	}
	a.beginCheckpoint()
	a.exec.At(a.exec.Now(), a.checkpointSteps)
}

func (a *Array) beginCheckpoint() {
	ck := &a.ckpt
	ck.running, ck.sealed = true, false
	ck.seq, ck.tail = a.log.BeginCheckpoint()
	ck.batch, ck.bytes = nil, 0
	ck.maps = a.arena.Checkpoint()
	ck.maps.Begin(ck.put)
}

func (a *Array) checkpointSteps() {
	if !a.fillBatch(a.ckpt.step) {
		a.exec.At(a.exec.Now(), a.checkpointSteps)
		return
	}
	a.flusher.After(a.commitCheckpoint)
}

// commitCheckpoint commits a batch when NVRAM was flushed behind the last edit in it.
func (a *Array) commitCheckpoint(err error) {
	if err != nil {
		if a.stopped { // who stops the array waits, and the next start has all that it needs in the log
			a.failCheckpoint("NVRAM could not be flushed: %v", err)
			return
		}
		a.exec.At(a.exec.Now()+retryTime, func() { a.flusher.After(a.commitCheckpoint) })
		return
	}
	a.ckpt.since = max(1, a.exec.Now())
	a.watch()
	a.meta.Commit(a.checkpointBatch, func(err error) {
		a.ckpt.since = 0
		if a.ckpt.late {
			a.ckpt.late = false
			a.tellHealth()
		}
		if err != nil {
			a.failCheckpoint("the checkpoint could not be written: %v", err)
			return
		}
		a.batchDone()
		if a.ckpt.running {
			a.exec.At(a.exec.Now(), a.checkpointSteps)
		}
		a.endStep()
	})
}

// failCheckpoint ends a checkpoint that cannot be had, and with it all changes.
func (a *Array) failCheckpoint(format string, err error) {
	a.ckpt.running, a.ckpt.out = false, nil
	a.ckpt.maps.Abort()
	a.breakDown(fmt.Sprintf(format, err))
}

func (a *Array) checkpointBatch() []block.KV { return a.ckpt.out }

// batchDone hears that the batch is durable.
func (a *Array) batchDone() {
	ck := &a.ckpt
	ck.out = nil
	if !ck.sealed {
		return
	}
	if ck.baseSeq != ck.seq || ck.base != ck.tail || a.log.Tail() != ck.tail {
		ck.baseSeq, ck.base = ck.seq, ck.tail
		a.log.Trim(ck.tail)
		a.gave(ticket.Log)
		a.gaveRoom()
		ck.count++
	}
	ck.running = ck.maps.MoreRemovals()
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
			ck.put([]byte(keyCheckpoint), checkpointValue(ck.baseSeq, ck.base, a.log.Seq()))
			ck.complete()
			return true
		case !ck.maps.Next():
			a.finishBatch()
			ck.complete()
			return true
		}
	}
	return false
}

// finishBatch adds the roots and the new position, and removes what has room: nothing may be added behind it.
func (a *Array) finishBatch() {
	ck := &a.ckpt
	if ck.first {
		ck.first = false
		ck.seq = a.log.Renumber()
	}
	ck.maps.Seal()
	a.saveBad()
	ck.put([]byte(keyCheckpoint), checkpointValue(ck.seq, ck.tail, a.log.Seq()))
	ck.sealed = true
	a.removeDead()
}

// saveBad adds the list to a checkpoint.
func (a *Array) saveBad() {
	if value, changed := a.back.Bad.Encode(); changed {
		a.ckpt.put([]byte(keyBad), value)
	}
}

// removeDead adds removals to the batch, as long as there is room.
func (a *Array) removeDead() {
	ck := &a.ckpt
	for ck.bytes < ck.limit {
		key := ck.maps.NextRemoval()
		if key == nil {
			return
		}
		ck.put(key, nil)
	}
}

// checkpointIsLate tells volumes once that a batch does not come back.
func (a *Array) checkpointIsLate() {
	if !a.ckpt.late {
		a.ckpt.late = true
		a.tellHealth()
	}
}
