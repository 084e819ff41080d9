// Package recovery brings an array, at a start, from its store to where it was: its objects and
// maps from the last checkpoint, the records of the log behind it, and the pages of NVRAM that hold
// data that counts. It runs before anything is served, and has no state of its own.
package recovery

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/array/checkpoint"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/metadata"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/block"
)

// Array is what a recovery works with. Of Objects, Log, Flusher and Checkpoints nothing is known
// yet, and Set has no pools.
type Array struct {
	Set         *pool.Set
	Meta        *metadata.Ledger
	Objects     *directory.Directory
	Log         *nvlog.Log
	Flusher     *nvlog.Flusher
	Checkpoints *checkpoint.Checkpointer
	UUID        uint64 // of the array, if it is a new one
	// MakeVolume makes a volume of a pool.
	MakeVolume func(spec directory.VolumeSpec, p *pool.Pool) *pool.Volume
	// Ready: pools, volumes and dirty data are there.
	Ready func()
	// Wrong is what is wrong with the account of space; nil: nothing is known to be. See metadata.Derivable.
	Wrong error
	// Progress hears how far the start is; nil: nobody does. An error of it ends the start, which has changed nothing that the
	// next one could not find.
	Progress func(Progress) error
}

// Progress is how far a start is.
type Progress struct {
	Step string // what it is at
	// Pool is the one whose garbage is collected; empty: none is. Collected is how many pages of maps that has been so far.
	Pool      string
	Collected int
}

// Found is what a start found and did.
type Found struct {
	Pages      int    // dirty pages found
	Discarded  int    // pages that nothing referred to any more
	BadSectors int    // dirty sectors that failed their checksum
	BadPages   int    // descriptors that failed theirs
	Fresh      bool   // there was nothing: the store was empty
	Records    uint64 // log records replayed
	PowerLost  bool   // the machine was started anew: only what was flushed could be trusted
	Undone     uint64 // log records that a loss of power left incomplete, and what came after
	MapPages   int    // pages of maps that the checkpoint had
	PagesRead  int    // of these, those that were read before the replay
	Unread     int    // of these, those that could not be read when homes were looked for
	Derived    string // why the account of space that was stored is not used, but derived from all these pages; empty: it is
	Took       Times
}

// Times are what the parts of a start took, in nanoseconds of the executor's clock: 0 in virtual time.
type Times struct {
	Maps   int64 // objects, and maps as of the last checkpoint
	Replay int64 // the end of the log, and its replay
	Counts int64 // reference counts and homes, from the maps
	Pages  int64 // dirty pages, and the first checkpoint
}

// All returns what all of it took.
func (t Times) All() int64 { return t.Maps + t.Replay + t.Counts + t.Pages }

// run is one recovery on its way.
type run struct {
	Array
	found Found
	from  uint64 // number of the record before those that are replayed
	since int64  // when the part began that is on its way

	derive bool // the account is derived from all pages
}

// at tells what the start is at. An error ends it: there is no other copy to be tried then.
func (r *run) at(p Progress) error {
	if r.Progress == nil {
		return nil
	}
	block.Tick(r.Set.Exec)
	if err := r.Progress(p); err != nil {
		return metadata.Begun(err)
	}
	return nil
}

// took ends a part of the start.
func (r *run) took(part *int64) {
	block.Tick(r.Set.Exec)
	now := r.Set.Exec.Now()
	*part, r.since = now-r.since, now
}

// Run brings an array from its store to where it was, in these steps:
//
//  1. objects: pools, volumes;
//  2. the maps as of the last checkpoint;
//  3. the end of the log: the last valid record; after a loss of power, the last one
//     before the first that lacks a page;
//  4. replay of the log from the checkpoint to there; then the maps end where their volumes do;
//  5. reference counts and allocation: what the pages had, changed by what replay did; homes;
//  6. dirty pages: those whose record is in the log or before it; the newest of each key;
//  7. a checkpoint with a new run of sequence numbers, so that what an interrupted
//     write left behind the end of the log can never be read as a part of it, and with the
//     sectors that are bad in these pages;
//  8. of the pages, those that count become dirty data of the cache, the others free.
//
// It may be interrupted anywhere, and is then done again. It waits.
func Run(a Array, fresh bool) (Found, error) {
	r := run{Array: a, since: a.Set.Exec.Now()}
	r.found.Fresh = fresh
	err := r.load(fresh)
	if errors.As(err, new(nvlog.Unfit)) {
		err = metadata.Unfit(err)
	}
	if err != nil { // another one may be opened: what is free by this one's account is not to be discarded behind that
		r.Set.Back.Stop()
	}
	if err == nil {
		// A start that was refused leaves all copies as they are.
		if err = r.Meta.SettleCopies(); err == nil {
			err = r.begin()
		}
		if err != nil {
			err = metadata.Begun(err)
		}
		r.took(&r.found.Took.Pages)
	}
	return r.found, err
}

