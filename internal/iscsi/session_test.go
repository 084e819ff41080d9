package iscsi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/scsi"
)

func TestReadWrite(t *testing.T) {
	variants := []struct {
		name string
		keys map[string]string
	}{
		{"defaults", nil},
		{"no immediate data", map[string]string{keyImmediateData: valNo}},
		{"R2T for everything", map[string]string{keyImmediateData: valNo, keyInitialR2T: valYes}},
		{"immediate, then R2T", map[string]string{keyInitialR2T: valYes}},
		{"small bursts", map[string]string{keyMaxBurst: "4096", keyFirstBurst: "1024", keyMaxR2T: "1"}},
		{"many R2Ts", map[string]string{keyMaxBurst: "8192", keyFirstBurst: "512", keyMaxR2T: "8"}},
		{"small segments", map[string]string{keyMaxRecvSegment: "512"}},
		{"segments and bursts out of step", map[string]string{keyMaxRecvSegment: "1000", keyMaxBurst: "1536"}},
		{"header digest", map[string]string{keyHeaderDigest: "CRC32C,None"}},
		{"data digest", map[string]string{keyDataDigest: "CRC32C"}},
		{"both digests, small bursts", map[string]string{keyHeaderDigest: "CRC32C", keyDataDigest: "CRC32C", keyMaxBurst: "65536", keyFirstBurst: "8192", keyMaxRecvSegment: "5000"}},
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, nil)
			c := r.login(func(cfg *ClientConfig) { cfg.Keys = v.keys })
			for i, blocks := range []int{0, 1, 2, 3, 8, 17, 64, 511, 512, 513, 1024, 2048, 4100} {
				data := pattern(blocks*fakeBlock, i)
				lba := i * 3
				res, err := c.Command(0, cdb10(opWrite10, lba, blocks), data, 0)
				if err != nil || res.Status != 0 || res.Residual != 0 {
					t.Fatalf("write of %d blocks: %+v, %v", blocks, res, err)
				}
				res, err = c.Command(0, cdb10(opRead10, lba, blocks), nil, len(data))
				if err != nil || res.Status != 0 || res.Residual != 0 {
					t.Fatalf("read of %d blocks: %v", blocks, err)
				}
				if !bytes.Equal(res.Data, data) {
					t.Fatalf("read of %d blocks differs", blocks)
				}
			}
			if err := c.Logout(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestResiduals(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	rows := []struct {
		name     string
		op       byte
		blocks   int
		length   int // EDTL
		status   byte
		residual int
	}{
		{"read, exact", opRead10, 2, 1024, 0, 0},
		{"read, none expected", opRead10, 1, 0, 0, 512},
		{"read, less expected", opRead10, 2, 512, 0, 512},
		{"read, odd", opRead10, 1, 200, 0, 312},
		{"read, one byte", opRead10, 1, 1, 0, 511},
		{"read, more expected", opRead10, 1, 10000, 0, 512 - 10000},
		{"read, refused", opRead10, 65535, 4096, scsi.StatusCheckCondition, -4096},
		{"write, exact", opWrite10, 2, 1024, 0, 0},
		{"write, none sent", opWrite10, 1, 0, 0, 512},
		{"write, less sent", opWrite10, 2, 512, 0, 512},
		{"write, more sent", opWrite10, 1, 1536, 0, -1024},
		{"bad opcode", 0xc0, 0, 512, scsi.StatusCheckCondition, -512},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var out []byte
			in := row.length
			if row.op == opWrite10 {
				out, in = pattern(row.length, 5), 0
			}
			res, err := c.Command(0, cdb10(row.op, 0, row.blocks), out, in)
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != row.status || res.Residual != row.residual {
				t.Errorf("status, residual = %#x, %d, want %#x, %d", res.Status, res.Residual, row.status, row.residual)
			}
			if want := row.status == scsi.StatusCheckCondition; (len(res.Sense) > 0) != want {
				t.Errorf("sense data: %x", res.Sense)
			}
			if row.status == 0 && len(res.Data) != min(in, row.blocks*fakeBlock) {
				t.Errorf("got %d bytes", len(res.Data))
			}
		})
	}
	// What was sent of a write that announced less than its CDB is written.
	r.withFake(func(f *fakeTarget) {
		if !bytes.Equal(f.mem[:512], pattern(512, 5)) {
			t.Error("a short write did not write what it sent")
		}
	})
}

