package admin

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
)

// What is asked of the array by the names of its objects goes to the I/O group that has them. A name
// is one object's in all groups: whoever makes one reserves it until it is there.

// holder returns the group that has something. When none has, it is the first one, which says what is missing.
func (d *daemon) holder(has func(g *ioGroup) bool) (g *ioGroup, found bool) {
	for _, g := range d.groups {
		g.exec.Lock()
		found := has(g)
		g.exec.Unlock()
		if found {
			return g, true
		}
	}
	return d.groups[0], false
}

func hasVolume(name string) func(g *ioGroup) bool {
	return func(g *ioGroup) bool { return g.array.Volume(name) != nil }
}

func hasPool(name string) func(g *ioGroup) bool {
	return func(g *ioGroup) bool { return g.array.Pool(name) != nil }
}

// ofVolume returns the group that has a volume, the first of all when none has.
func (d *daemon) ofVolume(name string) *ioGroup {
	g, _ := d.holder(hasVolume(name))
	return g
}

// ofPool returns the group that has a pool, the first of all when none has.
func (d *daemon) ofPool(name string) *ioGroup {
	g, _ := d.holder(hasPool(name))
	return g
}

// reserve keeps others from making something of that name in another group until free is called. It fails when another
// group than g has it, or is making it; g itself says so when it has.
func (d *daemon) reserve(g *ioGroup, kind, name string, has func(g *ioGroup) bool) (free func(), err error) {
	key := kind + " " + name
	taken := func(o *ioGroup) error {
		return fmt.Errorf("%s %q %w, in I/O group %d", kind, name, array.ErrExists, o.number)
	}
	d.naming.Lock()
	o, making := d.names[key]
	if !making {
		d.names[key] = g
	}
	d.naming.Unlock()
	switch {
	case making && o != g:
		return nil, taken(o)
	case making: // its group tells the two apart
		return func() {}, nil
	}
	free = func() {
		d.naming.Lock()
		delete(d.names, key)
		d.naming.Unlock()
	}
	if o, found := d.holder(has); found && o != g {
		free()
		return nil, taken(o)
	}
	return free, nil
}

func (d *daemon) reserveVolume(g *ioGroup, name string) (free func(), err error) {
	return d.reserve(g, "volume", name, hasVolume(name))
}

// each collects what all groups say, in their order.
func each[T any](d *daemon, list func(g *ioGroup) []T) []T {
	out := []T{}
	for _, g := range d.groups {
		out = append(out, list(g)...)
	}
	return out
}

func (d *daemon) listVolumes() []Volume { return each(d, (*ioGroup).listVolumes) }
func (d *daemon) listPools() []Pool     { return each(d, (*ioGroup).listPools) }
func (d *daemon) listExports() []Export { return each(d, (*ioGroup).listExports) }

func (d *daemon) addVolume(n NewVolume) (Volume, error) {
	g := d.ofPool(n.Pool)
	free, err := d.reserveVolume(g, n.Name)
	if err != nil {
		return Volume{}, err
	}
	defer free()
	return g.addVolume(n)
}

// createVolume makes a volume in the group of its pool; it has no unit yet.
func (d *daemon) createVolume(spec array.VolumeSpec) (*ioGroup, *array.Volume, error) {
	g := d.ofPool(spec.Pool)
	free, err := d.reserveVolume(g, spec.Name)
	if err != nil {
		return g, nil, err
	}
	defer free()
	v, err := g.createVolume(spec)
	return g, v, err
}

func (d *daemon) cloneVolume(source string, c Clone) (Volume, error) {
	g := d.ofVolume(source)
	to := g
	if c.Pool != "" {
		to = d.ofPool(c.Pool)
	}
	free, err := d.reserveVolume(to, c.Name)
	if err != nil {
		return Volume{}, err
	}
	defer free()
	return g.cloneVolume(source, c, to)
}

func (d *daemon) showVolume(name string) (Volume, error) { return d.ofVolume(name).showVolume(name) }
func (d *daemon) zeroVolume(name string) error           { return d.ofVolume(name).zeroVolume(name) }
func (d *daemon) deletePool(name string) error           { return d.ofPool(name).deletePool(name) }

// addExport shows a volume by the target of its group, and says which that is.
func (d *daemon) addExport(e Export) (Export, error) {
	g := d.ofVolume(e.Volume)
	if name := g.target.Options().Name; e.Target == "" {
		e.Target = name
	} else if !strings.EqualFold(e.Target, name) {
		return e, fmt.Errorf("volume %q belongs to target %s, that of its I/O group; leave the target out", e.Volume, name)
	}
	return e, g.addExport(e)
}

