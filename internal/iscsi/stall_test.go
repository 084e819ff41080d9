package iscsi

import (
	"net"
	"testing"
	"time"
)

// TestFreshUnreadMark: the first look at a connection finds answers on their way, which says
// nothing of how long they have been.
func TestFreshUnreadMark(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.DataTimeout = 30 * time.Second })
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	c := newConn(r.portal, ours, 1)
	c.enqueue(outItem{ctl: getControl(opNopIn)})
	now := time.Now()
	c.checkStall(now)
	if err := c.abortedBy(); err != nil {
		t.Errorf("at the first tick: %v", err)
	}
	c.checkStall(now.Add(31 * time.Second))
	if c.abortedBy() == nil {
		t.Error("answers that are not read for 31 s are not noticed")
	}
}