func TestRefusedCommands(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxCommandData = 1 << 20 })
	c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyFirstBurst: "8192"} })
	want := refuseSense[:]

	big := make([]byte, 1<<20+512)
	hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 2049), len(big), 0)
	bhs(hdr[:])[offFlags] &^= flagFinal
	c.Send(hdr, nil, big[:4096])
	c.SendData(bhs(hdr[:]).itt(), noTag, big, 4096, 4096)
	res, err := c.Await(bhs(hdr[:]).itt(), big, 0)
	if err != nil || !bytes.Equal(res.Sense, want) {
		t.Errorf("write beyond the limit: %+v, %v", res, err)
	}

	res, err = c.Command(0, cdb10(opRead10, 0, 2049), nil, len(big))
	if err != nil || !bytes.Equal(res.Sense, want) {
		t.Errorf("read beyond the limit: %+v, %v", res, err)
	}

	hdr, _ = c.CommandHeader(0, cdb10(opRead10, 0, 1), 512, 512)
	c.Send(hdr, nil, big[:512])
	res, err = c.Await(bhs(hdr[:]).itt(), big, 512)
	if err != nil || !bytes.Equal(res.Sense, want) {
		t.Errorf("bidirectional: %+v, %v", res, err)
	}
	if res, err = c.Command(0, cdb10(opRead10, 0, 1), nil, 512); err != nil || res.Status != 0 {
		t.Errorf("the session does not go on: %+v, %v", res, err)
	}
}

func TestExtendedCDB(t *testing.T) {
	r := newRig(t, nil)
	for _, digest := range []string{valNone, digestCRC32C} {
		c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyHeaderDigest: digest} })
		for _, n := range []int{16, 17, 20, 32, 260} {
			cdb := pattern(n, 9)
			cdb[0] = opWriteSame32
			if res, err := c.Command(0, cdb, make([]byte, 512), 0); err != nil || res.Status != 0 {
				t.Fatalf("CDB of %d bytes: %+v, %v", n, res, err)
			}
			r.withFake(func(f *fakeTarget) {
				if !bytes.Equal(f.lastCDB, cdb) {
					t.Errorf("CDB of %d bytes arrived as %x", n, f.lastCDB)
				}
			})
		}
		c.Logout()
	}
}

