package array

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/recovery"
	"github.com/arraysim/arraysim/internal/array/wcache"
)

// Recovery is what the last start found and did; see Array.Recovery.
type Recovery struct {
	recovery.Found
	Fresh     bool   // there was nothing: the store was empty
	Records   uint64 // log records replayed
	PowerLost bool   // the machine was started anew: only what was flushed could be trusted
	Undone    uint64 // log records that a loss of power left incomplete, and what came after
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
	from, last, err := checkpoint.Load(a.meta)
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
	if err := a.log.Start(from.Seq, from.Tail); err != nil {
		return err
	}
	a.ckpt.Start(from)
	end, err := a.log.FindEnd(saved, max(saved.Flushed, last, from.Seq), fresh)
	if err != nil {
		return err
	}
	a.recovery.PowerLost, a.recovery.Undone = end.PowerLost, end.Undone
	if err := a.log.Replay(end.Last, a.replayEdit); err != nil {
		return err
	}
	a.recovery.Records = a.log.Seq() - from.Seq
	for _, v := range a.Volumes() { // while nothing is counted: what is cut off has no references to give back
		v.ClipTail()
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
	a.set.DropUnknown()
	a.balanceCounters()
	a.setCaps()
	if err := a.ckpt.First(); err != nil {
		return err
	}
	return a.flusher.Commission(a.meta.Generation())
}

// replayEdit applies an edit of the log. One that is older than the shrinking of its volume may go beyond what the map
// spans now: there is nothing to be said of that part any more.
func (a *Array) replayEdit(e nvlog.Edit) {
	v := a.set.VolumeByID(e.Volume)
	if v == nil {
		return
	}
	span := v.Map.Span()
	if e.Start >= span || e.Count == 0 {
		return
	}
	e.Count = min(e.Count, span-e.Start)
	v.Apply(&e)
}

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. It may only be called
// before the array serves. The next start makes them anew.
func (a *Array) CheckCopies() (lines []string) { return a.meta.CheckCopies() }

// Recovery tells what the last start found.
func (a *Array) Recovery() Recovery { return a.recovery }

// loadObjects makes the pools and volumes that there were.
func (a *Array) loadObjects() error {
	if err := a.objects.Load(a.opt.UUID); err != nil {
		return err
	}
	a.set.UUID = a.objects.UUID
	for _, s := range a.objects.Pools {
		p, err := a.set.NewPool(s)
		if err != nil {
			return err
		}
		a.set.AddPool(p)
	}
	for _, s := range a.objects.Volumes {
		p := a.Pool(s.Pool)
		if p == nil {
			return fmt.Errorf("volume %q is in pool %q, which does not exist", s.Name, s.Pool)
		}
		a.engine.addVolume(s, p)
	}
	return nil
}

// keyBad is the key of the list of bad sectors, which the back end owns and a checkpoint keeps.
const keyBad = "b"

// saveBad adds the list to a checkpoint.
func (a *Array) saveBad(put func(key, value []byte)) {
	if value, changed := a.back.Bad.Encode(); changed {
		put([]byte(keyBad), value)
	}
}

func (a *Array) loadBad() error {
	v, err := a.meta.Get(keyBad)
	if err != nil {
		return err
	}
	return a.back.Bad.Load(v)
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
		err := v.Map.Load(&saved, v.Spec.Sectors)
		if errors.Is(err, extent.ErrRoot) {
			return fmt.Errorf("the root of the map of volume %q is damaged; restore the data folder from a copy", v.Spec.Name)
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
		if !v.Map.CountReferences() {
			return fmt.Errorf("the map of volume %q points behind the end of pool %q; the data folder mixes files of two arrays", v.Spec.Name, v.Pool().Name())
		}
	}
	for _, v := range a.Volumes() {
		v.Account()
		v.Map.FindHomes()
	}
	return nil
}

// loadPages fills the write cache with what it had.
func (a *Array) loadPages() error {
	if !a.payload {
		a.cache.StartEmpty()
		return nil
	}
	found, err := recovery.Pages(recovery.Array{Cache: a.cache, Flusher: a.flusher, Bad: &a.back.Bad, Newest: a.log.Seq(),
		Knows:  a.knows,
		Mapped: func(k pageKey) bool { return a.set.ByID(k.Pool()).Alloc.MapRefs(k.Phys()>>windowShift) > 0 },
		Owner:  func(volume uint32, pool uint16) *wcache.Owner { return a.volumeOrGhost(volume, pool).Cached }})
	a.recovery.Found = found
	return err
}

// knows reports whether there is what a descriptor speaks of.
func (a *Array) knows(d nvlog.Descriptor) recovery.Knowledge {
	id := d.Key().Pool()
	switch p := a.set.ByID(id); {
	case p != nil && d.Volume() < directory.MaxVolumeID && int64(d.Key().Phys()>>windowShift) < p.Alloc.Grains():
		return recovery.Known
	case p == nil && id < a.objects.NextPool:
		return recovery.Deleted
	}
	return recovery.Unknown
}

// volumeOrGhost returns the volume with this id, or a stand-in for a deleted one
// whose data others still share.
func (a *Array) volumeOrGhost(id uint32, pool uint16) *pool.Volume {
	if v := a.set.VolumeByID(id); v != nil {
		return v
	}
	p := a.set.ByID(pool)
	v := a.engine.addVolume(VolumeSpec{Name: fmt.Sprintf("deleted-%d", id), Pool: p.Name(), Sectors: windowSectors, BlockSize: 512, Thin: true, ID: id}, p)
	v.Deleted = true
	v.Forget()
	v.Map.Abandon()
	p.Volumes--
	return &v.Volume
}

// balanceCounters brings the counters, which an interrupted step may have left one
// step behind or ahead, in line with what is dirty.
func (a *Array) balanceCounters() {
	for _, v := range a.set.Vols {
		if v != nil {
			v.Cached.Balance()
		}
	}
}
