package admin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
)

// busyTimeout bounds how long a deletion waits for commands that have started.
const busyTimeout = 5 * time.Second

// clonePiece is what one step of a clone places: other commands go between steps.
const clonePiece = 256 << 20 >> block.SectorShift

// createVolume makes a volume; it has no unit yet.
func (d *daemon) createVolume(spec array.VolumeSpec) (*array.Volume, error) {
	var v *array.Volume
	err := d.await(func(done func(error)) {
		d.array.CreateVolume(spec, func(made *array.Volume, err error) {
			v = made
			if err == nil {
				d.target.Forget(spec.Name) // what another volume of this name counted
			}
			done(err)
		})
	})
	return v, err
}

// addVolume makes a volume with its unit.
func (d *daemon) addVolume(n NewVolume) (Volume, error) {
	spec := array.VolumeSpec{Name: n.Name, Pool: n.Pool, Sectors: uint64(n.Size) / block.SectorSize, BlockSize: n.BlockSize, Thin: !n.Thick}
	if n.Size%block.SectorSize != 0 {
		return Volume{}, fmt.Errorf("volume %q: %s is no whole number of blocks; round it to a multiple of 512", n.Name, n.Size)
	}
	var show []exportSpec
	if e := n.Export; e != nil {
		names, err := checkedNames(e.Initiators)
		if err != nil {
			return Volume{}, err
		}
		show = append(show, exportSpec{LUN: e.LUN, Initiators: names})
		d.exec.Lock()
		err = d.exports.check(show[0])
		d.exec.Unlock()
		if err != nil {
			return Volume{}, err
		}
	}
	v, err := d.createVolume(spec)
	if err != nil {
		return Volume{}, err
	}
	return d.adopt(v, unitSpec{Removable: n.Removable, WriteProtect: n.WriteProtect}, show...)
}

// adopt makes the unit of a new volume and shows it. When that fails nothing is left of the volume.
func (d *daemon) adopt(v *array.Volume, s unitSpec, show ...exportSpec) (Volume, error) {
	err := d.keep(func(done func(error)) {
		d.exports.change(v, func() error {
			*d.exports.spec(v) = s
			d.exports.open(v)
			for _, e := range show {
				if err := d.exports.add(v, e); err != nil { // somebody took the LUN meanwhile
					return err
				}
			}
			return nil
		}, done)
	})
	if err != nil {
		return Volume{}, errors.Join(err, d.dropVolume(v))
	}
	d.exec.Lock()
	defer d.exec.Unlock()
	return d.describe(v, v.Brief()), nil
}

// volume finds a volume by name. The executor is held.
func (d *daemon) volume(name string) (*array.Volume, error) {
	if v := d.array.Volume(name); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("volume %q %w; see: arraysim volume list", name, array.ErrNotFound)
}

// describe tells about a volume. The executor is held.
func (d *daemon) describe(v *array.Volume, st array.VolumeStats) Volume {
	info, s := v.Info(), d.exports.spec(v)
	return Volume{Name: v.Name(), ID: v.ID(), Pool: info.Pool, Size: Size(info.Sectors * block.SectorSize), Thin: info.Thin,
		BlockSize: info.BlockSize, Removable: s.Removable, WriteProtect: s.WriteProtect, NAA: hex.EncodeToString(info.NAA[:]),
		Serial: info.Serial, Exports: d.exports.list(v), Kernel: d.exports.kernel[v.ID()], Mapped: Size(st.Mapped), Zero: Size(st.Zero), Anchored: Size(st.Anchored),
		Unmapped: Size(st.Unmapped), Dirty: Size(st.Dirty), Exclusive: Size(st.Exclusive)}
}

func (d *daemon) listVolumes() []Volume {
	d.exec.Lock()
	defer d.exec.Unlock()
	out := []Volume{}
	for _, v := range d.array.Volumes() {
		out = append(out, d.describe(v, v.Brief()))
	}
	return out
}

func (d *daemon) showVolume(name string) (Volume, error) {
	d.exec.Lock()
	defer d.exec.Unlock()
	v, err := d.volume(name)
	if err != nil {
		return Volume{}, err
	}
	st := v.Stats()
	out := d.describe(v, st)
	out.Detail = &VolumeDetail{Entries: st.Entries, Admitted: byOrigin(st.Admitted), Destaged: byOrigin(st.Destaged), MapBytes: Size(st.MapBytes)}
	return out, nil
}

