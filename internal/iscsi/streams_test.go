package iscsi

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

// loggedIn starts a connection in full feature phase on one end of a pipe.
func loggedIn(t testing.TB, p *Portal) *Client {
	ours, theirs := net.Pipe()
	p.start(ours, 1)
	theirs.SetDeadline(time.Now().Add(patience))
	c, err := NewClient(theirs, ClientConfig{Initiator: testInitiator, Target: testTarget, Keys: map[string]string{keyMaxBurst: "4096", keyFirstBurst: "2048"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func FuzzSession(f *testing.F) {
	exec := block.NewLive()
	f.Cleanup(exec.Stop)
	target := newFake(exec, 1<<20)
	cfg := Config{Targets: []TargetConfig{{Name: testTarget, Handler: target}}}
	cfg.Limits = Limits{PingInterval: -1, MaxRecvSegment: 8192, MaxCommandData: 1 << 16, ConnMemory: 1 << 16, Window: 16}
	p, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	seed := func(pdus ...func(h bhs) (ahs, data []byte)) {
		var stream []byte
		for i, fill := range pdus {
			h := bhs(make([]byte, bhsLen))
			h[offFlags] = flagFinal
			h.put32(offITT, uint32(i))
			h.put32(offTTT, noTag)
			h.put32(offCmdSN, uint32(1+i))
			ahs, data := fill(h)
			stream = appendPDU(stream, h, ahs, data, false, false)
		}
		f.Add(stream)
	}
	command := func(op byte, flags byte, edtl, blocks, n int) func(bhs) ([]byte, []byte) {
		return func(h bhs) ([]byte, []byte) {
			h[0], h[offFlags] = opCommand, flags
			h.put32(offEDTL, uint32(edtl))
			copy(h[offCDB:], cdb10(op, 0, blocks))
			return nil, make([]byte, n)
		}
	}
	op := func(op byte, data string) func(bhs) ([]byte, []byte) {
		return func(h bhs) ([]byte, []byte) { h[0] = op; return nil, []byte(data) }
	}
	seed(command(opRead10, 0xc1, 4096, 8, 0), command(opWrite10, 0xa1, 1024, 2, 1024), op(opLogout, ""))
	seed(command(opWrite10, 0x21, 8192, 16, 512), op(opDataOut|0x40, "x"), op(opTaskMgmt, ""))
	seed(op(opNopOut, "hello"), op(opText, "SendTargets=All\x00"), op(opSNACK, ""))
	seed(func(h bhs) ([]byte, []byte) { h[0] = opCommand; return []byte{0, 5, 1, 0, 1, 2, 3, 4}, nil })
	reset := func(h bhs) ([]byte, []byte) {
		h[0], h[offFlags] = opTaskMgmt|immediateBit, flagFinal|byte(scsi.LogicalUnitReset)
		h.put32(offCmdSN, 9) // behind a gap
		return nil, nil
	}
	// The writes are SIMPLE, then ORDERED; their data does not come.
	seed(command(opWrite10, 0xa1, 1024, 2, 0), command(opWrite10, 0xa2, 1024, 2, 0), command(opRead10, 0xc1, 512, 1, 0), reset, op(opNopOut, ""), command(opRead10, 0xc1, 512, 1, 0))
	// Data for a command that waits behind a gap: announced, then not; for a ping; then the gap is closed.
	at := func(sn, itt uint32, fill func(bhs) ([]byte, []byte)) func(bhs) ([]byte, []byte) {
		return func(h bhs) ([]byte, []byte) { h.put32(offCmdSN, sn); h.put32(offITT, itt); return fill(h) }
	}
	seed(at(2, 7, command(opWrite10, 0x21, 1024, 2, 0)), at(0, 7, op(opDataOut, "")), at(0, 7, op(opDataOut, "")), at(1, 8, op(opNopOut, "")))
	seed(at(2, 7, command(opWrite10, 0xa1, 1024, 2, 0)), at(0, 7, op(opDataOut, "")), at(1, 8, op(opNopOut, "")))
	seed(at(2, 7, op(opNopOut, "")), at(0, 7, op(opDataOut, "")), at(1, 8, op(opNopOut, "")))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := loggedIn(t, p)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		gone := make(chan struct{})
		go func() {
			io.Copy(io.Discard, c.nc)
			close(gone)
		}()
		c.nc.Write(stream)
		c.nc.Close()
		<-gone
		poll(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.conns)+len(p.sessions) == 0
		})
		if got := p.Sessions(); len(got) > 0 {
			t.Fatalf("the session stays: %+v", got)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20+uint64(len(stream))*64 {
			t.Fatalf("%d bytes were allocated for %d", grown, len(stream))
		}
		exec.Lock()
		defer exec.Unlock()
		if len(target.nexuses) > 0 {
			t.Fatal("the nexus stays")
		}
	})
}

// A random mixture of legal and damaged PDUs, in order and not: commands, their data, pings and task management. The seed is
// printed and may be given with -seed.
func TestDamagedStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	r := newRig(t, nil)
	for range 120 {
		c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyMaxBurst: "4096", keyFirstBurst: "2048"} })
		var pdus [][]byte
		for range 1 + rng.IntN(20) {
			pdus = append(pdus, randomPDU(rng, c))
		}
		for range rng.IntN(4) { // what came too late for its turn waits, with its data
			i, j := rng.IntN(len(pdus)), rng.IntN(len(pdus))
			pdus[i], pdus[j] = pdus[j], pdus[i]
		}
		go io.Copy(io.Discard, c.nc)
		c.nc.Write(slices.Concat(pdus...))
		time.Sleep(time.Millisecond)
		c.Close()
	}
	r.eventually("all sessions are gone", func(f *fakeTarget) bool { return len(f.nexuses) == 0 })
	c := r.login(nil)
	if res, err := c.Command(0, cdb10(opRead10, 0, 1), nil, 512); err != nil || res.Status != 0 {
		t.Error(res, err)
	}
}

