package array

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
)

// Recovery is what the last start found and did; see Array.Recovery.
type Recovery struct {
	Fresh      bool     // there was nothing: the store was empty
	Records    uint64   // log records replayed
	Pages      int      // dirty pages found
	Discarded  int      // pages that nothing referred to any more
	BadSectors int      // dirty sectors that failed their checksum
	BadPages   int      // descriptors that failed theirs
	Damaged    []string // what was found damaged and left out, each one line
	PowerLost  bool     // the machine was started anew: only what was flushed could be trusted
	Undone     uint64   // log records that a loss of power left incomplete, and what came after
}

// recover brings the array from its store to where it was, in these steps:
//
//  1. objects: pools, volumes;
//  2. the maps as of the last checkpoint;
//  3. the end of the log: the last valid record; after a loss of power, the last one
//     before the first that lacks a page;
//  4. replay of the log from the checkpoint to there; then the maps end where their volumes do;
//  5. reference counts and allocation, from the finished maps;
//  6. dirty pages: those whose record is in the log or before it; the newest of each key;
//  7. a checkpoint with a new run of sequence numbers, so that what an interrupted
//     write left behind the end of the log can never be read as a part of it.
//
// It may be interrupted anywhere, and is then done again.
func (a *Array) recover(fresh bool) error {
	a.recovery.Fresh = fresh
	var saved nvlog.Saved
	if !fresh {
		saved = a.cache.NV.Saved()
		a.flusher.Restore(saved)
	}
	if err := a.loadObjects(); err != nil {
		return err
	}
	a.arena.StartLoading()
	if err := a.loadMaps(); err != nil {
		return err
	}
	if err := a.loadBad(); err != nil {
		return err
	}
	seq, tail, last, err := a.loadPosition()
	if err != nil {
		return err
	}
	if err := a.meta.Check(saved.Generation); err != nil {
		return err
	}
	if err := a.meta.SettleCopies(); err != nil {
		return err
	}
	if fresh && len(a.objects.Volumes) > 0 {
		return fmt.Errorf("the write cache file is missing, and with it acknowledged data of %d volumes; restore it, or remove the data folder to start empty", len(a.objects.Volumes))
	}
	if err := a.log.Start(seq, tail); err != nil {
		return err
	}
	a.ckpt.baseSeq, a.ckpt.base = seq, tail
	end, err := a.log.FindEnd(saved, max(saved.Flushed, last, seq), fresh)
	if err != nil {
		return err
	}
	a.recovery.PowerLost, a.recovery.Undone = end.PowerLost, end.Undone
	if err := a.log.Replay(end.Last, a.replayEdit); err != nil {
		return err
	}
	a.recovery.Records = a.log.Seq() - seq
	for _, v := range a.Volumes() { // while nothing is counted: what is cut off has no references to give back
		v.clipTail()
	}
	for a.arena.Collect(1 << 20) {
	}
	a.arena.EndLoading()
	if err := a.countReferences(); err != nil {
		return err
	}
	if err := a.flusher.Truncate(a.meta.Generation()); err != nil {
		return err
	}
	if err := a.loadPages(); err != nil {
		return err
	}
	a.dropUnknown()
	a.balanceCounters()
	a.setCaps()
	return a.firstCheckpoint()
}

// replayEdit applies an edit of the log. One that is older than the shrinking of its volume may go beyond what the map
// spans now: there is nothing to be said of that part any more.
func (a *Array) replayEdit(e nvlog.Edit) {
	if int(e.Volume) >= len(a.vols) || a.vols[e.Volume] == nil {
		return
	}
	v := a.vols[e.Volume]
	span := v.m.Span()
	if e.Start >= span || e.Count == 0 {
		return
	}
	e.Count = min(e.Count, span-e.Start)
	v.apply(&e)
}

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. It may only be called
// before the array serves. The next start makes them anew.
func (a *Array) CheckCopies() (lines []string) { return a.meta.CheckCopies() }

// Recovery tells what the last start found.
func (a *Array) Recovery() Recovery { return a.recovery }

