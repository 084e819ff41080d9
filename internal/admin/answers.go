package admin

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// answerTime is how long a client may take to read an answer, from its first byte on, and to send a body.
	answerTime = 30 * time.Second
	// computing bounds the answers to questions about the history that are computed at one time, and
	// inLine those who wait for one of them to end, for lineTime at most.
	computing = 2
	inLine    = 32
	lineTime  = 10 * time.Second
	// maxUnread bounds the bytes of such answers that are computed and not read yet. When it is
	// exceeded the oldest of them is cut: its reader is the slowest.
	maxUnread = 64 << 20
)

// promptly has each answer read within a time, so that nobody who asks and does not read keeps what the
// daemon has for him. What a handler does before it answers is not bounded. A body has to arrive within that time, too,
// also one that no handler reads: the server looks for its end before it answers.
func promptly(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &prompt{ResponseWriter: w, control: http.NewResponseController(w), within: within}
		_ = p.control.SetWriteDeadline(time.Time{}) // a connection keeps that of the answer before; one without any is not asked for it
		if r.ContentLength != 0 {
			_ = p.control.SetReadDeadline(time.Now().Add(within)) // the server sets that of the next request
		}
		defer p.begin() // the server sends the rest behind the handler
		next.ServeHTTP(p, r)
	})
}

// prompt is a writer whose answer has an end. It alone sets the deadline of the answer, so that a cut stays one.
type prompt struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration

	mu  sync.Mutex
	set bool // the deadline is set: by the first byte, or by a cut that came before it
}

// begin starts the time for the answer, unless it runs already or the answer is cut.
func (p *prompt) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.set {
		p.set = true
		_ = p.control.SetWriteDeadline(time.Now().Add(p.within))
	}
}

// cut ends the answer at once, whether it has begun or not. It may be called from any goroutine while the handler runs.
func (p *prompt) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = true
	_ = p.control.SetWriteDeadline(time.Now())
}

// cutter returns what cuts the answer of a writer: the prompt that it wraps, which knows its deadline, or the
// connection where there is none.
func cutter(w http.ResponseWriter) func() {
	for x := w; ; {
		if p, ok := x.(*prompt); ok {
			return p.cut
		}
		u, ok := x.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now()) }
		}
		x = u.Unwrap()
	}
}

func (p *prompt) WriteHeader(code int) {
	p.begin()
	p.ResponseWriter.WriteHeader(code)
}

func (p *prompt) Write(b []byte) (int, error) {
	p.begin()
	return p.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the writer.
func (p *prompt) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// bounded stands before questions whose answers are costly to compute and large. A few are computed
// at one time, the others wait in a line that has an end, and what is computed and not read has a bound.
type bounded struct {
	next      http.Handler
	slots     chan struct{} // one for each that is computed
	line      chan struct{} // one for each that is computed or waits
	patience  time.Duration
	maxUnread int

	mu     sync.Mutex
	unread []*unread // oldest first
	bytes  int       // of them
}

// unread is an answer on its way.
type unread struct {
	body []byte
	stop func() // cuts it; nil when it has been cut
}

func newBounded(next http.Handler) *bounded {
	return &bounded{next: next, slots: make(chan struct{}, computing), line: make(chan struct{}, computing+inLine), patience: lineTime, maxUnread: maxUnread}
}

func (b *bounded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &buffered{header: http.Header{}, code: http.StatusOK}
	if !b.compute(a, r) {
		w.Header().Set("Retry-After", "1")
		writeProblem(w, http.StatusServiceUnavailable, "the daemon is computing as many answers of this kind as it may; try again in a second")
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	u := b.keep(a.body.Bytes(), w)
	defer b.drop(u)
	w.WriteHeader(a.code)
	_, _ = w.Write(u.body) // who is gone has no answer
}

// compute fills an answer when it is its turn; false means that its turn does not come.
func (b *bounded) compute(a *buffered, r *http.Request) bool {
	select {
	case b.line <- struct{}{}:
		defer func() { <-b.line }()
	default:
		return false
	}
	patience := time.NewTimer(b.patience)
	defer patience.Stop()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-patience.C:
		return false
	case <-r.Context().Done():
		return false
	}
	b.next.ServeHTTP(a, r)
	return true
}

// keep notes an answer that is on its way, and cuts the oldest ones where there is too much.
func (b *bounded) keep(body []byte, w http.ResponseWriter) *unread {
	u := &unread{body: body, stop: cutter(w)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread, b.bytes = append(b.unread, u), b.bytes+len(body)
	over := b.bytes - b.maxUnread
	for _, old := range b.unread[:len(b.unread)-1] {
		if over <= 0 {
			break
		}
		over -= len(old.body)
		if old.stop != nil { // its handler is before its first byte or in Write, and drops it
			old.stop()
			old.stop = nil
		}
	}
	return u
}

func (b *bounded) drop(u *unread) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.unread, u); i >= 0 {
		b.unread, b.bytes = slices.Delete(b.unread, i, i+1), b.bytes-len(u.body)
	}
}

// buffered is an answer in memory.
type buffered struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *buffered) Header() http.Header         { return a.header }
func (a *buffered) WriteHeader(code int)        { a.code = code }
func (a *buffered) Write(p []byte) (int, error) { return a.body.Write(p) }
