package admin

import (
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestHoldOutlivesAFormerOne: the limit of a hold that was given up does not end the next one.
func TestHoldOutlivesAFormerOne(t *testing.T) {
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	target, _ := scsitest.NewTarget(exec)
	p, err := iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: DefaultConfig().Portal.Target, Target: target}}})
	if err != nil {
		t.Fatal(err)
	}
	f := &front{portal: p}
	if err := f.hold(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	f.release() // the array stays
	if err := p.Hold(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if !p.OnHold() {
		t.Error("the limit of the hold before has ended this one")
	}
	p.Release()
}
