package iscsi

import "time"

// What a peer holds without going on with it is timed: data that it announced or was asked for, a
// PDU that it began, and answers that it does not read. The ticker looks at connections from
// outside; what belongs to the reader it has the reader look at.

// timeoutSense is ABORTED COMMAND, INITIATOR RESPONSE TIMEOUT in fixed format.
var timeoutSense = [18]byte{0: 0x70, 2: 0x0b, 7: 10, 12: 0x4b, 13: 0x06}

// unreadStep is how much of what is queued a peer must read in Limits.DataTimeout, unless it reads
// all.
const unreadStep = 64 << 10

// mark is what was seen of something that should go on, and since when it has not.
type mark struct {
	seen  uint64
	since time.Time
}

// still reports whether nothing has happened for limit.
func (m *mark) still(seen uint64, now time.Time, limit time.Duration) bool {
	if m.since.IsZero() || m.seen != seen {
		*m = mark{seen, now}
		return false
	}
	return now.Sub(m.since) >= limit
}

// checkStall is called by the ticker.
func (c *conn) checkStall(now time.Time) {
	limit := c.limits.DataTimeout
	if c.owes.Load() {
		c.look.Store(true)
		c.kick()
	}
	pending, rests := c.out.state()
	// All that was queued has left since, or enough of it.
	if u := &c.unread; u.since.IsZero() || !pending || u.rests != rests || c.count.tx.Load()-u.seen >= unreadStep {
		*u = unreadMark{mark{c.count.tx.Load(), now}, rests}
	} else if now.Sub(u.since) >= limit {
		c.abort(violation(ErrTimeout, 0, "answers are not read for %v", limit))
	}
}

// unreadMark belongs to the ticker.
type unreadMark struct {
	mark
	rests uint64
}

// watch ends commands whose data does not come, and the connection where a PDU is not completed.
func (c *conn) watch(now time.Time) error {
	limit := c.limits.DataTimeout
	if c.rx.inData && c.pduMark.still(c.pdus, now, limit) {
		return violation(ErrTimeout, 0, "the data segment of a PDU did not come in %v", limit)
	}
	for _, cmd := range c.open { // each is looked at on its own
		switch {
		case !cmd.unsolicited && len(cmd.r2ts) == 0:
			cmd.owed = mark{}
		case cmd != c.cur && cmd.owed.still(cmd.sequences, now, limit):
			if err := c.giveUp(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp ends a command whose data did not come in time.
func (c *conn) giveUp(cmd *command) error {
	if c.offences++; c.offences >= offenceLimit {
		return violation(ErrTimeout, 0, "the data of %d commands did not come in %v", c.offences, c.limits.DataTimeout)
	}
	c.portal.errors[ErrTimeout].Add(1)
	c.log.Warn("iscsi: the data of a command did not come", "kind", ErrTimeout.String(), "after", c.limits.DataTimeout)
	c.spoil(cmd, timeoutSense[:])
	return nil
}
