package scsi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// slowLUN is that of the unit whose device keeps what host a has there, and with it host a's part of the scratch memory.
const slowLUN = scsitest.Other

// pieceOf starts a command of host n with the 16-byte CDB of op that goes to the device in pieces of 256 KiB: VERIFY(16), or
// ORWRITE(16) of ones.
func (r *rig) pieceOf(n *scsi.Nexus, lun uint64, op byte, sectors uint32) *scsi.Task {
	cdb := make([]byte, 16)
	cdb[0] = op
	binary.BigEndian.PutUint32(cdb[10:], sectors)
	var out []byte
	if op == opOrWrite {
		out = bytes.Repeat([]byte{0xFF}, int(sectors)*512)
	}
	return r.start(n, lun, cdb, out)
}

const (
	opOrWrite, opVerify = 0x8B, 0x8F
	pieceSectors        = 512
	hostPieces          = 8 // that one host has at a time
)

// soon lets a millisecond pass, in which everything ends that no device keeps.
func (r *rig) soon() { r.exec.RunUntil(r.exec.Now() + 1_000_000) }

// TestNothingLandsFromTheQueue: a command that waits for memory, for its first piece or a later one, has ended when an erasure
// of its unit has answered, or an ejection: nothing of it gets to the device any more. It is waited for by whoever sends that.
func TestNothingLandsFromTheQueue(t *testing.T) {
	for _, fence := range []struct {
		name string
		lun  uint64
		cdb  []byte
	}{
		{"SANITIZE", scsitest.Thin, []byte{0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"FORMAT UNIT", scsitest.Thin, []byte{4, 0, 0, 0, 0, 0}},
		{"START STOP UNIT", scsitest.Removable, eject},
	} {
		for _, op := range []byte{opOrWrite, opVerify} {
			for _, again := range []bool{false, true} {
				for _, own := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%02x/again=%v/own=%v", fence.name, op, again, own), func(t *testing.T) {
						r := newRig(t)
						r.devs[slowLUN].Hold = true
						d := r.devs[fence.lun]
						var k *scsi.Task
						if again { // the first piece ends behind a command that waits, which gets the memory
							d.Hold = true
							k = r.pieceOf(r.a, fence.lun, op, 2*pieceSectors)
							for range hostPieces {
								r.pieceOf(r.a, slowLUN, op, 1)
							}
							r.soon()
							d.Hold = false
							d.Release(d.Waiting())
						} else {
							for range hostPieces {
								r.pieceOf(r.a, slowLUN, op, 1)
							}
							k = r.pieceOf(r.a, fence.lun, op, 8)
						}
						r.soon()
						if n := r.devs[slowLUN].Waiting(); n != hostPieces || code(k) != -1 || d.Waiting() != 0 {
							t.Fatalf("%d pieces are with the slow device, %d with the other; the command is at %08x", n, d.Waiting(), code(k))
						}
						by := r.b
						if own {
							by = r.a
						}
						f := r.start(by, fence.lun, fence.cdb, nil)
						ended := f.Done
						var data []byte
						var requests int
						f.Done = func(f *scsi.Task) {
							ended(f)
							if data, requests = bytes.Clone(d.Data), len(d.Batches); code(k) == -1 {
								t.Error("it has answered before the command that waits")
							}
						}
						r.soon()
						r.devs[slowLUN].Hold = false
						r.devs[slowLUN].Release(r.devs[slowLUN].Waiting())
						r.soon()
						r.wants(fence.name, code(f), 0)
						r.wants("the command that waits", code(k), 0)
						if len(d.Batches) != requests || !bytes.Equal(d.Data, data) {
							t.Errorf("%d requests get to the device afterwards", len(d.Batches)-requests)
						}
						if fence.lun == scsitest.Thin && !bytes.Equal(d.Data, make([]byte, len(d.Data))) {
							t.Error("the medium is not erased")
						}
					})
				}
			}
		}
	}
}

// TestErasureOutlastsTheQueue: whoever waits for a command in the queue goes on when that is aborted, and ends without it.
func TestErasureOutlastsTheQueue(t *testing.T) {
	r := newRig(t)
	r.devs[slowLUN].Hold = true
	for range hostPieces {
		r.pieceOf(r.a, slowLUN, opOrWrite, 1)
	}
	k := r.pieceOf(r.a, scsitest.Thin, opOrWrite, 8)
	f := r.start(r.b, scsitest.Thin, []byte{0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0}, nil)
	r.soon()
	r.wants("SANITIZE, while another command waits for memory", code(f), -1)
	answered := false
	r.a.Manage(scsi.AbortTaskSet, scsitest.Thin<<48, 0, func(scsi.TMFResponse) { answered = true })
	r.soon()
	if !answered || !k.Aborted {
		t.Errorf("ABORT TASK SET is answered: %v, the command is aborted: %v", answered, k.Aborted)
	}
	r.wants("SANITIZE, when that is aborted", code(f), 0)
}

// TestStuckWritesKeepNoReads: ORWRITEs that wait for room in a full pool, which reads there do not, keep no VERIFY of another
// one waiting, nor the other way round.
func TestStuckWritesKeepNoReads(t *testing.T) {
	for _, c := range []struct{ stuck, other byte }{{opOrWrite, opVerify}, {opVerify, opOrWrite}} {
		r := newRig(t)
		third := r.login("iqn.2026-11.org.example:host-c")
		r.devs[slowLUN].Hold = true
		for range hostPieces {
			r.pieceOf(r.a, slowLUN, c.stuck, 1)
			r.pieceOf(r.b, slowLUN, c.stuck, 1)
		}
		r.soon()
		same := r.pieceOf(third, scsitest.Thin, c.stuck, 1)
		other := r.pieceOf(third, scsitest.Thin, c.other, 2*pieceSectors)
		r.soon()
		if n := r.devs[slowLUN].Waiting(); n != 2*hostPieces || code(same) != -1 {
			t.Fatalf("%d commands %02x are with the slow device, and one more is at %08x: they do not have all there is", n, c.stuck, code(same))
		}
		r.wants(fmt.Sprintf("%02x beside %02x that wait", c.other, c.stuck), code(other), 0)
		r.devs[slowLUN].Release(1)
		r.soon()
		r.wants("one that waited, when another has ended", code(same), 0)
	}
}
