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

// busyTimeout bounds how long a deletion, and the end of an export, wait for commands that have started.
const busyTimeout = 5 * time.Second

// clonePiece is what one step of a clone places: other commands go between steps.
const clonePiece = 256 << 20 >> block.SectorShift

// createVolume makes a volume; it has no unit yet.
func (g *ioGroup) createVolume(spec array.VolumeSpec) (*array.Volume, error) {
	var v *array.Volume
	err := g.await(func(done func(error)) {
		g.array.CreateVolume(spec, func(made *array.Volume, err error) {
			v = made
			if err == nil {
				g.target.Forget(spec.Name) // what another volume of this name counted
			}
			done(err)
		})
	})
	return v, err
}

// addVolume makes a volume with its unit.
func (g *ioGroup) addVolume(n NewVolume) (Volume, error) {
	spec := array.VolumeSpec{Name: n.Name, Pool: n.Pool, Sectors: uint64(n.Size) / block.SectorSize, BlockSize: n.BlockSize, Thin: !n.Thick}
	if n.Size%block.SectorSize != 0 {
		return Volume{}, fmt.Errorf("volume %q: %s is not a whole number of blocks; round it to a multiple of 512", n.Name, n.Size)
	}
	var show []exportSpec
	if e := n.Export; e != nil {
		names, err := checkedNames(e.Initiators)
		if err != nil {
			return Volume{}, err
		}
		show = append(show, exportSpec{LUN: e.LUN, Initiators: names})
		g.exec.Lock()
		err = g.exports.check(show[0])
		g.exec.Unlock()
		if err != nil {
			return Volume{}, err
		}
	}
	v, err := g.createVolume(spec)
	if err != nil {
		return Volume{}, err
	}
	return g.adopt(v, unitSpec{Removable: n.Removable, WriteProtect: n.WriteProtect}, show...)
}

