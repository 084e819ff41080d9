package link

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// What writes have of a link on which reads take long.

// pipePeer is a node at the other end of a pipe, in which nothing waits: the owner sends what the
// test reads.
type pipePeer struct {
	t    *testing.T
	conn net.Conn
	buf  []byte
	s    *Server
	l    *serverLink
	exec *block.Live // the owner's
}

// untimed is a connection of which no write is ever late.
type untimed struct{ net.Conn }

func (untimed) SetWriteDeadline(time.Time) error { return nil }

func newPipePeer(t *testing.T) *pipePeer {
	t.Helper()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	target, _ := scsitest.NewTarget(exec)
	s, err := NewServer(ServerConfig{Self: Node{ID: 1, Ports: 1}, Targets: []*scsi.Target{target}, Secret: []byte(testSecret), times: unhurried})
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	here.SetDeadline(time.Now().Add(patience))
	l := newServerLink(s, there, untimed{there}, greeting{Node: Node{ID: 2, Ports: 1}}, make([]byte, maxBody))
	if err := s.admit(l); err != nil {
		t.Fatal(err)
	}
	s.addPorts(l.node)
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.serve()
	}()
	t.Cleanup(func() {
		here.Close()
		<-over
		s.Cut()
	})
	return &pipePeer{t: t, conn: here, buf: make([]byte, maxBody), s: s, l: l, exec: exec}
}

func (p *pipePeer) send(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// next reads up to the next message that is no sign of life.
func (p *pipePeer) next() (kind, []byte) {
	p.t.Helper()
	for {
		k, body, err := readMessage(p.conn, p.buf)
		if err != nil {
			p.t.Fatal(err)
		}
		if k != kindPing {
			return k, body
		}
	}
}

// data reads what follows the body of a result.
func (p *pipePeer) data(body []byte) {
	p.t.Helper()
	h, err := parseResult(body)
	if err != nil {
		p.t.Fatal(err)
	}
	chunks := (int64(h.data) + chunkLen - 1) / chunkLen
	if _, err := io.CopyN(io.Discard, p.conn, int64(h.data)+chunks*stampLen); err != nil {
		p.t.Fatal(err)
	}
}

// TestCreditBetweenResults: the owner says behind each result what it has read meanwhile, however
// many wait to be sent.
func TestCreditBetweenResults(t *testing.T) {
	const each, reads = 256 << 10, 16
	p := newPipePeer(t)
	l := p.l
	o := opening{nexus: 1, port: FirstPort(2), initiator: hostName, name: hostName + ",i,0x00023d000001"}
	p.send(appendEmpty(o.append(nil), kindReady))
	command := func(h commandHead) {
		h.nexus = 1
		p.send(be.AppendUint64(append(h.append(nil), make([]byte, h.out)...), p.s.clock.now()))
	}
	// It hears of the unit attentions.
	for status := byte(scsi.StatusCheckCondition); status != scsi.StatusGood; {
		command(commandHead{cdb: make([]byte, 6)})
		k, body := p.next()
		if h, err := parseResult(body); k != kindResult || err != nil {
			t.Fatal(k, err)
		} else {
			status = h.status
		}
	}
	read := commandHead{cdb: scsitest.CDB(0x88, 0, each/512), in: each}
	command(read)
	_, first := p.next() // the owner is in the middle of it, and has nothing else to send
	for range reads {
		command(read)
	}
	for queued := 0; queued < reads; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		queued = len(l.queue)
		l.mu.Unlock()
	}
	p.data(first)
	_, result := p.next() // the owner has taken all of them to send
	command(commandHead{cdb: scsitest.CDB(0x8A, 0, each/512), out: each})
	for l.taken.Load() < each {
		time.Sleep(time.Millisecond)
	}
	p.data(result)
	for n := 1; ; n++ {
		k, body := p.next()
		if k == kindCredit {
			if n > 1 {
				t.Errorf("what was read of a write is said behind %d of %d results", n, reads)
			}
			return
		}
		if p.data(body); n > reads {
			t.Fatal("the owner does not say what it has read")
		}
	}
}

// TestSignsOfLife: a node that waits for credits shows that it lives, whether the command that
// waits has begun or not. The data is not changed by it.
func TestSignsOfLife(t *testing.T) {
	head := commandHead{cdb: scsitest.CDB(0x8A, 0, 0)}
	most := creditBytes - signBytes - len(head.append(nil)) - stampLen // of the data of one command
	for _, row := range []struct {
		name  string
		sizes []int
		sent  int // as far as the credits go
	}{
		{"one vector", []int{9 * pieceLen}, 7 * pieceLen},
		{"a short vector", []int{most, 3, pieceLen}, most}, // which signs alone use up
		{"a few bytes left", []int{most, 12}, most},
	} {
		t.Run(row.name, func(t *testing.T) { signsOfLife(t, row.sizes, row.sent) })
	}
}

