package scsi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const second = 1_000_000_000

// run issues a command on a LUN and returns what issue and code say a millisecond later.
func (r *rig) run(n *scsi.Nexus, lun uint64, cdb, out []byte) (*scsi.Task, int) {
	t := &scsi.Task{LUN: lun << 48, CDB: cdb, MaxIn: 4096, Bufs: heap{}, Done: func(t *scsi.Task) { t.Ctx = true }}
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	n.Submit([]*scsi.Task{t})
	r.exec.RunUntil(r.exec.Now() + 1_000_000)
	return t, code(t)
}

func (r *rig) wants(what string, got, want int) {
	r.Helper()
	if got != want {
		r.Errorf("%s: %08x, want %08x", what, got, want)
	}
}

// refs checks that the devices have this many references.
func (r *rig) refs(what string, want int) {
	r.Helper()
	n := 0
	for _, d := range r.devs {
		n += d.Refs
	}
	if n != want {
		r.Errorf("%s: %d references, want %d", what, n, want)
	}
}

// list is a copy of 8 blocks inside LUN 0, then from LUN 0 to LUN 2.
func (r *rig) list(id uint32, flags byte) []byte {
	s := &scsitest.Session{TB: r.TB, Initiator: &direct{r.TB, r.exec, r.a}}
	cs := [][]byte{s.NAA6(scsitest.Thin, 512), s.NAA6(scsitest.Other, 512)}
	return scsitest.CopyList4(id, 0, flags, cs, [][]byte{scsitest.Segment02(0, 0, 8, 0, 100, false), scsitest.Segment02(0, 1, 8, 0, 7, false)})
}

// status is COPY OPERATION STATUS of a list identifier.
func (r *rig) status(id uint32) int {
	t, c := r.run(r.a, 0, scsitest.ReceiveCDB(0x84, 5, id), nil)
	if c != 0 {
		return -c
	}
	return int(bytes.Join(t.DataIn, nil)[5])
}

// TestPriorityReachesTheDevice: both forms of the list have it in the low bits of their second
// byte.
func TestPriorityReachesTheDevice(t *testing.T) {
	for priority := range uint8(8) {
		r := newRig(t)
		var got []uint8
		r.devs[2].Fault = func(q *block.Request) block.Status {
			if q.Op == block.OpPlace {
				got = append(got, q.Priority)
			}
			return block.OK
		}
		list := r.list(9, 0)
		list[1] |= priority
		_, c := r.run(r.a, 0, scsitest.CopyCDB4(list), list)
		r.wants("LID4", c, 0)
		k := r.copyTask("LID1", 7, 1)
		k.DataOut[0][1] |= priority
		r.submit(r.a, k)
		r.ended("LID1")
		if !slices.Equal(got, []uint8{priority, priority}) {
			t.Errorf("priority %d: the device sees %v", priority, got)
		}
	}
}

func TestCopyInBackground(t *testing.T) {
	r := newRig(t)
	copy(r.devs[0].Data, bytes.Repeat([]byte{7}, 8*512))
	list := r.list(5, scsitest.Immed4)
	r.devs[0].Hold = true
	_, c := r.run(r.a, 0, scsitest.CopyCDB4(list), list)
	r.wants("the command", c, 0)
	r.wants("status", r.status(5), 0x12)
	_, c = r.run(r.a, 0, scsitest.CopyCDB4(list), list)
	r.wants("the same identifier", c, 0x02050016)
	for r.devs[0].Waiting() > 0 {
		r.devs[0].Release(1)
		r.exec.RunUntil(r.exec.Now() + 1000)
	}
	r.wants("status", r.status(5), 1)
	if !bytes.Equal(r.devs[2].Data[7*512:15*512], r.devs[0].Data[:8*512]) {
		t.Error("nothing was copied")
	}
	r.refs("at the end", 0)
}

func TestCopyOperationAbort(t *testing.T) {
	for _, flags := range []byte{0, scsitest.GSense4, scsitest.Immed4} {
		r := newRig(t)
		list, ended := r.list(5, flags), 0x020A0000
		if flags == scsitest.Immed4 {
			ended = 0
		}
		r.devs[0].Hold = true
		task, _ := r.run(r.a, 0, scsitest.CopyCDB4(list), list)
		abort, c := r.run(r.a, 0, scsitest.ReceiveCDB(0x83, 0x1C, 5), nil)
		r.wants("the abort", c, 0) // what waits is withdrawn
		_ = abort
		r.wants("the command", code(task), ended)
		r.wants("status", r.status(5), 0x60)
		_, c = r.run(r.a, 0, scsitest.ReceiveCDB(0x83, 0x1C, 5), nil)
		r.wants("once more", c, 0x02052400)

		// One that has started ends first.
		r.devs[0].Hold, r.devs[0].Delay = false, second
		list = r.list(6, flags)
		task, _ = r.run(r.a, 0, scsitest.CopyCDB4(list), list)
		abort, c = r.run(r.a, 0, scsitest.ReceiveCDB(0x83, 0x1C, 6), nil)
		r.wants("the abort waits", c, -1)
		r.exec.RunUntil(r.exec.Now() + 2*second)
		r.wants("the abort", code(abort), 0)
		r.wants("the command", code(task), ended)
		r.refs("at the end", 0)
	}
}

