package iscsi

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// farEnd is the portal's end of the only connection.
func (r *rig) farEnd() *conn {
	r.t.Helper()
	r.portal.mu.Lock()
	defer r.portal.mu.Unlock()
	if len(r.portal.conns) != 1 {
		r.t.Fatalf("%d connections", len(r.portal.conns))
	}
	for c := range r.portal.conns {
		return c
	}
	return nil
}

// leaveDescriptors lets the process open n more files until the test ends.
func leaveDescriptors(t *testing.T, n int) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	limit := was
	limit.Cur = 0
	var files []*os.File
	for n > 0 && len(files) <= n {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	for _, f := range files { // below the last one all are in use but the others
		limit.Cur = max(limit.Cur, uint64(f.Fd()))
		f.Close()
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// manyReads asks for more than the sockets hold between the two ends, and reads nothing.
type manyReads struct {
	r        *rig
	c        *Client
	commands int
	want     []byte
}

func sendManyReads(r *rig, c *Client) *manyReads {
	r.t.Helper()
	const length = 256 << 10
	m := &manyReads{r: r, c: c, commands: 64, want: pattern(length, 3)}
	r.withFake(func(f *fakeTarget) { copy(f.mem, m.want) })
	for range m.commands {
		hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, length/fakeBlock), 0, length)
		if err := c.Send(hdr, nil, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	return m
}

// receive takes the answers, which are whole and in order.
func (m *manyReads) receive() {
	m.r.t.Helper()
	var got []byte
	for n := 0; n < m.commands; {
		pdu, err := m.c.Receive()
		if err != nil {
			m.r.t.Fatalf("after %d answers: %v", n, err)
		}
		got = append(got, pdu.Data...)
		if pdu.Header[offFlags]&flagStatus != 0 {
			if !bytes.Equal(got, m.want) {
				m.r.t.Fatalf("command %d reads something else", n)
			}
			got = got[:0]
			n++
		}
	}
}

// TestFullSocket: answers that the socket does not take are sent when it does, whole and in order;
// and who waits for it hears of the end.
func TestFullSocket(t *testing.T) {
	for _, end := range []bool{false, true} {
		t.Run(fmt.Sprintf("end %v", end), func(t *testing.T) {
			r, k := newCounted(t, 1)
			m := sendManyReads(r, r.login(nil))
			k.awaitFull(t)
			if !end {
				m.receive()
				return
			}
			r.farEnd().abort(errors.New("the end"))
			if !poll(func() bool { return len(r.portal.Sessions()) == 0 }) {
				t.Fatal("the session never ends")
			}
		})
	}
}

// TestFewDescriptors: a session goes on, also when its socket is full, in a process that has no
// descriptors left from its login on; and what it had of them it gives back.
func TestFewDescriptors(t *testing.T) {
	for left := range 5 {
		t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
			r, k := newCounted(t, 1)
			before := descriptors(t)
			nc := r.dial()
			if !poll(func() bool { return descriptors(t) == before+2 }) {
				t.Fatal("the connection is not accepted")
			}
			leaveDescriptors(t, left)
			c, err := NewClient(nc, ClientConfig{Initiator: testInitiator, Target: testTarget})
			if err != nil {
				t.Fatal(err)
			}
			leaveDescriptors(t, 0) // what the login gave back is taken by others
			m := sendManyReads(r, c)
			far := r.farEnd()
			if far.sock.Load() != nil {
				k.awaitFull(t)
			} else if !poll(func() bool { return far.count.commands.Load() == uint64(m.commands) }) {
				t.Fatal("the commands do not come")
			}
			m.receive()
			c.Close()
			if !poll(func() bool { return descriptors(t) == before }) {
				t.Errorf("%d descriptors are left over", descriptors(t)-before)
			}
		})
	}
}

// descriptors counts the open files of the process without opening one.
func descriptors(t *testing.T) (n int) {
	t.Helper()
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

// TestKickedAtStart: one that is told to end while it logs in stops reading, and may still say its
// last words; one that is cut off may not.
func TestKickedAtStart(t *testing.T) {
	for _, row := range []struct {
		name         string
		kick         func(*conn)
		reads, sends bool
	}{
		{"nothing", func(*conn) {}, true, true},
		{"shutdown", func(c *conn) { c.stopping.Store(true) }, false, true},
		{"cold reset", func(c *conn) { c.reset.Store(true) }, false, true},
		{"abort", func(c *conn) { c.abort(errReinstated) }, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := socketConn(t)
			row.kick(c)
			c.startFull(new(login))
			defer func() {
				close(c.out.quit)
				<-c.writerDone
			}()
			s := c.sock.Load()
			waits := func(g *gate) bool {
				return g.wait(func(uintptr) bool { return true }) == nil
			}
			if reads, sends := waits(s.in), waits(s.out); reads != row.reads || sends != row.sends {
				t.Errorf("reads %v, sends %v", reads, sends)
			}
		})
	}
}

// socketConn is a connection that nobody serves.
func socketConn(t *testing.T) *conn {
	t.Helper()
	r := newRig(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(r.portal, far, 1)
	t.Cleanup(func() {
		near.Close()
		c.wire().Close()
	})
	near.SetDeadline(time.Now().Add(patience))
	return c
}