func signsOfLife(t *testing.T, sizes []int, sent int) {
	o := newSlowOwner(t)
	o.conn.SetReadDeadline(time.Now().Add(patience / 4)) // without them it waits in vain
	const signs = 10
	first, second := make([]byte, 7*pieceLen), []byte(nil)
	var vectors [][]byte
	for _, n := range sizes {
		v := make([]byte, n)
		for i := range v {
			v[i] = byte((len(second) + i) * 7 >> 3)
		}
		second, vectors = append(second, v...), append(vectors, v)
	}
	tasks := []*scsi.Task{
		{CDB: scsitest.CDB(0x8A, 0, len(first)/512), DataOut: [][]byte{first}, Done: func(*scsi.Task) {}},
		{CDB: scsitest.CDB(0x8A, 0, len(second)/512), DataOut: vectors, Done: func(*scsi.Task) {}},
	}
	o.c.exec.Lock()
	o.n.Submit(tasks)
	o.c.exec.Unlock()
	buf, taken := make([]byte, maxBody), uint64(0)
	command := func(pings int) {
		t.Helper()
		for {
			k, body, err := readMessage(o.conn, buf)
			if err != nil {
				t.Fatalf("%v, with %d signs of life to come", err, pings)
			}
			switch k {
			case kindPing:
				if pings--; pings == 0 {
					return
				}
			case kindCommand:
				if taken += uint64(headLen + len(body)); pings <= 0 {
					return
				}
				t.Fatal("a command beyond the credits is begun")
			}
		}
	}
	bytesOf := func(n int) []byte {
		t.Helper()
		b := make([]byte, n)
		if n, err := io.ReadFull(o.conn, b); err != nil {
			t.Fatalf("%v behind %d bytes of %d", err, n, len(b))
		}
		taken += uint64(n)
		return b
	}
	command(0)
	bytesOf(len(first) + stampLen)
	command(signs)
	o.conn.Write(appendLong(nil, kindCredit, taken))
	command(0)
	got := bytesOf(sent + signs)
	o.conn.Write(appendLong(nil, kindCredit, taken))
	got = append(got, bytesOf(len(second)-len(got))...)
	if bytesOf(stampLen); !bytes.Equal(got, second) {
		t.Error("the data that came is not what was sent")
	}
	command(1) // and a message behind it
}

// sluice is a connection in between that holds what the owner sends until it is opened.
type sluice struct {
	net.Listener
	mu     sync.Mutex
	opened *sync.Cond
	shut   bool // guarded by mu
	heard  int  // guarded by mu: how often something came of the node
}

func newSluice(t *testing.T, to string) *sluice {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sluice{Listener: l}
	s.opened = sync.NewCond(&s.mu)
	t.Cleanup(func() {
		l.Close()
		s.set(false)
	})
	go func() {
		for {
			node, err := l.Accept()
			if err != nil {
				return
			}
			owner, err := net.Dial("tcp", to)
			if err != nil {
				node.Close()
				continue
			}
			go s.carry(node, owner, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.heard++
			})
			go s.carry(owner, node, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				for s.shut {
					s.opened.Wait()
				}
			})
		}
	}()
	return s
}

// sluice has the node link to a next owner through a sluice. No address but that of the sluice is
// ever published: a node that links again at once would pass it by.
func (r *rig) sluice(limits times) *sluice {
	t := r.t.(*testing.T)
	t.Helper()
	var between *sluice
	r.leave()
	r.through = func(addr string) string {
		between = newSluice(t, addr)
		return between.Addr().String()
	}
	r.own(r.target, limits)
	r.linked(true)
	return between
}

func (s *sluice) carry(from, to net.Conn, before func()) {
	defer from.Close()
	defer to.Close()
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		before()
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (s *sluice) set(shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = shut
	s.opened.Broadcast()
}

func (s *sluice) signs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// TestSlowLink: a write whose credits are on their way for long keeps its link, and its data is
// written as it was sent.
func TestSlowLink(t *testing.T) {
	r := newRig(t, unhurried)
	between := r.sluice(unhurried)
	h := r.login(hostName).ready()
	r.server.mu.Lock()
	l := r.server.links[2]
	r.server.mu.Unlock()
	out := make([]byte, 1<<20) // all of the unit
	for i := range out {
		out[i] = byte(i * 7 >> 3)
	}
	between.set(true)
	write := h.start(scsitest.Command{CDB: scsitest.CDB(0x8A, 0, len(out)/512), Out: out})
	r.poll("the write, as far as credits go", func() bool { return l.taken.Load() > creditBytes/2 })
	const enough = 20
	before := between.signs()
	r.poll("signs of life", func() bool { return between.signs()-before >= enough })
	between.set(false)
	if res := write.wait(); res.Status != scsi.StatusGood {
		t.Errorf("the write ends with %02x, sense %x", res.Status, res.Sense)
	}
	r.exec.Lock()
	defer r.exec.Unlock()
	if !bytes.Equal(r.devs[scsitest.Thin].Data[:len(out)], out) {
		t.Error("the data that is written is not what was sent")
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if n := r.server.nodes[0].connects.Load(); n != 1 {
		t.Errorf("there were %d links", n)
	}
}