func byOrigin(n [block.NumOrigins]uint64) map[string]Size {
	out := map[string]Size{}
	for o, v := range n {
		if v > 0 {
			out[block.Origin(o).String()] = Size(v)
		}
	}
	return out
}

// deleteVolume ends a volume. Without force it refuses when something would be lost
// that somebody may want: an export, or data that is still on its way.
func (d *daemon) deleteVolume(name string, force bool) error {
	d.exec.Lock()
	v, err := d.volume(name)
	if err == nil && !force {
		var why []string
		for _, e := range d.exports.list(v) {
			why = append(why, fmt.Sprintf("is exported as LUN %d", e.LUN))
		}
		if by := d.exports.kernel[v.ID()]; by != "" {
			why = append(why, "is the kernel's device "+by)
		}
		if n := v.Brief().Dirty; n > 0 {
			why = append(why, "has "+Size(n).Human()+" of dirty data in the write cache")
		}
		if len(why) > 0 {
			err = needForce("volume %q %s; give --force to delete it anyway", name, strings.Join(why, " and "))
		}
	}
	d.exec.Unlock()
	if err != nil {
		return err
	}
	return d.dropVolume(v)
}

// dropVolume ends a volume, its unit and its exports. Commands under way have a while to end.
func (d *daemon) dropVolume(v *array.Volume) error {
	d.exec.Lock()
	d.exports.close(v)
	d.exec.Unlock()
	var err error
	for end := time.Now().Add(busyTimeout); ; time.Sleep(20 * time.Millisecond) {
		err = d.await(func(done func(error)) { d.array.DeleteVolume(v, done) })
		if !errors.Is(err, array.ErrInUse) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		d.exec.Lock()
		d.exports.open(v)
		d.exports.show()
		d.exec.Unlock()
		return err
	}
	err = d.keep(func(done func(error)) {
		delete(d.exports.specs, v.ID())
		d.target.Forget(v.Name())
		d.array.SetBlob(stateBlob(v.ID()), nil, func(error) {}) // a number never comes back
		d.exports.save(done)
	})
	if err != nil { // the volume is gone all the same, and a start knows no exports of what is not there
		d.log.Warn("the exports of a deleted volume are kept until the next change", "volume", v.Name(), "error", err)
	}
	return nil
}

// keep waits for a change of what the array keeps for this package. One change is under way at a time, so that none of
// them makes durable what another one has to take back.
func (d *daemon) keep(fn func(done func(error))) error {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	return d.await(fn)
}

func (d *daemon) resizeVolume(name string, size Size, force bool) error {
	d.exec.Lock()
	v, err := d.volume(name)
	if err == nil {
		have := Size(v.Info().Sectors * block.SectorSize)
		switch {
		case size%block.SectorSize != 0:
			err = fmt.Errorf("volume %q: %s is no whole number of blocks; round it to a multiple of 512", name, size)
		case size < have && !force:
			err = needForce("volume %q has %s, and what lies behind %s would be lost; give --force to cut it off", name, have, size)
		}
	}
	d.exec.Unlock()
	if err != nil {
		return err
	}
	return d.await(func(done func(error)) { d.array.Resize(v, uint64(size)/block.SectorSize, done) })
}

// cloneVolume makes a volume with what the source holds at this instant: one hold
// of all of it, then places, step by step.
func (d *daemon) cloneVolume(source string, c Clone) (Volume, error) {
	d.exec.Lock()
	src, err := d.volume(source)
	if err != nil {
		d.exec.Unlock()
		return Volume{}, err
	}
	spec := src.Brief().Spec
	removable := d.exports.spec(src).Removable
	d.exec.Unlock()
	spec.ID, spec.Name = 0, c.Name
	if c.Pool != "" {
		spec.Pool = c.Pool
	}
	dst, err := d.createVolume(spec)
	if err != nil {
		return Volume{}, err
	}
	if err := d.copyVolume(src, dst); err != nil {
		gone := d.await(func(done func(error)) { d.array.DeleteVolume(dst, done) })
		return Volume{}, errors.Join(err, gone)
	}
	return d.adopt(dst, unitSpec{Removable: removable})
}

