// Volumes are made and removed.

package provision

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/layout"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// CreateVolume makes a volume. It is there, and hosts may use it, when that is durable; until then
// its name and what a thick one reserves are kept for it. On an error nothing is left of it.
func (m *Manager) CreateVolume(spec directory.VolumeSpec, done func(*request.Volume, error)) {
	m.createVolume(spec, m.Set.Exec.Now()+backend.Patience, done)
}

// createVolume is CreateVolume; until a time it waits for space that is about to come back.
func (m *Manager) createVolume(spec directory.VolumeSpec, until int64, done func(*request.Volume, error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(nil, err) }) }
	if err := directory.CheckName("volume", spec.Name); err != nil {
		fail(err)
		return
	}
	p := m.Set.Pool(spec.Pool)
	if spec.BlockSize == 0 {
		spec.BlockSize = 512
	}
	switch {
	case m.Set.NameTaken(spec.Name):
		fail(fmt.Errorf("volume %q %w", spec.Name, directory.ErrExists))
		return
	case p == nil:
		fail(fmt.Errorf("pool %q %w", spec.Pool, directory.ErrNotFound))
		return
	case p.Ending:
		fail(fmt.Errorf("pool %q %w: it is being deleted", spec.Pool, directory.ErrInUse))
		return
	case spec.BlockSize != 512 && spec.BlockSize != 4096:
		fail(fmt.Errorf("volume %q: the block size is 512 or 4096", spec.Name))
		return
	}
	if err := m.checkSize(p, &spec, 0); errors.Is(err, errSoon) && m.Set.Exec.Now() < until {
		m.soon(p, func() { m.createVolume(spec, until, done) })
		return
	} else if err != nil {
		fail(err)
		return
	}
	if m.Objects.NextVolume >= directory.MaxVolumeID {
		fail(fmt.Errorf("volume %q: the array has used all of its volume numbers", spec.Name))
		return
	}
	m.Objects.NumberVolume(&spec)
	v := m.Engine.AddVolume(spec, p)
	v.Making = true
	v.Account()
	m.secure(v, func(err error) {
		if err != nil {
			m.forget(v)
			done(nil, fmt.Errorf("volume %q: pool %q cannot promise it space: %w", spec.Name, p.Name(), err))
			return
		}
		m.addVolume(v, done)
	})
}

// secure calls fn when what a new volume reserves has room after a loss of power, too: not where
// another volume's data was, of which nobody has flushed that it is gone. A thin volume has nothing
// to wait for, nor has a log that is flushed.
func (m *Manager) secure(v *request.Volume, fn func(error)) {
	if v.Spec.Thin || m.Flusher.Flushed() == m.Log.Seq() {
		fn(nil)
		return
	}
	m.Flusher.After(fn)
}

// addVolume makes a volume durable that has all that it needs.
func (m *Manager) addVolume(v *request.Volume, done func(*request.Volume, error)) {
	m.Objects.AddVolume(v.Spec, func(err error) {
		if err != nil { // what is reserved for it may not be others' while a start could find it
			m.Objects.MustTakeBack(func(again error) {
				m.forget(v)
				done(nil, directory.Doubtful(err, again))
			})
			return
		}
		for _, old := range m.Set.Vols {
			if old != nil && old.Deleted && old.Spec.Name == v.Spec.Name { // what it counted is not the new one's
				old.Replaced = true
			}
		}
		v.Making = false
		done(v, nil)
	})
}

// forget removes a volume that could not be made.
func (m *Manager) forget(v *request.Volume) {
	v.Pool().Alloc.Entitle(v.Map.Tenant(), 0)
	v.Map.Remove()
	m.Set.Leave(&v.Volume)
	m.Set.ForgetVolume(&v.Volume)
}

// errSoon says that space may come back at once.
var errSoon = errors.New("try it again")

