package store

import "github.com/arraysim/arraysim/internal/block"

// Discard punches a hole into the data, and one into its checksums, in a line of its own: what has no
// checksum was never written, and reads as zeros. The two holes are not made at once: between them,
// and where power is lost before a sync, data may have lost its checksum or the other way round.
func (m *fileMedium) Discard(off, n uint64, done func(error)) {
	m.hot.drop(off, n)
	m.loosen(off, n)
	m.s.call(&m.holes, m, func() error {
		if err := m.f.Punch(int64(off), int64(n)); err != nil {
			return err
		}
		return m.sums.Punch(sumAt(off), int64(n/block.SectorSize*sumBytes))
	}, func(err error) {
		m.hot.drop(off, n)
		m.loosen(off, n)
		if err == nil {
			m.discarded += n
		}
		done(err)
	})
}

// Discarded returns how many bytes were discarded.
func (m *fileMedium) Discarded() uint64 { return m.discarded }

// fileUnit is what is worth a hole: file systems have blocks of 64 KiB at the most, as a rule.
const fileUnit = 64 << 10

// Unit returns the size of a hole.
func (m *fileMedium) Unit() uint64 { return fileUnit }

// Survey asks the file system where the file has data.
func (m *fileMedium) Survey(off uint64, done func(start, end uint64, err error)) {
	var start, end int64
	m.s.call(&m.holes, m, func() (err error) {
		start, end, err = m.f.NextData(int64(off))
		return err
	}, func(err error) {
		if err == nil && start == end {
			start, end = int64(m.size), int64(m.size)
		}
		done(uint64(start), uint64(end), err)
	})
}

var (
	_ block.Surveyor = (*fileMedium)(nil)
	_ block.Surveyor = (*memMedium)(nil)
	_ block.Surveyor = (*timedMedium)(nil)
)