// randomPDU makes a PDU of the session, one in three of them damaged.
func randomPDU(rng *rand.Rand, c *Client) []byte {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	n := rng.IntN(3) * 1024
	recent := c.itt - uint32(rng.IntN(4))
	switch k := rng.IntN(10); {
	case k < 5:
		out := rng.IntN(2) * 2048
		hdr, _ = c.CommandHeader(0, cdb10([]byte{opRead10, opWrite10, opTestUnitReady}[rng.IntN(3)], 0, 4), out, 2048-out)
		if n = min(n, out); n < out && rng.IntN(2) == 0 {
			h[offFlags] &^= flagFinal // unsolicited data comes
		}
	case k < 8:
		h[0], h[offFlags] = opDataOut, byte(rng.IntN(2))<<7
		h.put32(offITT, recent)
		h.put32(offTTT, []uint32{noTag, 1, 2}[rng.IntN(3)])
		h.put32(offBufOffset, uint32(rng.IntN(3)*1024))
		h.put32(offDataSN, uint32(rng.IntN(2)))
	case k < 9:
		hdr, n = c.NewHeader(opNopOut, 0), 0
		if rng.IntN(2) == 0 {
			h.put32(offITT, recent)
		}
	default:
		hdr, n = c.NewHeader(opTaskMgmt|immediateBit, 0), 0
		h[offFlags] = flagFinal | byte(1+rng.IntN(5))
		h.put32(offRefTask, recent)
		h.put32(offRefCmdSN, c.CmdSN-uint32(rng.IntN(4)))
	}
	b := appendPDU(nil, h, nil, make([]byte, n), false, false)
	if rng.IntN(3) == 0 {
		for range 1 + rng.IntN(2) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
	}
	if rng.IntN(8) == 0 {
		binary.BigEndian.PutUint32(b[offCmdSN:], rng.Uint32())
	}
	return b
}