// load does the steps up to the counts. Of what is on the disks it changes flipped bits alone. An account of space that is
// wrong is an error of metadata.Derivable.
func (r *run) load(fresh bool) (err error) {
	defer func() {
		switch wrong := recover().(type) {
		case nil:
		case alloc.Miscount:
			err = metadata.Derivable(wrong)
		default:
			panic(wrong)
		}
	}()
	var saved nvlog.Saved
	if !fresh {
		saved = r.Set.Cache.NV.Saved()
		r.Flusher.Restore(saved)
	}
	if err := r.loadObjects(); err != nil {
		return err
	}
	if err := r.at(Progress{Step: "reading maps"}); err != nil {
		return err
	}
	r.Set.Arena.StartLoading()
	if err := r.loadMaps(); err != nil {
		return err
	}
	if err := r.loadBad(); err != nil {
		return err
	}
	from, last, err := checkpoint.Load(r.Meta)
	if err != nil {
		return err
	}
	if err := r.Meta.Check(saved.Generation, r.derive); err != nil {
		return err
	}
	if fresh && len(r.Objects.Volumes) > 0 {
		return fmt.Errorf("the write cache file is missing, and with it acknowledged data of %d volumes; restore it, or remove the data folder to start empty", len(r.Objects.Volumes))
	}
	if err := r.Log.Start(from.Seq, from.Tail); err != nil {
		return err
	}
	r.took(&r.found.Took.Maps)
	r.Checkpoints.Start(from)
	r.from = from.Seq
	end, err := r.Log.FindEnd(saved, max(saved.Flushed, last, from.Seq), fresh)
	if err != nil {
		return err
	}
	r.found.PowerLost, r.found.Undone = end.PowerLost, end.Undone
	if err := r.at(Progress{Step: "replaying the log"}); err != nil {
		return err
	}
	if err := r.Log.Replay(end.Last, r.replayEdit); err != nil {
		return err
	}
	r.found.Records = r.Log.Seq() - from.Seq
	for _, v := range r.Set.Volumes() { // while nothing is counted: what is cut off has no references to give back
		v.ClipTail()
	}
	for r.Set.Arena.Collectable() {
		r.Set.Arena.Collect(1 << 20)
	}
	r.took(&r.found.Took.Replay)
	err = r.countReferences()
	r.took(&r.found.Took.Counts)
	if wrong := r.Set.Arena.Account().Wrong(); wrong != nil && err == nil {
		err = metadata.Derivable(wrong)
	}
	return err
}

// begin does the rest. The array is at work behind it, whatever its error: it has pages to destage.
func (r *run) begin() error {
	if err := r.Flusher.Truncate(r.Meta.Generation()); err != nil {
		return err
	}
	if err := r.Flusher.Upgrade(); err != nil {
		return err
	}
	pages, err := r.choosePages()
	if err != nil {
		return err
	}
	if err := r.Checkpoints.First(); err != nil {
		return err
	}
	if err := r.loadPages(pages); err != nil {
		return err
	}
	r.Set.DropUnknown()
	r.balanceCounters()
	r.Ready()
	r.Set.Arena.Announce()
	return r.Flusher.Commission(r.Meta.Generation())
}

// replayEdit applies an edit of the log. One that is older than the shrinking of its volume may go
// beyond what the map spans now: there is nothing to be said of that part any more.
//
// What was written behind the checkpoint is not bad any more, whatever its list says: it may have been
// destaged, and its page used again.
func (r *run) replayEdit(e nvlog.Edit, written bool) {
	v := r.Set.VolumeByID(e.Volume)
	if v == nil {
		return
	}
	span := v.Map.Span()
	if e.Start >= span || e.Count == 0 {
		return
	}
	e.Count = min(e.Count, span-e.Start)
	if written && e.State == block.Data {
		v.Pool().Bad.ForgetRange(e.Phys, e.Count)
	}
	v.Apply(&e)
}