// adopt makes the unit of a new volume and shows it. When that fails nothing is left of the volume.
func (g *ioGroup) adopt(v *array.Volume, s unitSpec, show ...exportSpec) (Volume, error) {
	err := g.keep(func(done func(error)) {
		g.exports.change(v, func() error {
			*g.exports.spec(v) = s
			g.exports.open(v)
			for _, e := range show {
				if err := g.exports.add(v, e); err != nil { // somebody took the LUN meanwhile
					return err
				}
			}
			return nil
		}, done)
	})
	if err != nil {
		return Volume{}, errors.Join(err, g.dropVolume(v))
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	return g.describe(v, v.Stats()), nil
}

// volume finds a volume by name. The executor is held.
func (g *ioGroup) volume(name string) (*array.Volume, error) {
	if v := g.array.Volume(name); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("volume %q %w; see: arraysim volume list", name, array.ErrNotFound)
}

// describe tells about a volume. The executor is held.
func (g *ioGroup) describe(v *array.Volume, st array.VolumeStats) Volume {
	info, s := v.Info(), g.exports.spec(v)
	return Volume{Name: v.Name(), ID: g.volumeID(v), Pool: info.Pool, Size: Size(info.Sectors * block.SectorSize), Thin: info.Thin,
		BlockSize: info.BlockSize, Removable: s.Removable, WriteProtect: s.WriteProtect, NAA: hex.EncodeToString(info.NAA[:]),
		Serial: info.Serial, Exports: g.exports.list(v), Kernel: g.exports.kernel[v.ID()], Mapped: Size(st.Mapped), Zero: Size(st.Zero), Anchored: Size(st.Anchored),
		Unmapped: Size(st.Unmapped), Dirty: Size(st.Dirty), Exclusive: Size(st.Exclusive)}
}

func (g *ioGroup) listVolumes() []Volume {
	g.exec.Lock()
	defer g.exec.Unlock()
	out := []Volume{}
	for _, v := range g.array.Volumes() {
		out = append(out, g.describe(v, v.Stats()))
	}
	return out
}

func (g *ioGroup) showVolume(name string) (Volume, error) {
	entries := 0
	if err := g.await(func(done func(error)) {
		v, err := g.volume(name)
		if err != nil {
			done(err)
			return
		}
		v.CountEntries(func(n int, err error) {
			if entries = n; err != nil {
				err = fmt.Errorf("the map of volume %q cannot be counted: %w", name, err)
			}
			done(err)
		})
	}); err != nil {
		return Volume{}, err
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	v, err := g.volume(name) // another one may have the name by now
	if err != nil {
		return Volume{}, err
	}
	st := v.Stats()
	out := g.describe(v, st)
	out.Detail = &VolumeDetail{Entries: entries, Admitted: byOrigin(st.Admitted), Destaged: byOrigin(st.Destaged), MapBytes: Size(st.MapBytes)}
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
func (g *ioGroup) deleteVolume(name string, force bool) error {
	g.exec.Lock()
	v, err := g.volume(name)
	if err == nil && !force {
		var why []string
		for _, e := range g.exports.list(v) {
			why = append(why, fmt.Sprintf("is exported as LUN %d", e.LUN))
		}
		if by := g.exports.kernel[v.ID()]; by != "" {
			why = append(why, "is the kernel's device "+by)
		}
		if n := v.Stats().Dirty; n > 0 {
			why = append(why, "has "+Size(n).Human()+" of dirty data in the write cache")
		}
		if len(why) > 0 {
			err = needForce("volume %q %s; give --force to delete it anyway", name, strings.Join(why, " and "))
		}
	}
	g.exec.Unlock()
	if err != nil {
		return err
	}
	return g.dropVolume(v)
}

// dropVolume ends a volume, its unit and its exports. Commands under way have a while to end.
func (g *ioGroup) dropVolume(v *array.Volume) error {
	g.exec.Lock()
	g.exports.close(v)
	g.exec.Unlock()
	var err error
	for end := time.Now().Add(busyTimeout); ; time.Sleep(20 * time.Millisecond) {
		err = g.await(func(done func(error)) { g.array.DeleteVolume(v, done) })
		if !errors.Is(err, array.ErrInUse) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		g.exec.Lock()
		g.exports.open(v)
		g.exports.show(nil)
		g.exec.Unlock()
		return err
	}
	err = g.keep(func(done func(error)) {
		delete(g.exports.specs, v.ID())
		g.target.Forget(v.Name())
		g.array.SetBlob(stateBlob(v.ID()), nil, func(error) {}) // a number never comes back
		g.exports.save(done)
	})
	if err != nil { // the volume is gone all the same, and a start knows no exports of what is not there
		g.log.Warn("the exports of a deleted volume remain until the next change", "volume", v.Name(), "error", err)
	}
	return nil
}

// keep waits for a change of what the array keeps for this package. One change is under way at a time, so that none of
// them makes durable what another one has to take back.
func (g *ioGroup) keep(fn func(done func(error))) error {
	g.keeping.Lock()
	defer g.keeping.Unlock()
	return g.await(fn)
}

func (g *ioGroup) resizeVolume(name string, size Size, force bool) error {
	g.exec.Lock()
	v, err := g.volume(name)
	if err == nil {
		have := Size(v.Info().Sectors * block.SectorSize)
		switch {
		case size%block.SectorSize != 0:
			err = fmt.Errorf("volume %q: %s is not a whole number of blocks; round it to a multiple of 512", name, size)
		case size < have && !force:
			err = needForce("volume %q has %s, and the data beyond %s would be lost; give --force to shrink it anyway", name, have.Human(), size.Human())
		}
	}
	g.exec.Unlock()
	if err != nil {
		return err
	}
	return g.await(func(done func(error)) { g.array.Resize(v, uint64(size)/block.SectorSize, done) })
}

// cloneVolume makes a volume in a group with what the source holds at this instant: one hold of all of it, then places,
// step by step.
func (g *ioGroup) cloneVolume(source string, c Clone, to *ioGroup) (Volume, error) {
	g.exec.Lock()
	src, err := g.volume(source)
	if err != nil {
		g.exec.Unlock()
		return Volume{}, err
	}
	spec := src.Stats().Spec
	removable := g.exports.spec(src).Removable
	g.exec.Unlock()
	spec.ID, spec.Name = 0, c.Name
	if c.Pool != "" {
		spec.Pool = c.Pool
	}
	dst, err := to.createVolume(spec)
	if err != nil {
		return Volume{}, err
	}
	if err := g.copyVolume(src, dst, to); err != nil {
		gone := to.await(func(done func(error)) { to.array.DeleteVolume(dst, done) })
		return Volume{}, errors.Join(err, gone)
	}
	return to.adopt(dst, unitSpec{Removable: removable})
}

// copyVolume fills a new volume of a group, which is as large.
func (g *ioGroup) copyVolume(src, dst *array.Volume, to *ioGroup) error {
	g.exec.Lock()
	total := src.Info().Sectors
	g.exec.Unlock()
	to.exec.Lock()
	total = min(total, dst.Info().Sectors)
	to.exec.Unlock()
	hold := &block.Request{Op: block.OpHold, Origin: block.OriginMigrate, Ranges: []block.Range{{Count: total}}}
	if s := g.request(src, hold); s != block.OK {
		return fmt.Errorf("volume %q cannot be read: %s", src.Name(), s)
	}
	ref := hold.Ref
	defer func() {
		g.exec.Lock()
		hold.Ref.Release()
		g.exec.Unlock()
	}()
	if to != g {
		g.exec.Lock()
		ref = hold.Ref.(block.Lendable).Lend(func() {}) // an array's is
		g.exec.Unlock()
	}
	for at := uint64(0); at < total; at += clonePiece {
		select {
		case <-g.closing:
			return errors.New("the daemon is stopping; clone again when it runs")
		default:
		}
		n := min(clonePiece, total-at)
		place := &block.Request{Op: block.OpPlace, Origin: block.OriginMigrate, Ref: ref, RefOffset: at, Range: block.Range{Start: at, Count: n}}
		if s := to.request(dst, place); s != block.OK {
			return fmt.Errorf("volume %q cannot be written: %s", dst.Name(), s)
		}
	}
	return nil
}

// request runs one request to its end.
func (g *ioGroup) request(v block.Device, r *block.Request) block.Status {
	end := make(chan struct{})
	r.Done = func(*block.Request) { close(end) }
	g.exec.Lock()
	v.Submit([]*block.Request{r})
	g.exec.Unlock()
	<-end
	return r.Status
}

func (g *ioGroup) listPools() []Pool {
	g.exec.Lock()
	defer g.exec.Unlock()
	out := []Pool{}
	for _, p := range g.array.Pools() {
		out = append(out, g.describePool(p))
	}
	return out
}

func (g *ioGroup) describePool(of *array.Pool) Pool {
	s := of.Stats()
	p := Pool{Name: s.Name, ID: g.poolID(of), IOGroup: g.number, CopyData: s.CopyData, Capacity: Size(s.Capacity), Allocated: Size(s.Allocated), Reserved: Size(s.Reserved),
		CacheLimit: Size(s.CacheLimit), CacheUsed: Size(s.CacheUsed), Volumes: s.Volumes, WriteMode: writeModeName(s.WriteMode)}
	for _, m := range s.Mdisks {
		p.Mdisks = append(p.Mdisks, Mdisk{m.Name, Size(m.Size), Size(m.Bandwidth), m.IOPS, m.Failures, m.Offline})
	}
	return p
}

func (g *ioGroup) addPool(n NewPool) (Pool, error) {
	var p *array.Pool
	spec := array.PoolSpec{Name: n.Name, CopyData: n.CopyData}
	for _, m := range n.Mdisks {
		spec.Mdisks = append(spec.Mdisks, array.MdiskSpec{Name: m.Name, Size: uint64(m.Size), Bandwidth: uint64(m.Bandwidth), IOPS: m.IOPS})
	}
	err := g.await(func(done func(error)) {
		g.array.CreatePool(spec, func(made *array.Pool, err error) {
			p = made
			done(err)
		})
	})
	if err != nil {
		return Pool{}, err
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	return g.describePool(p), nil
}

func (g *ioGroup) listExports() []Export {
	g.exec.Lock()
	defer g.exec.Unlock()
	out := []Export{}
	for _, v := range g.array.Volumes() {
		out = append(out, g.exports.list(v)...)
	}
	return out
}

func (g *ioGroup) addExport(e Export) error {
	names, err := checkedNames(e.Initiators)
	if err != nil {
		return err
	}
	return g.keep(func(done func(error)) {
		v, err := g.volume(e.Volume)
		if err != nil {
			done(err)
			return
		}
		g.exports.change(v, func() error {
			return g.exports.add(v, exportSpec{LUN: e.LUN, Initiators: names})
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

// removeExport ends the exports of a volume, or the one as lun. Commands under way have a while to end: who shows the volume
// to others then wants to know that nothing lands on it any more.
func (g *ioGroup) removeExport(volume string, lun int) error {
	ended := make(chan struct{})
	err := g.keep(func(done func(error)) {
		v, err := g.volume(volume)
		if err != nil {
			done(err)
			return
		}
		g.exports.change(v, func() error {
			if g.exports.remove(v, func(e exportSpec) bool { return lun < 0 || e.LUN == lun }, func() { close(ended) }) == 0 {
				return fmt.Errorf("volume %q has no such export: the export %w; see: arraysim export list", volume, array.ErrNotFound)
			}
			return nil
		}, done)
	})
	if err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-g.closing:
	case <-time.After(busyTimeout):
	}
	return conflict("volume %q is no longer exported, but commands that hosts had sent before still run; do not export it to others until its mdisks answer", volume)
}