// Many commands in flight end in whatever order the target ends them, and none
// waits for another.
func TestQueueDepth(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	const depth = 100
	want := make(map[uint32]bool)
	for i := range depth {
		op := byte(opRead10)
		if i%3 == 0 {
			op = opStuck
		}
		hdr, _ := c.CommandHeader(0, cdb10(op, i, 8), 0, 4096)
		want[bhs(hdr[:]).itt()] = true
		if err := c.Send(hdr, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	take := func(n int) {
		for range n {
			pdu, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			h := bhs(pdu.Header[:])
			if !want[h.itt()] {
				t.Fatalf("a second answer to task %#x", h.itt())
			}
			delete(want, h.itt())
		}
	}
	stuck := (depth + 2) / 3
	take(depth - stuck)
	r.eventually("all stuck tasks are there", func(f *fakeTarget) bool {
		for n := range f.nexuses {
			if len(n.stuck) == stuck {
				n.letGo()
				return true
			}
		}
		return false
	})
	take(stuck)
}

func TestWindow(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.Window = 4 })
	c := r.login(nil)
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
	if got := c.MaxCmdSN - c.CmdSN; got != 3 {
		t.Errorf("MaxCmdSN is %d above CmdSN, want 3", got)
	}
	for _, far := range []int32{-1, -100, 4, 5, 1000, -1 << 31} {
		hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 1), 512, 0)
		c.CmdSN--
		bhs(hdr[:]).put32(offCmdSN, c.CmdSN+uint32(far))
		c.Send(hdr, nil, bytes.Repeat([]byte{0xee}, 512))
	}
	// All were ignored, and the session goes on.
	res, err := c.Command(0, cdb10(opRead10, 0, 1), nil, 512)
	if err != nil || res.Status != 0 || !bytes.Equal(res.Data, make([]byte, 512)) {
		t.Errorf("after commands outside the window: %+v, %v", res, err)
	}
	// The window closes while commands are in progress, and opens again.
	for range 4 {
		hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
		c.Send(hdr, nil, nil)
	}
	if resp, err := c.Manage(scsi.AbortTask, 0, 0x999, c.CmdSN-1); err != nil || resp != scsi.TMFNoTask {
		t.Fatal(resp, err)
	}
	if c.MaxCmdSN != c.CmdSN-1 {
		t.Errorf("MaxCmdSN %d, CmdSN %d: the window is not closed", c.MaxCmdSN, c.CmdSN)
	}
	if resp, err := c.Manage(scsi.LogicalUnitReset, 0, 0, 0); err != nil || resp != scsi.TMFComplete {
		t.Fatal(resp, err)
	}
	if c.MaxCmdSN != c.CmdSN+3 {
		t.Errorf("MaxCmdSN %d, CmdSN %d: the window is not open", c.MaxCmdSN, c.CmdSN)
	}
}

// Commands that arrive before their turn wait for it, with their data.
func TestOutOfOrder(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyFirstBurst: "1024"} })
	var hdrs [3][bhsLen]byte
	for i := range hdrs {
		hdrs[i], _ = c.CommandHeader(0, cdb10(opWrite10, 0, 2), 1024, 0)
	}
	for _, i := range []int{2, 1, 0} {
		data := bytes.Repeat([]byte{byte(i + 1)}, 1024)
		if i == 0 {
			c.Send(hdrs[i], nil, data)
			continue
		}
		bhs(hdrs[i][:])[offFlags] &^= flagFinal
		c.Send(hdrs[i], nil, data[:512])
		c.SendData(bhs(hdrs[i][:]).itt(), noTag, data, 512, 512)
	}
	for i := range hdrs {
		if res, err := c.Await(bhs(hdrs[i][:]).itt(), nil, 0); err != nil || res.Status != 0 {
			t.Fatalf("command %d: %+v, %v", i, res, err)
		}
	}
	r.withFake(func(f *fakeTarget) {
		if f.mem[0] != 3 || f.mem[1023] != 3 {
			t.Errorf("commands ran out of order: %d, %d", f.mem[0], f.mem[1023])
		}
	})
}

