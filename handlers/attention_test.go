package handlers

import (
	"sync/atomic"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// powerHost opens units of devices that can tell of a loss of power.
type powerHost struct {
	*testHost
	units map[string]*scsi.Unit
}

func (h *powerHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	u, info, release, err := h.testHost.OpenVolume(s)
	if err == nil {
		h.units[s.Volume] = u
	}
	return u, info, release, err
}

// raise makes conditions pending for all who see the volume's unit.
func (h *powerHost) raise(volume string, which scsi.Attentions) {
	h.exec.Lock()
	defer h.exec.Unlock()
	h.units[volume].Establish(which, nil)
}

// TestAttentionsOfOthersStay: what the kernel tells its initiators itself is taken from the units, and
// with it nothing that they have yet to hear.
func TestAttentionsOfOthersStay(t *testing.T) {
	h := &powerHost{newHost(t), map[string]*scsi.Unit{}}
	a := NewArray(h, nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	x.do(testUnitReady, nil, 0)

	h.raise("x", scsi.AttentionPowerOn|scsi.AttentionCapacity)
	y := mustOpen(t, a, "gold/y", tcmutest.Options{}) // changes the LUNs of the domain
	y.do(testUnitReady, nil, 0)
	y.close() // and again
	x.fails(6, 0x2900, testUnitReady, nil, 0)
	x.fails(6, 0x2A09, testUnitReady, nil, 0)
	x.do(testUnitReady, nil, 0)

	h.raise("x", scsi.AttentionPowerOn)
	if err := x.Manage(tcmu.TMRLUNReset); err != nil {
		t.Fatal(err)
	}
	x.fails(6, 0x2900, testUnitReady, nil, 0)
	x.do(testUnitReady, nil, 0)
	x.close()
}

// TestPowerLossOfResumedDevice: the initiators of a device that outlived the process hear, once, that its array has lost
// what it had acknowledged. Those of a new one do not: there was nothing.
func TestPowerLossOfResumedDevice(t *testing.T) {
	a := NewArray(newHost(t), nil)
	resumed := func(i *tcmu.Info) { i.Resumed, i.WriteCache = true, true }
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	x.do(testUnitReady, nil, 0)
	x.close()
	again := func(a *Array) *lun {
		x, err := open(t, a, "gold/x", tcmutest.Options{}, resumed)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x = again(a) // a ring that was reset: the same process
	x.do(testUnitReady, nil, 0)
	x.close()
	x = again(NewArray(a.host, nil)) // another process
	x.fails(6, 0x2900, testUnitReady, nil, 0)
	x.do(testUnitReady, nil, 0)
	x.close()
}

// TestNamesWhileBusy: a unit whose target takes no commands as it is opened is found by the copies that a reservation
// of it forbids.
func TestNamesWhileBusy(t *testing.T) {
	h := newHost(t)
	var busy atomic.Bool
	h.target = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array", Vendor: "ARRAYSIM", Exec: h.exec, Serving: func() bool { return !busy.Load() }})
	a := NewArray(h, nil)
	x := mustOpen(t, a, "gold/x", tcmutest.Options{})
	busy.Store(true)
	y := mustOpen(t, a, "gold/y", tcmutest.Options{})
	busy.Store(false)
	x.do(testUnitReady, nil, 0)
	y.do(testUnitReady, nil, 0)
	y.SetAttribute("pr/res_holder", "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a")
	y.SetAttribute("pr/res_pr_type", "SPC-3 Reservation Type: Exclusive Access")
	cdb, list := copyList(x.naa(), y.naa(), 0, 0, 8)
	x.fails(0x0A, 0x0D01, cdb, list, 0)
	x.close()
	y.close()
}