// TestAbortBesideItsCopy: COPY OPERATION ABORT also withdraws what a copy of the same batch of commands has just begun.
func TestAbortBesideItsCopy(t *testing.T) {
	f := newFenceRig(t)
	to := f.devs[toLUN]
	to.Hold = true
	list := scsitest.WriteTokenList(1, 0, f.token, scsitest.Extent{Blocks: 8})
	var batch []*scsi.Task
	for _, cdb := range [][]byte{scsitest.TokenCDB(0x11, 5, list), scsitest.ReceiveCDB(0x83, 0x1C, 5)} {
		task := f.task(fmt.Sprintf("%x", cdb[1]), toLUN, cdb)
		if cdb[1] == 0x11 {
			task.DataOut = [][]byte{list}
		}
		batch = append(batch, task)
	}
	f.submit(f.a, batch...)
	f.exec.RunUntil(f.exec.Now() + second)
	f.ended("11", "1c")
	if to.Seen[block.OpPlace] != 1 || to.Waiting() != 0 {
		t.Errorf("%d places came to the device, and %d of them wait; want one, which is withdrawn", to.Seen[block.OpPlace], to.Waiting())
	}
}

// Resets and lost nexuses end what goes on in the background.
func TestBackgroundCopyEnds(t *testing.T) {
	for what, end := range map[string]func(*rig){
		"reset":  func(r *rig) { r.b.Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {}) },
		"logout": func(r *rig) { r.a.Close(func() {}) },
		"unmap":  func(r *rig) { r.tg.Unmap("", 0) },
	} {
		r := newRig(t)
		list := r.list(5, scsitest.Immed4)
		r.devs[0].Hold = true
		r.run(r.a, 0, scsitest.CopyCDB4(list), list)
		end(r)
		r.exec.RunUntil(r.exec.Now() + second)
		if r.devs[0].Waiting() != 0 || r.devs[2].Seen[block.OpPlace] != 0 {
			t.Errorf("%s: the copy goes on", what)
		}
		r.refs(what, 0)
	}
}

func TestConcurrentCopiesAreLimited(t *testing.T) {
	r := newRig(t)
	r.devs[0].Hold = true
	list := r.list(0, scsitest.Immed4)
	busy := 0
	for id := range uint32(40) {
		binary.BigEndian.PutUint32(list[20:], id+1)
		if _, c := r.run(r.a, 0, scsitest.CopyCDB4(list), list); c == scsi.StatusBusy<<24 {
			busy++
		}
	}
	r.wants("refused", busy, 40-32)
	// Copies without a list identifier are copies, too; and other hosts have their own.
	anonymous := scsitest.CopyList4(0, 3, 0, [][]byte{list[48:80], list[80:112]}, [][]byte{list[112:140]})
	_, c := r.run(r.a, 0, scsitest.CopyCDB4(anonymous), anonymous)
	r.wants("one without a list identifier", c, scsi.StatusBusy<<24)
	_, c = r.run(r.b, 0, scsitest.CopyCDB4(anonymous), anonymous)
	r.wants("another host's", c, -1) // it runs
	// What is promised is what a nexus gets.
	in, _ := r.run(r.a, 0, scsitest.CDB16(0x84, 3, 64), nil)
	d := bytes.Join(in.DataIn, nil)
	r.wants("TOTAL CONCURRENT COPIES", int(binary.BigEndian.Uint16(d[34:])), 32)
	r.wants("MAXIMUM IDENTIFIED CONCURRENT COPIES", int(d[36]), 32)
	in, _ = r.run(r.a, 0, []byte{0x12, 1, 0x8F, 4, 0, 0}, nil)
	d = bytes.Join(in.DataIn, nil)
	general := bytes.Index(d, []byte{0x80, 0x01, 0, 0x20})
	r.wants("TOTAL CONCURRENT COPIES in page 8Fh", int(binary.BigEndian.Uint32(d[general+4:])), 32)
	r.wants("MAXIMUM IDENTIFIED CONCURRENT COPIES in page 8Fh", int(binary.BigEndian.Uint32(d[general+8:])), 32)
	for r.devs[0].Waiting() > 0 {
		r.devs[0].Release(1)
		r.exec.RunUntil(r.exec.Now() + 1000)
	}
	r.refs("at the end", 0)
}

