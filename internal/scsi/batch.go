package scsi

import "github.com/arraysim/arraysim/internal/block"

// enter and leave bracket everything that may submit requests: what is submitted
// for one device in a row goes to it in one batch.
func (t *Target) enter() { t.depth++ }

func (t *Target) leave() {
	if t.depth == 1 {
		t.flush()
	}
	t.depth--
}

func (t *Target) flush() {
	if len(t.batch) == 0 {
		return
	}
	b, u := t.batch, t.batchUnit
	t.batch, t.batchUnit = nil, nil
	u.dev.Submit(b)
	clear(b)
	if t.batch == nil {
		t.batch = b[:0]
	}
}

// enqueue adds a request to the batch for a unit's device.
func (t *Target) enqueue(u *Unit, r *block.Request) {
	if t.depth == 0 {
		t.enter()
		defer t.leave()
	}
	if t.batchUnit != u {
		t.flush()
		t.batchUnit = u
	}
	t.batch = append(t.batch, r)
}
