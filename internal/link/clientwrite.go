package link

import (
	"bufio"
	"io"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// write sends until the link ends.
func (l *clientLink) write() error {
	c := l.c
	bw := bufio.NewWriterSize(l.conn, 64<<10)
	var spare []item
	scratch := make([]byte, 0, 1024)
	l.tick = time.NewTicker(c.times.ping)
	defer l.tick.Stop()
	for {
		ping := false
		select {
		case <-c.wake:
		case <-l.tick.C:
			ping = true
		case <-l.quit:
			return nil
		}
		c.exec.Lock()
		batch := c.out
		c.out = spare[:0]
		c.exec.Unlock()
		if err := l.sendAhead(bw, scratch[:0]); err != nil {
			return err
		}
		for _, it := range batch {
			if err := l.send(bw, scratch[:0], it); err != nil {
				return err
			}
		}
		clear(batch)
		spare = batch
		l.patience()
		if ping {
			if _, err := bw.Write(appendPing(scratch[:0], c.stamp.Load())); err != nil {
				return err
			}
		}
		if err := bw.Flush(); err != nil {
			return err
		}
	}
}

// sendAhead sends what passes commands. What a command needs to be there is sent with it or before:
// it was queued before the command was.
func (l *clientLink) sendAhead(bw *bufio.Writer, b []byte) error {
	c := l.c
	if !c.pressed.Load() {
		return nil
	}
	c.exec.Lock()
	batch := c.ahead
	c.ahead = l.spare[:0]
	c.pressed.Store(false)
	c.exec.Unlock()
	for _, it := range batch {
		if err := l.send(bw, b, it); err != nil {
			return err
		}
	}
	clear(batch)
	l.spare = batch
	return nil
}

// patience bounds the next write.
func (l *clientLink) patience() { l.raw.SetWriteDeadline(time.Now().Add(writeTime)) }

func (l *clientLink) send(bw *bufio.Writer, b []byte, it item) error {
	l.patience()
	switch it.kind {
	case kindOpen:
		o := opening{nexus: it.n.id, target: it.n.target, port: it.n.port, initiator: it.n.initiator, name: it.n.name, again: it.again}
		b = o.append(b)
	case kindReady:
		b = appendEmpty(b, kindReady)
	case kindPaused:
		b = appendPaused(b, it.slot, it.why)
	case kindClose:
		b = appendNumber(b, kindClose, it.n.id)
	case kindManage:
		k := it.call
		m := management{nexus: it.n.id, call: k.id, fn: byte(k.fn), lun: k.lun, tag: k.tag, stamp: l.c.stamp.Load()}
		b = m.append(b)
	case kindCommand:
		return l.sendCommand(bw, b, it)
	}
	_, err := bw.Write(b)
	return err
}

// sendCommand sends a command: head, data, stamp. It was sent in full when the last byte of the stamp is in the writer's
// buffer, from where the next call may send it: the owner does not begin before it has that.
func (l *clientLink) sendCommand(bw *bufio.Writer, b []byte, it item) error {
	f := &l.c.flights[it.slot]
	// Before it is begun, so that it can be taken back meanwhile, and so that what ends others can
	// pass it. A stamp of 0 says nothing of what is on its way: such an end may be queued by now.
	err := l.spend(bw, func() int { return pieceLen }, func() error {
		if err := l.sendAhead(bw, b); err != nil {
			return err
		}
		_, err := bw.Write(appendPing(b, 0))
		return err
	})
	if err == nil {
		err = l.sendAhead(bw, b)
	}
	if err != nil {
		return err
	}
	if !f.turn.CompareAndSwap(it.turn, 0) {
		return nil // it was taken back
	}
	t := it.task
	h := commandHead{nexus: it.n.id, task: it.slot, lun: t.LUN, tag: t.Tag, attr: byte(t.Attr), out: uint32(block.VecLen(t.DataOut)), in: uint32(max(t.MaxIn, 0)), cdb: t.CDB}
	b = h.append(b)
	if _, err := bw.Write(b); err != nil {
		return err
	}
	l.sent += uint64(len(b) + stampLen)
	for _, v := range t.DataOut {
		send := func(n int) error {
			l.patience() // each piece has its time
			_, err := bw.Write(v[:n])
			l.sent += uint64(n)
			v = v[n:]
			return err
		}
		for len(v) > 0 {
			err := l.spend(bw, func() int { return min(len(v), pieceLen) }, func() error {
				if l.sent >= l.credit.Load()+creditBytes {
					return nil
				}
				return send(min(len(v), 1)) // there is no room for a message inside of one
			})
			if err == nil {
				err = send(min(len(v), pieceLen))
			}
			if err != nil {
				return err
			}
		}
	}
	stamp := l.c.stamp.Load()
	if f.gaveUp.Load() { // its host may have written the same blocks by another path since
		stamp = revoked
	}
	_, err = bw.Write(be.AppendUint64(b[:0], stamp))
	f.written.Store(true)
	return err
}

// spend waits until n more bytes of commands may be on their way, or n is 0. Meanwhile it calls sign
// as often as the owner is to hear that this node lives: what the owner has read it says behind the
// result that it sends, and that may take longer than it waits for a node that is silent. A sign may
// have sent a part of what n counts, or all of it: the next one is of what follows then.
func (l *clientLink) spend(bw *bufio.Writer, n func() int, sign func() error) error {
	for n() > 0 && l.sent+uint64(n())+signBytes > l.credit.Load()+creditBytes {
		l.patience()
		if err := bw.Flush(); err != nil {
			return err
		}
		select {
		case <-l.more:
		case <-l.tick.C:
			if err := sign(); err != nil {
				return err
			}
		case <-l.quit:
			return io.ErrClosedPipe
		}
	}
	return nil
}
