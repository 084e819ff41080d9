package store

import "sync"

// Threads that wait for the disk of one mdisk. The kernel takes writes of one file one after the
// other, most often into the page cache: more threads would only wait for each other.
const (
	readThreads  = 32
	writeThreads = 1
	// lookupThreads read entries of a copy of the meta store.
	lookupThreads = 8
	// moreThreads are those of all mdisks together behind the first of each line: an mdisk that
	// never answers takes a part of these, and no other mdisk's first one.
	moreThreads = 256
	// mostThreads are all together: an array may have thousands of mdisks, and Go ends the process at
	// 10,000 threads, or at the first one that the system refuses. Lines that find none take turns.
	mostThreads = 2048
)

// line is a queue of one kind of work. What is in it begins in order.
type line struct {
	limit   int   // how much of it is done at a time
	first   bool  // it never waits for a goroutine
	jobs    []job // guarded by pool.mu
	running int   // guarded by pool.mu
	waits   bool  // it is in pool.waiting; guarded by pool.mu
	at      int   // its place in pool.active; guarded by pool.mu
	name    string
}

// job is a transfer, or a call.
type job struct {
	x  *xfer
	fn func()
}

// pool does what waits for a disk in goroutines, which end when their line is empty and none waits.
type pool struct {
	mu      sync.Mutex
	more    int     // goroutines behind the first of each line; guarded by mu
	threads int     // all goroutines; guarded by mu
	waiting []*line // that have jobs and no goroutine: threads is not below mostThreads then; guarded by mu
	active  []*line // that have goroutines; guarded by mu
	closed  bool    // it takes no jobs any more; guarded by mu
	wg      sync.WaitGroup
}

// put queues a job; false says that the pool is closed, and the job will not be done.
func (p *pool) put(l *line, j job) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	l.jobs = append(l.jobs, j)
	begins := l.running < l.limit && (l.running == 0 || p.more < moreThreads) && (p.threads < mostThreads || l.first)
	if begins {
		p.enter(l)
		p.threads++
		p.wg.Add(1)
	} else if l.running == 0 {
		p.wait(l)
	}
	p.mu.Unlock()
	if begins {
		go p.work(l)
	}
	return true
}

// enter books a goroutine for a line. Preconditions: mu is held.
func (p *pool) enter(l *line) {
	if l.running++; l.running > 1 {
		p.more++
		return
	}
	l.at = len(p.active)
	p.active = append(p.active, l)
}

// wait has a line wait for a goroutine. Preconditions: mu is held.
func (p *pool) wait(l *line) {
	if !l.waits {
		l.waits = true
		p.waiting = append(p.waiting, l)
	}
}

// leave takes a goroutine from a line, and returns the one that has waited longest, nil if none has.
// Preconditions: mu is held.
func (p *pool) leave(l *line) *line {
	if l.running--; l.running > 0 {
		p.more--
	} else {
		last := len(p.active) - 1
		p.active[l.at], p.active[last].at = p.active[last], l.at
		p.active[last], p.active = nil, p.active[:last]
		if len(l.jobs) > 0 {
			p.wait(l)
		} else {
			l.jobs = nil
		}
	}
	if len(p.waiting) == 0 {
		p.waiting = nil
		return nil
	}
	if p.threads > mostThreads {
		return nil
	}
	l = p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	l.waits = false
	p.enter(l)
	return l
}

func (p *pool) work(l *line) {
	defer p.wg.Done()
	for done := 0; ; done++ {
		p.mu.Lock()
		if len(l.jobs) == 0 || done > 0 && len(p.waiting) > 0 && !l.first {
			if l = p.leave(l); l == nil {
				p.threads--
				p.mu.Unlock()
				return
			}
		}
		j := l.jobs[0]
		l.jobs[0] = job{}
		l.jobs = l.jobs[1:]
		p.mu.Unlock()
		if j.x != nil {
			j.x.do()
		} else {
			j.fn()
		}
	}
}

// close refuses what comes from now on, and waits for all that was queued.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
}

// busy returns the names of lines that have something under way.
func (p *pool) busy() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.active {
		names = append(names, l.name)
	}
	return names
}
