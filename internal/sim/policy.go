package sim

import (
	"github.com/arraysim/arraysim/internal/array"
)

// options are those of the array before its clock starts: its policy comes with the clock.
func (y *system) options(cache int64) array.Options {
	return array.Options{Exec: y.r.exec, Store: y.store, CacheBytes: cache, CapPercent: y.p.Policy.Caps, UUID: y.r.s.Seed}
}

// setPolicy makes the array's firmware work as the profile says.
func (y *system) setPolicy() error {
	p, err := y.p.Array()
	if err != nil {
		return err
	}
	return y.array.SetPolicy(p)
}