func TestTaskManagement(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(func(cfg *ClientConfig) {
		cfg.Keys = map[string]string{keyInitialR2T: valYes, keyImmediateData: valNo}
	})
	manage := func(what string, fn scsi.TMF, tag, ref uint32, want scsi.TMFResponse) {
		t.Helper()
		if got, err := c.Manage(fn, 0, tag, ref); err != nil || got != want {
			t.Fatalf("%s: response %d, %v, want %d", what, got, err, want)
		}
	}
	send := func(op byte, out int) (itt, sn uint32) {
		hdr, _ := c.CommandHeader(0, cdb10(op, 0, out/fakeBlock), out, 0)
		c.Send(hdr, nil, nil)
		return bhs(hdr[:]).itt(), bhs(hdr[:]).cmdSN()
	}

	itt, sn := send(opStuck, 0)
	manage("abort in the SCSI layer", scsi.AbortTask, itt, sn, scsi.TMFComplete)
	manage("abort what has ended", scsi.AbortTask, itt, sn, scsi.TMFNoTask)

	itt, sn = send(opWrite10, 1024)
	pdu, err := c.Receive()
	if err != nil || pdu.Header[0] != opR2T {
		t.Fatalf("no R2T: %v", err)
	}
	ttt := bhs(pdu.Header[:]).ttt()
	manage("abort while collecting", scsi.AbortTask, itt, sn, scsi.TMFComplete)
	// Data that was under way is swallowed.
	if err := c.SendData(itt, ttt, make([]byte, 1024), 0, 1024); err != nil {
		t.Fatal(err)
	}

	// A command that is still on its way when it is aborted, and comes afterwards.
	hdr, _ := c.CommandHeader(0, cdb10(opWrite10, 7, 1), 512, 0)
	late := bhs(hdr[:])
	c.CmdSN++ // and one that is never sent, so that the request is behind it
	manage("abort before arrival", scsi.AbortTask, late.itt(), late.cmdSN(), scsi.TMFComplete)
	c.CmdSN--
	c.Send(hdr, nil, nil)
	if res, err := c.Command(0, cdb10(opRead10, 7, 1), nil, 512); err != nil || res.Status != 0 {
		t.Fatalf("after the aborted command: %+v, %v", res, err)
	}

	for range 3 {
		send(opStuck, 0)
	}
	send(opWrite10, 512)
	if pdu, err = c.Receive(); err != nil || pdu.Header[0] != opR2T {
		t.Fatalf("no R2T: %v", err)
	}
	manage("reset of the unit", scsi.LogicalUnitReset, 0, 0, scsi.TMFComplete)
	if n := r.stuck(); n != 0 {
		t.Errorf("%d tasks outlive a reset", n)
	}
	manage("reassign", tmfReassign, 0, 0, tmfNoReassignment)
	manage("unknown function", 77, 0, 0, scsi.TMFNotSupported)
	manage("warm reset", scsi.TargetWarmReset, 0, 0, scsi.TMFComplete)
	if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
}

func TestNop(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyMaxRecvSegment: "512"} })
	for _, immediate := range []byte{immediateBit, 0} {
		for _, n := range []int{0, 1, 511, 512, 513, 8000} {
			hdr := c.NewHeader(opNopOut|immediate, 0)
			data := pattern(n, n)
			c.Send(hdr, nil, data)
			pdu, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			h := bhs(pdu.Header[:])
			if h.opcode() != opNopIn || h.itt() != bhs(hdr[:]).itt() || h.ttt() != noTag || !bytes.Equal(pdu.Data, data[:min(n, 512)]) {
				t.Errorf("ping of %d bytes: %x", n, pdu.Header)
			}
			if h.u32(offExpCmdSN) != c.CmdSN || h.u32(offMaxCmdSN) != c.CmdSN+127 {
				t.Errorf("window %d..%d, CmdSN %d", h.u32(offExpCmdSN), h.u32(offMaxCmdSN), c.CmdSN)
			}
		}
	}
}

func TestPing(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const interval = 60 * time.Millisecond
	ping := func(t *testing.T, c *Client) bhs {
		t.Helper()
		pdu, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		h := bhs(pdu.Header[:])
		if h.opcode() != opNopIn || h.itt() != noTag || h.ttt() == noTag {
			t.Fatalf("not a ping: %x", pdu.Header)
		}
		if h.u32(offStatSN) != c.ExpStatSN {
			t.Errorf("StatSN %d, want %d", h.u32(offStatSN), c.ExpStatSN)
		}
		return h
	}
	t.Run("answered", func(t *testing.T) {
		c := newRig(t, func(cfg *Config) { cfg.Limits.PingInterval = interval }).login(nil)
		for range 3 {
			c.Pong(ping(t, c).ttt())
		}
	})
	t.Run("not answered", func(t *testing.T) {
		r := newRig(t, func(cfg *Config) { cfg.Limits.PingInterval, cfg.Limits.PingTimeout = interval, 2*time.Second })
		c := r.login(nil)
		ping(t, c)
		if pdu, err := c.Receive(); err == nil {
			t.Fatalf("got %x in place of the end", pdu.Header)
		}
		r.eventually("the error is counted", func(*fakeTarget) bool { return r.errors(ErrTimeout) == 1 })
	})
}