// tokenOf makes a token of the first 8 blocks of LUN 0 with a timeout in seconds.
func (r *rig) tokenOf(id, timeout uint32) []byte {
	r.Helper()
	l := scsitest.PopulateList(0, timeout, 0, scsitest.Extent{Blocks: 8})
	if _, c := r.run(r.a, 0, scsitest.TokenCDB(0x10, id, l), l); c != 0 {
		r.Fatalf("POPULATE TOKEN: %08x", c)
	}
	t, _ := r.run(r.a, 0, scsitest.ReceiveCDB(0x84, 7, id), nil)
	in := bytes.Join(t.DataIn, nil)
	return in[38 : 38+512]
}

func (r *rig) use(n *scsi.Nexus, lun uint64, token []byte, flags byte) int {
	l := scsitest.WriteTokenList(flags, 0, token, scsitest.Extent{LBA: 50, Blocks: 8})
	_, c := r.run(n, lun, scsitest.TokenCDB(0x11, 99, l), l)
	return c
}

// TestTokenOfWhatHasChanged: a device that cannot keep what a token stands for says when it is something else, before
// the token is used or while it is read. Then the token is worth nothing.
func TestTokenOfWhatHasChanged(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []bool // to the question whether it has changed; the last one stays
		want    int
	}{
		{"never", []bool{false}, 0},
		{"before", []bool{true}, 0x052306},
		{"while it was read", []bool{false, true}, 0x052306},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			asked := 0
			r.devs[0].Changed = func() bool {
				asked++
				return row.answers[min(asked, len(row.answers))-1]
			}
			k := r.tokenOf(1, 10)
			got := r.use(r.a, 2, k, 0)
			if got&0xFFFFFF != row.want {
				t.Errorf("WRITE USING TOKEN ends %08x", got)
			}
			if row.want != 0 {
				if again := r.use(r.a, 2, k, 0); again&0xFFFFFF != 0x052306 {
					t.Errorf("a second time it ends %08x", again)
				}
			}
		})
	}
}

func TestTokenExpires(t *testing.T) {
	r := newRig(t)
	k := r.tokenOf(1, 10)
	standard := r.tokenOf(2, 0)
	for range 5 { // use starts the timeout anew
		r.exec.RunUntil(r.exec.Now() + 9*second)
		r.wants("in use", r.use(r.a, 0, k, 0), 0)
	}
	r.refs("two tokens", 2)
	r.exec.RunUntil(r.exec.Now() + 11*second)
	r.wants("left alone", r.use(r.a, 0, k, 0), 0x02052307)
	r.refs("one token", 1)
	r.wants("the default timeout", r.use(r.a, 0, standard, 0), 0)
	r.exec.RunUntil(r.exec.Now() + 301*second)
	r.wants("the default timeout is over", r.use(r.a, 0, standard, 0), 0x02052307)
	r.refs("none", 0)
}

// An operation that reads a token holds it, whatever happens to the token.
func TestTokenIsHeldWhileInUse(t *testing.T) {
	r := newRig(t)
	k := r.tokenOf(1, 10)
	r.devs[2].Hold = true
	l := scsitest.WriteTokenList(0, 0, k, scsitest.Extent{LBA: 50, Blocks: 8})
	task, _ := r.run(r.a, 2, scsitest.TokenCDB(0x11, 99, l), l)
	r.exec.RunUntil(r.exec.Now() + 60*second)
	r.wants("still there", r.use(r.a, 0, k, 2), 0) // and deleted
	r.wants("deleted", r.use(r.a, 0, k, 0), 0x02052309)
	r.refs("held", 1)
	r.devs[2].Release(1)
	r.exec.RunUntil(r.exec.Now() + second)
	r.wants("the operation", code(task), 0)
	r.refs("released", 0)
}

