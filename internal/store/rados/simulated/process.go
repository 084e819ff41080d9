package simulated

import (
	"runtime"

	"github.com/arraysim/arraysim/internal/block"
)

// Process is a process in a virtual time that it shares with others. It is the executor of what runs there, can be
// stopped, as by SIGSTOP, and go on, and has a thread that may wait while others go on. It is deterministic: of all
// threads of all processes one runs at a time, and what runs next is said by the virtual time.
type Process struct {
	v             *block.Virtual
	stopped, dead bool
	late          []func() // what was due while it was stopped
	thread        *thread
	inside        bool // the thread runs, and not who runs the virtual time
}

var _ block.Executor = (*Process)(nil)

// thread is a goroutine that runs only between a message on resume and one on parked.
type thread struct {
	resume chan bool // false: the process has died
	parked chan struct{}
	over   bool
}

// NewProcess returns a process that runs.
func NewProcess(v *block.Virtual) *Process { return &Process{v: v} }

// Now returns the virtual time.
func (p *Process) Now() int64 { return p.v.Now() }

// At has fn called in the process at a time.
func (p *Process) At(t int64, fn func()) block.Timer { return p.v.At(t, func() { p.Run(fn) }) }

// Post has fn called in the process behind what is under way.
func (p *Process) Post(fn func()) { p.v.Post(func() { p.Run(fn) }) }

// Lock does nothing: virtual time has one thread.
func (p *Process) Lock() {}

// Unlock does nothing.
func (p *Process) Unlock() {}

// Run calls fn in the process: now, when it goes on, or never.
func (p *Process) Run(fn func()) {
	switch {
	case p.dead:
	case p.stopped:
		p.late = append(p.late, fn)
	default:
		fn()
		p.poke()
	}
}

// Stop stops the process. What it has sent may get where it goes all the same.
func (p *Process) Stop() { p.stopped = true }

// Continue has it go on: what was due meanwhile comes first, in its order.
func (p *Process) Continue() {
	list := p.late
	p.stopped, p.late = false, nil
	for _, fn := range list {
		p.Post(fn)
	}
}

// Stopped reports whether the process is stopped.
func (p *Process) Stopped() bool { return p.stopped }

// Kill ends the process, with its thread.
func (p *Process) Kill() {
	p.dead, p.late = true, nil
	if p.thread != nil {
		p.turn(false)
	}
}

// Go runs fn as the process's thread. Preconditions: it has none.
func (p *Process) Go(fn func()) {
	t := &thread{resume: make(chan bool), parked: make(chan struct{})}
	p.thread = t
	go func() {
		defer func() {
			t.over = true
			t.parked <- struct{}{}
		}()
		if <-t.resume {
			fn()
		}
	}()
	p.turn(true)
}

// turn gives the thread its turn until it waits or ends.
func (p *Process) turn(live bool) {
	t := p.thread
	p.inside = true
	t.resume <- live
	<-t.parked
	if p.inside = false; t.over {
		p.thread = nil
	}
}

// poke has a thread that waits look again.
func (p *Process) poke() {
	if p.thread != nil && !p.inside && !p.dead {
		p.turn(true)
	}
}

// wait has the thread wait. Preconditions: it is the thread that asks.
func (p *Process) wait(until func() bool) {
	t := p.thread
	for !until() {
		t.parked <- struct{}{}
		if !<-t.resume {
			runtime.Goexit()
		}
	}
}
