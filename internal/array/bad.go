package array

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/wcache"
	"github.com/arraysim/arraysim/internal/block"
)

// What the array does with sectors that failed their checksum: the list of them is the back end's
// (backend.BadSectors), the checkpoint keeps it under keyBad. What is newer in the cache is not bad.
const keyBad = "b"

func (a *Array) loadBad() error {
	v, err := a.meta.Get(keyBad)
	if err != nil {
		return err
	}
	return a.back.Bad.Load(v)
}

// noteBad puts the sectors of a read that failed their checksums on the list.
func (a *Array) noteBad(p *Pool, x *backend.Op) int {
	var e *block.ChecksumError
	if !errors.As(x.IO.Err, &e) {
		return 0
	}
	n := 0
	for _, s := range e.Sectors {
		phys := x.Phys + s - x.IO.Off/block.SectorSize
		k, in := keyOf(p.id, phys), int(phys%pageSectors)
		if i := a.cache.Lookup(k); i != wcache.NoPage && a.cache.Mask(i)>>in&1 != 0 {
			continue // it was written anew meanwhile
		}
		a.back.Bad.Add(k, in)
		n++
	}
	if n > 0 {
		p.tellHealth()
	}
	return n
}

// nameBad adds the bad sectors to a report: where they lie, and who has them.
func (a *Array) nameBad(r *Report) {
	r.BadSectors = a.back.Bad.Len()
	if r.BadSectors == 0 {
		return
	}
	list := a.back.Bad.List()
	const shown = 20
	for _, b := range list[:min(len(list), shown)] {
		p := a.poolByID(b.Pool)
		if p == nil {
			continue
		}
		md, off, _ := p.space.Locate(b.Phys)
		who := "nobody"
		for _, v := range a.Volumes() {
			if lba, ok := v.lbaOf(b.Phys); v.pool == p && ok {
				who = fmt.Sprintf("volume %s, sector %d", v.spec.Name, lba)
				break
			}
		}
		r.add("data: pool %s, mdisk %s, byte %d (%s): the checksum is wrong; reading it is a medium error until it is written again", p.name, p.mdisks[md].Name(), off, who)
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
func (a *Array) saveBad(put func(key, value []byte)) {
	if value, changed := a.back.Bad.Encode(); changed {
		put([]byte(keyBad), value)
	}
}

// drop forgets dirty sectors of a key because nothing refers to them any more.
func (a *Array) drop(k pageKey, lost uint8) {
	if a.back.Bad.Len() > 0 {
		a.back.Bad.Forget(k, lost)
	}
	a.cache.Drop(k, lost)
}
