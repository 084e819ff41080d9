package link

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// lines collects a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// peer is a node that has the secret and sends what it likes.
type peer struct {
	t     *testing.T
	c     *tls.Conn
	stamp uint64
}

func (r *rig) hostile(t *testing.T, id uint16) *peer {
	t.Helper()
	return r.meets(t, greeting{Node: Node{ID: id, Name: "hostile", Ports: 1}, process: newIncarnation()})
}

// meets says hello to the owner, and hears its welcome.
func (r *rig) meets(t *testing.T, hello greeting) *peer {
	t.Helper()
	p := r.greets(t, hello)
	k, body, err := readMessage(p.c, make([]byte, maxBody))
	if err != nil || k != kindWelcome {
		t.Fatalf("no welcome: kind %d, %v", k, err)
	}
	g, err := parseGreeting(k, body)
	if err != nil {
		t.Fatal(err)
	}
	p.stamp = g.stamp
	return p
}

// greets says hello to the owner.
func (r *rig) greets(t *testing.T, hello greeting) *peer {
	t.Helper()
	conf, err := identity([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(patience))
	p := &peer{t: t, c: tls.Client(raw, conf)}
	p.send(hello.append(nil, kindHello))
	return p
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// open makes nexus 1.
func (p *peer) open(id uint16) []byte {
	o := opening{nexus: 1, port: FirstPort(id), initiator: hostName, name: hostName + ",i,0x00023d000001"}
	return o.append(nil)
}

// write is a WRITE of one block with this stamp.
func write(stamp uint64) []byte {
	h := commandHead{nexus: 1, cdb: scsitest.CDB(0x8A, 3, 1), out: 512}
	b := append(h.append(nil), bytes.Repeat([]byte{0xBB}, 512)...)
	return be.AppendUint64(b, stamp)
}

// closed waits until the owner has cut the link off.
func (p *peer) closed() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.c); err == nil {
		return
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Fatal("the owner does not end the link")
	}
}

// A peer that breaks the protocol loses its link, and with it what it had; others keep theirs.
func TestHostilePeer(t *testing.T) {
	const id = 3
	ready := appendLength(appendHead(nil, kindReady), 0)
	command := func(change func(*commandHead)) []byte {
		h := commandHead{nexus: 1, cdb: make([]byte, 6)}
		change(&h)
		return h.append(nil)
	}
	opened := func(change func(*opening)) []byte {
		o := opening{nexus: 9, port: FirstPort(id), initiator: hostName, name: hostName + ",i,0x000000000001"}
		change(&o)
		return o.append(nil)
	}
	var flood []byte
	for range windowCommands + 64 { // the first few end with unit attentions
		flood = append(flood, command(func(h *commandHead) { h.cdb, h.in = scsitest.CDB(0x88, 0, 1), 512 })...)
		flood = be.AppendUint64(flood, 1)
	}
	r := newRig(t, unhurried)
	r.exec.Lock()
	r.devs[scsitest.Thin].Hold = true // a window stays full
	r.exec.Unlock()
	for _, row := range []struct {
		name string
		send []byte
	}{
		{"a long message", []byte{0xFF, 0xFF, 0xFF, 0xFF, byte(kindPing)}},
		{"an unknown kind", []byte{0, 0, 0, 0, 99}},
		{"a second hello", (&greeting{Node: Node{ID: id, Ports: 1}}).append(nil, kindHello)},
		{"ready twice", ready},
		{"a cut body", []byte{0, 0, 0, 1, byte(kindClose), 0}},
		{"a body with more", append([]byte{0, 0, 0, 9, byte(kindClose)}, make([]byte, 9)...)},
		{"a nexus that is not open", appendNumber(nil, kindClose, 77)},
		{"a nexus twice", opened(func(o *opening) { o.nexus = 1 })},
		{"a target that is not there", opened(func(o *opening) { o.target = 1 })},
		{"a port of another node", opened(func(o *opening) { o.port = FirstPort(2) })},
		{"no initiator", opened(func(o *opening) { o.initiator = "" })},
		{"a long name", opened(func(o *opening) { o.name = string(make([]byte, 2000)) })},
		{"a command of another nexus", command(func(h *commandHead) { h.nexus = 5 })},
		{"no CDB", command(func(h *commandHead) { h.cdb = nil })},
		{"a long CDB", command(func(h *commandHead) { h.cdb = make([]byte, maxCDB+1) })},
		{"too much data", command(func(h *commandHead) { h.out = maxTransfer + 1 })},
		{"room for too much data", command(func(h *commandHead) { h.in = maxTransfer + 1 })},
		{"a stamp in the future", write(1 << 62)},
		{"more than the window", flood},
		{"a result", (&resultHead{}).append(nil)},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := r.hostile(t, id)
			p.send(p.open(id))
			p.send(ready)
			p.c.Write(row.send) // the owner may have cut it off before the last byte
			p.closed()
			r.poll("the end of the link", func() bool {
				r.server.mu.Lock()
				defer r.server.mu.Unlock()
				return r.server.links[id] == nil
			})
		})
	}
	if owner, _ := r.client.Owner(); !owner.Linked {
		t.Error("the other node has lost its link")
	}
}

