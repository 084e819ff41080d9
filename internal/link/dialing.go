package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// dialing is what every end of a link has that makes its links: the connection that it uses, and its end for good. Its
// methods may be called from any goroutine, with whatever executor held.
type dialing struct {
	stop chan struct{} // closed when no more links are to be made
	over chan struct{} // closed by the user, when it makes none any more

	mu      sync.Mutex
	conn    net.Conn // guarded by mu: that halt closes
	at      string   // guarded by mu: where that leads
	stopped bool     // guarded by mu
}

func newDialing() dialing {
	return dialing{stop: make(chan struct{}), over: make(chan struct{})}
}

// halt ends the link for good, and returns when it has ended.
func (d *dialing) halt() {
	d.mu.Lock()
	if !d.stopped {
		d.stopped = true
		close(d.stop)
		if d.conn != nil {
			d.conn.Close()
		}
	}
	d.mu.Unlock()
	<-d.over
}

// keep notes the connection that halt closes; false: it has been called.
func (d *dialing) keep(conn net.Conn, addr string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn, d.at = conn, addr
	return !d.stopped
}

// leave ends a link to another address than this. It waits for nothing.
func (d *dialing) leave(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil && d.at != addr {
		d.conn.Close()
	}
}

// dial connects to an address, and has serve use the connection to its end. Until serve gives it another one, it has the
// deadline of a handshake.
func (d *dialing) dial(addr string, serve func(net.Conn) error) error {
	dialer := net.Dialer{Timeout: handshakeTime}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-d.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	if !d.keep(raw, addr) {
		return ErrClosed
	}
	defer d.keep(nil, "")
	raw.SetDeadline(time.Now().Add(handshakeTime))
	return serve(raw)
}

// halted reports whether halt was called.
func (d *dialing) halted() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// pause waits so long; false: halt was called.
func (d *dialing) pause(wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-d.stop:
		return false
	case <-t.C:
		return true
	}
}

// timely is a connection, of which each read has its time. raw is below TLS.
type timely struct {
	conn, raw net.Conn
	silent    time.Duration
}

func (r timely) Read(b []byte) (int, error) {
	r.raw.SetReadDeadline(time.Now().Add(r.silent))
	return r.conn.Read(b)
}

// welcomed tells what is wrong with the message that should be a welcome of a kind.
func welcomed(want, k kind, body []byte, err error) error {
	switch {
	case err != nil:
		return err
	case k == kindRefusal:
		b := cursor{b: body}
		return errors.New("refused: " + printable(b.bytes()))
	case k != want:
		return broke("a message of kind %d instead of a welcome", k)
	}
	return nil
}
