package scsi_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// Copies of host a, from LUN 0 to LUN 2, of several requests each.
const (
	fromLUN, toLUN = scsitest.Thin, scsitest.Other
	copyPieces     = 16
	pieceBlocks    = 8
)

// copyKinds start a copy and return its task.
var copyKinds = []struct {
	name  string
	reads bool // LUN 0 while it runs
	token bool // has data of LUN 0
	start func(r *rig) *scsi.Task
}{
	{"EXTENDED COPY to the source", true, false, func(r *rig) *scsi.Task { return r.copyAcross(fromLUN, 0) }},
	{"EXTENDED COPY to the destination", true, false, func(r *rig) *scsi.Task { return r.copyAcross(toLUN, 0) }},
	{"EXTENDED COPY to the source, IMMED", true, false, func(r *rig) *scsi.Task { return r.copyAcross(fromLUN, scsitest.Immed4) }},
	{"EXTENDED COPY to the destination, IMMED", true, false, func(r *rig) *scsi.Task { return r.copyAcross(toLUN, scsitest.Immed4) }},
	{"EXTENDED COPY to a third, IMMED", true, false, func(r *rig) *scsi.Task { return r.copyAcross(scsitest.Large, scsitest.Immed4) }},
	{"WRITE USING TOKEN", false, true, func(r *rig) *scsi.Task { return r.writeToken(r.token, 0) }},
	{"WRITE USING TOKEN, IMMED", false, true, func(r *rig) *scsi.Task { return r.writeToken(r.token, 1) }},
	{"WRITE USING TOKEN of zeros, IMMED", false, false, func(r *rig) *scsi.Task {
		zeros := make([]byte, 512)
		copy(zeros, []byte{0xFF, 0xFF, 0, 1, 0, 0, 0x01, 0xF8})
		return r.writeToken(zeros, 1)
	}},
}

// copyAcross sends EXTENDED COPY(LID4) of LUN 0 to LUN 2 to a LUN.
func (r *rig) copyAcross(lun uint64, flags byte) *scsi.Task {
	var segs [][]byte
	for i := range uint64(copyPieces) {
		segs = append(segs, scsitest.Segment02(0, 1, pieceBlocks, i*pieceBlocks, i*pieceBlocks, false))
	}
	list := scsitest.CopyList4(77, 0, flags, r.cscds, segs)
	return r.start(r.a, lun, scsitest.CopyCDB4(list), list)
}

func (r *rig) writeToken(token []byte, flags byte) *scsi.Task {
	var to []scsitest.Extent
	for i := range uint64(copyPieces) {
		to = append(to, scsitest.Extent{LBA: i * pieceBlocks, Blocks: pieceBlocks})
	}
	list := scsitest.WriteTokenList(flags, 0, token, to...)
	return r.start(r.a, toLUN, scsitest.TokenCDB(0x11, 78, list), list)
}

// start is issue for any LUN.
func (r *rig) start(n *scsi.Nexus, lun uint64, cdb, out []byte) *scsi.Task {
	t := &scsi.Task{LUN: lun << 48, CDB: cdb, MaxIn: 4096, Bufs: heap{}, Done: func(t *scsi.Task) { t.Ctx = true }}
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	n.Submit([]*scsi.Task{t})
	return t
}

// fenceRig is a rig with a token of LUN 0, and with both hosts registered on LUNs 0 and 2.
type fenceRig struct {
	*rig
	answered bool
}

func newFenceRig(t *testing.T) *fenceRig {
	f := &fenceRig{rig: newRig(t)}
	r := f.rig
	s := &scsitest.Session{TB: r, Initiator: &direct{r, r.exec, r.a}}
	r.cscds = [][]byte{s.NAA6(fromLUN, 512), s.NAA6(toLUN, 512)}
	for i := range r.devs[fromLUN].Data {
		r.devs[fromLUN].Data[i] = 0x55
	}
	list := scsitest.PopulateList(0, 600, 0, scsitest.Extent{Blocks: copyPieces * pieceBlocks})
	_, c := r.run(r.a, fromLUN, scsitest.TokenCDB(0x10, 1, list), list)
	r.wants("POPULATE TOKEN", c, 0)
	info, _ := r.run(r.a, fromLUN, scsitest.ReceiveCDB(0x84, 7, 1), nil)
	r.token = bytes.Clone(bytes.Join(info.DataIn, nil)[38 : 38+512])
	for i := range r.devs[toLUN].Data { // so that zeros show, too
		r.devs[toLUN].Data[i] = 0x11
	}
	return f
}

