// Turns of those who could go on, and let others have the executor first.

package ticket

// Turns is a queue of those whose turn is over, and what there is left of the present one. A turn is so
// many pieces of work, of all of them together: however many there are, they hold nobody up for longer.
type Turns struct {
	Queue
	Pieces int // of a turn

	at   int64 // when the present one began
	took int   // pieces of it
	due  bool  // Go will be called
}

// Take takes a piece of the turn, and reports whether there was one. Another time is another turn.
func (t *Turns) Take(now int64) bool {
	if now != t.at {
		t.at, t.took = now, 0
	}
	if t.took == t.Pieces {
		return false
	}
	t.took++
	return true
}

// Due reports whether somebody has to call Go when others had the executor: nobody is about to.
func (t *Turns) Due() bool {
	due := !t.Empty() && !t.due
	t.due = t.due || due
	return due
}

// Go begins another turn, and lets those go on that it has pieces for, as they came. Who comes back is
// the last.
func (t *Turns) Go(now int64) {
	t.at, t.took, t.due = now, 0, false
	for last, n := t.tail, 0; n < t.Pieces && t.took < t.Pieces && !t.Empty(); n++ {
		next := t.head
		if next.Wake(); next == last {
			return
		}
	}
}