func TestReinstatement(t *testing.T) {
	r := newRig(t, nil)
	old := r.login(nil)
	hdr, _ := old.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	old.Send(hdr, nil, nil)
	r.awaitStuck(1)
	c := r.login(nil) // the fake panics when the old nexus is still there
	if _, err := old.Receive(); err == nil {
		t.Error("the old connection is still there")
	}
	other := r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	for _, x := range []*Client{c, other} {
		if res, err := x.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
			t.Fatal(res, err)
		}
	}
	if got := r.portal.Sessions(); len(got) != 2 || got[0].Initiator != testInitiator || got[0].Target != testTarget || got[0].TSIH == got[1].TSIH {
		t.Errorf("sessions: %+v", got)
	}
}

func TestLogout(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	hdr := c.NewHeader(opLogout|immediateBit, 0)
	bhs(hdr[:])[offFlags] = flagFinal | logoutConnection
	bhs(hdr[:]).put16(offCID, 77)
	c.Send(hdr, nil, nil)
	if pdu, err := c.Receive(); err != nil || pdu.Header[0] != opLogoutResp || pdu.Header[offResponse] != logoutNoCID {
		t.Fatalf("logout of another connection: %v", err)
	}
	stuck, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(stuck, nil, nil)
	if err := c.Logout(); err != nil {
		t.Fatal(err)
	}
	r.withFake(func(f *fakeTarget) {
		if len(f.nexuses) != 0 {
			t.Error("logout was answered before the nexus was gone")
		}
	})
}

func TestShutdown(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	done := make(chan error)
	go func() { done <- r.portal.Shutdown(context.Background()) }()
	pdu, err := c.Receive()
	if err != nil || pdu.Header[0] != opAsync || pdu.Header[offAsyncEvent] != asyncDropAll {
		t.Fatalf("no notice: %v, %v", pdu, err)
	}
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
	if res, err := c.Await(bhs(hdr[:]).itt(), nil, 0); err != nil || res.Status != 0 {
		t.Errorf("command in progress: %+v, %v", res, err)
	}
	if _, err := c.Receive(); err == nil {
		t.Error("the connection stays")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestShutdownThatIsCutShort: who cuts connections off ends a Shutdown that lets them end, too.
func TestShutdownThatIsCutShort(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	hdr, _ := c.CommandHeader(0, cdb10(opStuck, 0, 0), 0, 0)
	c.Send(hdr, nil, nil)
	r.awaitStuck(1)
	done := make(chan error, 1)
	go func() { done <- r.portal.Shutdown(context.Background()) }()
	if _, err := c.Receive(); err != nil { // the notice
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.portal.Shutdown(now); err == nil {
		t.Error("a command is in progress, and the second Shutdown says nothing of it")
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Error("the first Shutdown waits for a connection that was cut off")
	}
	r.withFake(func(f *fakeTarget) {
		for n := range f.nexuses {
			n.letGo()
		}
	})
}

// A connection takes no more memory than it may; what is beyond waits, and gets
// its turn.
func TestMemoryLimit(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.MaxCommandData, cfg.Limits.ConnMemory = 1<<20, 1<<20
	})
	c := r.login(func(cfg *ClientConfig) { cfg.Keys = map[string]string{keyFirstBurst: "512"} })
	const size = 700 << 10
	var itts []uint32
	for i := range 6 {
		cdb := cdb10(opRead10, 0, size/fakeBlock)
		out, in := 0, size
		if i%2 == 1 {
			cdb[0], out, in = opWrite10, size, 0
		}
		hdr, _ := c.CommandHeader(0, cdb, out, in)
		itts = append(itts, bhs(hdr[:]).itt())
		c.Send(hdr, nil, make([]byte, min(out, 512)))
	}
	for _, itt := range itts {
		if res, err := c.Await(itt, make([]byte, size), size); err != nil || res.Status != 0 {
			t.Fatalf("task %d: %v", itt, err)
		}
	}
}

// All connections together take no more memory than they may. What is beyond ends with TASK SET FULL, data that
// comes with it is dropped, and nothing of it stays behind.
func TestMemoryOfAll(t *testing.T) {
	const size = 256 << 10
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.MaxCommandData, cfg.Limits.Memory = size, size
	})
	var clients []*Client
	for i := range 4 {
		clients = append(clients, r.login(func(cfg *ClientConfig) { cfg.ISID[5] = byte(i) }))
	}
	send := func(c *Client, write bool) uint32 {
		cdb, out, in := cdb10(opRead10, 0, size/fakeBlock), 0, size
		if write {
			cdb[0], out, in = opWrite10, size, 0
		}
		hdr, _ := c.CommandHeader(0, cdb, out, in)
		c.Send(hdr, nil, make([]byte, min(out, int(c.p.firstBurst), c.maxSend)))
		return bhs(hdr[:]).itt()
	}
	hdr, _ := clients[0].CommandHeader(0, cdb10(opStuck, 0, 0), 0, size)
	clients[0].Send(hdr, nil, nil)
	first := bhs(hdr[:]).itt()
	r.eventually("the first command is under way", func(f *fakeTarget) bool { return f.submits == 1 })
	for i, c := range clients {
		for _, write := range []bool{false, true} {
			if res, err := c.Await(send(c, write), nil, size); err != nil || res.Status != scsi.StatusTaskSetFull {
				t.Fatalf("connection %d, write %v: %v %v", i, write, res, err)
			}
		}
	}
	r.exec.Lock()
	for n := range r.target.nexuses {
		n.letGo()
	}
	r.exec.Unlock()
	if res, err := clients[0].Await(first, nil, size); err != nil || res.Status != scsi.StatusGood {
		t.Fatalf("the first command: %v %v", res, err)
	}
	r.eventually("nothing is taken", func(*fakeTarget) bool { return r.portal.Held() == 0 })
	for i, c := range clients {
		if res, err := c.Await(send(c, false), nil, size); err != nil || res.Status != scsi.StatusGood {
			t.Errorf("connection %d afterwards: %v %v", i, res, err)
		}
		r.eventually("nothing is taken", func(*fakeTarget) bool { return r.portal.Held() == 0 })
	}
}

