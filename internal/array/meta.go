package array

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last
// batches, or a whole table. So each batch carries its number, which NVRAM knows too, and a
// digest of all that the store holds then:
//
//	g    number u64, sum of the digests of all other keys u64
//
// A store may keep several copies, each with its number and digest: one that is damaged or older is made anew from another.
const keyGen = "g"

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian // of all integers in values
)

// digest is what the meta store holds, as the array knows it.
type digest struct {
	of  map[string]uint64
	sum uint64
}

func digestOf(key, value []byte) uint64 {
	return uint64(crc32.Checksum(value, castagnoli))<<32 | uint64(crc32.Checksum(key, castagnoli))
}

// set books a key; a nil value is its removal.
func (d *digest) set(key, value []byte) {
	if d.of == nil {
		d.of = map[string]uint64{}
	}
	d.sum -= d.of[string(key)]
	if value == nil {
		delete(d.of, string(key))
		return
	}
	h := digestOf(key, value)
	d.of[string(key)] = h
	d.sum += h
}

// undo returns what takes the booking of a batch back.
func (d *digest) undo(batch []block.KV) func() {
	type entry struct {
		of   uint64
		have bool
	}
	sum, was := d.sum, make([]entry, len(batch))
	for i, e := range batch {
		was[i].of, was[i].have = d.of[string(e.Key)]
	}
	return func() {
		for i, e := range batch {
			if was[i].have {
				d.of[string(e.Key)] = was[i].of
			} else {
				delete(d.of, string(e.Key))
			}
		}
		d.sum = sum
	}
}

// sealBatch adds the next number and the digest to a batch.
func (a *Array) sealBatch(batch []block.KV) []block.KV {
	for _, e := range batch {
		a.stored.set(e.Key, e.Value)
	}
	a.gen++
	v := le.AppendUint64(le.AppendUint64(nil, a.gen), a.stored.sum)
	return append(slices.Clip(batch), block.KV{Key: []byte(keyGen), Value: v})
}

// metaBatch is a batch that waits for its turn.
type metaBatch struct {
	fill func() []block.KV
	done func(error)
}

// commitMeta commits the batch that fill returns when those before it are durable or have failed: number and digest of
// a batch say what the store has had until then.
func (a *Array) commitMeta(fill func() []block.KV, done func(error)) {
	a.metaQueue = append(a.metaQueue, metaBatch{fill, done})
	if !a.metaBusy {
		a.nextBatch()
	}
}

func (a *Array) nextBatch() {
	next := a.metaQueue[0]
	a.metaQueue[0] = metaBatch{}
	a.metaQueue = a.metaQueue[1:]
	a.metaBusy = true
	entries := a.settleDoubt(next.fill())
	unbook := a.stored.undo(entries)
	batch := a.sealBatch(entries)
	gen := a.gen
	ended := func(err error) {
		if err == nil {
			a.inDoubt = nil
			a.flusher.SetGeneration(gen)
		} else {
			a.inDoubt = entries
			unbook()
		}
		next.done(err)
		if a.metaBusy = len(a.metaQueue) > 0; a.metaBusy {
			a.nextBatch()
		}
	}
	if a.meta == nil {
		a.exec.Post(func() { ended(errStopped) })
		return
	}
	a.meta.Commit(batch, ended)
}

// settleDoubt adds to a batch what is in doubt since one has failed: the store may have it or not, and the digest must be right
// in either case. The objects are as they are now. Entries of a checkpoint are good: the log has all that came behind
// the position before, and nothing overwrites that until a checkpoint is durable.
func (a *Array) settleDoubt(batch []block.KV) []block.KV {
	if len(a.inDoubt) == 0 {
		return batch
	}
	has := map[string]bool{}
	for _, e := range batch {
		has[string(e.Key)] = true
	}
	batch = slices.Clip(batch)
	for _, e := range a.inDoubt {
		switch key := string(e.Key); {
		case has[key]:
		case key == keyObjects:
			batch = append(batch, a.encodeObjects()...)
		default:
			batch = append(batch, e)
		}
	}
	return batch
}

var errStopped = errors.New("the array has stopped")

// loadMeta loads the keys with a prefix, and books them.
func (a *Array) loadMeta(prefix string, fn func(key, value []byte) error) error {
	return a.meta.Load([]byte(prefix), func(k, v []byte) error {
		a.stored.set(k, v)
		return fn(k, v)
	})
}

