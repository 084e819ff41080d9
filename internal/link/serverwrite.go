package link

import (
	"bufio"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// enqueue has something sent. Anybody may call it, also with an executor held.
func (l *serverLink) enqueue(it sending) {
	l.mu.Lock()
	if l.dead {
		l.drop(it)
		l.mu.Unlock()
		return
	}
	l.queue = append(l.queue, it)
	l.mu.Unlock()
	l.signal()
}

// signal wakes the writer.
func (l *serverLink) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// drop gives back what something holds that is not sent. Preconditions: mu is held.
func (l *serverLink) drop(it sending) {
	l.settled(it)
	if it.kind == kindResult {
		it.command.release()
	}
}

// settled gives back what something holds of the bounds of the link: before it is sent, for the node has its place back when it
// has read the result. Preconditions: mu is held.
func (l *serverLink) settled(it sending) {
	switch it.kind {
	case kindResult:
		l.back(it.command)
	case kindManaged:
		l.manages--
	case kindClosed:
		l.closing--
	case kindReset:
		it.nexus.resetting = false
	}
}

// back gives back a command's place in the window. Preconditions: mu is held.
func (l *serverLink) back(c *command) {
	l.commands--
	l.bytes -= c.cost
}

// write sends until the link ends: results, and a sign of life where there is nothing else.
func (l *serverLink) write() {
	bw := bufio.NewWriterSize(l.conn, 64<<10)
	var spare []sending
	scratch := make([]byte, 0, 1024)
	tick := time.NewTicker(l.s.times.ping)
	defer tick.Stop()
	for {
		ping := false
		select {
		case <-l.wake:
		case <-tick.C:
			ping = true
		case <-l.quit:
			return
		}
		l.mu.Lock()
		batch := l.queue
		l.queue = spare[:0]
		l.mu.Unlock()
		err := error(nil)
		for i, it := range batch {
			l.mu.Lock()
			l.settled(it)
			l.mu.Unlock()
			if err == nil {
				err = l.send(bw, scratch, it)
			}
			if err == nil { // a batch may take long, and what the node writes waits meanwhile
				err = l.tell(bw, scratch)
			}
			if it.kind == kindResult {
				it.command.release()
			}
			batch[i] = sending{}
		}
		spare = batch
		l.patience()
		if err == nil {
			err = l.tell(bw, scratch)
		}
		if err == nil && ping {
			_, err = bw.Write(appendPing(scratch[:0], l.s.clock.now()))
		}
		if err == nil {
			l.patience()
			err = bw.Flush()
		}
		if err != nil {
			l.kill(err)
		}
	}
}

// tell has the node know how much of its commands was read, where that is worth a message. It goes
// with the next write.
func (l *serverLink) tell(bw *bufio.Writer, scratch []byte) error {
	taken := l.taken.Load()
	if taken-l.told.Load() < creditStep {
		return nil
	}
	l.told.Store(taken)
	_, err := bw.Write(appendLong(scratch[:0], kindCredit, taken))
	return err
}

// patience bounds the next write.
func (l *serverLink) patience() { l.raw.SetWriteDeadline(time.Now().Add(writeTime)) }

func (l *serverLink) send(bw *bufio.Writer, scratch []byte, it sending) error {
	l.patience()
	b := scratch[:0]
	switch it.kind {
	case kindResult:
		return l.sendResult(bw, b, it.command)
	case kindManaged:
		b = appendManaged(b, it.number, it.response)
	case kindPause:
		b = appendLong(b, kindPause, uint64(it.number)<<32|uint64(it.limit.Milliseconds()))
	case kindGo:
		b = appendEmpty(b, kindGo)
	default:
		b = appendNumber(b, it.kind, it.number)
	}
	_, err := bw.Write(b)
	return err
}

func (l *serverLink) sendResult(bw *bufio.Writer, b []byte, c *command) error {
	t := &c.task
	n := block.VecLen(t.DataIn)
	h := resultHead{task: c.id, status: t.Status, aborted: t.Aborted, in: uint64(t.InTotal), out: uint64(t.OutTotal), data: uint32(n), stamp: l.s.clock.now(), sense: t.Sense}
	if _, err := bw.Write(h.append(b)); err != nil {
		return err
	}
	at := 0
	for _, v := range t.DataIn {
		for len(v) > 0 { // each piece has its time
			k := min(len(v), chunkLen-at%chunkLen)
			l.patience()
			if _, err := bw.Write(v[:k]); err != nil {
				return err
			}
			v = v[k:]
			if at += k; at%chunkLen != 0 && at != n {
				continue
			}
			// The clock of a node stands still for no longer than a chunk takes.
			if _, err := bw.Write(be.AppendUint64(b[:0], l.s.clock.now())); err != nil {
				return err
			}
		}
	}
	l.state.commands.Add(1)
	l.state.read.Add(uint64(n))
	l.state.written.Add(uint64(min(block.VecLen(t.DataOut), t.OutTotal)))
	return nil
}
