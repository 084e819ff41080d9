package iscsi

import (
	"net"
	"testing"
	"time"
)

// clinging is a connection whose peer never notices the end.
type clinging struct{ net.Conn }

func (clinging) CloseWrite() error { return nil }

func (c clinging) SetReadDeadline(t time.Time) error {
	if time.Until(t) > 0 {
		t = time.Time{}
	}
	return c.Conn.SetReadDeadline(t)
}

// TestLingeringMakesRoom: connections whose session is over hold no place that another's login
// needs, however long they take to go.
func TestLingeringMakesRoom(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxConnections = 2 })
	for range 2 {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		r.portal.start(clinging{ours}, 1)
		theirs.SetDeadline(time.Now().Add(patience))
		c, err := NewClient(theirs, ClientConfig{Initiator: testInitiator, Target: testTarget})
		if err != nil {
			t.Fatal(err)
		}
		h := c.NewHeader(opLogout|immediateBit, 0) // and the socket stays open
		if err := c.Send(h, nil, nil); err != nil {
			t.Fatal(err)
		}
		if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opLogoutResp {
			t.Fatal(pdu, err)
		}
	}
	var err error
	if !poll(func() bool { _, err = r.tryLogin(nil); return err == nil }) {
		t.Errorf("two connections that logged out keep others out: %v", err)
	}
}
