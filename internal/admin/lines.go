package admin

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// mostLines bounds the lines that wait for the log's reader.
	mostLines = 256
	// linesPatience is for how long the end of a daemon waits for them.
	linesPatience = time.Second
)

// lines are lines of the log that a goroutine of its own writes: who says one never waits for the log's reader, who may have
// stopped, as a pager or a journal does. The threads that deliver a cluster's answers must not wait: the lease of the
// array would not be renewed. Where more wait than mostLines the newest are dropped, and counted in the log behind those that
// were not. Safe for concurrent use.
type lines struct {
	log   *slog.Logger
	wake  chan struct{}
	over  chan struct{}
	ended chan struct{}
	close sync.Once // of over

	mu      sync.Mutex
	waiting []line // guarded by mu
	dropped int    // behind those that wait; guarded by mu
}

// line is one, with when it was said.
type line struct {
	at   time.Time
	text string
}

// newLines returns lines of a log; end ends them.
func newLines(log *slog.Logger) *lines {
	l := &lines{log: log, wake: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{})}
	go l.run()
	return l
}

// say has a line written, as a warning.
func (l *lines) say(text string) {
	l.mu.Lock()
	if len(l.waiting) < mostLines {
		l.waiting = append(l.waiting, line{time.Now(), text})
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	poke(l.wake)
}

// run writes what is said until end is called, and what was said before that.
func (l *lines) run() {
	defer close(l.ended)
	for over := false; !over; {
		select {
		case <-l.wake:
		case <-l.over:
			over = true
		}
		l.mu.Lock()
		list, dropped := l.waiting, l.dropped
		l.waiting, l.dropped = nil, 0
		l.mu.Unlock()
		for _, x := range list {
			l.write(x.at, x.text)
		}
		if dropped > 0 {
			l.write(time.Now(), "lines were dropped because nobody read the log in time", slog.Int("lines", dropped))
		}
	}
}

// write writes a line with the time at which it was said.
func (l *lines) write(at time.Time, text string, attrs ...slog.Attr) {
	ctx := context.Background()
	if h := l.log.Handler(); h.Enabled(ctx, slog.LevelWarn) {
		r := slog.NewRecord(at, slog.LevelWarn, text, 0)
		r.AddAttrs(attrs...)
		_ = h.Handle(ctx, r) // slog's own methods have nobody to tell either
	}
}

// end ends the lines when those that wait are written, or nobody reads the log for linesPatience. It may be called several
// times, and for nil.
func (l *lines) end() {
	if l == nil {
		return
	}
	l.close.Do(func() { close(l.over) })
	select {
	case <-l.ended:
	case <-time.After(linesPatience):
	}
}

// poke wakes up who waits for a channel of one element.
func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
