package handlers

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// randomCDB is a CDB of a known operation code, mostly, with fields that are small, or anything.
func randomCDB(rng *rand.Rand) []byte {
	codes := []byte{0x00, 0x03, 0x08, 0x0A, 0x12, 0x15, 0x1A, 0x25, 0x28, 0x2A, 0x2E, 0x2F, 0x35, 0x41, 0x42, 0x4D, 0x55, 0x5A, 0x7F,
		0x83, 0x84, 0x88, 0x89, 0x8A, 0x8B, 0x8E, 0x8F, 0x91, 0x93, 0x9C, 0x9E, 0xA3, 0xA4, 0xA8, 0xAA, 0xAE}
	op := codes[rng.IntN(len(codes))]
	if rng.IntN(30) == 0 {
		op = byte(rng.IntN(256))
	}
	cdb := make([]byte, [8]int{6, 10, 10, 32, 16, 12, 10, 10}[op>>5])
	for i := range cdb {
		switch rng.IntN(8) {
		case 0:
			cdb[i] = byte(rng.IntN(256))
		case 1:
			cdb[i] = byte(rng.IntN(4))
		}
	}
	if cdb[0] = op; rng.IntN(4) > 0 {
		cdb[len(cdb)-1] = 0 // CONTROL
		switch len(cdb) {   // a length that is short, and an LBA
		case 10:
			clear(cdb[2:5])
			cdb[7] = 0
		case 12:
			clear(cdb[2:5])
			clear(cdb[6:9])
		case 16:
			clear(cdb[2:9])
			clear(cdb[10:13])
		case 32:
			cdb[1], cdb[7], cdb[8], cdb[9] = 0, 0x18, 0, byte(0x0A+rng.IntN(5))
		}
	}
	return cdb
}

// TestRandomCommands sends random commands with random data to two units of a domain, while others are withdrawn, the write cache is
// switched, and a third unit comes and goes. Every command ends, and the rings stay whole. The seed is in the log.
func TestRandomCommands(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	h := &stuckHost{testHost: newHost(t)} // its volumes hold requests until proceed lets them go
	a := NewArray(h, nil)
	proceed := func() {
		h.exec.Lock()
		for _, s := range h.opened {
			s.release(len(s.held))
		}
		h.exec.Unlock()
	}
	caps := []uint16{tcmutest.CapAll, tcmutest.CapOutOfOrder, tcmutest.CapOutOfOrder | tcmutest.CapReadLen}
	options := func(fabrics ...string) tcmutest.Options {
		return tcmutest.Options{RingBytes: 1 << 14, Blocks: 256, Caps: caps[rng.IntN(len(caps))], Scatter: rng.IntN(2) == 0, Seed: rng.Uint64(),
			OtherFabrics: func() ([]string, error) { return fabrics, nil }}
	}
	units := []*lun{mustOpen(t, a, "gold/x", options()), mustOpen(t, a, "gold/y", options("loopback"))}
	opened := a.domainsOf("gold")[0].units[:2]
	var third *lun
	var calls []*tcmutest.Call
	var sent [2][]*tcmutest.Call         // what task management may name
	givenUp := map[*tcmutest.Call]bool{} // by a LUN RESET, and reported as GOOD whatever their status is
	ends := map[byte]int{}
	echoed, met := 0, 0
	wait := func() {
		for _, c := range calls {
			for done := false; !done; {
				proceed()
				select {
				case <-c.Done():
					done = true
				case <-time.After(100 * time.Microsecond):
				}
			}
			r := c.Wait()
			if ends[r.Status]++; givenUp[c] && r.Status == scsi.StatusTaskAborted {
				t.Fatal("a command that tcm_loop reports as GOOD was aborted")
			}
		}
		calls, sent = calls[:0], [2][]*tcmutest.Call{}
		clear(givenUp)
	}
	names := [][]byte{units[0].naa(), units[1].naa()}
	for step := 0; step < 3000 || met == 0 && step < 60_000; step++ { // of some seeds no reset meets a command for a long time
		at := rng.IntN(2)
		l := units[at]
		if rng.IntN(4) == 0 {
			proceed()
		}
		switch rng.IntN(60) {
		case 0:
			cache := rng.IntN(2) == 0
			if err := opened[at].Reconfigure(tcmu.Change{WriteCache: &cache}); err != nil {
				t.Fatal(err)
			}
		case 1:
			if third == nil {
				third = mustOpen(t, a, "gold/z", options())
			} else {
				wait()
				third.close()
				third = nil
			}
		case 2, 3:
			function := []byte{tcmu.TMRAbortTask, tcmu.TMRAbortTaskSet, tcmu.TMRLUNReset, tcmu.TMRLUNResetPRO, 0, 255}[rng.IntN(6)]
			var ids []uint16
			for _, c := range sent[at] {
				ids = append(ids, c.ID())
			}
			if err := l.Manage(function, ids...); errors.Is(err, tcmutest.ErrFull) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			if at == 1 && function == tcmu.TMRLUNReset {
				for _, c := range sent[at] {
					select {
					case <-c.Done():
					default:
						givenUp[c] = true
						met++
					}
				}
			}
			sent[at] = nil // the kernel does not name them again
		case 4: // what MODE SENSE reports MODE SELECT takes, whatever the write cache is
			wait()
			a := l.send([]byte{0x1A, 8, 0x3F, 0, 255, 0}, nil, 255).Wait()
			if a.Status != scsi.StatusGood {
				continue // the unit is being erased, or has something to say
			}
			list := a.Data[:a.Data[0]+1]
			clear(list[:4])
			a = l.send([]byte{0x15, 0x10, 0, 0, byte(len(list)), 0}, list, 0).Wait()
			if key, asc, _ := scsitest.SenseCode(a.Sense[:]); a.Status == scsi.StatusCheckCondition && key == 5 && asc == 0x26 {
				t.Fatalf("step %d: MODE SELECT of %x: sense %x", step, list, a.Sense)
			}
			echoed++
		default:
			cdb := randomCDB(rng)
			var out []byte
			in := 0
			switch rng.IntN(3) {
			case 0:
				in = rng.IntN(16 << 10)
			case 1:
				out = make([]byte, 512*rng.IntN(20))
				for i := range min(len(out), 64) {
					out[i] = byte(rng.IntN(256))
				}
				if rng.IntN(4) == 0 {
					out = out[:rng.IntN(len(out)+1)]
				}
			}
			if rng.IntN(10) == 0 {
				cdb, out = copyList(names[rng.IntN(2)], names[rng.IntN(2)], rng.IntN(100), rng.IntN(100), rng.IntN(32))
				in = 0
			}
			c, err := l.Send(cdb, out, in)
			if errors.Is(err, tcmutest.ErrFull) {
				wait()
				continue
			}
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			calls, sent[at] = append(calls, c), append(sent[at], c)
			if len(calls) > 30 {
				wait()
			}
		}
	}
	wait()
	if ends[scsi.StatusGood] < 300 || ends[scsi.StatusCheckCondition] < 300 || echoed == 0 || met == 0 {
		t.Errorf("ends by status: %v, %d of MODE SELECT; LUN resets by tcm_loop met %d commands", ends, echoed, met)
	}
	for _, l := range append(units, third) {
		if l != nil {
			l.close()
		}
	}
}
