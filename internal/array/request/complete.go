// What has ended is answered (package answer), and what it has seen may not survive.

package request

import "github.com/arraysim/arraysim/internal/block"

// changed notes that a volume was changed by the log's newest record.
func (e *Engine) changed(v *Volume, r block.Range) {
	if !e.answers.Local {
		v.unsure.Note(r, e.link.Newest(), e.answers.Sure())
	}
}

// finishRead queues the completion of a request that has seen a range of a volume.
func (e *Engine) finishRead(v *Volume, r *block.Request, seen block.Range, s block.Status) {
	if !e.answers.Local && v.unsure.Has(seen, e.answers.Sure()) {
		e.answers.Saw(r)
	}
	e.finish(r, s)
}

// finish queues a request's completion.
func (e *Engine) finish(r *block.Request, s block.Status) { e.answers.Finish(r, s) }
