package admin

import (
	"net"
	"slices"
	"sync"
)

// maxPeople bounds the connections to the page, the interface and the metrics.
const maxPeople = 256

// crowd is a listener that keeps a bounded number of connections open. Where there are too many, the oldest one of the address
// that has the most of them is closed: who opens many keeps nobody else out.
type crowd struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*guest // guarded by mu; the oldest first
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	of   *crowd
	host string
}

func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	g := &guest{conn, c, host}
	if old := c.meet(g); old != nil {
		old.Conn.Close()
	}
	return g, nil
}

// meet notes a connection, and returns the one that has to go.
func (c *crowd) meet(g *guest) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, g)
	if len(c.open) <= c.most {
		return nil
	}
	of, most := map[string]int{}, 0
	for _, x := range c.open {
		of[x.host]++
		most = max(most, of[x.host])
	}
	i := slices.IndexFunc(c.open, func(x *guest) bool { return of[x.host] == most })
	old := c.open[i]
	c.open = slices.Delete(c.open, i, i+1)
	return old
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.of.mu.Lock()
	g.of.open = slices.DeleteFunc(g.of.open, func(x *guest) bool { return x == g })
	g.of.mu.Unlock()
	return g.Conn.Close()
}
