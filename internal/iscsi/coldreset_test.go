package iscsi

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestColdReset: a TARGET COLD RESET is answered, then the connections of all that see what was reset end
// with a notice, and they can log in again; who sees none of it keeps its connection. A warm reset ends none.
func TestColdReset(t *testing.T) {
	const others = "iqn.2026-01.example.test:other"
	r := newRig(t, func(cfg *Config) {
		tg, _ := scsitest.NewTarget(cfg.Targets[0].Handler.Exec())
		private := tg.AddUnit(scsitest.NewDevice(cfg.Targets[0].Handler.Exec(), scsitest.Ready(9, 64, 512, true)), scsi.UnitOptions{})
		if err := tg.Map(others, 0, private); err != nil {
			t.Fatal(err)
		}
		ping := cfg.Limits.PingInterval
		cfg.Targets = []TargetConfig{{Name: testTarget, Target: tg}}
		cfg.Limits = Limits{PingInterval: ping}
	})
	login := func(name string, isid byte) *Client {
		return r.login(func(cfg *ClientConfig) { cfg.Initiator, cfg.ISID[5] = name, isid })
	}
	works := func(what string, c *Client) {
		t.Helper()
		for range 4 {
			res, err := c.Command(0, make([]byte, 6), nil, 0)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if res.Status == scsi.StatusGood {
				return
			}
		}
		t.Fatalf("%s: unit attentions without end", what)
	}
	a, b, c := login(testInitiator, 1), login(testInitiator, 2), login(others, 3)
	for _, s := range []*Client{a, b, c} {
		works("at first", s)
	}
	if resp, err := a.Manage(scsi.TargetWarmReset, 0, 0, 0); err != nil || resp != scsi.TMFComplete {
		t.Fatalf("warm reset: response %d, %v", resp, err)
	}
	for _, s := range []*Client{a, b, c} {
		works("after a warm reset", s)
	}
	if resp, err := a.Manage(scsi.TargetColdReset, 0, 0, 0); err != nil || resp != scsi.TMFComplete {
		t.Fatalf("cold reset: response %d, %v", resp, err)
	}
	for i, s := range []*Client{a, b} {
		pdu, err := s.Receive()
		if err != nil || pdu.Header[0] != opAsync || pdu.Header[offAsyncEvent] != asyncDropAll {
			t.Fatalf("connection %d: no notice: %v", i, err)
		}
		if _, err = s.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("connection %d does not end: %v", i, err)
		}
	}
	works("another tenant's", c)
	works("logged in again", login(testInitiator, 1))
}

// TestColdResetOfABusyConnection: a reader that always finds something to read, and so never waits,
// notices a cold reset too.
func TestColdResetOfABusyConnection(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	if _, err := c.Command(0, make([]byte, 6), nil, 0); err != nil { // the reader is at work
		t.Fatal(err)
	}
	r.portal.mu.Lock()
	for far := range r.portal.conns {
		far.reset.Store(true) // its kick is lost on who does not wait
	}
	r.portal.mu.Unlock()
	ping := c.NewHeader(opNopOut|immediateBit, 0)
	bhs(ping[:]).put32(offITT, noTag) // no answer
	if err := c.Send(ping, nil, nil); err != nil {
		t.Fatal(err)
	}
	c.nc.SetDeadline(time.Now().Add(patience))
	pdu, err := c.Receive()
	if err != nil || pdu.Header[0] != opAsync || pdu.Header[offAsyncEvent] != asyncDropAll {
		t.Errorf("no notice: %v", err)
	}
}