// register makes both hosts registered on a LUN.
func (f *fenceRig) register(lun uint64) {
	for i, n := range []*scsi.Nexus{f.a, f.b} {
		_, c := f.run(n, lun, prOut(6, 0), prList(0, uint64(0xA+i), 0))
		f.wants("REGISTER", c, 0)
	}
}

// fences are what must keep host a's copies from a LUN; begin starts one by host b.
var fences = []struct {
	name    string
	erases  bool // leaves zeros
	ofReads bool // it concerns whoever reads the LUN, too
	prepare func(f *fenceRig, lun uint64)
	begin   func(f *fenceRig, lun uint64)
}{
	{"LOGICAL UNIT RESET", false, true, nil, func(f *fenceRig, lun uint64) { f.tmf(scsi.LogicalUnitReset, lun) }},
	{"TARGET WARM RESET", false, true, nil, func(f *fenceRig, lun uint64) { f.tmf(scsi.TargetWarmReset, lun) }},
	{"PREEMPT AND ABORT of a registration", false, true, (*fenceRig).register, func(f *fenceRig, lun uint64) { f.pr(lun, 5, 0, 0xB, 0xA) }},
	{"PREEMPT AND ABORT of a reservation", false, true, func(f *fenceRig, lun uint64) {
		f.register(lun)
		f.run(f.a, lun, prOut(1, 1), prList(0xA, 0, 0))
	}, func(f *fenceRig, lun uint64) { f.pr(lun, 5, 3, 0xB, 0xA) }},
	{"PREEMPT", false, true, func(f *fenceRig, lun uint64) {
		f.register(lun)
		f.run(f.a, lun, prOut(1, 6), prList(0xA, 0, 0))
	}, func(f *fenceRig, lun uint64) { f.pr(lun, 4, 3, 0xB, 0xA) }},
	{"RESERVE, Write Exclusive", false, false, (*fenceRig).register, func(f *fenceRig, lun uint64) { f.pr(lun, 1, 1, 0xB, 0) }},
	{"RESERVE, Exclusive Access", false, true, (*fenceRig).register, func(f *fenceRig, lun uint64) { f.pr(lun, 1, 3, 0xB, 0) }},
	{"RESERVE(6)", false, true, nil, func(f *fenceRig, lun uint64) { f.send(lun, []byte{0x16, 0, 0, 0, 0, 0}, nil) }},
	{"SANITIZE", true, true, nil, func(f *fenceRig, lun uint64) { f.send(lun, []byte{0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0}, nil) }},
	{"FORMAT UNIT", true, true, nil, func(f *fenceRig, lun uint64) { f.send(lun, []byte{4, 0, 0, 0, 0, 0}, nil) }},
	{"unmapping", false, true, nil, func(f *fenceRig, lun uint64) {
		f.tg.Remap(func() { f.tg.Unmap("", uint16(lun)) }, func() { f.answered = true })
	}},
	{"logout", false, true, nil, func(f *fenceRig, _ uint64) { f.a.Close(func() { f.answered = true }) }},
}

func (f *fenceRig) tmf(fn scsi.TMF, lun uint64) {
	f.b.Manage(fn, lun<<48, 0, func(scsi.TMFResponse) { f.answered = true })
}

// send is a command of host b that must end well.
func (f *fenceRig) send(lun uint64, cdb, out []byte) {
	t := f.start(f.b, lun, cdb, out)
	t.Done = func(t *scsi.Task) {
		t.Ctx = true
		f.wants(fmt.Sprintf("the command %x", cdb), code(t), 0)
		f.answered = true
	}
}

func (f *fenceRig) pr(lun uint64, sa, kind byte, key, action uint64) {
	f.send(lun, prOut(sa, kind), prList(key, action, 0))
}