// checkMeta compares what was loaded, which is all that there is, with the number and the
// digest of the last batch.
func (a *Array) checkMeta(s nvlog.Saved) error {
	gen, sum, err := readGen(a.meta)
	if gen == 0 {
		sum = a.stored.sum
	}
	a.gen = gen
	switch {
	case err != nil:
		return err
	case a.gen < s.Generation:
		return fmt.Errorf("the checkpoints in meta/ have lost their last %d changes; restore meta/ from a copy made at the same time as the other files", s.Generation-a.gen)
	case sum != a.stored.sum:
		return fmt.Errorf("the checkpoints in meta/ are damaged: parts of them are missing or older than the rest; restore meta/ from a copy made at the same time as the other files")
	}
	return nil
}

// openCopy opens the array from the newest copy of the meta store, or, when that one is damaged, from another. The
// others are then made anew.
//
// A copy that failed while the array ran is older than the rest, and NVRAM need not know that after a loss of power. So
// the number of the last batch decides, not the place.
func openCopy(meta block.MetaStore, open func() (*Array, error), saved func() nvlog.Saved) (*Array, error) {
	copies, ok := meta.(block.MetaCopies)
	if !ok {
		return open()
	}
	type candidate struct {
		i   int
		gen uint64
		err error
	}
	var all []candidate
	for i := range copies.Copies() {
		copies.Choose(i)
		gen, _, err := readGen(meta)
		all = append(all, candidate{i, gen, err})
	}
	slices.SortStableFunc(all, func(x, y candidate) int {
		if (x.err == nil) == (y.err == nil) {
			return cmp.Compare(y.gen, x.gen)
		} else if x.err == nil {
			return -1
		}
		return 1
	})
	var first error
	for k, c := range all {
		copies.Choose(c.i)
		a, err := open()
		if err == nil {
			return a, nil
		}
		if k == 0 {
			first = err
		}
		// What is not the copy's fault another one does not mend.
		if verifyCopy(meta, saved().Generation) == nil {
			return nil, err
		}
	}
	return nil, first
}

// settleCopies makes the copies anew that are not as new as the one that was loaded, before the next batch goes to all.
func (a *Array) settleCopies() error {
	copies, ok := a.meta.(block.MetaCopies)
	if !ok {
		return nil
	}
	chosen := copies.Chosen()
	defer copies.Choose(chosen)
	for i := range copies.Copies() {
		copies.Choose(i)
		gen, sum, err := readGen(a.meta)
		if err == nil && (gen != a.gen || sum != a.stored.sum) {
			err = fmt.Errorf("it is at change %d, not at %d", gen, a.gen)
		}
		if i == chosen || err == nil {
			continue
		}
		copies.Choose(chosen)
		if err := copies.Renew(i, err); err != nil {
			return err
		}
	}
	return nil
}

// readGen returns number and digest of the last batch of a meta store, 0 if there was none.
func readGen(meta block.MetaStore) (gen, sum uint64, err error) {
	err = meta.Load([]byte(keyGen), func(_, v []byte) error {
		if len(v) != 16 {
			return fmt.Errorf("the number of the last checkpoint is damaged")
		}
		gen, sum = le.Uint64(v), le.Uint64(v[8:])
		return nil
	})
	return gen, sum, err
}

// verifyCopy reads all of a meta store.
func verifyCopy(meta block.MetaStore, least uint64) error {
	gen, sum, err := readGen(meta)
	if err != nil {
		return err
	}
	var d digest
	if err := meta.Load(nil, func(k, v []byte) error {
		if string(k) != keyGen {
			d.sum += digestOf(k, v)
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case gen < least:
		return fmt.Errorf("its last %d changes are lost", least-gen)
	case gen != 0 && sum != d.sum:
		return fmt.Errorf("parts of it are missing or older than the rest")
	}
	return nil
}

// CheckCopies reads all copies of the meta store and names those that are damaged, a line each. It may only be called
// before the array serves. The next start makes them anew.
func (a *Array) CheckCopies() (lines []string) {
	copies, ok := a.meta.(block.MetaCopies)
	if !ok {
		return nil
	}
	defer copies.Choose(copies.Chosen())
	for i := range copies.Copies() {
		copies.Choose(i)
		if err := verifyCopy(a.meta, 0); err != nil {
			lines = append(lines, fmt.Sprintf("copy %d of the checkpoints is damaged: %v", i+1, err))
		}
	}
	return lines
}
