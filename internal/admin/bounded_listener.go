package admin

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxPageConnections bounds the connections to the page, the interface and the metrics.
const maxPageConnections = 256

// boundedListener is a listener that keeps a bounded number of connections open. Where there are too many, one of the address
// that has the most of them is closed: who opens many keeps nobody else out. It is the oldest one without a request under way,
// or else the oldest: a proxy, behind which all have one address, has idle ones, and asks again by another one.
type boundedListener struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open []*boundedConn // guarded by mu; the oldest first
}

// boundedConn is a connection of a boundedListener.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	host     string
	active   bool // a request is under way; guarded by listener.mu
}

func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	c := &boundedConn{Conn: conn, listener: l, host: host}
	if victim := l.add(c); victim != nil {
		victim.Conn.Close()
	}
	return c, nil
}

// add notes a connection, and returns the one that has to go.
func (l *boundedListener) add(c *boundedConn) (victim *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= l.limit {
		return nil
	}
	byHost, most := map[string]int{}, 0
	for _, x := range l.open {
		byHost[x.host]++
		most = max(most, byHost[x.host])
	}
	i := slices.IndexFunc(l.open, func(x *boundedConn) bool { return byHost[x.host] == most && !x.active && x != c })
	if i < 0 {
		i = slices.IndexFunc(l.open, func(x *boundedConn) bool { return byHost[x.host] == most })
	}
	victim = l.open[i]
	l.open = slices.Delete(l.open, i, i+1)
	return victim
}

// note is the server's ConnState.
func (l *boundedListener) note(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*boundedConn); ok {
		l.mu.Lock()
		c.active = state == http.StateActive
		l.mu.Unlock()
	}
}

// CloseWrite lets the server end an answer before it closes the connection: what a client has sent and nobody has read would
// have the kernel reset the connection, and the answer might be lost.
func (c *boundedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(x *boundedConn) bool { return x == c })
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