// TestNothingLandsAfterAFence: when a fence of the destination has answered, not one more block of
// a copy arrives there, wherever its command came, whether that has ended or not, and whether its
// request can be withdrawn or not. A fence of the source stops what reads it.
func TestNothingLandsAfterAFence(t *testing.T) {
	for _, side := range []uint64{toLUN, fromLUN} {
		for _, fence := range fences {
			for _, kind := range copyKinds {
				if side == fromLUN && (!kind.reads && !(kind.token && fence.erases) || !fence.ofReads) {
					continue
				}
				for _, held := range []bool{false, true} {
					name := fmt.Sprintf("%s of LUN %d/%s/held=%v", fence.name, side, kind.name, held)
					t.Run(name, func(t *testing.T) {
						f := newFenceRig(t)
						if fence.prepare != nil {
							fence.prepare(f, side)
						}
						to := f.devs[toLUN]
						const takes = 100_000
						f.devs[toLUN].Late, f.devs[fromLUN].Late = takes, takes
						task := kind.start(f.rig)
						f.exec.RunUntil(f.exec.Now() + 3*takes + takes/2)
						if held { // what comes now waits, and can be withdrawn
							to.Late, to.Hold = 0, true
							f.exec.RunUntil(f.exec.Now() + 3*takes)
							if to.Waiting() == 0 {
								t.Fatal("no request waits")
							}
							to.Hold = false
						}
						placed := to.Seen[block.OpPlace] + to.Seen[block.OpWriteSame]
						if bytes.Equal(to.Data[:4096], bytes.Repeat([]byte{0x11}, 4096)) || placed == 0 || placed >= copyPieces {
							t.Fatalf("the copy is not in its middle: %d pieces are placed", placed)
						}
						fence.begin(f, side)
						for !f.answered && f.exec.Step() {
						}
						if !f.answered {
							t.Fatal("the fence does not answer")
						}
						then := bytes.Clone(to.Data)
						if fence.erases && side == toLUN && !bytes.Equal(then, make([]byte, len(then))) {
							t.Error("the medium is not erased when the command ends")
						}
						to.Release(to.Waiting())
						f.exec.RunUntil(f.exec.Now() + second)
						if !bytes.Equal(to.Data, then) {
							t.Error("blocks landed after the fence had answered")
						}
						if task.Ctx == nil {
							t.Error("the command of the copy has not ended")
						}
						if n := len(f.tg.Offloads(nil)); n != 0 {
							t.Errorf("%d copies run", n)
						}
						f.tg.RevokeTokens()
						f.exec.RunUntil(f.exec.Now() + second)
						f.refs("at the end", 0)
					})
				}
			}
		}
	}
}

// TestWhatAFencedCopySays: a copy that a fence ends names the unit that ended it, and what that
// said.
func TestWhatAFencedCopySays(t *testing.T) {
	for _, c := range []struct {
		fence string
		side  uint64
		want  []byte // byte of the status, status, sense key, code
	}{
		{"LOGICAL UNIT RESET", toLUN, []byte{9, 0x40}},
		{"LOGICAL UNIT RESET", fromLUN, []byte{8, 0x40}},
		{"PREEMPT", toLUN, []byte{9, 0x18}},
		{"PREEMPT", fromLUN, []byte{8, 0x18}},
		{"RESERVE(6)", toLUN, []byte{9, 0x18}},
		{"SANITIZE", toLUN, []byte{9, 0x02, 2, 0x04, 0x1B}},
		{"FORMAT UNIT", fromLUN, []byte{8, 0x02, 2, 0x04, 0x04}},
	} {
		f := newFenceRig(t)
		other := fromLUN + toLUN - c.side
		f.devs[fromLUN].Late, f.devs[toLUN].Late = 100_000, 100_000
		for _, fence := range fences {
			if fence.name != c.fence {
				continue
			}
			if fence.prepare != nil {
				fence.prepare(f, c.side)
			}
			task := f.copyAcross(other, 0)
			f.exec.RunUntil(f.exec.Now() + 350_000)
			fence.begin(f, c.side)
			f.exec.RunUntil(f.exec.Now() + second)
			f.wants(c.fence, code(task), 0x020A0D01)
			if s := task.Sense; int(s[c.want[0]]) != 18 || s[18] != c.want[1] {
				t.Errorf("%s of LUN %d: sense %x, want status %02x by byte %d", c.fence, c.side, s, c.want[1], c.want[0])
			} else if k, a, q := scsitest.SenseCode(s[19:]); len(c.want) > 2 && !bytes.Equal([]byte{k, a, q}, c.want[2:]) {
				t.Errorf("%s of LUN %d: forwarded %x/%02x/%02x, want %x", c.fence, c.side, k, a, q, c.want[2:])
			}
		}
	}
}

