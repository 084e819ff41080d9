package main

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/lun"
)

// TestSessionTimes: whatever is sent to a peer has an end, and an array may take its time to empty
// its cache.
func TestSessionTimes(t *testing.T) {
	peer := sessionTimes(flashRole, 10*time.Second)
	if peer.Command != 10*time.Second || peer.Sync != 10*time.Second || peer.Ping+peer.Pong >= 10*time.Second {
		t.Errorf("a peer has %+v", peer)
	}
	if array := sessionTimes(backendRole, 10*time.Second); array != (lun.Times{}) {
		t.Errorf("an array has %+v", array)
	}
}