func (d *daemon) copyVolume(src, dst *array.Volume) error {
	d.exec.Lock()
	total := min(src.Info().Sectors, dst.Info().Sectors)
	d.exec.Unlock()
	hold := &block.Request{Op: block.OpHold, Origin: block.OriginMigrate, Ranges: []block.Range{{Count: total}}}
	if s := d.request(src, hold); s != block.OK {
		return fmt.Errorf("volume %q cannot be read: %s", src.Name(), s)
	}
	defer func() {
		d.exec.Lock()
		hold.Ref.Release()
		d.exec.Unlock()
	}()
	for at := uint64(0); at < total; at += clonePiece {
		select {
		case <-d.closing:
			return errors.New("the daemon stops; clone again when it runs")
		default:
		}
		n := min(clonePiece, total-at)
		place := &block.Request{Op: block.OpPlace, Origin: block.OriginMigrate, Ref: hold.Ref, RefOffset: at, Range: block.Range{Start: at, Count: n}}
		if s := d.request(dst, place); s != block.OK {
			return fmt.Errorf("volume %q cannot be written: %s", dst.Name(), s)
		}
	}
	return nil
}

// request runs one request to its end.
func (d *daemon) request(v block.Device, r *block.Request) block.Status {
	end := make(chan struct{})
	r.Done = func(*block.Request) { close(end) }
	d.exec.Lock()
	v.Submit([]*block.Request{r})
	d.exec.Unlock()
	<-end
	return r.Status
}

func (d *daemon) listPools() []Pool {
	d.exec.Lock()
	defer d.exec.Unlock()
	out := []Pool{}
	for _, p := range d.array.Pools() {
		out = append(out, describePool(p.Stats()))
	}
	return out
}

func describePool(s array.PoolStats) Pool {
	p := Pool{Name: s.Name, CopyData: s.CopyData, Capacity: Size(s.Capacity), Allocated: Size(s.Allocated), Reserved: Size(s.Reserved),
		CacheLimit: Size(s.CacheLimit), CacheUsed: Size(s.CacheUsed), Volumes: s.Volumes, WriteMode: writeModeName(s.WriteMode)}
	for _, m := range s.Mdisks {
		p.Mdisks = append(p.Mdisks, Mdisk{m.Name, Size(m.Size), Size(m.Bandwidth), m.IOPS, m.Failures, m.Offline})
	}
	return p
}

func (d *daemon) addPool(n NewPool) (Pool, error) {
	var p *array.Pool
	spec := array.PoolSpec{Name: n.Name, CopyData: n.CopyData}
	for _, m := range n.Mdisks {
		spec.Mdisks = append(spec.Mdisks, array.MdiskSpec{Name: m.Name, Size: uint64(m.Size), Bandwidth: uint64(m.Bandwidth), IOPS: m.IOPS})
	}
	err := d.await(func(done func(error)) {
		d.array.CreatePool(spec, func(made *array.Pool, err error) {
			p = made
			done(err)
		})
	})
	if err != nil {
		return Pool{}, err
	}
	d.exec.Lock()
	defer d.exec.Unlock()
	return describePool(p.Stats()), nil
}

func (d *daemon) listExports() []Export {
	d.exec.Lock()
	defer d.exec.Unlock()
	out := []Export{}
	for _, v := range d.array.Volumes() {
		out = append(out, d.exports.list(v)...)
	}
	return out
}

func (d *daemon) addExport(e Export) error {
	names, err := checkedNames(e.Initiators)
	if err != nil {
		return err
	}
	return d.keep(func(done func(error)) {
		v, err := d.volume(e.Volume)
		if err != nil {
			done(err)
			return
		}
		d.exports.change(v, func() error {
			return d.exports.add(v, exportSpec{LUN: e.LUN, Initiators: names})
		}, done)
	})
}

// checkedNames returns the names of initiators in the form in which they are compared.
func checkedNames(names []string) ([]string, error) {
	for _, n := range names {
		if err := checkISCSIName(n); err != nil {
			return nil, err
		}
	}
	return foldNames(names), nil
}

// removeExport ends the exports of a volume, or the one as lun.
func (d *daemon) removeExport(volume string, lun int) error {
	return d.keep(func(done func(error)) {
		v, err := d.volume(volume)
		if err != nil {
			done(err)
			return
		}
		d.exports.change(v, func() error {
			if d.exports.remove(v, func(e exportSpec) bool { return lun < 0 || e.LUN == lun }) == 0 {
				return fmt.Errorf("volume %q is not exported like that: the export %w; see: arraysim export list", volume, array.ErrNotFound)
			}
			return nil
		}, done)
	})
}
