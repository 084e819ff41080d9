package admin

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
)

// TestServeProfile serves with a profile: its policy is the array's, and its costs show in
// the upper layer's durations.
func TestServeProfile(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	c.Profile = "svc"
	r := start(t, c)
	r.testUnitReady("iqn.2026-01.host:a", 0) // takes the unit attention
	r.d.groups[0].exec.Lock()
	policy := r.d.groups[0].array.Policy()
	r.d.groups[0].exec.Unlock()
	if policy.Order != array.DestageRoundRobin || len(policy.Ramp.Points) != 3 || policy.DestageDepth != 8 {
		t.Errorf("the policy is %+v", policy)
	}
	end := make(chan struct{})
	cdb := make([]byte, 16)
	cdb[0], cdb[1], cdb[12] = 0x93, 1, 8 // WRITE SAME(16), NDOB, 1 MiB
	task := &scsi.Task{CDB: cdb, Bufs: buffers{}, Done: func(*scsi.Task) { close(end) }}
	r.d.groups[0].exec.Lock()
	began := r.d.groups[0].exec.Now()
	n := r.d.groups[0].target.OpenNexus("iqn.2026-01.host:a", "iqn.2026-01.host:a,i,0x1", 1)
	for range 3 {
		n.Submit([]*scsi.Task{{CDB: make([]byte, 6), Bufs: buffers{}, Done: func(*scsi.Task) {}}})
	}
	n.Submit([]*scsi.Task{task})
	r.d.groups[0].exec.Unlock()
	<-end
	r.d.groups[0].exec.Lock()
	took := r.d.groups[0].exec.Now() - began
	n.Close(func() {})
	r.d.groups[0].exec.Unlock()
	if took < 1_100_000 {
		t.Errorf("a WRITE SAME of 1 MiB took %d ns; the profile says 1.1 ms at least", took)
	}
	if !strings.Contains(r.scrape(), `arraysim_host_command_duration_seconds_count{op="write_same",volume="v"} 1`) {
		t.Error("the command is not in the upper layer's durations")
	}
}

func TestServeUnknownProfile(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	c.Profile = "nosuch"
	err := Serve(t.Context(), c, Environment{Out: t.Output(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "purity-5.0") {
		t.Errorf("error %v, want one that lists the profiles", err)
	}
}
