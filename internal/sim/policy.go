package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/lab/plug"
)

// options are those of the array before its clock starts: its policy comes with the clock.
func (y *system) options(cache int64) array.Options {
	s := y.r.s
	return array.Options{
		Exec: y.r.exec, Store: y.store, CacheBytes: cache, CapPercent: y.p.Policy.Caps, UUID: s.Seed,
		CounterRows: s.CounterRows, LogBytes: s.LogBytes,
	}
}

// setPolicy makes the array's firmware work as the profile says, and as what is plugged in says.
func (y *system) setPolicy() error {
	p, err := y.p.Array()
	if err != nil {
		return err
	}
	if err := y.plug(); err != nil {
		return fmt.Errorf("array %s: %w", y.name, err)
	}
	p.Destage, p.Placement = y.destage, y.placement
	return y.array.SetPolicy(p)
}

// plug makes the array's policies that the scenario names.
func (y *system) plug() error {
	r := y.r
	if ref := y.spec.Destage; ref.Any() {
		mk, err := maker(r, "destage", ref, r.s.Plugged.Destage, Module.Destage)
		if err != nil {
			return err
		}
		y.destage = func(pool string) plug.Destage {
			d, err := mk(plug.Partition{Array: y.name, Pool: pool, Random: r.random("destage", y.name+"/"+pool)})
			if d, err = keep(r, "destage policy "+ref.String(), d, err); err != nil {
				r.fail(err)
			}
			return &checkedDestage{d, r, ref.String()}
		}
	}
	if ref := y.spec.Placement; ref.Any() {
		p, err := newPolicy(r, "placement", ref, r.s.Plugged.Placement, Module.Placement, plug.Array{Name: y.name, Random: r.random("placement", y.name)})
		if err != nil {
			return err
		}
		y.placement = &checkedPlacement{p, r, ref.String()}
	}
	return nil
}

// checkedDestage is a destage policy whose answers are checked. Once a run has failed nobody is asked
// any more.
type checkedDestage struct {
	plug.Destage
	r    *Run
	name string
}

func (d *checkedDestage) Rate(f plug.Fullness) int64 {
	if d.r.problem != nil {
		return -1
	}
	return d.Destage.Rate(f)
}

func (d *checkedDestage) Next(v []plug.DirtyVolume) int {
	if d.r.problem != nil {
		return 0
	}
	i := d.Destage.Next(v)
	if i < 0 || i >= len(v) {
		d.r.fail(fmt.Errorf("destage policy %s chose volume %d of %d; they are numbered from 0", d.name, i, len(v)))
		return 0
	}
	return i
}

// checkedPlacement is a placement whose answers are checked.
type checkedPlacement struct {
	plug.Placement
	r    *Run
	name string
}

func (p *checkedPlacement) Place(c plug.Copy) plug.Way {
	if p.r.problem != nil {
		return plug.Data
	}
	w := p.Placement.Place(c)
	if w != plug.Reference && w != plug.Data {
		p.r.fail(fmt.Errorf("placement policy %s answered %d; it is Reference or Data", p.name, w))
		return plug.Data
	}
	return w
}
