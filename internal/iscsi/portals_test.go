package iscsi

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

// TestPortalsAreShownTogether: discovery shows a portal that has been added, also if it serves only later.
func TestPortalsAreShownTogether(t *testing.T) {
	r := newRig(t, nil)
	r.login(nil) // the first portal listens
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := r.portal.AddPort(l, 2)
	c, err := NewClient(r.dial(), ClientConfig{Initiator: testInitiator})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.SendTargets()
	if want := []string{r.addr + ",1", l.Addr().String() + ",2"}; err != nil || len(got) != 1 || !slices.Equal(got[0].Addresses, want) {
		t.Errorf("discovery says %v, %v, want %v", got, err, want)
	}
	l.Close()
	if err := serve(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a portal whose listener is closed: %v", err)
	}
}

// Two network portals of one target, the second on IPv6 where the machine has it:
// discovery tells of both, and they are two target ports.
func TestTwoPortals(t *testing.T) {
	r := newRig(t, nil)
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	second := l.Addr().String()
	served := make(chan error, 1)
	serve := r.portal.AddPort(l, 2)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the second portal: %v", err)
		}
	})

	r.login(nil)
	dial := func(target string) *Client {
		t.Helper()
		nc, err := net.Dial("tcp", second)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { nc.Close() })
		c, err := NewClient(nc, ClientConfig{Initiator: testInitiator, Target: target, ISID: [6]byte{0x80, 0, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dial(testTarget)
	// The same initiator port at another target port is another nexus, and ends none.
	r.withFake(func(f *fakeTarget) {
		var groups []uint16
		for n := range f.nexuses {
			groups = append(groups, n.group)
		}
		slices.Sort(groups)
		if !slices.Equal(groups, []uint16{1, 2}) {
			t.Errorf("the nexuses are at target ports %v", groups)
		}
	})
	pairs, err := dial("").Text(appendKey(nil, keySendTargets, "All"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, kv := range pairs {
		if kv.key == keyTargetAddress {
			got = append(got, kv.value)
		}
	}
	if want := []string{r.addr + ",1", second + ",2"}; !slices.Equal(got, want) {
		t.Errorf("discovery says %v, want %v", got, want)
	}
}

// TestReachable: discovery gives nobody an address that leads elsewhere.
func TestReachable(t *testing.T) {
	for _, row := range []struct{ listens, here, want string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1", "::1", "127.0.0.1"},
		{"10.1.2.3", "127.0.0.1", "10.1.2.3"},
		{"10.1.2.3", "10.9.9.9", "10.1.2.3"},
		{"127.0.0.1", "10.1.2.3", ""},
		{"127.0.0.5", "fd00::1", ""},
		{"::1", "10.1.2.3", ""},
		{"0.0.0.0", "10.1.2.3", "10.1.2.3"},
		{"0.0.0.0", "fd00::1", ""},
		{"::", "fd00::1", "fd00::1"},
		{"::", "10.1.2.3", "10.1.2.3"},
	} {
		got := ""
		if ip := reachable(net.ParseIP(row.listens), net.ParseIP(row.here)); ip != nil {
			got = ip.String()
		}
		if got != row.want {
			t.Errorf("a portal at %s, for who came to %s: %q, want %q", row.listens, row.here, got, row.want)
		}
	}
}

// TestLoopbackIsNotForOthers: a host that comes by another address of the machine does not learn of the loopback portal.
func TestLoopbackIsNotForOthers(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && !n.IP.IsLoopback() && n.IP.To4() != nil
	})
	if at < 0 {
		t.Skip("the machine has no address but loopback")
	}
	r := newRig(t, nil)
	l, err := net.Listen("tcp", net.JoinHostPort(addrs[at].(*net.IPNet).IP.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	serve := r.portal.AddPort(l, 2)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	r.login(nil) // the first portal listens
	for addr, want := range map[string][]string{l.Addr().String(): {l.Addr().String() + ",2"}, r.addr: {r.addr + ",1", l.Addr().String() + ",2"}} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { nc.Close() })
		c, err := NewClient(nc, ClientConfig{Initiator: testInitiator})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.SendTargets()
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Addresses, want) {
			t.Errorf("at %s: %v, %v, want %v", addr, got, err, want)
		}
	}
}
