package handlers

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// groupsHost opens the volumes of the pool "silver" at another target than those of "gold".
type groupsHost struct {
	*testHost
	silver *scsi.Target
}

func (h *groupsHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	u, info, release, err := h.testHost.OpenVolume(s)
	if err != nil || s.Pool != "silver" {
		return u, info, release, err
	}
	h.exec.Lock()
	defer h.exec.Unlock()
	u = h.silver.AddUnit(h.array.Volume(s.Volume), scsi.UnitOptions{})
	return u, info, func() {
		h.exec.Lock()
		h.silver.RemoveUnit(u)
		h.exec.Unlock()
		release()
	}, nil
}

// TestReservationsAtOtherGroups: a copy reaches the units of its domain at other I/O groups, too, and
// meets their reservations.
func TestReservationsAtOtherGroups(t *testing.T) {
	h := &groupsHost{testHost: newHost(t)}
	h.silver = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array.2", Vendor: "ARRAYSIM", Product: "array", Exec: h.exec})
	scsi.JoinCopies(h.target, h.silver)
	a := NewArray(h, nil)
	x := mustOpen(t, a, "gold/x/domain=both", tcmutest.Options{})
	y := mustOpen(t, a, "silver/y/domain=both", tcmutest.Options{})
	data := bytes.Repeat([]byte{3}, 4096)
	x.write(0, data)
	cdb, list := copyList(x.naa(), y.naa(), 0, 8, 8)
	x.do(cdb, list, 0)
	y.holds(8, data)
	y.SetAttribute("pr/res_holder", "SPC-3 Reservation: iSCSI Initiator: iqn.2026-01.org.example:a")
	y.SetAttribute("pr/res_pr_type", "SPC-3 Reservation Type: Write Exclusive Access")
	x.fails(0x0A, 0x0D01, cdb, list, 0)
	x.close()
	y.close()
}