// A command that the owner's own clock says is old is not carried out: its node may have answered it.
func TestStaleCommand(t *testing.T) {
	limits := unhurried
	limits.fresh = 50 * time.Millisecond
	r := newRig(t, limits)
	r.client.Stop()
	p := r.hostile(t, 3)
	p.send(p.open(3))
	p.send(appendLength(appendHead(nil, kindReady), 0))
	time.Sleep(2 * limits.fresh)
	p.send(write(p.stamp))
	if h := p.result(); h.status != scsi.StatusBusy {
		t.Fatalf("a command that is old ends with %02x, want BUSY", h.status)
	}
	// What the owner has just said is not old, and the link goes on. On a busy machine a command may need longer than that.
	h := resultHead{status: scsi.StatusBusy}
	for end := time.Now().Add(patience / 2); h.status == scsi.StatusBusy && time.Now().Before(end); {
		p.send(write(p.stamp))
		h = p.result()
	}
	if h.status != scsi.StatusCheckCondition {
		t.Fatalf("a command that is not old ends with %02x, want a unit attention condition", h.status)
	}
	r.exec.Lock()
	defer r.exec.Unlock()
	if n := r.devs[scsitest.Thin].Seen[block.OpWrite]; n != 0 {
		t.Fatalf("the device saw %d writes", n)
	}
}

// result reads until a command ends.
func (p *peer) result() resultHead {
	p.t.Helper()
	for buf := make([]byte, maxBody); ; {
		k, body, err := readMessage(p.c, buf)
		switch {
		case err != nil:
			p.t.Fatal(err)
		case k == kindPing:
			p.stamp, _ = parseLong(k, body)
		case k == kindResult:
			h, err := parseResult(body)
			if err != nil {
				p.t.Fatal(err)
			}
			p.stamp = h.stamp
			return h
		}
	}
}

// quietTimes have no ping come between.
var quietTimes = times{ping: time.Hour, silent: time.Minute, fresh: time.Hour, hold: time.Millisecond, away: time.Millisecond, retry: time.Millisecond}

// FuzzOwner gives the owner any bytes behind a proper greeting: it neither panics nor keeps anything.
func FuzzOwner(f *testing.F) {
	ready := appendLength(appendHead(nil, kindReady), 0)
	o := opening{nexus: 1, port: FirstPort(2), initiator: hostName, name: hostName + ",i,0x000000000001"}
	head := append(o.append(nil), ready...)
	f.Add(append(bytes.Clone(head), write(1)...))
	f.Add(append(bytes.Clone(head), write(revoked)...))
	f.Add(append(bytes.Clone(head), (&management{nexus: 1, fn: 5}).append(nil)...))
	f.Add(append(bytes.Clone(head), appendNumber(nil, kindClose, 1)...))
	f.Add(appendPing(nil, 7))
	f.Fuzz(func(t *testing.T, input []byte) {
		exec := block.NewLive()
		defer exec.Stop()
		target, _ := scsitest.NewTarget(exec)
		s, err := NewServer(ServerConfig{Self: Node{ID: 1, Ports: 1}, Targets: []*scsi.Target{target}, Secret: []byte(testSecret), times: quietTimes})
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			g := greeting{Node: Node{ID: 2, Ports: 1}}
			l := newServerLink(s, there, there, g, make([]byte, maxBody))
			if err := s.admit(l); err != nil {
				t.Error(err)
				return
			}
			s.addPorts(g.Node)
			l.serve()
			if l.commands != 0 || l.bytes != 0 || l.sessions.Load() != 0 {
				t.Errorf("%d commands, %d bytes, %d sessions are left", l.commands, l.bytes, l.sessions.Load())
			}
		}()
		go io.Copy(io.Discard, here)
		here.Write(input)
		here.Close()
		<-over
	})
}