func (d *daemon) deleteVolume(name string, force bool) error {
	return d.ofVolume(name).deleteVolume(name, force)
}

func (d *daemon) resizeVolume(name string, size Size, force bool) error {
	return d.ofVolume(name).resizeVolume(name, size, force)
}

func (d *daemon) removeExport(volume string, lun int) error {
	return d.ofVolume(volume).removeExport(volume, lun)
}

func (d *daemon) changePool(name string, c PoolChange) (Pool, error) {
	return d.ofPool(name).changePool(name, c)
}

func (d *daemon) changeMdisk(pool, mdisk string, c MdiskChange) (Pool, error) {
	return d.ofPool(pool).changeMdisk(pool, mdisk, c)
}

// addPool makes a pool in the group that it names, or in the one that has the fewest.
func (d *daemon) addPool(n NewPool) (Pool, error) {
	g, err := d.place(n.IOGroup)
	if err != nil {
		return Pool{}, err
	}
	free, err := d.reserve(g, "pool", n.Name, hasPool(n.Name))
	if err != nil {
		return Pool{}, err
	}
	defer free()
	if err := d.keepGroups(g); err != nil {
		return Pool{}, err
	}
	return g.addPool(n)
}

// keepGroups notes that a group may have pools, before it has.
func (d *daemon) keepGroups(g *ioGroup) error {
	d.naming.Lock()
	defer d.naming.Unlock()
	return d.data.keepGroups(g.number + 1)
}

// place returns the group of a new pool: the one with this number, or the first of those with the fewest pools.
func (d *daemon) place(number *int) (*ioGroup, error) {
	if number != nil {
		if *number < 0 || *number >= len(d.groups) {
			return nil, fmt.Errorf("I/O group %d does not exist; there are 0 to %d", *number, len(d.groups)-1)
		}
		return d.groups[*number], nil
	}
	var best *ioGroup
	fewest := 0
	for _, g := range d.groups {
		g.exec.Lock()
		n := len(g.array.Pools())
		g.exec.Unlock()
		if best == nil || n < fewest {
			best, fewest = g, n
		}
	}
	return best, nil
}

// policy is that of the first group: a change is one of all.
func (d *daemon) policy() Policy { return d.groups[0].policy() }

// changePolicy changes the policy of all groups, one after the other: each keeps it. When one cannot, those before it
// have it already, and the error says so.
func (d *daemon) changePolicy(c PolicyChange) (p Policy, err error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	for i, g := range d.groups {
		if p, err = g.changePolicy(c); err != nil {
			if i > 0 {
				err = fmt.Errorf("%w; I/O groups below %d have it, the others get it at the next start", err, i)
			}
			break
		}
	}
	return p, err
}

func (d *daemon) setMirror(m Mirror) (err error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	for _, g := range d.groups {
		if err == nil {
			err = g.setMirror(m)
		}
	}
	return err
}

// joinCopies has the groups find each other's units and tokens for the copies of hosts.
func (d *daemon) joinCopies() {
	targets := make([]*scsi.Target, len(d.groups))
	for i, g := range d.groups {
		targets[i] = g.target
	}
	scsi.JoinCopies(targets...)
}

// sources are what counts in all groups. Each takes its group's executor by itself: what is counted together, such as the
// bytes that came into a cache and those that left it, is of one group, and so of one instant; and a group that is held
// holds up no other.
func (d *daemon) sources() []metrics.Source {
	var out []metrics.Source
	for _, g := range d.groups {
		var a metrics.Source = g.array
		if g.number > 0 {
			a = g.array.Further()
		}
		out = append(out, metrics.Locked(g.exec, a, g.target))
	}
	return out
}

// sameNames says which objects of several groups have one name. None can be made so; folders that were put
// together from several copies may have them, and what is asked by name goes to the first.
func (d *daemon) sameNames() {
	if len(d.groups) == 1 {
		return
	}
	first := map[string]int{} // the group, by kind and name
	note := func(g *ioGroup, kind, name string) {
		key := kind + " " + name
		if by, twice := first[key]; twice {
			d.log.Error("two I/O groups have a "+kind+" of this name; the first is the one that is meant", kind, name, "first", by, "second", g.number)
			return
		}
		first[key] = g.number
	}
	for _, g := range d.groups {
		for _, v := range g.listVolumes() {
			note(g, "volume", v.Name)
		}
		for _, p := range g.listPools() {
			note(g, "pool", p.Name)
		}
	}
}
