package scsi_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// longCommands are commands of more than one step, and ones with parameter data, each with what it
// may allocate.
func longCommands() []struct {
	name string
	most float64
	attr scsi.Attr
	cdb  []byte
	out  []byte
} {
	sized := func(op, b1 byte, lba uint64, n int) []byte {
		cdb := scsitest.CDB(op, lba, n)
		cdb[1] = b1
		return cdb
	}
	unmap := make([]byte, 24)
	binary.BigEndian.PutUint16(unmap, 22)
	binary.BigEndian.PutUint16(unmap[2:], 16)
	binary.BigEndian.PutUint32(unmap[16:], 64)
	cscdSelf := 0xFFFF
	list := scsitest.CopyList4(7, 3<<3, 0, nil, [][]byte{
		scsitest.Segment02(cscdSelf, cscdSelf, 64, 0, 4096, false), scsitest.Segment02(cscdSelf, cscdSelf, 64, 0, 8192, false)})
	binary.BigEndian.PutUint32(list[20:], 0)
	type row = struct {
		name string
		most float64
		attr scsi.Attr
		cdb  []byte
		out  []byte
	}
	return []row{
		{"READ, ORDERED", 0, scsi.AttrOrdered, sized(0x88, 0, 8, 8), nil},
		{"READ, HEAD OF QUEUE", 0, scsi.AttrHeadOfQueue, sized(0x88, 0, 8, 8), nil},
		{"WRITE SAME of zeros", 0, scsi.AttrSimple, sized(0x93, 8, 0, 4096), make([]byte, 512)},
		{"WRITE SAME of a pattern in 3 pieces", 1, scsi.AttrSimple, sized(0x93, 0, 0, 3*32768), bytes.Repeat([]byte{1}, 512)},
		{"UNMAP", 1, scsi.AttrSimple, []byte{0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0}, unmap},
		{"COMPARE AND WRITE", 1, scsi.AttrSimple, func() []byte { c := sized(0x89, 0, 8, 0); c[13] = 1; return c }(), make([]byte, 1024)},
		{"VERIFY of 2 pieces", 1, scsi.AttrSimple, sized(0x8F, 0, 0, 1024), nil},
		{"EXTENDED COPY of 2 segments", 11, scsi.AttrSimple, scsitest.CopyCDB4(list), list},
		{"INQUIRY", 1, scsi.AttrSimple, []byte{0x12, 0, 0, 0, 96, 0}, nil},
	}
}

// longRun returns what carries out one of them on a device that ends every request when asked.
func longRun(tb testing.TB, attr scsi.Attr, cdb, out []byte) func() {
	exec := &block.Virtual{}
	tg := scsi.NewTarget(scsi.Options{Exec: exec})
	d := &sink{info: scsitest.Ready(1, 1<<20, 512, true)}
	if err := tg.Map("", 0, tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		tb.Fatal(err)
	}
	n := tg.OpenNexus(initiatorA, initiatorA, 1)
	done := false
	bufs := &fixed{make([]byte, 4096)}
	t := &scsi.Task{Attr: attr, CDB: make([]byte, 6), MaxIn: 4096, Bufs: bufs, Done: func(*scsi.Task) { done = true }}
	tasks := []*scsi.Task{t}
	n.Submit(tasks) // takes the unit attention
	exec.Run()
	t.CDB = cdb
	if out != nil {
		t.DataOut = [][]byte{out}
	}
	return func() {
		done = false
		n.Submit(tasks)
		for i := 0; !done; i++ {
			d.complete()
			exec.Run()
			if i > 100 {
				tb.Fatal("it does not end")
			}
		}
		if t.Status != scsi.StatusGood {
			tb.Fatalf("status %02x, sense %x", t.Status, t.Sense)
		}
	}
}

// TestAllocationsOfLongCommands bounds what commands of many steps allocate.
func TestAllocationsOfLongCommands(t *testing.T) {
	for _, c := range longCommands() {
		run := longRun(t, c.attr, c.cdb, c.out)
		run()
		if n := testing.AllocsPerRun(100, run); n > c.most {
			t.Errorf("%s: %v allocations, at most %v are meant to be", c.name, n, c.most)
		}
	}
}

func BenchmarkLongCommands(b *testing.B) {
	for _, c := range longCommands() {
		b.Run(c.name, func(b *testing.B) {
			run := longRun(b, c.attr, c.cdb, c.out)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
