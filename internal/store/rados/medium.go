package rados

import (
	"errors"
	"fmt"
	"sync"

	"github.com/arraysim/arraysim/internal/block"
)

// An mdisk's extent is an object: 4 MiB of data, and behind them, for each sector of 512 bytes, u32, its
// CRC32C; 0: never written, and reads as zeros. A checksum of 0 is stored as 1. Data and checksums are
// written by one operation, and so they always agree. What an object lacks, or one that is not there, is
// zeros. An extent that is discarded as a whole is removed, of others a part is zeroed.
//
// The checksums are bytes and not entries of the ordered map: an entry for many sectors would have to be
// read before a part of it could be written, and a pool that is erasure coded has no maps.
const (
	extentBytes = 4 << 20
	sumBytes    = 4
)

// sumAt is where the checksum of the sector at a place in an extent lies.
func sumAt(off uint64) uint64 { return extentBytes + off/block.SectorSize*sumBytes }

// medium is one mdisk. Its methods are called on the executor.
type medium struct {
	s         *Store
	name      string
	mdisk     mdisk
	here      *objectMap
	discarded uint64

	vecs sync.RWMutex // guards the buffers of reads under way; who copies into them holds it shared
}

var (
	_ block.Surveyor  = (*medium)(nil)
	_ block.Abandoner = (*medium)(nil)
)

// object returns the name of an extent.
func (d mdisk) object(extent uint64) string { return fmt.Sprintf("m%x.%08x", d.ID, extent) }

// extents returns how many extents an mdisk has.
func (d mdisk) extents() uint64 { return (d.Size + extentBytes - 1) / extentBytes }

// Medium opens or creates an mdisk.
func (s *Store) Medium(name string, size uint64) (block.Medium, error) {
	s.enter()
	d, ok := s.head.Mdisks[name]
	var failed error
	over := ok
	if !ok {
		d = s.addMdisk(name, size, func(err error) { failed, over = err, true })
	}
	s.leave()
	waited := s.waitFor("the head", func() bool { return over })
	switch {
	case waited != nil:
		return nil, fmt.Errorf("mdisk %s cannot be created: %w", name, waited)
	case failed != nil:
		return nil, fmt.Errorf("mdisk %s cannot be created: %w", name, failed)
	case d.Size != size:
		return nil, fmt.Errorf("mdisk %s has %d bytes, not %d", name, d.Size, size)
	}
	here, err := s.openMap(name, d)
	if err != nil {
		return nil, fmt.Errorf("mdisk %s cannot be opened: %w", name, err)
	}
	return &medium{s: s, name: name, mdisk: d, here: here}, nil
}

// FindMedium looks for an mdisk in the head.
func (s *Store) FindMedium(name string) error {
	s.enter()
	defer s.leave()
	if _, ok := s.head.Mdisks[name]; !ok {
		return fmt.Errorf("mdisk %s is missing: the head of the array has none of this name; restore the array's objects from a copy", name)
	}
	return nil
}

// Vacant looks for a name in the head.
func (s *Store) Vacant(name string, done func(error)) {
	s.enter()
	defer s.leave()
	var err error
	if _, ok := s.head.Mdisks[name]; ok {
		err = fmt.Errorf("mdisk %s: the head of the array has one of this name, and no pool does; restore the array's objects from a copy", name)
	}
	s.post(done, err)
}

// MakeMedium gives a new mdisk a name. What an earlier one of that name has becomes trash.
func (s *Store) MakeMedium(name string, size uint64, done func(error)) {
	s.enter()
	defer s.leave()
	s.addMdisk(name, size, func(err error) { s.post(done, err) })
}

// addMdisk makes an mdisk's object map, and then adds it to the head. Preconditions: mu is held.
func (s *Store) addMdisk(name string, size uint64, done func(error)) mdisk {
	d := mdisk{ID: s.head.NextID, Size: size, Map: true}
	s.head.NextID++
	s.makeMap(d, func(err error) {
		if err != nil {
			done(err)
			return
		}
		s.nameMdisk(name, d, done)
	})
	return d
}

// nameMdisk adds an mdisk to the head. Preconditions: mu is held.
func (s *Store) nameMdisk(name string, d mdisk, done func(error)) {
	h := &s.head
	old, had := h.Mdisks[name]
	h.Mdisks[name] = d
	if had {
		h.Trash = append(h.Trash, old)
	}
	s.change(func() {
		delete(h.Mdisks, name)
		if had {
			s.untrash(old)
			h.Mdisks[name] = old
		}
	}, func(err error) {
		if done(err); err == nil && had {
			s.removeObjects(old, nil)
		}
	})
}

