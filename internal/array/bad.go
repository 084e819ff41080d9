package array

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/block"
)

// Bad sectors failed their checksum: dirty ones when the array started, which are lost
// while what the back end has is older, and those on mdisks when they were read. They are
// never served and never destaged; reading one is a medium error until it is written
// again. The checkpoint keeps their list, under the key "b": u64 each.
const keyBad = "b"

func badKey(k pageKey, sector int) uint64 { return uint64(k)<<3 | uint64(sector) }

func (a *Array) loadBad() error {
	a.bad = map[uint64]struct{}{}
	v, err := a.meta.Get(keyBad)
	if err == nil && len(v)%8 != 0 {
		err = fmt.Errorf("the list of bad sectors is damaged")
	}
	if err != nil {
		return err
	}
	for ; len(v) > 0; v = v[8:] {
		a.bad[le.Uint64(v)] = struct{}{}
		a.hadBad = true
	}
	return nil
}

// noteBad puts the sectors of a read that failed their checksums on the list.
func (a *Array) noteBad(x *diskIO) int {
	var e *block.ChecksumError
	if !errors.As(x.io.Err, &e) {
		return 0
	}
	n := 0
	for _, s := range e.Sectors {
		phys := x.phys + s - x.io.Off/block.SectorSize
		k, in := keyOf(x.pool.id, phys), int(phys%pageSectors)
		if i := a.cache.lookup(k); i != noPage && a.cache.pages[i].mask>>in&1 != 0 {
			continue // it was written anew meanwhile
		}
		a.bad[badKey(k, in)] = struct{}{}
		n++
	}
	if n > 0 {
		x.pool.tellHealth()
	}
	return n
}

// nameBad adds the bad sectors to a report: where they lie, and who has them.
func (a *Array) nameBad(r *Report) {
	r.BadSectors = len(a.bad)
	if len(a.bad) == 0 {
		return
	}
	list := make([]uint64, 0, len(a.bad))
	for k := range a.bad {
		list = append(list, k)
	}
	slices.Sort(list)
	const shown = 20
	for _, b := range list[:min(len(list), shown)] {
		k := pageKey(b >> 3)
		p := a.poolByID(k.Pool())
		if p == nil {
			continue
		}
		phys := k.Phys() + b&7
		md, off, _ := p.space.Locate(phys)
		who := "nobody"
		for _, v := range a.Volumes() {
			if lba, ok := v.lbaOf(phys); v.pool == p && ok {
				who = fmt.Sprintf("volume %s, sector %d", v.spec.Name, lba)
				break
			}
		}
		r.add("data: pool %s, mdisk %s, byte %d (%s): the checksum is wrong; reading it is a medium error until it is written again", p.name, p.mdisks[md].name, off, who)
	}
	if n := len(list) - shown; n > 0 {
		r.add("data: %d more sectors have a wrong checksum", n)
	}
}

// lbaOf finds where a volume has a physical sector. It walks the map.
func (v *Volume) lbaOf(phys uint64) (lba uint64, ok bool) {
	v.m.Walk(block.Range{Count: v.spec.Sectors}, func(x extent.Run) bool {
		if x.State == block.Data && phys >= x.Phys && phys < x.Phys+x.Count {
			lba, ok = x.Start+phys-x.Phys, true
		}
		return !ok
	})
	return lba, ok
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
	a.ckpt.put([]byte(keyBad), value)
}

// mend forgets sectors of a key that are written anew or gone. Preconditions: there are bad sectors.
func (a *Array) mend(k pageKey, mask uint8) {
	for left := mask; left != 0; left &= left - 1 {
		delete(a.bad, badKey(k, bits.TrailingZeros8(left)))
	}
}

// firstBad returns the first bad one of the physical sectors [phys, phys+n); false means that
// there is none.
func (a *Array) firstBad(p *Pool, phys, n uint64) (uint64, bool) {
	for s := phys; s < phys+n; s++ {
		if _, bad := a.bad[badKey(keyOf(p.id, s), int(s%pageSectors))]; bad {
			return s, true
		}
	}
	return 0, false
}
