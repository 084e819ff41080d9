package iscsi

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slowConn is a connection whose host reads little at a time once slow is set.
type slowConn struct {
	net.Conn
	slow bool
}

func (c *slowConn) Read(b []byte) (int, error) {
	if c.slow {
		time.Sleep(120 * time.Millisecond)
		b = b[:min(len(b), 4096)]
	}
	return c.Conn.Read(b)
}

// TestSlowHostWhileHeld: a host whose answers lie in the kernel, all of them sent as far as we know, is not silent while it reads them.
func TestSlowHostWhileHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const bytes, held = 256 << 10, 2 * time.Second // in which a busy machine has its host read
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.PingInterval, cfg.Limits.PingTimeout, cfg.heldPing = patience, patience, held
	})
	nc := &slowConn{Conn: r.dial()}
	if err := nc.Conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(nc, testPort(nil))
	if err != nil {
		t.Fatal(err)
	}
	far := r.onlyConn()
	if !poll(func() bool { return far.sock.Load() != nil }) {
		t.Fatal("the connection has no socket")
	}
	if err := unix.SetsockoptInt(far.sock.Load().fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20); err != nil {
		t.Fatal(err)
	}
	hdr, _ := c.CommandHeader(0, cdb10(opRead10, 0, bytes/fakeBlock), 0, bytes)
	read := bhs(hdr[:]).itt()
	c.Send(hdr, nil, nil)
	if !poll(func() bool { return far.count.tx.Load() > bytes }) {
		t.Fatalf("the kernel has taken %d bytes", far.count.tx.Load())
	}
	if err := r.portal.Hold(within(t), false); err != nil {
		t.Fatal(err)
	}
	hdr, _ = c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
	waits := bhs(hdr[:]).itt()
	c.Send(hdr, nil, nil)
	nc.slow = true
	began := time.Now()
	if res, err := c.Await(read, nil, bytes); err != nil || len(res.Data) != bytes {
		t.Fatalf("the host had read for %v when: %v", time.Since(began), err)
	}
	if took := time.Since(began); took < 3*held {
		t.Fatalf("the host has read all of it in %v: nothing is shown", took)
	}
	nc.slow = false
	r.portal.Release()
	if res, err := c.Await(waits, nil, 0); err != nil || res.Status != 0 {
		t.Errorf("the command that has waited: %+v, %v", res, err)
	}
}