// A peer that asks and does not read is not served without end.
func TestSlowReader(t *testing.T) {
	r := newRig(t, nil)
	c := r.login(nil)
	c.nc.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	data := make([]byte, 128<<10)
	sent := 0
	for ; sent < 4000; sent++ {
		if err := c.Send(c.NewHeader(opNopOut|immediateBit, 0), nil, data); err != nil {
			break
		}
	}
	if sent == 4000 {
		t.Error("500 MiB of pings were taken in without an answer being read")
	}
}

// TestSessionsOfOneInitiator: one name gets a quarter of the sessions, whatever its ISIDs and its
// case; others get theirs, and what it ends it may open again.
func TestSessionsOfOneInitiator(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxSessions = 16 })
	isid := byte(0)
	login := func(name string) (*Client, error) {
		isid++
		return r.tryLogin(func(cfg *ClientConfig) { cfg.Initiator, cfg.ISID[5] = name, isid })
	}
	var last *Client
	for range 4 {
		var err error
		if last, err = login(testInitiator); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{testInitiator, strings.ToUpper(testInitiator)} {
		_, err := login(name)
		if e, ok := err.(*LoginError); !ok || e.Status != loginNoResources {
			t.Errorf("fifth session of %s: %v", name, err)
		}
	}
	for range 4 {
		if _, err := login(testInitiator + "2"); err != nil {
			t.Errorf("another's: %v", err)
		}
	}
	if err := last.Logout(); err != nil {
		t.Fatal(err)
	}
	if _, err := login(testInitiator); err != nil {
		t.Errorf("after a logout: %v", err)
	}
}

