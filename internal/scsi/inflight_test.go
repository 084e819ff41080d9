package scsi_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// Offloads are listed while they are with the device, with what is done of them, and
// nothing else is.
func TestOffloads(t *testing.T) {
	r := newRig(t)
	thin, other := r.devs[scsitest.Thin], r.devs[scsitest.Other]
	none := func(when string) {
		t.Helper()
		if list := r.tg.Offloads(nil); len(list) != 0 {
			t.Errorf("%s: %+v", when, list)
		}
	}
	one := func(when string, want scsi.Offload) {
		t.Helper()
		list := r.tg.Offloads(nil)
		if len(list) != 1 || list[0] != want {
			t.Errorf("%s: %+v, want %+v", when, list, want)
		}
	}
	none("at first")

	// 8 blocks inside LUN 0, then 8 from there to LUN 2, which holds them up.
	out := r.list(7, 0)
	other.Hold = true
	began := r.exec.Now()
	k := &scsi.Task{LUN: scsitest.Thin << 48, CDB: scsitest.CopyCDB4(out), DataOut: [][]byte{out}, Done: func(*scsi.Task) {}}
	r.a.Submit([]*scsi.Task{k})
	r.exec.RunUntil(r.exec.Now() + 1_000_000)
	one("a copy waits for its second segment", scsi.Offload{Primitive: "xcopy", Volume: other.Info().Name, Initiator: initiatorA, Total: 8192, Done: 4096, Start: began})
	other.Hold = false
	other.Release(other.Waiting())
	r.exec.Run()
	none("after the copy")

	// A pattern is written in pieces: they are held.
	thin.Hold = true
	began = r.exec.Now()
	cdb := make([]byte, 16)
	cdb[0] = 0x93
	binary.BigEndian.PutUint32(cdb[10:], 16)
	w := &scsi.Task{LUN: scsitest.Thin << 48, CDB: cdb, DataOut: [][]byte{bytes.Repeat([]byte{0xA5}, 512)}, Done: func(*scsi.Task) {}}
	read := &scsi.Task{LUN: scsitest.Thin << 48, CDB: []byte{0x28, 0, 0, 0, 1, 0, 0, 0, 1, 0}, MaxIn: 512, Bufs: heap{}, Done: func(*scsi.Task) {}}
	r.b.Submit([]*scsi.Task{w, read})
	r.exec.RunUntil(r.exec.Now() + 1_000_000)
	one("a pattern waits, and a READ", scsi.Offload{Primitive: "write_same", Volume: thin.Info().Name, Initiator: initiatorB, Total: 16 * block.SectorSize, Start: began})
	thin.Hold = false
	thin.Release(thin.Waiting())
	r.exec.Run()
	none("after the pattern")
}