// loadObjects makes the pools and volumes that there were.
func (r *run) loadObjects() error {
	if err := r.Objects.Load(r.UUID); err != nil {
		return err
	}
	r.Set.UUID = r.Objects.UUID
	for _, s := range r.Objects.Pools {
		p, err := r.Set.FindPool(s)
		if err != nil { // a copy of an older time may have pools that are gone
			return metadata.Unfit(err)
		}
		r.Set.AddPool(p)
	}
	for _, s := range r.Objects.Volumes {
		p := r.Set.Pool(s.Pool)
		if p == nil {
			return fmt.Errorf("volume %q is in pool %q, which does not exist", s.Name, s.Pool)
		}
		r.MakeVolume(s, p)
	}
	return nil
}

func (r *run) loadBad() error {
	v, err := r.Meta.Get(pool.KeyBad)
	if err != nil {
		return err
	}
	return r.Set.LoadBad(v)
}

// behind says which map leads behind the end of its pool, if that is the error.
func (r *run) behind(err error) error {
	var b account.Behind
	if !errors.As(err, &b) {
		return err
	}
	v := r.Set.VolumeByID(b.Volume)
	return fmt.Errorf("the map of volume %q points beyond the end of pool %q; the data folder mixes files of two arrays", v.Spec.Name, v.Pool().Name())
}

// countReferences brings reference counts, owners and allocation in line with what replay has changed, and
// derives homes from the maps.
func (r *run) countReferences() error {
	if err := r.Set.Arena.EndLoading(); err != nil {
		return r.behind(err)
	}
	for _, v := range r.Set.Volumes() {
		v.Account()
	}
	for _, p := range r.Set.Pools() { // what garbage shares is nobody's home, and keeps what was promised
		if err := r.collect(p); err != nil {
			return err
		}
	}
	if err := r.at(Progress{Step: "looking for homes"}); err != nil {
		return err
	}
	for _, v := range r.Set.Volumes() {
		if err := r.findHomes(v); err != nil {
			return err
		}
	}
	for _, p := range r.Set.Pools() { // nobody can read these; who gets the space writes there before
		p.Bad.ForgetAll(func(phys uint64) bool { return p.Alloc.MapRefs(phys>>layout.WindowShift) == 0 })
	}
	return nil
}

// findHomes finds the homes of the windows of a volume that are promised their space. Those of leaves that cannot be read have none:
// other space is reserved for them until they are written in place. Where the account is derived all were read before.
func (r *run) findHomes(v *pool.Volume) error {
	load := r.Meta.LoadReadable
	if r.derive {
		load = r.Meta.LoadAgain
	}
	err := v.Map.FindHomes(load)
	var gone extent.Gone
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gone) && !r.derive:
		r.found.Unread += int(gone)
		return nil
	}
	return fmt.Errorf("volume %q: %w", v.Spec.Name, err)
}

// collect collects the garbage of a pool that owes space. It reads the pages of maps that it needs, one by one, and tells of
// each step.
func (r *run) collect(p *pool.Pool) error {
	arena := r.Set.Arena
	for was := arena.Nodes(); p.Alloc.Reserved() > 0 && arena.CollectNow(p.Alloc); {
		if err := r.at(Progress{Step: "collecting garbage", Pool: p.Name(), Collected: was - arena.Nodes()}); err != nil {
			return err
		}
	}
	return nil
}

// volumeOrGhost returns the volume with this id, or a stand-in for a deleted one
// whose data others still share.
func (r *run) volumeOrGhost(id uint32, pool uint16) *pool.Volume {
	if v := r.Set.VolumeByID(id); v != nil {
		return v
	}
	p := r.Set.ByID(pool)
	v := r.MakeVolume(directory.VolumeSpec{Name: fmt.Sprintf("deleted-%d", id), Pool: p.Name(), Sectors: layout.WindowSectors, BlockSize: 512, Thin: true, ID: id}, p)
	v.Deleted = true
	v.Forget()
	v.Map.Abandon()
	r.Set.Leave(v)
	return v
}

// balanceCounters brings the counters, which an interrupted step may have left one
// step behind or ahead, in line with what is dirty.
func (r *run) balanceCounters() {
	for _, v := range r.Set.Vols {
		if v != nil {
			v.Cached.Balance()
		}
	}
}
