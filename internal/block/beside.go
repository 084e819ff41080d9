package block

import (
	"sync"
	"sync/atomic"
)

// beside is the work that is to be done beside the core: Aside leaves it with whoever holds the core,
// who publishes it when he leaves. Whoever comes first takes the next piece: those who leave, and the
// executor's helpers.
type beside struct {
	fresh  []piece // not published yet; guarded by Live.mu
	wake   chan struct{}
	waking uint64       // bytes of fresh; guarded by Live.mu
	left   atomic.Int32 // pieces of ready that nobody has taken

	mu    sync.Mutex
	ready []piece // guarded by mu; those from next on are to be taken
	next  int     // guarded by mu
}

type piece struct {
	work, done func()
}

// helpBytes is how much there has to be for each one who is woken to help: what takes longer than
// waking somebody.
const helpBytes = 128 << 10

// longBytes is from how many bytes on work is worth a second turn in the core.
const longBytes = 32 << 10

// Long reports whether so many bytes are worth a second turn in the core: where somebody else wants it.
func (l *Live) Long(bytes uint64) bool { return bytes >= longBytes && l.Crowded() }

// Aside has work, which moves so many bytes, called beside the core, and then done in it; see [Asider].
func (l *Live) Aside(bytes uint64, work, done func()) {
	b := &l.beside
	b.fresh = append(b.fresh, piece{work, done})
	b.waking += bytes
}

// publish lets work begin that was left since the core was entered, and wakes those who help, if it is
// much. It returns how many pieces that is. Preconditions: Live.mu is held.
func (b *beside) publish() int {
	pieces := len(b.fresh)
	if pieces == 0 {
		return 0
	}
	b.mu.Lock()
	b.ready = append(b.ready, b.fresh...)
	b.left.Store(int32(len(b.ready) - b.next))
	b.mu.Unlock()
	clear(b.fresh)
	for n := min(b.waking/helpBytes, uint64(pieces-1)); n > 0; n-- {
		select {
		case b.wake <- struct{}{}:
		default:
			n = 1
		}
	}
	b.fresh, b.waking = b.fresh[:0], 0
	return pieces
}

// take returns the next piece of work.
func (b *beside) take() (p piece, ok bool) {
	if b.left.Load() == 0 {
		return piece{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == len(b.ready) {
		return piece{}, false
	}
	p = b.ready[b.next]
	b.ready[b.next] = piece{}
	b.left.Add(-1)
	if b.next++; b.next == len(b.ready) {
		b.ready, b.next = b.ready[:0], 0
	}
	return p, true
}

// work does what is there, at most so many pieces. What follows it in the core is posted.
func (b *beside) work(l *Live, most int) {
	for range most {
		p, ok := b.take()
		if !ok {
			return
		}
		p.work()
		l.postMu.Lock()
		l.posted = append(l.posted, p.done)
		l.npost.Store(int32(len(l.posted)))
		l.postMu.Unlock()
	}
}

// help is the life of a helper.
func (l *Live) help() {
	for {
		select {
		case <-l.beside.wake:
		case <-l.quit:
			return
		}
		l.beside.work(l, loopPieces)
		if l.npost.Load() > 0 && l.mu.TryLock() {
			l.Unlock()
		}
	}
}