// RemoveMedium takes an mdisk's name, and then removes its objects.
func (s *Store) RemoveMedium(name string, done func(error)) {
	s.enter()
	defer s.leave()
	h := &s.head
	d, ok := h.Mdisks[name]
	if !ok {
		s.post(done, nil)
		return
	}
	delete(h.Mdisks, name)
	h.Trash = append(h.Trash, d)
	s.change(func() {
		s.untrash(d)
		h.Mdisks[name] = d
	}, func(err error) {
		if err != nil {
			s.post(done, err)
			return
		}
		s.removeObjects(d, func(err error) { s.post(done, err) })
	})
}

// untrash takes an mdisk out of the trash. Preconditions: mu is held.
func (s *Store) untrash(d mdisk) {
	var rest []mdisk
	for _, t := range s.head.Trash {
		if t.ID != d.ID {
			rest = append(rest, t)
		}
	}
	s.head.Trash = rest
}

// removeObjects removes the objects of an mdisk in the trash, and then takes it out of there. What
// fails is tried again at the next start. Preconditions: mu is held.
func (s *Store) removeObjects(d mdisk, done func(error)) {
	delete(s.maps, d.ID)
	s.mapsInOrder()
	s.sweep(&s.dataLane, int(d.extents())+1, func(i int) *Op {
		if uint64(i) == d.extents() {
			return &Op{Object: d.mapObject(), Steps: []Step{{Kind: Remove}}}
		}
		return &Op{Object: d.object(uint64(i)), Steps: []Step{{Kind: Remove}}}
	}, func(i int, op *Op) error {
		if s.closing {
			return ErrClosed
		}
		return absent(i, op)
	}, func(err error) {
		if err == nil {
			s.untrash(d)
			s.change(nil, nil)
		}
		if done != nil {
			done(err)
		}
	})
}

// emptyTrash removes what an earlier owner has left in the trash. Preconditions: mu is held.
func (s *Store) emptyTrash() {
	for _, d := range s.head.Trash {
		s.removeObjects(d, nil)
	}
}

// Size returns the size in bytes.
func (m *medium) Size() uint64 { return m.mdisk.Size }

// Sync has nothing to wait for: a write ends when it is durable in the cluster.
func (m *medium) Sync(done func(error)) {
	m.s.mu.Lock()
	lost := m.s.lost
	m.s.mu.Unlock()
	done(lost)
}

// piece is what of an extent is discarded.
type piece struct {
	extent, from, to uint64
	whole            bool
}

// Discard removes extents, behind their bits in the object map, and zeroes parts of others.
func (m *medium) Discard(off, n uint64, done func(error)) {
	var list []piece
	for at := off; at < off+n; {
		p := piece{extent: at / extentBytes, from: at % extentBytes}
		begin := p.extent * extentBytes
		p.to = min(off+n-begin, extentBytes)
		p.whole = p.from == 0 && begin+p.to >= min(begin+extentBytes, m.mdisk.Size)
		list, at = append(list, p), begin+p.to
	}
	m.s.enter()
	defer m.s.leave()
	left, failed := 1, error(nil)
	noted := func(err error) {
		left--
		if failed = errors.Join(failed, err); left > 0 {
			return
		}
		if failed != nil {
			m.s.post(done, failed)
			return
		}
		m.discard(list, n, done)
	}
	for _, p := range list {
		if p.whole && has(m.here.maybe, p.extent) {
			left++
			m.here.note(p.extent, false, noted)
		}
	}
	noted(nil)
}

// discard removes and zeroes what the object map does not have any more. Preconditions: mu is held.
func (m *medium) discard(list []piece, n uint64, done func(error)) {
	m.s.sweep(&m.s.dataLane, len(list), func(i int) *Op {
		p := list[i]
		op := &Op{Object: m.mdisk.object(p.extent)}
		if p.whole {
			op.Steps = []Step{{Kind: Remove}}
			return op
		}
		size := p.to - p.from
		op.Steps = []Step{{Kind: Zero, Off: p.from, N: size}, {Kind: Zero, Off: sumAt(p.from), N: size / block.SectorSize * sumBytes}}
		return op
	}, absent, func(err error) {
		m.s.post(func(err error) {
			if err == nil {
				m.discarded += n
			}
			done(err)
		}, err)
	})
}

// Discarded returns how many bytes were discarded.
func (m *medium) Discarded() uint64 { return m.discarded }

// Unit returns the size of an extent: its object is removed.
func (m *medium) Unit() uint64 { return extentBytes }

// Survey looks at the object map.
func (m *medium) Survey(off uint64, done func(start, end uint64, err error)) {
	size := m.mdisk.Size
	first, n := off/extentBytes, m.mdisk.extents()
	m.s.mu.Lock()
	for first < n && !has(m.here.bits, first) {
		first++
	}
	next := first
	for next < n && has(m.here.bits, next) {
		next++
	}
	m.s.mu.Unlock()
	done(min(max(off, first*extentBytes), size), min(next*extentBytes, size), nil)
}

// Abandon gives the buffers of a read back: bytes come into buffers of the store's own.
func (m *medium) Abandon(io *block.IO) {
	m.vecs.Lock()
	io.Vec = nil
	m.vecs.Unlock()
}
