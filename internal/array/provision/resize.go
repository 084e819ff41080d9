// A volume takes another size in an order that leaves nothing in between, and loses nothing on an
// error:
//
//   - The larger one: the log says that there is nothing behind the old end, and is flushed; the
//     objects say the size; hosts may use it. What a thick volume needs is reserved from the
//     beginning.
//   - The smaller one: hosts may not use the rest any more; what came before is flushed, see before;
//     the objects say the size; the map is cut. No record tells of the cut: at a start the map of a
//     volume ends where the objects say, see pool.Volume.ClipTail, and before a volume can grow over
//     what was cut, the log has it.
//
// Commands that were under way behind the smaller end end with OutOfRange at their next piece.

package provision

import (
	"errors"
	"fmt"

	"github.com/arraysim/arraysim/internal/array/backend"
	"github.com/arraysim/arraysim/internal/array/demand"
	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/extent"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/request"
	"github.com/arraysim/arraysim/internal/block"
)

// Resize changes a volume's size; what is cut off is gone. On an error the volume has the size and
// the contents that it had. Changes of one volume's size are made one after another.
func (m *Manager) Resize(v *request.Volume, sectors uint64, done func(error)) {
	if v.Resizing {
		v.Resizes = append(v.Resizes, pool.Resize{Sectors: sectors, Done: done})
		return
	}
	v.Resizing = true
	var end demand.Pins // the leaf in which the volume ends, or will
	m.resize(v, sectors, m.Set.Exec.Now()+backend.Patience, &end, func(err error) {
		v.Resizing = false
		v.Map.SetEnd(v.Spec.Sectors)
		end.Release()
		done(err)
		if len(v.Resizes) > 0 && !v.Resizing {
			next := v.Resizes[0]
			v.Resizes = v.Resizes[1:]
			m.Resize(v, next.Sectors, next.Done)
		}
	})
}

// resize is Resize of a volume that no other one is under way for; until a time it waits for
// room in the log, for space that is about to come back, and for the leaf that is cut.
func (m *Manager) resize(v *request.Volume, sectors uint64, until int64, end *demand.Pins, done func(error)) {
	fail := func(err error) { m.Set.Exec.Post(func() { done(err) }) }
	if !v.There() || v.Ending || m.Engine.Stopped() {
		fail(fmt.Errorf("volume %q %w", v.Spec.Name, directory.ErrNotFound))
		return
	}
	if err := m.refused(); err != nil {
		fail(fmt.Errorf("volume %q: %w", v.Spec.Name, err))
		return
	}
	spec := v.Spec
	spec.Sectors = sectors
	had := int64(0)
	if !spec.Thin {
		had = v.Windows()
	}
	if err := m.checkSize(v.Pool(), &spec, had); errors.Is(err, errSoon) && m.Set.Exec.Now() < until {
		m.soon(v.Pool(), func() { m.resize(v, sectors, until, end, done) })
		return
	} else if err != nil {
		fail(err)
		return
	}
	if m.cutLater(v, min(sectors, v.Spec.Sectors), end, func(err error) {
		if err != nil {
			done(fmt.Errorf("volume %q keeps its size: a page of its map cannot be read: %w", spec.Name, err))
			return
		}
		m.resize(v, sectors, until, end, done)
	}) {
		return
	}
	if sectors <= v.Spec.Sectors {
		m.shrink(v, spec, done)
		return
	}
	room, ok := m.Log.Claim(1)
	switch {
	case ok:
		m.grow(v, spec, &room, done)
	case m.Set.Exec.Now() >= until:
		done(fmt.Errorf("volume %q: the log of the write cache has no room for its new size; resize it again when checkpoints can be written", v.Spec.Name))
	default:
		m.Set.Exec.At(m.Set.Exec.Now()+10_000_000, func() {
			m.resize(v, sectors, until, end, done)
			m.Engine.EndStep()
		})
	}
}

// cutLater has fn called when the leaf is there, and kept, that a cut of a volume's map goes through, and reports whether it
// is absent.
func (m *Manager) cutLater(v *request.Volume, at uint64, end *demand.Pins, fn func(error)) bool {
	cut := block.Range{Start: at, Count: v.Map.Span() - at}
	if end.Empty() {
		v.Map.Keep(end, cut, extent.SetState)
	}
	return v.Map.Fetch(cut, extent.SetState, fn)
}

// grow makes a volume larger, or leaves it what it was.
func (m *Manager) grow(v *request.Volume, spec directory.VolumeSpec, room *nvlog.Claim, done func(error)) {
	// What the map was widened by behind the old end, and what an earlier shrink has cut off.
	old, end := v.Spec.Sectors, v.Map.Span()
	if old < end {
		cut := []nvlog.Edit{{Volume: v.ID(), State: block.Unmapped, Range: block.Range{Start: old, Count: end - old}}}
		if _, ok := room.Append(cut, 0); !ok {
			m.Engine.BreakDown("internal error: a change of a volume's size has lost its room in the log")
			m.Set.Exec.Post(func() { done(errors.New(m.Engine.Broken())) })
			return
		}
		v.Map.SetState(old, end, block.Unmapped)
	}
	v.Map.Grow(spec.Sectors)
	v.Spec = spec // hosts may not use it yet: see limit
	v.Account()
	fail := func(err, again error) {
		v.Spec.Sectors = old
		v.Account()
		m.Engine.EndStep()
		done(notResized(v, spec, err, again))
	}
	// The objects may not say the new size before the log has what the edit cut off.
	m.Flusher.After(func(err error) {
		if err != nil {
			fail(err, nil)
			return
		}
		m.Objects.SetVolume(spec, func(err error) {
			if err != nil { // what is reserved for it may not be others' while a start could find it
				m.Objects.MustTakeBack(func(again error) { fail(err, again) })
				return
			}
			v.Size, v.Limit = spec.Sectors, spec.Sectors
			v.Tell(block.EventCapacity)
			m.Engine.EndStep()
			done(nil)
		})
	})
}

// shrink makes a volume smaller, or leaves it what it was.
func (m *Manager) shrink(v *request.Volume, spec directory.VolumeSpec, done func(error)) {
	v.Limit = spec.Sectors
	keep := func(err, again error) {
		v.Limit = v.Spec.Sectors
		done(notResized(v, spec, err, again))
	}
	m.before(func(err error) {
		if err != nil {
			keep(err, nil)
			return
		}
		m.Objects.SetVolume(spec, func(err error) {
			if err != nil {
				m.Objects.MustTakeBack(func(again error) { keep(err, again) })
				return
			}
			if was := v.Spec.Sectors; v.Changes != nil && was > spec.Sectors {
				v.Changes.Cut(block.Range{Start: spec.Sectors, Count: was - spec.Sectors})
			}
			v.Spec, v.Size = spec, spec.Sectors
			if end := v.Map.Span(); spec.Sectors < end {
				v.Map.SetState(spec.Sectors, end, block.Unmapped)
			}
			v.Account()
			v.Tell(block.EventCapacity)
			m.Engine.GaveAll() // what was behind the end may wait
			m.Engine.EndStep()
			done(nil)
		})
	})
}

// notResized is the error of a change of size that could not be made durable; again says why it
// could not be taken back, if it could not.
func notResized(v *request.Volume, spec directory.VolumeSpec, err, again error) error {
	if again == nil {
		return fmt.Errorf("volume %q keeps its size: %w", spec.Name, err)
	}
	return fmt.Errorf("volume %q has %d sectors until the array stops, and %d or %d from the next start on: %w",
		spec.Name, v.Spec.Sectors, v.Spec.Sectors, spec.Sectors, directory.Doubtful(err, again))
}
