package array

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Bad sectors are dirty sectors that failed their checksum when the array started:
// what was acknowledged is lost, and what the back end has is older. They are never
// served and never destaged; reading one is a medium error until it is written
// again. The checkpoint keeps their list, under the key "b": u64 each.
const keyBad = "b"

func badKey(k pageKey, sector int) uint64 { return uint64(k)<<3 | uint64(sector) }

func (a *Array) loadBad() error {
	a.bad = map[uint64]struct{}{}
	return a.meta.Load([]byte(keyBad), func(_, v []byte) error {
		if len(v)%8 != 0 {
			return fmt.Errorf("the list of bad sectors is damaged")
		}
		for ; len(v) > 0; v = v[8:] {
			a.bad[le.Uint64(v)] = struct{}{}
			a.hadBad = true
		}
		return nil
	})
}

// saveBad adds the list to a checkpoint.
func (a *Array) saveBad() {
	if len(a.bad) == 0 && !a.hadBad {
		return
	}
	a.hadBad = len(a.bad) > 0
	var list []uint64
	for k := range a.bad {
		list = append(list, k)
	}
	slices.Sort(list)
	value := []byte{}
	for _, k := range list {
		value = le.AppendUint64(value, k)
	}
	a.ckpt.batch = append(a.ckpt.batch, block.KV{Key: []byte(keyBad), Value: value})
}

// mend forgets sectors of a key that are written anew or gone. Preconditions: there are bad sectors.
func (a *Array) mend(k pageKey, mask uint8) {
	for left := mask; left != 0; left &= left - 1 {
		delete(a.bad, badKey(k, bits.TrailingZeros8(left)))
	}
}

// anyBad tells whether physical sectors [phys, phys+n) hold a bad one.
func (a *Array) anyBad(p *Pool, phys, n uint64) bool {
	for s := phys; s < phys+n; s++ {
		if _, bad := a.bad[badKey(keyOf(p.id, s), int(s%pageSectors))]; bad {
			return true
		}
	}
	return false
}
