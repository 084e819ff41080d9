package scsi_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// ends submits a command and checks that it ends exactly once, with a status and
// data that make sense.
func ends(t testing.TB, exec *block.Virtual, n *scsi.Nexus, task *scsi.Task) {
	done := 0
	task.Done = func(*scsi.Task) { done++ }
	task.Bufs = heap{}
	n.Submit([]*scsi.Task{task})
	exec.Run()
	if done != 1 {
		t.Fatalf("cdb %x: Done called %d times", task.CDB, done)
	}
	if in := block.VecLen(task.DataIn); in > task.MaxIn || in > task.InTotal {
		t.Fatalf("cdb %x: %d bytes of Data-In, buffer %d, total %d", task.CDB, in, task.MaxIn, task.InTotal)
	}
	if (task.Status == scsi.StatusCheckCondition) != (len(task.Sense) > 0) {
		t.Fatalf("cdb %x: status %02x with sense %x", task.CDB, task.Status, task.Sense)
	}
	if k, _, _ := scsitest.SenseCode(task.Sense); task.Status == scsi.StatusCheckCondition && k == 0 {
		t.Fatalf("cdb %x: CHECK CONDITION without a sense key", task.CDB)
	}
}

// cdbs are seeds: every command that the unit reports, with ones in every field.
func cdbs(t testing.TB) [][]byte {
	exec := &block.Virtual{}
	tg, _ := scsitest.NewTarget(exec)
	s := &scsitest.Session{TB: t, Open: func(name string) scsitest.Initiator {
		return &direct{t, exec, tg.OpenNexus(name, name, 1)}
	}}
	s.Initiator = s.Login(initiatorA)
	all := s.Do(scsitest.Command{CDB: []byte{0xA3, 0x0C, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, In: 65536}).In[4:]
	var out [][]byte
	for ; len(all) >= 8; all = all[8:] {
		opt := 1 + all[5]&1
		one := s.Do(scsitest.Command{CDB: []byte{0xA3, 0x0C, opt, all[0], all[2], all[3], 0, 0, 1, 0, 0, 0}, In: 256}).In
		usage := one[4:]
		out = append(out, usage)
		zero := make([]byte, len(usage))
		zero[0] = usage[0]
		if opt == 2 {
			zero[1] |= usage[1] & 0x1F
		}
		out = append(out, zero)
	}
	if len(out) < 100 {
		t.Fatalf("only %d seeds", len(out))
	}
	return out
}

func FuzzCDB(f *testing.F) {
	for _, cdb := range cdbs(f) {
		f.Add(cdb, make([]byte, 512), uint16(512), uint8(0))
	}
	f.Add([]byte{}, []byte{}, uint16(0), uint8(1))
	f.Add([]byte{0x28, 0, 0, 0}, []byte{}, uint16(0), uint8(1))
	f.Fuzz(func(t *testing.T, cdb, out []byte, in uint16, lun uint8) {
		exec := &block.Virtual{}
		tg, _ := scsitest.NewTarget(exec)
		n := tg.OpenNexus(initiatorA, initiatorA, 1)
		for range 2 { // the first one may meet the unit attention
			ends(t, exec, n, &scsi.Task{LUN: uint64(lun%8) << 48, CDB: cdb, DataOut: [][]byte{out}, MaxIn: int(in), Attr: scsi.Attr(lun / 32)})
		}
	})
}

// FuzzLists feeds parameter lists to the commands that take one.
func FuzzLists(f *testing.F) {
	heads := [][]byte{
		{0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{0x15, 0x10, 0, 0, 0, 0}, {0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0}, {0x5F, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0x5F, 6, 0, 0, 0, 0, 0, 0, 0, 0},
		{0x83, 0x01, 15: 0}, {0x83, 0x10, 15: 0}, {0x83, 0x11, 15: 0}, // 6, 7, 8: EXTENDED COPY(LID4), tokens
		{0x48, 0x01, 9: 0}, {0x04, 0x10, 5: 0}, {0x04, 0x30, 5: 0}, // 9, 10, 11: SANITIZE, FORMAT UNIT
		{0x5F, 0x07, 9: 0},                                            // 12: REGISTER AND MOVE
		{0xA4, 0x06, 11: 0}, {0xA4, 0x0A, 11: 0}, {0xA4, 0x0F, 11: 0}, // 13, 14, 15: SET ...
	}
	naa := scsitest.Ready(1, scsitest.Sectors, 512, true).NAA
	cscd := append(append([]byte{0xE4, 0, 0, 0, 1, 3, 0, 16}, naa[:]...), 0, 0, 0, 0, 0, 0, 2, 0)
	f.Add(uint8(0), scsitest.CopyList(1, 0, [][]byte{cscd}, [][]byte{scsitest.Segment02(0, 0, 5, 1, 9, true), scsitest.Segment0A(0, 0, 512, 1, 9, 512, 0)}))
	f.Add(uint8(1), []byte{0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 0})
	f.Add(uint8(2), []byte{0, 0, 0, 8, 0, 0, 32, 0, 0, 0, 2, 0, 0x0A, 10, 6, 0x10, 8, 0x40, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(5), make([]byte, 24))
	f.Add(uint8(4), append(append(make([]byte, 20), 8, 0, 0, 0, 0, 0, 0, 0x1C), "\x45\x00\x00\x18iqn.2026-01.a:b,i,0x12\x00\x00"...)) // SPEC_I_PT
	f.Add(uint8(6), scsitest.CopyList4(1, 0, scsitest.Immed4, [][]byte{cscd}, [][]byte{scsitest.Segment02(0, 0xFFFF, 5, 1, 9, true)}))
	f.Add(uint8(7), scsitest.PopulateList(3, 60, 0x00800000, scsitest.Extent{LBA: 8, Blocks: 16}, scsitest.Extent{LBA: 100, Blocks: 1}))
	f.Add(uint8(8), scsitest.WriteTokenList(3, 1, make([]byte, 512), scsitest.Extent{LBA: 8, Blocks: 16}, scsitest.Extent{LBA: 100, Blocks: 1}))
	f.Add(uint8(8), scsitest.WriteTokenList(0, 0, append([]byte{0xFF, 0xFF, 0, 1, 0, 0, 1, 0xF8}, make([]byte, 504)...), scsitest.Extent{LBA: 8, Blocks: 16}))
	f.Add(uint8(9), []byte{0x82, 0, 0, 3, 1, 2, 3})
	f.Add(uint8(10), []byte{0, 0x88, 0, 0, 0, 1, 0, 2, 0xAB, 0xCD})
	f.Add(uint8(11), []byte{0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0xAB})
	f.Add(uint8(12), append(append(make([]byte, 18), 0, 1, 0, 0, 0, 0x1C), "\x45\x00\x00\x18iqn.2026-01.a:b,i,0x12\x00\x00"...))
	f.Add(uint8(14), []byte{0, 0, 0, 0, 1, 0, 0, 1})
	f.Add(uint8(15), []byte{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0})
	f.Fuzz(func(t *testing.T, which uint8, list []byte) {
		exec := &block.Virtual{}
		tg, devs := scsitest.NewTarget(exec)
		n := tg.OpenNexus(initiatorA, initiatorA, 1)
		cdb := append([]byte(nil), heads[int(which)%len(heads)]...)
		if cdb[0] == 0x83 && cdb[1] == 0x11 && len(list) > 528 && list[3] == 0 {
			list = spliceToken(exec, n, list) // else the fuzzer never gets behind the token
		}
		switch len(cdb) {
		case 6:
			cdb[4] = byte(len(list))
		case 12:
			binary.BigEndian.PutUint32(cdb[6:], uint32(len(list)))
		case 10:
			binary.BigEndian.PutUint16(cdb[7:], uint16(len(list)))
		case 16:
			binary.BigEndian.PutUint32(cdb[10:], uint32(len(list)))
		}
		for range 2 {
			ends(t, exec, n, &scsi.Task{CDB: cdb, DataOut: [][]byte{list}})
		}
		for _, d := range devs {
			if d.Refs != 0 {
				t.Fatalf("%d references are not released", d.Refs)
			}
		}
	})
}

// spliceToken puts a good token into a parameter list of WRITE USING TOKEN.
func spliceToken(exec *block.Virtual, n *scsi.Nexus, list []byte) []byte {
	do := func(cdb, out []byte) []byte {
		t := &scsi.Task{CDB: cdb, DataOut: [][]byte{out}, MaxIn: 1024, Bufs: heap{}, Done: func(*scsi.Task) {}}
		n.Submit([]*scsi.Task{t})
		exec.RunUntil(exec.Now() + 1000)
		return bytes.Join(t.DataIn, nil)
	}
	do(make([]byte, 6), nil) // the unit attention
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{LBA: 3, Blocks: 40})
	do(scsitest.TokenCDB(0x10, 1, l), l)
	info := do(scsitest.ReceiveCDB(0x84, 7, 1), nil)
	list = bytes.Clone(list)
	copy(list[16:528], info[38:])
	return list
}

// FuzzUnitState feeds saved states; what is accepted must make a unit that works.
func FuzzUnitState(f *testing.F) {
	f.Add([]byte(`{"pr":{"generation":3,"registrations":[{"port":"iqn.a:b,i,0x1","target_port":1,"key":"170"}],"type":3}}`))
	f.Add([]byte(`{"mode":{"d_sense":true},"ident":"YQ==","erasing":{"passes":1,"pattern":"VQ=="}}`))
	f.Add([]byte(`{"failed":{"format":true}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		state, err := scsi.ParseUnitState(b)
		if err != nil {
			return
		}
		if state.Erasing != nil {
			state.Erasing.Passes = min(state.Erasing.Passes, 3) // that many take their time
		}
		exec := &block.Virtual{}
		tg := scsi.NewTarget(scsi.Options{Exec: exec})
		d := scsitest.NewDevice(exec, scsitest.Ready(1, scsitest.Sectors, block.SectorSize, true))
		if err := tg.Map("", 0, tg.AddUnit(d, scsi.UnitOptions{State: state})); err != nil {
			t.Fatal(err)
		}
		n := tg.OpenNexus(initiatorA, initiatorA, 1)
		for _, cdb := range [][]byte{make([]byte, 6), make([]byte, 6), scsitest.CDB(0x28, 0, 1), {0x5E, 3, 0, 0, 0, 0, 0, 4, 0, 0}, {0xA3, 5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}} {
			ends(t, exec, n, &scsi.Task{CDB: cdb, MaxIn: 1024})
		}
	})
}

// TestRandomCommands runs many random commands of two nexuses, resets, logouts and changes of the LUN
// map over devices that fail, delay and hold, and checks that every task ends once, and none of those
// behind the answer to the end of its nexus, or of its LUN.
func TestRandomCommands(t *testing.T) {
	all := cdbs(t)
	for _, seed := range seeds(8) {
		t.Logf("repeat with -seed=%d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		answers := 0
		type sent struct {
			by    *scsi.Nexus
			lun   uint64
			since int // how often its LUN has changed
		}
		open := map[*scsi.Task]sent{}
		var changes [7]int
		units := make([]*scsi.Unit, len(changes)) // by LUN
		for lun, x := range r.a.ITLs()[:6] {
			units[lun] = x.Unit()
		}
		gone := func(what string, was func(sent) bool) {
			for _, s := range open {
				if was(s) {
					t.Fatalf("seed %d: a command of LUN %d runs behind the end of its %s", seed, s.lun, what)
				}
			}
			answers--
		}
		for _, d := range r.devs {
			d.Delay = int64(rng.IntN(3) * 1000)
			d.Hold, d.Deaf = rng.IntN(2) == 0, rng.IntN(2) == 0
			d.Fault = func(*block.Request) block.Status {
				if rng.IntN(10) == 0 {
					return block.Status(1 + rng.IntN(int(block.Unsupported)))
				}
				return block.OK
			}
		}
		names := []string{initiatorA, initiatorB}
		nexuses := []*scsi.Nexus{r.a, r.b}
		for range 400 {
			who := rng.IntN(2)
			n := nexuses[who]
			var batch []*scsi.Task
			for range 1 + rng.IntN(6) {
				cdb := append([]byte(nil), all[rng.IntN(len(all))]...)
				for i := 1; i < len(cdb); i++ {
					a, b := byte(rng.Uint32()), byte(rng.Uint32())
					cdb[i] &= a & b // small numbers, for requests that often succeed
				}
				out := make([]byte, []int{0, 24, 512, 1024}[rng.IntN(4)])
				for i := range out {
					out[i] = byte(rng.IntN(3))
				}
				lun := uint64(rng.IntN(7))
				task := &scsi.Task{LUN: lun << 48, Tag: uint64(rng.IntN(8)), CDB: cdb, Attr: scsi.Attr(rng.IntN(4)),
					DataOut: [][]byte{out}, MaxIn: rng.IntN(2000), Bufs: heap{}}
				task.Done = func(*scsi.Task) {
					if _, once := open[task]; !once {
						t.Fatalf("seed %d: a task ended twice", seed)
					}
					delete(open, task)
				}
				open[task] = sent{n, lun, changes[lun]}
				batch = append(batch, task)
			}
			n.Submit(batch)
			switch rng.IntN(12) {
			case 0:
				answers++
				n.Manage(scsi.TMF(1+rng.IntN(7)), uint64(rng.IntN(7))<<48, uint64(rng.IntN(8)), func(scsi.TMFResponse) { answers-- })
			case 1:
				answers++
				n.Close(func() { gone("nexus", func(s sent) bool { return s.by == n }) })
				nexuses[who] = r.tg.OpenNexus(names[who], names[who]+",i,0x1", 1)
			case 2:
				for _, d := range r.devs {
					d.Release(rng.IntN(d.Waiting() + 1))
				}
			case 3, 4:
				lun := rng.IntN(6)
				answers++
				changes[lun]++
				now, who := changes[lun], slices.Clone(nexuses)
				r.tg.Remap(func() {
					if changes[lun]%2 == 1 {
						r.tg.Unmap("", uint16(lun))
					} else if err := r.tg.Map("", uint16(lun), units[lun]); err != nil {
						t.Fatal(err)
					}
				}, func() {
					gone("LUN", func(s sent) bool {
						return s.lun == uint64(lun) && now%2 == 1 && s.since == now-1 && slices.Contains(who, s.by)
					})
				})
			}
			r.exec.RunUntil(r.exec.Now() + int64(rng.IntN(2000)))
		}
		for _, d := range r.devs {
			d.Hold = false
		}
		for range 1000 {
			for _, d := range r.devs {
				d.Release(d.Waiting())
			}
			r.exec.Run()
		}
		if len(open) != 0 || answers != 0 {
			t.Fatalf("seed %d: %d tasks and %d answers are missing", seed, len(open), answers)
		}
		for i, d := range r.devs {
			if d.Refs != 0 {
				t.Fatalf("seed %d: device %d: %d references are not released", seed, i, d.Refs)
			}
		}
	}
}