func TestConnectionLimit(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxConnections = 2; cfg.Limits.MaxSessions = 1 })
	r.login(nil)
	_, err := r.tryLogin(func(cfg *ClientConfig) { cfg.Initiator += "2" })
	if e, ok := err.(*LoginError); !ok || e.Status != loginNoResources {
		t.Errorf("second session: %v", err)
	}
	second := r.dial()
	before := r.errors(ErrLimit)
	r.dial()
	// The third takes the place of the second, which has not logged in.
	second.SetReadDeadline(time.Now().Add(patience))
	if n, err := second.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("second connection: %d bytes, %v", n, err)
	}
	r.eventually("the error is counted", func(*fakeTarget) bool { return r.errors(ErrLimit) != before })
}

// A flood of connections that say nothing keeps nobody out, and does not touch who is
// logged in.
func TestMuteFlood(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxConnections = 16 })
	inside := r.login(nil)
	for range 400 {
		r.dial()
	}
	for i := range byte(8) {
		c, err := r.tryLogin(func(cfg *ClientConfig) { cfg.ISID[5] = 10 + i })
		if err != nil {
			t.Fatalf("login %d: %v", i, err)
		}
		defer c.Close()
		for range 20 {
			r.dial()
		}
	}
	if _, err := inside.Command(0, make([]byte, 6), nil, 0); err != nil {
		t.Errorf("who was logged in before: %v", err)
	}
}

// A flood of 2,000 connections, half of them mute and half of them noisy, all open at a time as far as the portal lets
// them: who is logged in works on, a newcomer gets in, and what the portal holds stays within its limits.
func TestFlood(t *testing.T) {
	const connections = 2000
	r := newRig(t, nil)
	limit := DefaultLimits().MaxConnections
	good := r.login(nil)
	data := bytes.Repeat([]byte{0x5A}, 4096)
	work := func(when string) {
		t.Helper()
		if res, err := good.Command(0, cdb10(opWrite10, 0, 8), data, 0); err != nil || res.Status != 0 {
			t.Fatalf("%s: write: %+v, %v", when, res, err)
		}
		res, err := good.Command(0, cdb10(opRead10, 0, 8), nil, 4096)
		if err != nil || res.Status != 0 || !bytes.Equal(res.Data, data) {
			t.Fatalf("%s: read: %+v, %v", when, res, err)
		}
	}
	half := make([]byte, 20)
	half[0] = opLogin | immediateBit
	garbage := bytes.Repeat([]byte{0xFF}, bhsLen)
	login := bhs(make([]byte, bhsLen))
	login[0], login[offFlags] = opLogin|immediateBit, stageOperational<<2|flagContinue
	unfinished := appendPDU(nil, login, nil, appendKey(nil, keyInitiatorName, "iqn.2026-01.host:flood"), false, false)
	var ends []net.Conn
	t.Cleanup(func() {
		for _, nc := range ends {
			nc.Close()
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range connections {
		nc, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		// More than the portal takes stay open at a time, but not all: this process has a limit, too.
		if ends = append(ends, nc); len(ends) > 2*limit {
			ends[0].Close()
			ends = ends[1:]
		}
		if i%2 == 1 {
			_, _ = nc.Write([][]byte{half, garbage, unfinished}[i/2%3]) // it may be closed already
		}
		if i%100 == 0 {
			work(fmt.Sprintf("after %d connections", i))
		}
	}
	r.portal.mu.Lock()
	open := len(r.portal.conns)
	r.portal.mu.Unlock()
	if open > limit {
		t.Errorf("%d connections are open, the limit is %d", open, limit)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<20 {
		t.Errorf("the flood takes %d MiB", grown>>20)
	}
	second := r.login(func(cfg *ClientConfig) { cfg.ISID[5] = 9 })
	if res, err := second.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Errorf("the newcomer: %+v, %v", res, err)
	}
	work("at the end")
}

func TestSnapshotNames(t *testing.T) {
	if got := fmt.Sprint(ErrDataOut, " ", ErrorKind(99)); got != "data_out kind(99)" {
		t.Error(got)
	}
}
