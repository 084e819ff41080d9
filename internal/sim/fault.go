package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/scsi"
)

// plan sets what goes wrong at a time.
func (r *Run) plan(f *FaultSpec) error {
	y := r.arrays[0]
	if f.Array != "" {
		y = nil
		for _, z := range r.arrays {
			if z.name == f.Array {
				y = z
			}
		}
		if y == nil {
			return fmt.Errorf("there is no array %q", f.Array)
		}
	}
	do, err := y.fault(f)
	if err != nil {
		return err
	}
	r.changes = append(r.changes, change{int64(f.At), func() {
		r.event("array %s: %s%s", y.name, f.Kind, f.where())
		do()
	}})
	return nil
}

func (f *FaultSpec) where() string {
	switch {
	case f.New != nil:
		return ", pool " + f.New.Name
	case f.Pool != "":
		return fmt.Sprintf(", pool %s mdisk %d", f.Pool, f.Mdisk)
	case f.Volume != "":
		return ", volume " + f.Volume
	}
	return ""
}

// fault returns what carries a fault out.
func (y *system) fault(f *FaultSpec) (func(), error) {
	mdisk := fmt.Sprintf("%s.m%02d", f.Pool, f.Mdisk)
	switch f.Kind {
	case "mdisk-slow":
		if _, ok := y.kinds[mdisk]; !ok || f.Factor <= 0 {
			return nil, fmt.Errorf("it needs pool, mdisk (a number from 0) and factor; there is no %s", mdisk)
		}
		return func() { y.store.Slow(mdisk, int64(f.Factor*1000)) }, nil
	case "pool-add":
		if f.New == nil {
			return nil, fmt.Errorf("it needs new: the pool")
		}
		return func() {
			if err := y.addPool(*f.New, f.New.Name); err != nil {
				y.r.event("array %s: pool %s: %v", y.name, f.New.Name, err)
			}
		}, nil
	case "lun-reset":
		v := y.r.volumeNamed(f.Volume)
		if v == nil || len(y.r.hosts) == 0 {
			return nil, fmt.Errorf("there is no volume %q", f.Volume)
		}
		return func() {
			d := y.r.hosts[0].device(v)
			d.p.nexus.Manage(scsi.LogicalUnitReset, d.lun, 0, func(scsi.TMFResponse) { y.r.event("volume %s: reset is done", v.name) })
		}, nil
	}
	return nil, fmt.Errorf("there is no such kind; it is mdisk-slow, pool-add or lun-reset")
}
