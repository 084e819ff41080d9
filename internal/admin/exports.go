package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// blobUnits is the name under which the array keeps what this package adds to its volumes.
const blobUnits = "admin.units"

// unitSpec is what a volume is to hosts. It is kept by number: names come back,
// numbers do not.
type unitSpec struct {
	Removable    bool         `json:"removable,omitempty"`
	WriteProtect bool         `json:"write_protect,omitempty"`
	Exports      []exportSpec `json:"exports,omitempty"`
}

type exportSpec struct {
	LUN        int      `json:"lun"`
	Initiators []string `json:"initiators,omitempty"` // folded; none is every one
}

// exports makes SCSI units of volumes and shows them to initiators. All of it is
// called with the executor held.
type exports struct {
	array  *array.Array
	target *scsi.Target
	specs  map[uint32]*unitSpec
	units  map[uint32]*scsi.Unit
	shown  map[string]map[int]*scsi.Unit // what the target's LUN maps are
	kernel map[uint32]string             // by volume: the kernel's device that has it
}

func newExports(a *array.Array, t *scsi.Target) (*exports, error) {
	x := &exports{array: a, target: t, specs: map[uint32]*unitSpec{}, units: map[uint32]*scsi.Unit{}, shown: map[string]map[int]*scsi.Unit{}, kernel: map[uint32]string{}}
	if b := a.Blob(blobUnits); b != nil {
		if err := json.Unmarshal(b, &x.specs); err != nil {
			return nil, fmt.Errorf("the saved exports are damaged: %w", err)
		}
	}
	for id := range x.specs {
		// A crash between the end of a volume and that of its exports.
		if !slices.ContainsFunc(a.Volumes(), func(v *array.Volume) bool { return v.ID() == id }) {
			delete(x.specs, id)
		}
	}
	for _, v := range a.Volumes() {
		if _, err := x.unitOptions(v); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// save makes the exports durable.
func (x *exports) save(done func(error)) {
	b, err := json.Marshal(x.specs)
	if err != nil {
		panic("admin: internal error: " + err.Error())
	}
	x.array.SetBlob(blobUnits, b, done)
}

func (x *exports) spec(v *array.Volume) *unitSpec {
	s := x.specs[v.ID()]
	if s == nil {
		s = &unitSpec{}
		x.specs[v.ID()] = s
	}
	return s
}

// open makes the unit of a volume, if it has none.
func (x *exports) open(v *array.Volume) {
	if x.units[v.ID()] == nil {
		opt, err := x.unitOptions(v)
		if err != nil {
			panic("admin: internal error: " + err.Error()) // newExports has looked at it
		}
		x.units[v.ID()] = x.target.AddUnit(v, opt)
	}
}

// close ends the unit of a volume: hosts see it no longer, its commands end.
func (x *exports) close(v *array.Volume) {
	u := x.units[v.ID()]
	if u == nil {
		return
	}
	delete(x.units, v.ID())
	x.show(nil)
	x.target.RemoveUnit(u)
}

// add exports a volume. It changes what is kept and what is shown, and nothing on
// an error.
func (x *exports) add(v *array.Volume, e exportSpec) error {
	if by := x.kernel[v.ID()]; by != "" {
		return conflict("volume %q is the kernel's device %s; delete that in targetcli first", v.Name(), by)
	}
	if err := x.check(e); err != nil {
		return err
	}
	s := x.spec(v)
	s.Exports = append(s.Exports, e)
	x.show(nil)
	return nil
}

// check tells why there cannot be such an export.
func (x *exports) check(e exportSpec) error {
	if e.LUN < 0 || e.LUN > maxLUN {
		return fmt.Errorf("LUN %d: a LUN is 0 to %d", e.LUN, maxLUN)
	}
	if o := x.holder(e); o != nil {
		return conflict("LUN %d is volume %q already; choose another, or run: arraysim export remove %s --lun %d", e.LUN, o.Name(), o.Name(), e.LUN)
	}
	return nil
}

// holder returns the volume that has e's LUN for one of e's initiators.
func (x *exports) holder(e exportSpec) *array.Volume {
	for _, v := range x.array.Volumes() {
		for _, o := range x.spec(v).Exports {
			if o.LUN == e.LUN && overlap(o.Initiators, e.Initiators) {
				return v
			}
		}
	}
	return nil
}

// remove ends the exports of a volume that match. ended is called as by show.
func (x *exports) remove(v *array.Volume, match func(exportSpec) bool, ended func()) int {
	s := x.spec(v)
	n := len(s.Exports)
	s.Exports = slices.DeleteFunc(s.Exports, match)
	x.show(ended)
	return n - len(s.Exports)
}

// show makes the target's LUN maps what the exports say. An initiator that is
// named by an export sees the exports for every initiator too. ended, which may be nil, is called, never from inside
// show, when nothing runs any more of what hosts sent to LUNs that have gone.
func (x *exports) show(ended func()) {
	if ended == nil {
		ended = func() {}
	}
	want := map[string]map[int]*scsi.Unit{"": {}}
	// An initiator that had a map of its own keeps one: the target gives it no other.
	for name := range x.shown {
		want[name] = map[int]*scsi.Unit{}
	}
	for _, v := range x.array.Volumes() {
		for _, e := range x.spec(v).Exports {
			for _, name := range e.Initiators {
				if want[name] == nil {
					want[name] = map[int]*scsi.Unit{}
				}
			}
		}
	}
	for _, v := range x.array.Volumes() {
		u := x.units[v.ID()]
		if u == nil {
			continue
		}
		for _, e := range x.spec(v).Exports {
			for name := range want {
				if len(e.Initiators) == 0 || slices.Contains(e.Initiators, name) {
					want[name][e.LUN] = u
				}
			}
		}
	}
	// At once: an initiator that gets a map of its own keeps what it saw by that for every initiator.
	x.target.Remap(func() {
		for name, luns := range x.shown {
			for lun, u := range luns {
				if want[name][lun] != u {
					x.target.Unmap(name, uint16(lun))
				}
			}
		}
		for name, luns := range want {
			for lun, u := range luns {
				if x.shown[name][lun] == u {
					continue
				}
				if err := x.target.Map(name, uint16(lun), u); err != nil {
					panic("admin: internal error: " + err.Error())
				}
			}
		}
	}, ended)
	x.shown = want
}

// change carries out a change of what a volume is to hosts and makes it durable. On an error all is as it was, durable or
// not: no change that comes later carries this one. Preconditions: one change at a time.
func (x *exports) change(v *array.Volume, do func() error, done func(error)) {
	was := *x.spec(v)
	was.Exports = slices.Clone(was.Exports)
	end := func(err error) {
		if err != nil {
			*x.spec(v) = was
			x.show(nil)
		}
		done(err)
	}
	if err := do(); err != nil {
		end(err)
		return
	}
	x.save(end)
}

// list returns a volume's exports.
func (x *exports) list(v *array.Volume) []Export {
	out := []Export{}
	for _, e := range x.spec(v).Exports {
		out = append(out, Export{Volume: v.Name(), LUN: e.LUN, Target: x.target.Options().Name, Initiators: append([]string{}, e.Initiators...)})
	}
	slices.SortFunc(out, func(a, b Export) int {
		if a.LUN != b.LUN {
			return a.LUN - b.LUN
		}
		return strings.Compare(strings.Join(a.Initiators, ","), strings.Join(b.Initiators, ","))
	})
	return out
}

// overlap tells whether two lists of initiators have one in common; an empty list is all.
func overlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(n string) bool { return slices.Contains(b, n) })
}