// A token resolves for those that can see its unit, and for nobody else.
func TestTokenIsMasked(t *testing.T) {
	r, units := newPair(t)
	k := r.tokenOf(1, 0)
	r.wants("visible", r.use(r.b, 2, k, 0), 0)
	if err := r.tg.Map(initiatorB, 2, units[1]); err != nil { // a map of its own: LUN 2 only
		t.Fatal(err)
	}
	r.run(r.b, 2, tur, nil) // REPORTED LUNS DATA HAS CHANGED
	r.wants("masked", r.use(r.b, 2, k, 0), 0x02052304)
	r.wants("masked, as unknown", r.use(r.b, 2, append(bytes.Clone(k[:500]), make([]byte, 12)...), 0), 0x02052304)
	in, _ := r.run(r.b, 2, scsitest.CDB16(0x84, 8, 1024), nil)
	if got := bytes.Join(in.DataIn, nil); len(got) != 8 {
		t.Errorf("REPORT ALL ROD TOKENS shows % x", got)
	}
	r.wants("for the other one still good", r.use(r.a, 2, k, 0), 0)
}

func TestTokensAreLimited(t *testing.T) {
	r := newRig(t)
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: 8})
	first := r.tokenOf(1, 0)
	made, n := 1, r.a
	for k, want := range []int{64, 64, 64, 32, 16, 8, 4, 2, 1, 1} { // as many as an initiator leaves to others, and 64 at most
		if k > 0 {
			n = r.tg.OpenNexus(fmt.Sprint(initiatorA, k), fmt.Sprint(initiatorA, k, ",i,0x1"), 1)
			r.run(n, 0, make([]byte, 6), nil) // unit attention
			made = 0
		}
		for ; ; made++ {
			if _, c := r.run(n, 0, scsitest.TokenCDB(0x10, 1, l), l); c == 0x020A550D {
				break
			} else if r.wants("populate", c, 0); made > want {
				break
			}
		}
		if made != want {
			r.Fatalf("initiator %d has %d tokens, want %d", k, made, want)
		}
	}
	r.refs("all", 256)
	_, c := r.run(r.b, 0, scsitest.TokenCDB(0x10, 1, l), l)
	r.wants("one more", c, 0x020A550D)
	r.wants("delete one", r.use(r.a, 0, first, 2), 0)
	_, c = r.run(r.b, 0, scsitest.TokenCDB(0x10, 1, l), l)
	r.wants("in its place", c, 0)
	r.exec.RunUntil(r.exec.Now() + 4000*second)
	r.refs("none", 0)
}

// newPair is a rig with two units, LUN 0 and LUN 2.
func newPair(t *testing.T) (*rig, []*scsi.Unit) {
	r := &rig{TB: t, exec: &block.Virtual{}}
	g := rand.NewChaCha8([32]byte{})
	r.tg = scsi.NewTarget(scsi.Options{Exec: r.exec, Random: func(b []byte) { _, _ = g.Read(b) }})
	var units []*scsi.Unit
	for i, lun := range []uint16{0, 2} {
		d := scsitest.NewDevice(r.exec, scsitest.Ready(uint32(i+1), scsitest.Sectors, block.SectorSize, true))
		u := r.tg.AddUnit(d, scsi.UnitOptions{})
		if err := r.tg.Map("", lun, u); err != nil {
			t.Fatal(err)
		}
		r.devs, units = append(r.devs, d), append(units, u)
	}
	r.a, r.b = r.login(initiatorA), r.login(initiatorB)
	return r, units
}

func TestPopulateInBackground(t *testing.T) {
	r, units := newPair(t)
	r.devs[0].Hold = true
	l := scsitest.PopulateList(1, 0, 0, scsitest.Extent{Blocks: 8})
	_, c := r.run(r.a, 0, scsitest.TokenCDB(0x10, 3, l), l)
	r.wants("the command", c, 0)
	r.wants("status", r.status(3), 0x12)
	in, _ := r.run(r.a, 0, scsitest.ReceiveCDB(0x84, 7, 3), nil)
	if d := bytes.Join(in.DataIn, nil); !bytes.Equal(d[32:], make([]byte, 4)) || !bytes.Equal(d[8:12], []byte{0xFF, 0xFF, 0xFF, 0xFE}) {
		t.Errorf("a token before its time: % x", d)
	}
	r.devs[0].Release(1)
	r.exec.RunUntil(r.exec.Now() + second)
	r.wants("status", r.status(3), 1)
	r.refs("a token", 1)
	r.tg.RemoveUnit(units[0])
	r.refs("no token", 0)

	tg := scsi.NewTarget(scsi.Options{Exec: r.exec})
	u := tg.AddUnit(r.devs[1], scsi.UnitOptions{})
	if err := tg.Map("", 0, u); err != nil {
		t.Fatal(err)
	}
	r.a = tg.OpenNexus(initiatorA, initiatorA, 1)
	r.run(r.a, 0, tur, nil)
	l = scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: 8})
	_, c = r.run(r.a, 0, scsitest.TokenCDB(0x10, 3, l), l)
	r.wants("without randomness", c, 0x020A550D)
	r.refs("no token", 0)
}
