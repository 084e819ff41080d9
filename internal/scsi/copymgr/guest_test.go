package copymgr

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Lend makes what is held readable elsewhere.
func (*hold) Lend(func()) block.Ref { return &lateRef{} }

// guestRig are the targets of two I/O groups. Initiators a and b are logged in to both, and have a unit of each at LUN 0; in the
// far group each by a map of its own.
type guestRig struct {
	testing.TB
	near, far *rig
	a, b      [2]*server.Nexus // at near and at far
}

func newGuestRig(t testing.TB) *guestRig {
	t.Helper()
	r := &guestRig{TB: t, near: newRig(t), far: newRig(t)}
	f := r.far
	f.dev = &slow{info: block.Info{Name: "far", Sectors: 1 << 20, BlockSize: 512, NAA: [16]byte{0x60, 15: 1}}}
	f.u = f.tg.AddUnit(f.dev, server.UnitOptions{})
	for _, name := range []string{"a", "b"} {
		if err := f.tg.Map(name, 0, f.u); err != nil {
			t.Fatal(err)
		}
	}
	Join(r.near.m, f.m)
	r.a, r.b = r.login("a"), r.login("b")
	return r
}

func (r *guestRig) login(name string) [2]*server.Nexus {
	return [2]*server.Nexus{r.near.login(name), r.far.login(name)}
}

// run lets both groups say what they have to say to each other.
func (r *guestRig) run() {
	for range 8 {
		r.near.exec.RunUntil(r.near.exec.Now() + 1)
		r.far.exec.RunUntil(r.far.exec.Now() + 1)
	}
}

// copyTo sends an EXTENDED COPY of 8 blocks of the near unit to the far one, and lets it hold them.
func (r *guestRig) copyTo(n *server.Nexus) *server.Task {
	const typeAt, cscdsAt, segmentsAt = 16, 42, 44 // SPC-4 6.4.4
	be := binary.BigEndian
	list := make([]byte, copylist.Header4+copylist.CSCDLen)
	list[0], list[1], list[typeAt] = 1, copylist.UsageNone<<3, 0xFF
	be.PutUint16(list[2:], copylist.CSCDLen)
	be.PutUint16(list[cscdsAt:], copylist.CSCDLen)
	be.PutUint16(list[segmentsAt:], copylist.SegmentBlocksLen)
	c := list[copylist.Header4:]
	naa := r.far.dev.info.NAA
	c[0], c[cscdCodeSet], c[cscdKind], c[cscdIDLen] = copylist.CSCDIdent, 1, 3, byte(len(naa))
	copy(c[cscdID:], naa[:])
	g := blocksSegment(8, 0, 0)
	be.PutUint16(g[copylist.SegmentTarget:], 0)
	task := r.near.submit(n, []byte{0x83, SACopyLID4, 15: 0}, append(list, g...))
	r.run()
	r.end(r.near, block.OpHold)
	return task
}

// writeFrom sends a WRITE USING TOKEN of 8 blocks to a unit of the near group.
func (r *guestRig) writeFrom(n *server.Nexus, k *copysource.Token) *server.Task {
	be := binary.BigEndian
	list := make([]byte, writeHead+rangeLen)
	be.PutUint16(list, uint16(len(list)-2))
	copy(list[writeToken:], k.Bytes[:])
	list[writeRanges+1], list[writeHead+11] = rangeLen, 8
	task := r.near.submit(n, []byte{0x83, SAWriteToken, 15: 0}, list)
	r.run()
	return task
}

// token makes a token of the far unit.
func (r *guestRig) token(n *server.Nexus) *copysource.Token {
	r.Helper()
	r.far.populate(n, 1, false)
	r.end(r.far, block.OpHold)
	all := r.far.m.read.Tokens()
	if len(all) == 0 {
		r.Fatal("there is no token")
	}
	return all[len(all)-1]
}

// end ends the only request of a device.
func (r *guestRig) end(at *rig, op block.Op) {
	r.Helper()
	r.waits(at, op)
	at.dev.end(0, block.OK)
	r.run()
}

func (r *guestRig) waits(at *rig, op block.Op) {
	r.Helper()
	if len(at.dev.reqs) != 1 || at.dev.reqs[0].Op != op {
		r.Fatalf("%s has %d requests, want one, of kind %v", at.dev.info.Name, len(at.dev.reqs), op)
	}
}

