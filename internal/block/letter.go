package block

import "sync/atomic"

// Send has fn called with x held, by whoever holds x next, behind what was sent and posted before. The caller may hold
// another executor: unlike Post, Send never enters x itself, so no goroutine ever has two. What is
// sent to a [Live] that was stopped is never called.
func Send(x Executor, fn func()) {
	if l, ok := x.(*Live); ok {
		l.send(fn)
		return
	}
	x.Post(fn)
}

// send queues fn for whoever leaves the core next, or the executor's goroutine.
func (l *Live) send(fn func()) {
	l.queue(fn)
	l.kick()
}

// The states of a Letter.
const (
	letterNone = iota
	letterSent
	letterOpened
	letterWithdrawn
)

// Letter is a function on its way to another executor, which its sender may withdraw as long as it has
// not begun there: nobody has to wait for an executor that is held. It may be sent again when it
// was opened.
type Letter struct {
	state atomic.Uint32
	fn    func()
	late  func()
	open  func()
}

// Send is [Send] of a letter. late, if it is there, is called in the place of fn when the letter was
// withdrawn. One that is on its way, or was withdrawn, must not be sent.
func (l *Letter) Send(x Executor, fn, late func()) {
	if l.open == nil {
		l.open = func() {
			fn, late := l.fn, l.late // as soon as it is opened it may be sent again
			if l.state.CompareAndSwap(letterSent, letterOpened) {
				fn()
			} else if late != nil {
				late()
			}
		}
	}
	l.fn, l.late = fn, late
	l.state.Store(letterSent)
	Send(x, l.open)
}

// Withdraw reports whether fn is never called.
func (l *Letter) Withdraw() bool { return l.state.CompareAndSwap(letterSent, letterWithdrawn) }

// Opened reports whether the function of the last Send has begun.
func (l *Letter) Opened() bool { return l.state.Load() == letterOpened }

// Lendable is a Ref whose data devices of other executors may read, too.
type Lendable interface {
	Ref
	// Lend makes a Ref for devices of whatever executors, which may be handed to others. Its Release
	// may be called with any executor held, and has back called with that of the original, which
	// stays the caller's. Preconditions: the executor of the original is held.
	Lend(back func()) Ref
}
