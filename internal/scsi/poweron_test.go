package scsi_test

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestPowerOnIsHeardByWhoWasAway: a port that was not there when a unit lost power, or that left
// before it had asked, hears of it when it comes back, and not of units of which it has heard.
func TestPowerOnIsHeardByWhoWasAway(t *testing.T) {
	const powerOn, internalReset, nexusLoss = 0x062900, 0x062904, 0x062907
	for _, survived := range []bool{false, true} {
		t.Run(fmt.Sprint("survived ", survived), func(t *testing.T) {
			exec := &block.Virtual{}
			r := &rig{TB: t, exec: exec}
			r.tg = scsi.NewTarget(scsi.Options{Exec: exec, Survived: survived})
			var devs [2]*scsitest.Device
			for lun := range devs {
				devs[lun] = scsitest.NewDevice(exec, block.Info{Name: fmt.Sprint("v", lun), Sectors: 1024, BlockSize: 512})
				if err := r.tg.Map("", uint16(lun), r.tg.AddUnit(devs[lun], scsi.UnitOptions{})); err != nil {
					t.Fatal(err)
				}
			}
			var n *scsi.Nexus
			again := func() {
				if n != nil {
					closed := false
					n.Close(func() { closed = true })
					for !closed && exec.Step() {
					}
				}
				n = r.tg.OpenNexus(initiatorA, initiatorA+",i,0x1", 1)
			}
			hears := func(when string, lun, want int) {
				t.Helper()
				for _, want := range []int{want, 0} {
					if _, c := r.run(n, uint64(lun), make([]byte, 6), nil); c&0xFFFFFF != want {
						t.Errorf("%s, LUN %d: TEST UNIT READY ends %06x, not %06x", when, lun, c, want)
					}
				}
			}
			first := powerOn
			if survived {
				first = internalReset
			}
			again()
			if again(); !survived {
				hears("it left before it asked", 0, powerOn)
			} else {
				hears("it left before it asked", 0, nexusLoss)
			}
			again()
			hears("it had asked", 0, nexusLoss)
			if !survived {
				hears("it had not asked this one", 1, first)
			} else {
				hears("it had not asked this one", 1, nexusLoss)
			}
			closed := false
			n.Close(func() { closed = true })
			for !closed && exec.Step() {
			}
			n = nil
			devs[1].Change(block.EventPowerLoss, func(*block.Info) {})
			again()
			hears("nothing happened while it was away", 0, nexusLoss)
			hears("a loss of power while it was away", 1, powerOn)
			again()
			hears("it has heard of that", 1, nexusLoss)
			devs[0].Change(block.EventPowerLoss, func(*block.Info) {})
			again()
			again()
			hears("it left twice before it asked", 0, powerOn)
			hears("it has heard of that", 1, nexusLoss)
		})
	}
}
