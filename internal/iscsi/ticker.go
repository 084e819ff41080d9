package iscsi

import "time"

// idleState is what the ticker knows of a connection.
type idleState struct {
	rx     uint64
	since  time.Time
	pinged bool
}

// ticker looks for connections that have gone quiet, or do not go on.
func (p *Portal) ticker() {
	step := 20 * time.Second
	for _, limit := range []time.Duration{p.limits.PingInterval, p.limits.PingTimeout, p.limits.DataTimeout, p.limits.DiscoveryTime} {
		if limit > 0 {
			step = min(step, limit)
		}
	}
	t := time.NewTicker(max(step/4, 5*time.Millisecond))
	defer t.Stop()
	var list []*conn
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
		}
		list = list[:0]
		now := time.Now()
		p.mu.Lock()
		for _, s := range p.sessions {
			if lasts := p.limits.DiscoveryTime; s.target == nil && lasts > 0 && now.Sub(s.since) >= lasts {
				s.conn.abort(violation(ErrTimeout, 0, "a discovery session of %v", lasts))
			}
			list = append(list, s.conn)
		}
		p.mu.Unlock()
		for _, c := range list {
			if p.limits.PingInterval > 0 {
				c.checkIdle(now)
			}
			if p.limits.DataTimeout > 0 {
				c.checkStall(now)
			}
		}
	}
}

func (c *conn) checkIdle(now time.Time) {
	i := &c.idle
	if rx := c.count.rx.Load(); rx != i.rx || i.since.IsZero() {
		*i = idleState{rx: rx, since: now}
		return
	}
	switch quiet := now.Sub(i.since); {
	case !i.pinged && quiet >= c.limits.PingInterval:
		i.pinged, i.since = true, now
		c.ping(pingTag)
	case i.pinged && quiet >= c.limits.PingTimeout:
		c.abort(violation(ErrTimeout, 0, "no answer to a NOP-In in %v", c.limits.PingTimeout))
	}
}
