package array

import (
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// The meta store detects what damages one of its blocks, but not that it lost its last
// batches, or a whole table. So each batch carries its number, which NVRAM knows too, and a
// digest of all that the store holds then:
//
//	g    number u64, sum of the digests of all other keys u64
const keyGen = "g"

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

// sealBatch adds the next number and the digest to a batch.
func (a *Array) sealBatch(batch []block.KV) []block.KV {
	for _, e := range batch {
		a.stored.set(e.Key, e.Value)
	}
	a.gen++
	v := le.AppendUint64(le.AppendUint64(nil, a.gen), a.stored.sum)
	return append(slices.Clip(batch), block.KV{Key: []byte(keyGen), Value: v})
}

// commitMeta commits a batch.
func (a *Array) commitMeta(batch []block.KV, done func(error)) {
	batch = a.sealBatch(batch)
	gen := a.gen
	a.meta.Commit(batch, func(err error) {
		if err == nil {
			a.genDone = max(a.genDone, gen)
			a.saveState()
		}
		done(err)
	})
}

// loadMeta loads the keys with a prefix, and books them.
func (a *Array) loadMeta(prefix string, fn func(key, value []byte) error) error {
	return a.meta.Load([]byte(prefix), func(k, v []byte) error {
		a.stored.set(k, v)
		return fn(k, v)
	})
}

// checkMeta compares what was loaded, which is all that there is, with the number and the
// digest of the last batch.
func (a *Array) checkMeta(s savedState) error {
	sum := a.stored.sum
	err := a.meta.Load([]byte(keyGen), func(_, v []byte) error {
		if len(v) != 16 {
			return fmt.Errorf("the number of the last checkpoint is damaged")
		}
		a.gen, sum = le.Uint64(v), le.Uint64(v[8:])
		return nil
	})
	switch {
	case err != nil:
		return err
	case a.gen < s.gen:
		return fmt.Errorf("the checkpoints in meta/ have lost their last %d changes; restore meta/ from a copy made at the same time as the other files", s.gen-a.gen)
	case sum != a.stored.sum:
		return fmt.Errorf("the checkpoints in meta/ are damaged: parts of them are missing or older than the rest; restore meta/ from a copy made at the same time as the other files")
	}
	return nil
}
