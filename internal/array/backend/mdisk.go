// An mdisk: what it is, what may be asked of it. Invariant: its state changes through its methods
// and by what its medium answers, and by nobody else.

package backend

import (
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// Config says what an mdisk is.
type Config struct {
	ID     uint32 // unique in the array, and in its counter rows
	Pool   uint16 // number of its pool
	Number int    // of the pool's mdisks
	Name   string
	Size   uint64 // bytes
	Limits
}

// syncState is what an mdisk has to do with syncs.
type syncState struct {
	due   bool  // it was written to since its last sync began
	since int64 // since when one is under way, 0: none is
	lost  bool  // the one under way failed
	late  bool  // nobody waits for the one under way any more
	fn    func(error)
}

// Limits are those of an mdisk; 0 is none.
type Limits struct {
	Bandwidth uint64 // bytes a second
	IOPS      uint64
}

// Mdisk is one back-end disk: a medium behind optional limits, and the counters of the lower layer.
type Mdisk struct {
	b      *Backend
	medium block.Medium
	limits Limits

	nextFree int64 // when the limits let the next operation start
	delayed  int   // operations that limits delay
	progress int64 // when the medium ended an operation last that had to wait, or got the first
	depth    int   // operations under way or waiting
	out      int   // those that the medium has
	reads    []*Op // that somebody waits for, in no order
	failures uint64
	offline  bool
	detached bool  // nothing is counted any more
	told     bool  // the user was told that it is silent
	away     int64 // since when it is offline
	failing  failing
	sync     syncState
	redo     *redo // after a sync that failed
	discards discards

	duration [2]metrics.Histogram // of reads, of writes
	rows     [2][block.NumOrigins][block.NumReasons]*nvlog.Row

	id     uint32
	pool   uint16
	number int
	name   string
	size   uint64
}

// NewMdisk returns an mdisk over its medium. It has to be attached.
func (b *Backend) NewMdisk(c Config, medium block.Medium) *Mdisk {
	d := &Mdisk{b: b, medium: medium, limits: c.Limits, id: c.ID, pool: c.Pool, number: c.Number, name: c.Name, size: c.Size}
	d.sync.fn = d.synced
	if m, ok := medium.(block.Surveyor); ok && m.Unit() > 0 {
		d.discards.medium = m
	}
	return d
}

// ID returns the number that no other mdisk of the array has.
func (d *Mdisk) ID() uint32 { return d.id }

// Pool returns the number of the mdisk's pool.
func (d *Mdisk) Pool() uint16 { return d.pool }

// Number returns the mdisk's number in its pool.
func (d *Mdisk) Number() int { return d.number }

// Name returns the mdisk's name.
func (d *Mdisk) Name() string { return d.name }

// Size returns the mdisk's size in bytes.
func (d *Mdisk) Size() uint64 { return d.size }

// Limits returns the limits in force.
func (d *Mdisk) Limits() Limits { return d.limits }

// SetLimits changes the limits, for operations that are started from now on.
func (d *Mdisk) SetLimits(l Limits) { d.limits = l }

// Failures returns how many reads, writes, syncs and discards have failed.
func (d *Mdisk) Failures() uint64 { return d.failures }

// Offline reports whether the mdisk is away: nothing is to be started then.
func (d *Mdisk) Offline() bool { return d.offline }

// SetOffline takes the mdisk away or gives it back. A redo waits meanwhile, and goes on at once.
func (d *Mdisk) SetOffline(offline bool) {
	d.offline, d.away = offline, d.b.exec.Now()
	switch {
	case !offline:
		d.wake()
	case d.redo != nil:
		d.redo.sleep()
	}
}

// Detached reports whether the mdisk's pool is gone.
func (d *Mdisk) Detached() bool { return d.detached }

// Redoing reports whether what was written to the mdisk since its last good sync is being written
// again. Nothing else is to be written meanwhile.
func (d *Mdisk) Redoing() bool { return d.redo != nil }
