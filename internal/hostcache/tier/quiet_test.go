package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// Who hears that nothing is dirty may let another host write: from then on no loss of power may bring back
// what was dirty, for a start would destage it over that.

// flushedLab is a lab whose flash loses with its power what was not synced, with a sector of data that was flushed and is dirty.
func flushedLab(t *testing.T, peers int) *lab {
	l := newLab(t, func(w *world) {
		withPeers(peers)(w)
		for _, c := range w.cards {
			c.volatile = true
		}
	})
	l.dirty(0, 8, 1)
	if s := l.flush(); s != block.OK {
		t.Fatalf("a flush ends %v", s)
	}
	return l
}

// otherHostWrites has another host write where the flushed data is, after a loss of power of this one, and opens a card then.
func (l *lab) otherHostWrites(card int) {
	l.t.Helper()
	l.crash()
	for _, c := range l.cards {
		c.undoAll()
	}
	l.bootID++
	l.elsewhere(2)
	l.opt.Destager = nil
	if err := l.try(card, nil); err != nil {
		l.t.Logf("card %d is refused: %v", card, err)
		return
	}
	l.wait(l.d.clean)
	l.wantBelow(0, 8, 2)
	l.want(0, 8, 2)
}

func TestWhatIsSaidToBeCleanStaysSo(t *testing.T) {
	for name, ask := range map[string]func(d *Disk, done func()){
		"quiesce":       func(d *Disk, done func()) { d.Quiesce(1e15, func(uint64) { done() }) },
		"write through": func(d *Disk, done func()) { d.SetPolicy(Policy{Mode: WriteThrough}, done) },
		"off":           func(d *Disk, done func()) { d.SetPolicy(Policy{}, done) },
		"stop":          func(d *Disk, done func()) { d.Close(false, func(error) { done() }) },
	} {
		for card := range 2 {
			t.Run(name, func(t *testing.T) {
				l := flushedLab(t, card)
				said := false
				ask(l.d, func() { said = true })
				l.destages()
				l.wait(func() bool { return said })
				l.wantBelow(0, 8, 1)
				l.otherHostWrites(card)
			})
		}
	}
}
