// Giving room back: what an mdisk is asked to discard, whether it may be asked now, and what is
// counted of that. What may be discarded its user knows.

package backend

import (
	"errors"
	"slices"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// RowDiscards is the kind of the row of what an mdisk has discarded: group pool, id mdisk; cells
// cellOperations, cellBytes, cellFailed.
const RowDiscards = 6

// cellFailed counts the discards that have failed.
const cellFailed = cellBytes + 1

// discards is what an mdisk knows of those.
type discards struct {
	medium block.Surveyor // nil: it gives no room back
	out    int            // under way
	moved  int64          // when one ended last, or the first began
	given  []*Op          // reads that were given up, and that the medium has still, in no order
	row    *nvlog.Row
}

// DiscardUnit returns what the mdisk gives back as a whole, in bytes; 0: it gives nothing back.
func (d *Mdisk) DiscardUnit() uint64 {
	if d.discards.medium == nil {
		return 0
	}
	return d.discards.medium.Unit()
}

// Discards reports whether a discard may begin: the mdisk is there, does what it is asked, and gives room back. One whose
// writes fail for want of room does: a discard is what it needs.
func (d *Mdisk) Discards() bool {
	return d.discards.medium != nil && !d.offline && !d.detached && d.redo == nil && !d.sync.late &&
		(d.failing.since == 0 || errors.Is(d.failing.err, block.ErrFull)) && !d.silent(d.b.exec.Now(), AbortPatience)
}

// Depth returns the number of operations under way or waiting.
func (d *Mdisk) Depth() int { return d.depth }

// Reading reports whether the medium has a read of any of n bytes from off on that was given up. Nobody knows of those but it.
func (d *Mdisk) Reading(off, n uint64) bool {
	return slices.ContainsFunc(d.discards.given, func(x *Op) bool { return x.IO.Off < off+n && off < x.IO.Off+x.IO.N })
}

// Discard has the medium give back n bytes from off on. done is called at the end, from inside if
// the medium does not wait, and not if the mdisk was detached meanwhile. It may never end; that alone does not make an mdisk
// silent, which may do all else. Preconditions: Discards; no operation is under way there, and none begins before the end.
func (d *Mdisk) Discard(off, n uint64, done func(error)) {
	if d.discards.out++; d.discards.out == 1 {
		d.discards.moved = d.b.exec.Now()
	}
	d.discards.medium.Discard(off, n, func(err error) {
		d.discards.out--
		d.b.answered++
		d.discards.moved = d.b.exec.Now()
		switch {
		case d.detached:
			return
		case err == nil:
			cells := d.discardCells()
			cells[cellOperations]++
			cells[cellBytes] += n
		case errors.Is(err, errors.ErrUnsupported):
			d.discards.medium = nil
		default:
			d.failures++
			d.discardCells()[cellFailed]++
		}
		done(err)
	})
	if d.discards.out > 0 {
		d.b.hooks.Watch() // who waits for the space is to hear of it
	}
}

// Survey finds the first bytes at or behind off that the medium has room for; both are the size
// where there are none. Preconditions: DiscardUnit is not 0.
func (d *Mdisk) Survey(off uint64, done func(start, end uint64, err error)) {
	d.discards.medium.Survey(off, done)
}

func (d *Mdisk) discardRow() nvlog.RowHead { return nvlog.HeadOf(RowDiscards, 0, d.pool, d.id) }

// discardCells returns what is counted, in place.
func (d *Mdisk) discardCells() *[nvlog.RowCells]uint64 {
	if d.discards.row == nil {
		d.discards.row = d.b.rows.Get(d.discardRow())
	}
	return &d.discards.row.Cells
}

// Discarded returns how many discards the mdisk has carried out, and their bytes.
func (d *Mdisk) Discarded() (operations, bytes uint64) {
	c := d.discardsCounted()
	return c[cellOperations], c[cellBytes]
}

// FailedDiscards returns how many discards of the mdisk have failed.
func (d *Mdisk) FailedDiscards() uint64 { return d.discardsCounted()[cellFailed] }

// discardsCounted returns what was counted. It makes no row.
func (d *Mdisk) discardsCounted() [nvlog.RowCells]uint64 {
	r := d.discards.row
	if r == nil {
		if r = d.b.rows.Find(d.discardRow()); r == nil {
			return [nvlog.RowCells]uint64{}
		}
	}
	return r.Cells
}

func (d *Mdisk) emitDiscards(e metrics.Emitter, pool string) {
	c := d.discardsCounted()
	if c[cellOperations]+c[cellFailed] == 0 {
		return
	}
	e.Value(metrics.BackendDiscards, float64(c[cellOperations]), pool, d.name)
	e.Value(metrics.BackendDiscarded, float64(c[cellBytes]), pool, d.name)
	e.Value(metrics.BackendDiscardFailures, float64(c[cellFailed]), pool, d.name)
}