// TestReservationSparesItsOwn: a reservation ends no copy of those whom it lets read and write,
// and none of the units that it is not of.
func TestReservationSparesItsOwn(t *testing.T) {
	for _, kind := range copyKinds {
		for _, c := range []struct {
			lun  uint64
			pr   byte // type
			from func(f *fenceRig) *scsi.Nexus
		}{
			{toLUN, 1, func(f *fenceRig) *scsi.Nexus { return f.a }},          // its own
			{toLUN, 6, func(f *fenceRig) *scsi.Nexus { return f.b }},          // a registrant's
			{fromLUN, 1, func(f *fenceRig) *scsi.Nexus { return f.b }},        // it only reads
			{scsitest.Thick, 3, func(f *fenceRig) *scsi.Nexus { return f.b }}, // another unit
		} {
			f := newFenceRig(t)
			f.register(c.lun)
			f.devs[fromLUN].Late, f.devs[toLUN].Late = 100_000, 100_000
			task := kind.start(f.rig)
			f.exec.RunUntil(f.exec.Now() + 350_000)
			n, key := c.from(f), uint64(0xA)
			if n == f.b {
				key = 0xB
			}
			_, got := f.run(n, c.lun, prOut(1, c.pr), prList(key, 0, 0))
			f.wants("RESERVE", got, 0)
			f.exec.RunUntil(f.exec.Now() + second)
			f.wants(fmt.Sprintf("%s, type %d of LUN %d", kind.name, c.pr, c.lun), code(task), 0)
			const n1 = copyPieces * pieceBlocks * 512
			want := make([]byte, n1) // of the token of zeros
			if kind.reads || kind.token {
				want = f.devs[fromLUN].Data[:n1]
			}
			if !bytes.Equal(f.devs[toLUN].Data[:n1], want) {
				t.Errorf("%s, type %d of LUN %d: the copy is not complete", kind.name, c.pr, c.lun)
			}
		}
	}
}

// TestCopyThatWaitsIsFenced: a copy that arrived before a fence and waits in the task set of
// another unit does not begin after it; one that arrives afterwards does, where no reservation
// keeps it away.
func TestCopyThatWaitsIsFenced(t *testing.T) {
	frontEnd := fences[0] // one that keeps reservations itself
	frontEnd.name, frontEnd.begin = "EndCopies", func(f *fenceRig, lun uint64) {
		scsi.EndCopies(f.b, lun<<48)
		f.answered = true
	}
	all := append(slices.Clone(fences), frontEnd)
	for _, name := range []string{"LOGICAL UNIT RESET", "TARGET WARM RESET", "PREEMPT AND ABORT of a registration", "SANITIZE", "EndCopies"} {
		for _, fence := range all {
			if fence.name != name {
				continue
			}
			f := newFenceRig(t)
			if fence.prepare != nil {
				fence.prepare(f, toLUN)
			}
			large := f.devs[scsitest.Large]
			large.Hold = true // an ORDERED command there keeps the copy waiting
			f.submit(f.a, attr(f.task("read", scsitest.Large, scsitest.CDB(0x28, 0, 1)), scsi.AttrOrdered))
			task := f.copyAcross(scsitest.Large, 0)
			f.exec.RunUntil(f.exec.Now() + second)
			fence.begin(f, toLUN)
			f.exec.RunUntil(f.exec.Now() + second)
			if !f.answered {
				t.Fatalf("%s does not answer", name)
			}
			then := bytes.Clone(f.devs[toLUN].Data)
			large.Hold = false
			large.Release(large.Waiting())
			f.exec.RunUntil(f.exec.Now() + second)
			if !bytes.Equal(f.devs[toLUN].Data, then) {
				t.Errorf("%s: a copy that waited began afterwards", name)
			}
			if c := code(task); c != 0x020A0D01 && !task.Aborted && c != scsi.StatusTaskAborted<<24 {
				t.Errorf("%s: the copy that waited ended with %08x", name, c)
			}
			for range 3 {
				f.run(f.a, fromLUN, tur, nil)
				f.run(f.a, toLUN, tur, nil)
				f.run(f.a, scsitest.Large, tur, nil)
			}
			again := f.copyAcross(fromLUN, 0)
			f.exec.RunUntil(f.exec.Now() + second)
			f.wants(name+": a copy that comes afterwards", code(again), 0)
		}
	}
}
