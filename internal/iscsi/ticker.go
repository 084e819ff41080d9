package iscsi

import "time"

// heldPing takes the place of Limits.PingInterval and PingTimeout, where these are longer, for connections whose commands or task
// management functions wait because the portal is held: they are to be carried out later than at once, and not when their host may
// have given them up and written the same blocks by another path. A host that is gone ends no connection.
const heldPing = 4 * time.Second

// idleState is what the ticker knows of a connection.
type idleState struct {
	rx     uint64
	tx     uint64 // when it was looked at last
	acked  uint64 // of tx, what the host's kernel had acknowledged by then; 0: it is unknown
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
	held := p.cfg.heldPing
	if held == 0 {
		held = heldPing
	}
	step = min(step, held)
	period := max(step/4, 5*time.Millisecond)
	t := time.NewTicker(period)
	defer t.Stop()
	var list []*conn
	last := time.Now()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
		}
		list = list[:0]
		now := time.Now()
		slept := max(now.Sub(last)-2*period, 0)
		last = now
		p.mu.Lock()
		for _, s := range p.sessions {
			if lasts := p.limits.DiscoveryTime; s.target == nil && lasts > 0 && now.Sub(s.since) >= lasts {
				s.conn.abort(violation(ErrTimeout, 0, "a discovery session of %v", lasts))
			}
			list = append(list, s.conn)
		}
		p.mu.Unlock()
		for _, c := range list {
			if interval, timeout := p.limits.PingInterval, p.limits.PingTimeout; interval > 0 {
				if p.OnHold() && c.inflight.Load()+c.deferred.Load() > 0 {
					interval, timeout = min(interval, held), min(timeout, held)
				}
				c.checkIdle(now, slept, interval, timeout)
			}
			if p.limits.DataTimeout > 0 {
				c.checkStall(now)
			}
		}
	}
}

// checkIdle pings a host after an interval without a word from it, and ends its session if there is no answer in timeout. How long
// this process has slept, because it was stopped or had no processor, is nobody's silence: an answer may wait in the socket.
//
// What a host still reads of answers before the ping is a word from it, too: it has not seen the ping yet. The kernel holds megabytes
// of them, which we have sent as far as we know, so it is the kernel that says whether the host goes on to read. A host that has
// stopped acknowledges what its own kernel has room for, and then nothing more.
func (c *conn) checkIdle(now time.Time, slept, interval, timeout time.Duration) {
	i := &c.idle
	tx := c.count.tx.Load() // before acked, which may be less than it was then, and not more
	acked := max(c.acked(tx), i.acked)
	took, reads := tx != i.tx, acked > i.acked
	i.tx, i.acked = tx, acked
	if rx := c.count.rx.Load(); rx != i.rx || i.since.IsZero() {
		*i = idleState{rx: rx, tx: tx, acked: acked, since: now}
		return
	}
	i.since = i.since.Add(slept)
	if pending, _ := c.out.state(); i.pinged && (took && pending || reads) {
		i.since = now
	}
	switch quiet := now.Sub(i.since); {
	case !i.pinged && quiet >= interval:
		i.pinged, i.since = true, now
		c.ping(pingTag)
	case i.pinged && quiet >= timeout:
		c.abort(violation(ErrTimeout, 0, "no answer to a NOP-In in %v", timeout))
	}
}

// acked returns how many of tx bytes that were sent the host's kernel has acknowledged, or 0 if nobody knows.
func (c *conn) acked(tx uint64) uint64 {
	s := c.sock.Load()
	if s == nil {
		return 0
	}
	n, ok := s.unacked()
	if !ok || n > tx { // more was sent meanwhile
		return 0
	}
	return tx - n
}
