package admin

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// blobEmbedded says, while a new array is given the objects of the embedded
// configuration, that this is not finished.
const blobEmbedded = "admin.embedded"

// configure makes the objects that the configuration names and the array does not
// have, and compares those that it has.
func (d *daemon) configure() error {
	first := d.groups[0]
	if d.cfg.Embedded {
		if !d.fresh() {
			return nil
		}
		if err := first.await(func(done func(error)) { first.array.SetBlob(blobEmbedded, []byte("unfinished"), done) }); err != nil {
			return err
		}
	}
	for i, p := range d.cfg.Pools {
		if err := d.configurePool(fmt.Sprintf("pools[%d]", i), p); err != nil {
			return err
		}
	}
	changed := map[*ioGroup]bool{}
	for i, v := range d.cfg.Volumes {
		if err := d.configureVolume(fmt.Sprintf("volumes[%d]", i), v, changed); err != nil {
			return err
		}
	}
	for _, g := range d.groups {
		if !changed[g] {
			continue
		}
		if err := g.await(g.exports.save); err != nil {
			return err
		}
	}
	if d.cfg.Embedded {
		return first.await(func(done func(error)) { first.array.SetBlob(blobEmbedded, nil, done) })
	}
	return nil
}

// fresh reports whether the array is new, or one to which the objects of the embedded configuration were not all given.
func (d *daemon) fresh() bool {
	for _, g := range d.groups {
		g.exec.Lock()
		fresh := len(g.array.Pools()) == 0 || g.array.Blob(blobEmbedded) != nil
		g.exec.Unlock()
		if !fresh {
			return false
		}
	}
	return true
}

func (d *daemon) configurePool(at string, c PoolConfig) error {
	g := d.ofPool(c.Name)
	g.exec.Lock()
	p := g.array.Pool(c.Name)
	var have array.PoolStats
	if p != nil {
		have = p.Stats()
	}
	g.exec.Unlock()
	if p == nil {
		n := NewPool{Name: c.Name, CopyData: c.Copy == copyData, IOGroup: c.IOGroup}
		for _, m := range c.Mdisks {
			n.Mdisks = append(n.Mdisks, NewMdisk(m))
		}
		if _, err := d.addPool(n); err != nil {
			return d.cfg.src.at(at, "%w", err)
		}
		return nil
	}
	if c.IOGroup != nil && *c.IOGroup != g.number {
		return d.mismatch(at+".io_group", "pool", c.Name, "io_group", g.number)
	}
	if have.CopyData != (c.Copy == copyData) {
		return d.mismatch(at+".copy", "pool", c.Name, "copy", copyName(have.CopyData))
	}
	if len(have.Mdisks) != len(c.Mdisks) {
		return d.mismatch(at+".mdisks", "pool", c.Name, "number of mdisks", len(have.Mdisks))
	}
	for i, m := range c.Mdisks {
		h, at, name := have.Mdisks[i], fmt.Sprintf("%s.mdisks[%d]", at, i), c.Name+"."+m.Name
		switch {
		case h.Name != m.Name:
			return d.mismatch(at+".name", "mdisk", name, "name", h.Name)
		case h.Size != uint64(m.Size)&^(mdiskUnit-1):
			return d.mismatch(at+".size", "mdisk", name, "size", Size(h.Size))
		case h.Bandwidth != uint64(m.Bandwidth):
			return d.mismatch(at+".bandwidth", "mdisk", name, "bandwidth", Size(h.Bandwidth))
		case h.IOPS != m.IOPS:
			return d.mismatch(at+".iops", "mdisk", name, "iops", h.IOPS)
		}
	}
	return nil
}

// mdiskUnit is what the sizes of mdisks are rounded down to.
const mdiskUnit = 4 << 20

func (d *daemon) configureVolume(at string, c VolumeConfig, changed map[*ioGroup]bool) error {
	g := d.ofVolume(c.Name)
	g.exec.Lock()
	v := g.array.Volume(c.Name)
	g.exec.Unlock()
	if v == nil {
		spec := array.VolumeSpec{Name: c.Name, Pool: c.Pool, Sectors: uint64(c.Size) / block.SectorSize, BlockSize: c.BlockSize, Thin: *c.Thin}
		var err error
		if g, v, err = d.createVolume(spec); err != nil {
			return d.cfg.src.at(at, "%w", err)
		}
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	have := v.Stats().Spec
	switch {
	case have.Pool != c.Pool:
		return d.mismatch(at+".pool", "volume", c.Name, "pool", have.Pool)
	case have.Sectors*block.SectorSize != uint64(c.Size):
		return d.mismatch(at+".size", "volume", c.Name, "size", Size(have.Sectors*block.SectorSize))
	case have.Thin != *c.Thin:
		return d.mismatch(at+".thin", "volume", c.Name, "thin", have.Thin)
	case have.BlockSize != c.BlockSize:
		return d.mismatch(at+".block_size", "volume", c.Name, "block_size", have.BlockSize)
	}
	// What hosts are told of a volume is no property of its data: the file rules.
	s := g.exports.spec(v)
	if s.Removable != c.Removable || s.WriteProtect != c.WriteProtect {
		s.Removable, s.WriteProtect, changed[g] = c.Removable, c.WriteProtect, true
	}
	if c.Export == nil {
		return nil
	}
	for _, e := range s.Exports {
		if e.LUN != c.Export.LUN {
			continue
		}
		if slices.Equal(e.Initiators, c.Export.Initiators) {
			return nil
		}
		return d.mismatch(at+".export.initiators", "export", fmt.Sprintf("of %s as LUN %d", c.Name, e.LUN), "initiators", e.Initiators)
	}
	changed[g] = true
	if err := g.exports.add(v, exportSpec{LUN: c.Export.LUN, Initiators: c.Export.Initiators}); err != nil {
		return d.cfg.src.at(at+".export", "%w", err)
	}
	return nil
}

// mismatch says that an object of the array is not what the file says, and how to mend it.
func (d *daemon) mismatch(path, kind, name, key string, have any) error {
	return d.cfg.src.at(path, "%s %q exists and its %s is %v; write that here, or give the new one a different name", kind, name, key, have)
}

func copyName(data bool) string {
	if data {
		return copyData
	}
	return copyReference
}