// outcome is the status of a task and what its sense data says; "" of one that has not ended.
func outcome(t *server.Task) string {
	switch {
	case t.Ctx == nil:
		return ""
	case t.Status == sam.StatusCheckCondition:
		return fmt.Sprintf("%02x%02x%02x", t.Sense[2], t.Sense[12], t.Sense[13])
	}
	return fmt.Sprintf("status %02x", t.Status)
}

func (r *guestRig) ended(task *server.Task, want string) {
	r.Helper()
	if got := outcome(task); got != want {
		r.Errorf("the command ends with %q, want %q", got, want)
	}
}

// leave ends the session of an initiator with the far group; anew it logs in again.
func (r *guestRig) leave(who *[2]*server.Nexus, anew bool) {
	r.Helper()
	name, left := who[1].Initiator(), false
	who[1].Close(func() { left = true })
	if r.run(); !left {
		r.Fatal("a session does not end")
	}
	if anew {
		who[1] = r.far.login(name)
	}
}

// mask takes the far unit away from an initiator that may have it; masked tells that nothing uses it by that any more.
func (r *guestRig) mask(name string) (masked *bool) {
	r.Helper()
	if err := r.far.tg.Map(name, 0, r.far.u); err != nil {
		r.Fatal(err)
	}
	masked = new(bool)
	r.far.tg.Remap(func() { r.far.tg.Unmap(name, 0) }, func() { *masked = true })
	r.run()
	return masked
}

// TestGuestsOfSessionsThatHaveEnded: the end of an export ends what copies of other groups and of other arrays do with the unit
// for the initiator, though the session by which they came to it has ended, and waits for what they write. Copies of others go on.
func TestGuestsOfSessionsThatHaveEnded(t *testing.T) {
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("a place/anew=%v", anew), func(t *testing.T) {
			r := newGuestRig(t)
			r.far.dev.keen = true
			task := r.copyTo(r.a[0])
			r.waits(r.far, block.OpPlace)
			r.leave(&r.a, anew)
			other, first, second := r.mask("b"), r.mask("a"), r.mask("a")
			if *first || *second || !*other {
				t.Errorf("while data is placed, the end of the export waits: %v, once more: %v, that of another initiator's: %v", !*first, !*second, !*other)
			}
			r.end(r.far, block.OpPlace)
			r.ended(task, "0a0d02")
			if !*first || !*second {
				t.Error("the end of the export waits for nothing")
			}
		})
		t.Run(fmt.Sprintf("a token/anew=%v", anew), func(t *testing.T) {
			r := newGuestRig(t)
			k := r.token(r.b[1])
			task := r.writeFrom(r.a[0], k)
			r.waits(r.near, block.OpPlace)
			r.leave(&r.a, anew)
			if masked := r.mask("a"); !*masked || len(r.near.dev.reqs) > 0 {
				t.Errorf("the export has ended: %v, and %d requests read by the token", *masked, len(r.near.dev.reqs))
			}
			r.ended(task, "052304")
			task = r.writeFrom(r.b[0], k)
			r.end(r.near, block.OpPlace)
			r.ended(task, "status 00")
		})
		t.Run(fmt.Sprintf("what another array holds/anew=%v", anew), func(t *testing.T) {
			r := newGuestRig(t)
			naa := r.far.dev.info.NAA
			var told []Ending
			lent := r.far.m.Lends().Lend(Initiator{Name: "a", Port: "a"}, Designator{CodeSet: 1, Kind: 3, ID: naa[:]}, func(e Ending) { told = append(told, e) })
			lent.Hold(block.Range{Count: 8}, func(Answer) {})
			r.end(r.far, block.OpHold)
			if lent.Held() == nil {
				t.Fatal("nothing is held")
			}
			r.leave(&r.a, anew)
			if masked := r.mask("a"); !*masked || lent.Held() != nil || r.far.dev.refs > 0 || len(told) != 1 {
				t.Errorf("the export has ended: %v, with %d references; the other array hears %v", *masked, r.far.dev.refs, told)
			}
		})
	}
	t.Run("the unit goes", func(t *testing.T) {
		r := newGuestRig(t)
		task := r.writeFrom(r.a[0], r.token(r.a[1]))
		r.far.tg.RemoveUnit(r.far.u)
		r.run()
		r.ended(task, "052306")
	})
	t.Run("a reset keeps tokens", func(t *testing.T) {
		r := newGuestRig(t)
		task := r.writeFrom(r.a[0], r.token(r.a[1]))
		r.leave(&r.a, false)
		r.b[1].Manage(sam.LogicalUnitReset, 0, 0, func(sam.TMFResponse) {})
		r.run()
		r.end(r.near, block.OpPlace)
		r.ended(task, "status 00")
	})
}
