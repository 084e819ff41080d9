package link

import (
	"sync"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// expect numbers units that are looked for.
func (l *lendLink) expect(first uint64, n int) ([]*lentUnit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.calls >= copyCalls:
		return nil, broke("more than %d questions", copyCalls)
	case first <= l.lastUnit || first+uint64(n) < first:
		return nil, broke("units from %d on behind unit %d", first, l.lastUnit)
	case len(l.units)+n > copyUnits:
		return nil, broke("more than %d units", copyUnits)
	}
	l.calls++
	l.lastUnit = first + uint64(n) - 1
	out := make([]*lentUnit, n)
	for i := range out {
		out[i] = &lentUnit{id: first + uint64(i)}
		l.units[out[i].id] = out[i]
	}
	return out, nil
}

// take notes that a target lends a unit. Preconditions: its executor is held.
func (l *lendLink) take(u *lentUnit, from *lender, lent *scsi.CopyLent) bool {
	l.mu.Lock()
	ok := l.units != nil && u.lent == nil
	if ok {
		u.from, u.lent = from, lent
	}
	l.mu.Unlock()
	if !ok { // the link has ended, or another target has it as well
		lent.Leave()
	}
	return ok
}

// ended tells the other end that a unit has ended its part. One that it does not know yet, it hears of first.
func (l *lendLink) ended(u *lentUnit, why scsi.CopyEnding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.ended = &why
	l.tellEnd(u)
}

// announce is told that the answer with a unit was sent. Preconditions: mu is held.
func (l *lendLink) announce(u *lentUnit) {
	u.known = true
	l.tellEnd(u)
}

// tellEnd sends that a unit has ended its part, if that is so and the other end knows the unit. Preconditions: mu is held.
func (l *lendLink) tellEnd(u *lentUnit) {
	if why := u.ended; why != nil && u.known {
		l.put(appendUnit(nil, kindEnded, u.id, uint64(why.Status), uint64(why.Sense)), nil)
	}
}

// forget takes units away that nobody has. Preconditions: mu is held.
func (l *lendLink) forget(units []*lentUnit) {
	for _, u := range units {
		if u.lent == nil {
			delete(l.units, u.id)
		}
	}
}

// find asks all targets for units, a few at a time, and answers when all have said what they have.
func (l *lendLink) find(body []byte) error {
	f, err := parseFinding(body)
	if err != nil {
		return err
	}
	units, err := l.expect(f.first, len(f.want))
	if err != nil {
		return err
	}
	found := make([]foundUnit, len(units))
	left := len(l.from) * len(units)
	var mu sync.Mutex // guards found and left
	for at := 0; at < len(units); at += findStep {
		end := min(at+findStep, len(units))
		for _, from := range l.from {
			if !l.post(from, costFind*(end-at), func() {
				for i, u := range units[at:end] {
					if l.dead.Load() {
						break
					}
					lent := from.copies.Lend(f.who, f.want[at+i], func(why scsi.CopyEnding) { l.ended(u, why) })
					if lent != nil && l.take(u, from, lent) {
						mu.Lock()
						found[at+i] = foundUnit{ok: true, shift: lent.Shift(), volume: lent.Volume()}
						mu.Unlock()
					}
				}
				mu.Lock()
				left -= end - at
				last := left == 0
				mu.Unlock()
				if last {
					l.found(f.call, units, found)
				}
			}) {
				return nil // the link ends
			}
		}
	}
	return nil
}

// found sends the answer to a question for units.
func (l *lendLink) found(call uint32, units []*lentUnit, found []foundUnit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.forget(units)
	l.put(appendFound(nil, call, found), nil)
	for _, u := range units {
		if u.lent != nil {
			l.announce(u)
		}
	}
}

// borrow asks all targets for a token, one after the other: one has it at most.
func (l *lendLink) borrow(body []byte) error {
	t, err := parseBorrowing(body)
	if err != nil {
		return err
	}
	units, err := l.expect(t.unit, 1)
	if err != nil {
		return err
	}
	l.borrowFrom(0, t, units[0], scsi.CopyTokenUnknown)
	return nil
}

func (l *lendLink) borrowFrom(i int, t borrowing, u *lentUnit, why uint32) {
	if i == len(l.from) {
		l.mu.Lock()
		l.forget([]*lentUnit{u})
		l.calls--
		l.put((&stepEnd{call: t.call, status: byte(block.Unsupported), sense: why}).append(nil), nil)
		l.mu.Unlock()
		return
	}
	from := l.from[i]
	next := func() {
		lent, code := from.copies.LendToken(t.who, t.sum, func(why scsi.CopyEnding) { l.ended(u, why) })
		if lent == nil {
			if code != scsi.CopyTokenUnknown {
				why = code
			}
			l.borrowFrom(i+1, t, u, why)
			return
		}
		if !l.take(u, from, lent) {
			return
		}
		l.answer(t.call, u, scsi.CopyAnswer{}, foundUnit{ok: true, shift: lent.Shift(), volume: lent.Volume()}, true)
		l.mu.Lock()
		l.announce(u)
		l.mu.Unlock()
	}
	if i == 0 {
		l.post(from, costFind, next)
	} else { // it has left its place, and an executor must not wait for one
		block.Send(from.exec, next)
	}
}