// FuzzForwarder gives a node any bytes of an owner behind a proper greeting: its commands end once, whatever comes.
func FuzzForwarder(f *testing.F) {
	f.Add((&resultHead{task: 0}).append(nil))
	f.Add(append((&resultHead{task: 0, in: 4, data: 4}).append(nil), 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 9))
	f.Add(appendLong(nil, kindCredit, 1))
	f.Add(appendNumber(nil, kindDenied, 1))
	f.Add((&resultHead{task: 0, status: 2, sense: senseTransition[:]}).append(nil))
	f.Add(appendManaged(nil, 2, 0))
	f.Add(appendNumber(nil, kindReset, 1))
	f.Add(appendNumber(nil, kindClosed, 1))
	f.Fuzz(func(t *testing.T, input []byte) {
		exec := block.NewLive()
		defer exec.Stop()
		c := &Client{cfg: ClientConfig{Self: Node{ID: 2, Ports: 1}, Targets: 1, Log: slog.New(slog.DiscardHandler)}, times: quietTimes, exec: exec,
			wake: make(chan struct{}, 1), calls: map[uint32]*call{}}
		exec.Lock()
		n := c.Target(0).OpenNexus(hostName, hostName+",i,0x000000000001", FirstPort(2))
		exec.Unlock()
		here, there := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.serve(there, there, "pipe")
		}()
		buf := make([]byte, maxBody)
		if k, _, err := readMessage(here, buf); err != nil || k != kindHello {
			t.Fatal(k, err)
		}
		welcome := greeting{Node: Node{ID: 1, Ports: 1}, commands: 8, bytes: 1 << 20, targets: 1}
		here.Write(welcome.append(nil, kindWelcome))
		ended := make(chan byte, 16)
		exec.Lock()
		for range 4 {
			n.Submit([]*scsi.Task{{CDB: []byte{0x12, 0, 0, 0, 64, 0}, MaxIn: 64, Bufs: heap{}, Done: func(t *scsi.Task) { ended <- t.Status }}})
		}
		answered := make(chan scsi.TMFResponse, 16)
		n.Manage(scsi.LogicalUnitReset, 0, 0, func(r scsi.TMFResponse) { answered <- r })
		exec.Unlock()
		go io.Copy(io.Discard, here)
		here.Write(input)
		here.Close()
		<-over
		for range 4 {
			<-ended
		}
		<-answered
		closed := make(chan struct{})
		exec.Lock()
		n.Close(func() { close(closed) })
		exec.Unlock()
		<-closed
		select {
		case <-ended:
			t.Error("a command ended twice")
		case <-answered:
			t.Error("a function was answered twice")
		default:
		}
	})
}

// TestNamesOfPorts: a session is of an initiator port that is named as RFC 7143 4.2.7 says, or there is none.
func TestNamesOfPorts(t *testing.T) {
	l := &serverLink{s: &Server{}}
	for _, c := range []struct {
		what, initiator, port string
		fits                  bool
	}{
		{"a port", hostName, hostName + ",i,0x000000000001", true},
		{"a name that is no text", hostName + "\xde", hostName + "\xde,i,0x000000000001", false},
		{"a port of another initiator", hostName, hostName + "2,i,0x000000000001", false},
		{"a port without a number", hostName, hostName + ",i,0x", false},
		{"a port whose number is none", hostName, hostName + ",i,0x00000000000\x00", false},
	} {
		if err := l.denial(&opening{initiator: c.initiator, name: c.port}); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