func (a *Array) loadObjects() error {
	v, err := a.meta.Get(keyObjects)
	if a.objects = (objects{UUID: a.opt.UUID, NextVolume: 1}); v != nil {
		a.objects = objects{}
		err = json.Unmarshal(v, &a.objects)
	}
	if err != nil {
		return fmt.Errorf("the array's objects cannot be read: %w", err)
	}
	if err := a.objects.validate(); err != nil {
		return fmt.Errorf("the array's objects are damaged: %w; restore the data folder from a copy", err)
	}
	a.uuid = a.objects.UUID
	for _, s := range a.objects.Pools {
		p, err := a.newPool(s)
		if err != nil {
			return err
		}
		a.addPool(p)
	}
	for _, s := range a.objects.Volumes {
		p := a.Pool(s.Pool)
		if p == nil {
			return fmt.Errorf("volume %q is in pool %q, which does not exist", s.Name, s.Pool)
		}
		a.addVolume(s, p)
	}
	return nil
}

func (a *Array) loadBad() error {
	v, err := a.meta.Get(keyBad)
	if err != nil {
		return err
	}
	return a.back.Bad.Load(v)
}

func (a *Array) loadPosition() (seq uint64, tail int, last uint64, err error) {
	v, err := a.meta.Get(keyCheckpoint)
	if err != nil || v == nil {
		return 0, 0, 0, err
	}
	if len(v) == 16 { // format version 1
		v = append(v[:16:16], v[:8]...)
	}
	if len(v) != 24 {
		return 0, 0, 0, fmt.Errorf("the checkpoint's position is damaged")
	}
	return le.Uint64(v), int(le.Uint64(v[8:])), le.Uint64(v[16:]), nil
}

// loadMaps builds the maps from the checkpoint, from the roots down. Pages that no
// root leads to are what a checkpoint had no time to remove.
func (a *Array) loadMaps() error {
	var saved extent.Saved
	if err := a.meta.Load(extent.KeyRoot, saved.AddRoot); err != nil {
		return err
	}
	if err := a.meta.Load(extent.KeyNode, saved.AddNode); err != nil {
		return err
	}
	for _, v := range a.Volumes() {
		err := v.m.Load(&saved, v.spec.Sectors)
		if errors.Is(err, extent.ErrRoot) {
			return fmt.Errorf("the root of the map of volume %q is damaged; restore the data folder from a copy", v.spec.Name)
		}
		if err != nil {
			return err
		}
	}
	a.arena.Discard(&saved)
	return nil
}

// countReferences derives reference counts, owners, allocation and homes from the maps.
func (a *Array) countReferences() error {
	for _, v := range a.Volumes() {
		if !v.m.CountReferences() {
			return fmt.Errorf("the map of volume %q points behind the end of pool %q; the data folder mixes files of two arrays", v.spec.Name, v.pool.name)
		}
	}
	for _, v := range a.Volumes() {
		v.account()
		v.m.FindHomes()
	}
	return nil
}

// volumeOrGhost returns the volume with this id, or a stand-in for a deleted one
// whose data others still share.
func (a *Array) volumeOrGhost(id uint32, pool uint16) *poolVolume {
	if int(id) < len(a.vols) && a.vols[id] != nil {
		return a.vols[id]
	}
	p := a.byID(pool)
	v := a.addVolume(VolumeSpec{Name: fmt.Sprintf("deleted-%d", id), Pool: p.name, Sectors: windowSectors, BlockSize: 512, Thin: true, ID: id}, p)
	v.deleted = true
	v.forget()
	v.m.Abandon()
	p.volumes--
	return &v.poolVolume
}

// balanceCounters brings the counters, which an interrupted step may have left one
// step behind or ahead, in line with what is dirty.
func (a *Array) balanceCounters() {
	for _, v := range a.vols {
		if v != nil {
			v.cached.Balance()
		}
	}
}

// firstCheckpoint commits the state after recovery before anything is served.
func (a *Array) firstCheckpoint() error {
	a.beginCheckpoint()
	for a.ckpt.first = true; a.ckpt.running; a.batchDone() {
		for !a.fillBatch(1 << 20) {
		}
		if err := a.meta.CommitNow(a.ckpt.out); err != nil {
			return fmt.Errorf("the first checkpoint could not be written: %w", err)
		}
	}
	return a.flusher.Commission(a.meta.Generation())
}
