package iscsi

import (
	"context"
	"net"
	"testing"
)

// The address of a portal is free as soon as Shutdown has begun, whatever its
// connections still do, and stays free for the next portal when they are gone:
// nothing of the first one, in whatever state of TCP, keeps a second from
// listening there.
func TestRestart(t *testing.T) {
	r := newRig(t, nil)
	isid := byte(1)
	login := func() *Client {
		t.Helper()
		isid++
		return r.login(func(cfg *ClientConfig) { cfg.ISID[5] = isid })
	}
	busy, idle, gone := login(), login(), login()
	hdr, _ := busy.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	busy.Send(hdr, nil, nil)
	r.awaitStuck(1)
	gone.Close()
	half := r.dial() // never logs in

	done := make(chan error, 1)
	go func() { done <- r.portal.Shutdown(context.Background()) }()
	pdu, err := busy.Receive()
	if err != nil || pdu.Header[0] != opAsync {
		t.Fatalf("no notice: %v, %v", pdu, err)
	}

	listen := func(when string) net.Listener {
		t.Helper()
		l, err := net.Listen("tcp", r.addr)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		return l
	}
	listen("while a command is in progress").Close()
	if nc, err := net.Dial("tcp", r.addr); err == nil {
		nc.Close()
		t.Error("a connection is taken during Shutdown")
	}
	select {
	case err := <-done:
		t.Fatalf("Shutdown ended before the command in progress: %v", err)
	default:
	}
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
	if res, err := busy.Await(bhs(hdr[:]).itt(), nil, 0); err != nil || res.Status != 0 {
		t.Errorf("command in progress: %+v, %v", res, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// busy, idle and half are still open on the initiator's side.
	l := listen("after Shutdown")
	next, err := New(Config{Targets: []TargetConfig{{Name: testTarget, Handler: r.target}}})
	if err != nil {
		t.Fatal(err)
	}
	go next.Serve(l)
	c := login()
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Error(res, err)
	}
	if err := c.Logout(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := next.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	listen("after the second Shutdown").Close()
	idle.Close()
	half.Close()
}