// readTime is when a change is tried again that waits for garbage of a pool to be read. It asks instead of waiting in the
// queue of the leaf, because it gives up at a time of its own, which no ticket has: what it reports then is that there is no
// space. It is one change of a pool or volume, for the milliseconds of a read.
const readTime = 1_000_000

// soon has a change in a pool begin anew when others had their turn: nothing of it was done yet.
func (m *Manager) soon(p *pool.Pool, fn func()) {
	at := m.Set.Exec.Now()
	if m.Set.Arena.GarbageReads(p.Alloc) != nil {
		at += readTime
	}
	m.Set.Exec.At(at, func() {
		fn()
		m.Engine.EndStep()
	})
}

// checkSize checks a volume's size; had is what a thick one reserves already. It collects a step of
// the pool's garbage, and returns an errSoon while that may help.
func (m *Manager) checkSize(p *pool.Pool, spec *directory.VolumeSpec, had int64) error {
	blockSectors := uint64(spec.BlockSize / block.SectorSize)
	if spec.Sectors == 0 || spec.Sectors%blockSectors != 0 || spec.Sectors > directory.MaxVolumeBytes/block.SectorSize {
		return fmt.Errorf("volume %q: the size is between one block and 64 TiB, in whole blocks of %d bytes", spec.Name, spec.BlockSize)
	}
	if !spec.Thin {
		want := int64((spec.Sectors+layout.WindowSectors-1)>>layout.WindowShift) - had
		if want <= 0 { // who gives space back need not ask for any
			return nil
		}
		if ok, more := p.HasNow(want); !ok {
			err := fmt.Errorf("volume %q: pool %q has %d MiB free and a thick volume reserves all of its size; make it smaller or thin", spec.Name, p.Name(), max(0, p.Alloc.Available())/16)
			if more {
				err = fmt.Errorf("%w, or %w", err, errSoon)
			}
			return err
		}
	}
	return nil
}

// DeleteVolume removes a volume; its space comes back in the background. Requests that wait end
// Gone or Cancelled first. Until the deletion is durable requests end Resources, for on an error
// the volume goes on as it was.
func (m *Manager) DeleteVolume(v *request.Volume, done func(error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(fmt.Errorf("volume %q %w", v.Spec.Name, err)) }) }
	switch {
	case !v.There():
		fail(directory.ErrNotFound)
		return
	case v.Ending || v.Resizing:
		fail(fmt.Errorf("%w: it is being deleted or resized", directory.ErrInUse))
		return
	case v.Busy():
		fail(fmt.Errorf("%w: it has commands in progress", directory.ErrInUse))
		return
	}
	v.Ending = true
	unfold := m.Set.FoldOffloads(&v.Volume) // before the deletion can be durable: what is counted by pool never gets less
	keep := func(err, again error) {
		unfold()
		v.Ending = false
		done(fmt.Errorf("volume %q could not be deleted: %w", v.Spec.Name, directory.Doubtful(err, again)))
	}
	m.before(func(err error) {
		if err != nil {
			keep(err, nil)
			return
		}
		m.Objects.RemoveVolume(v.ID(), func(err error) {
			if err != nil {
				m.Objects.MustTakeBack(func(again error) { keep(err, again) })
				return
			}
			m.bury(v)
			done(nil)
		})
	})
}

// before calls fn when all that came before a deletion survives a loss of power: the last copy of
// what is deleted may be in a record that nobody has flushed. So does what is counted.
func (m *Manager) before(fn func(error)) {
	if !m.Set.Payload {
		fn(nil)
		return
	}
	m.Flusher.After(fn)
}

// bury takes away what there is of a volume whose deletion is durable.
func (m *Manager) bury(v *request.Volume) {
	v.Deleted, v.Ending = true, false
	v.Map.Abandon()
	m.Set.Leave(&v.Volume)
	v.Tell(block.EventGone)
	// Only now may its space be used for others.
	v.Map.Clear()
	v.Account()
	v.Forget()
	v.Left()
	m.Engine.EndStep()
}
