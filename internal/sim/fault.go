package sim

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// plan sets what goes wrong at a time.
func (r *Run) plan(f *FaultSpec) error {
	if _, ok := stops[f.Kind]; ok {
		do, err := r.stop(f)
		if err != nil {
			return err
		}
		r.changes = append(r.changes, change{int64(f.At), func() {
			r.event("cache %s: %s", f.Cache, f.Kind)
			do()
		}})
		return nil
	}
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
		if _, ok := y.kinds[mdisk]; !ok {
			return nil, fmt.Errorf("it needs pool, mdisk (a number from 0) and factor; there is no %s", mdisk)
		}
		if !(f.Factor >= minFactor && f.Factor <= maxFactor) {
			return nil, fmt.Errorf("factor is %g; give %g to %g", f.Factor, minFactor, float64(maxFactor))
		}
		return func() {
			if y.poolOf(f) != nil {
				y.store.Slow(mdisk, int64(f.Factor*1000))
			}
		}, nil
	case "mdisk-offline", "mdisk-online":
		if _, ok := y.kinds[mdisk]; !ok {
			return nil, fmt.Errorf("it needs pool and mdisk (a number from 0); there is no %s", mdisk)
		}
		return func() {
			if p := y.poolOf(f); p != nil {
				y.failed(f, p.SetMdiskOffline(mdisk[len(f.Pool)+1:], f.Kind == "mdisk-offline"))
			}
		}, nil
	case "node-loss", "node-return":
		return func() { y.array.SetMirrored(f.Kind == "node-return") }, nil
	case "pool-add":
		if f.New == nil {
			return nil, fmt.Errorf("it needs new: the pool")
		}
		if err := f.New.checkMdisks(); err != nil {
			return nil, err
		}
		for _, o := range y.r.arrays {
			if o != y && o.array.Pool(f.New.Name) != nil {
				return nil, fmt.Errorf("arrays %s and %s would both have a pool %s; rename one", o.name, y.name, f.New.Name)
			}
		}
		return func() { y.failed(f, y.addPool(*f.New, f.New.Name)) }, nil
	case "pool-remove":
		return func() {
			if p := y.poolOf(f); p != nil {
				y.array.DeletePool(p, func(err error) { y.failed(f, err) })
			}
		}, nil
	case "write-mode":
		mode, ok := map[string]array.WriteMode{"fast": array.WriteFast, "flush-through": array.FlushThrough, "write-through": array.WriteThrough}[f.Mode]
		if !ok {
			return nil, fmt.Errorf("mode is %q; it is fast, flush-through or write-through", f.Mode)
		}
		return func() {
			if p := y.poolOf(f); p != nil {
				p.SetWriteMode(mode)
			}
		}, nil
	case "policy":
		if f.Policy == nil {
			return nil, fmt.Errorf("it needs policy")
		}
		changed := *y.p
		changed.Policy = *f.Policy
		policy, err := changed.Array()
		if err != nil {
			return nil, err
		}
		return func() {
			policy.Destage, policy.Placement = y.destage, y.placement
			y.failed(f, y.array.SetPolicy(policy))
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
	return nil, fmt.Errorf("unknown kind; it is one of mdisk-slow, mdisk-offline, mdisk-online, node-loss, node-return, pool-add, pool-remove, write-mode, policy, lun-reset, cold-restart, suspend, snapshot-revert or snapshot-consolidate")
}

// poolOf is the pool of a fault. Without it the run ends: its event log would say that something happened, and nothing did.
func (y *system) poolOf(f *FaultSpec) *array.Pool {
	p := y.array.Pool(f.Pool)
	if p == nil {
		y.failed(f, fmt.Errorf("there is no pool %q", f.Pool))
	}
	return p
}

// failed ends the run with the error, if there is one, of a fault that could not be.
func (y *system) failed(f *FaultSpec, err error) {
	if err != nil {
		y.r.fail(fmt.Errorf("array %s: %s: %w", y.name, f.Kind, err))
	}
}
