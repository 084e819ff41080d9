package iscsi

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

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
	go func() { served <- r.portal.ServePort(l, 2) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ServePort: %v", err)
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
