package store

import "github.com/arraysim/arraysim/internal/block"

// Discard punches a hole into the data, and one into its checksums, in a line of its own: what has no
// checksum was never written, and reads as zeros. The two holes are not made at once: between them,
// and where power is lost before a sync, data may have lost its checksum or the other way round.
func (m *fileMedium) Discard(off, n uint64, done func(error)) {
	m.hot.drop(off, n)
	m.s.call(&m.holes, m, func() error {
		if err := m.f.Punch(int64(off), int64(n)); err != nil {
			return err
		}
		return m.sums.Punch(sumAt(off), int64(n/block.SectorSize*sumBytes))
	}, func(err error) {
		m.hot.drop(off, n)
		if err == nil {
			m.discarded += n
		}
		done(err)
	})
}

// Discarded returns how many bytes were discarded.
func (m *fileMedium) Discarded() uint64 { return m.discarded }

var (
	_ block.Discarder = (*fileMedium)(nil)
	_ block.Discarder = (*memMedium)(nil)
	_ block.Discarder = (*timedMedium)(nil)
)
