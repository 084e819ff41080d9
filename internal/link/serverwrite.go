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
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// drop gives back what something that was or is not sent holds. Preconditions: mu is held.
func (l *serverLink) drop(it sending) {
	switch it.kind {
	case kindResult:
		l.commands--
		l.bytes -= it.command.cost
		it.command.release()
	case kindManaged:
		l.manages--
	}
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
			if err == nil {
				err = l.send(bw, scratch, it)
			}
			l.mu.Lock()
			l.drop(it)
			l.mu.Unlock()
			batch[i] = sending{}
		}
		spare = batch
		if err == nil && ping {
			l.patience()
			_, err = bw.Write(appendPing(scratch[:0], l.s.now()))
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
	default:
		b = appendNumber(b, it.kind, it.number)
	}
	_, err := bw.Write(b)
	return err
}

func (l *serverLink) sendResult(bw *bufio.Writer, b []byte, c *command) error {
	t := &c.task
	n := block.VecLen(t.DataIn)
	h := resultHead{task: c.id, status: t.Status, aborted: t.Aborted, in: uint64(t.InTotal), out: uint64(t.OutTotal), data: uint32(n), stamp: l.s.now(), sense: t.Sense}
	if _, err := bw.Write(h.append(b)); err != nil {
		return err
	}
	for _, v := range t.DataIn {
		for len(v) > 0 { // each piece has its time
			k := min(len(v), chunkLen)
			l.patience()
			if _, err := bw.Write(v[:k]); err != nil {
				return err
			}
			v = v[k:]
		}
	}
	l.state.commands.Add(1)
	l.state.read.Add(uint64(n))
	l.state.written.Add(uint64(min(block.VecLen(t.DataOut), t.OutTotal)))
	return nil
}
