package lun

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

const testTarget = "iqn.2026-01.io.arraysim:test"

// lab is two files as LUNs 0 and 1 of a portal, whose target keeps what it saves.
type lab struct {
	t       *testing.T
	x       *block.Live
	portal  *iscsi.Portal
	addr    string
	target  *scsi.Target
	files   []*slowDevice
	through int      // sessions that openThrough has made
	saved   [][]byte // by LUN: what the unit saved last
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, x: block.NewLive(), saved: make([][]byte, 2)}
	t.Cleanup(l.x.Stop)
	for _, name := range []string{"a", "b"} {
		f, err := OpenFile(l.x, filepath.Join(t.TempDir(), name), 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		l.files = append(l.files, &slowDevice{Device: f.Device(name, 512), x: l.x})
	}
	l.makeTarget()
	l.serve(testkit.Loopback() + ":0")
	t.Cleanup(l.stop)
	return l
}

// makeTarget makes the target of what was saved.
func (l *lab) makeTarget() {
	l.x.Lock()
	defer l.x.Unlock()
	l.target = scsi.NewTarget(scsi.Options{Name: testTarget, Vendor: "ARRAYSIM", Product: "test", Revision: "1", Exec: l.x})
	for i, f := range l.files {
		state, err := scsi.ParseUnitState(l.saved[i])
		if err == nil {
			err = l.target.Map("", uint16(i), l.target.AddUnit(f, scsi.UnitOptions{State: state, Save: func(state []byte, done func(error)) {
				l.saved[i] = slices.Clone(state)
				l.x.Post(func() { done(nil) })
			}}))
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// restart ends the target and begins another one with what it saved, at the same address.
func (l *lab) restart() {
	l.stop()
	l.makeTarget()
	l.serve(l.addr)
}

// slowDevice answers writes after a delay, and counts those that have begun and ended.
type slowDevice struct {
	block.Device
	x              *block.Live
	delay          atomic.Int64
	started, ended atomic.Int64
	stuck          atomic.Bool // requests end when they are cancelled, and not before
	kept           []*block.Request
	grown          uint64 // sectors that it has more than at first
	listen         []func(block.Event)
}

func (s *slowDevice) Notify(fn func(block.Event)) { s.listen = append(s.listen, fn) }

func (s *slowDevice) Info() block.Info {
	i := s.Device.Info()
	i.Sectors += s.grown
	return i
}

func (s *slowDevice) Cancel(r *block.Request) {
	if at := slices.Index(s.kept, r); at >= 0 {
		s.kept = slices.Delete(s.kept, at, at+1)
		s.x.Post(func() {
			r.Status = block.Cancelled
			r.Done(r)
		})
	}
}

func (s *slowDevice) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if s.stuck.Load() {
			s.kept = append(s.kept, r)
			continue
		}
		if r.Op != block.OpWrite || s.delay.Load() == 0 {
			s.Device.Submit([]*block.Request{r})
			continue
		}
		s.started.Add(1)
		done := r.Done
		r.Done = func(r *block.Request) {
			s.ended.Add(1)
			r.Done = done
			done(r)
		}
		s.x.At(s.x.Now()+s.delay.Load(), func() { s.Device.Submit([]*block.Request{r}) })
	}
}

func (l *lab) serve(addr string) {
	l.t.Helper()
	var err error
	if l.portal, err = iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: testTarget, Target: l.target}}}); err != nil {
		l.t.Fatal(err)
	}
	nl, err := net.Listen("tcp", addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.addr = nl.Addr().String()
	p := l.portal
	go p.Serve(nl)
}

func (l *lab) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.portal.Shutdown(ctx) // cutting connections off is an end, too
}

func (l *lab) open(n string) *Device {
	l.t.Helper()
	a, err := iscsi.ParseAddress("iscsi://" + l.addr + "/" + testTarget + "/" + n)
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := Dial(a, "iqn.2026-01.io.arraysim:client"+n, l.t.Name(), Times{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Close)
	d, err := Open(l.x, s, "lun"+n)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

func (l *lab) do(d block.Device, r *block.Request) block.Status {
	end := make(chan block.Status, 1)
	r.Done = func(r *block.Request) { end <- r.Status }
	l.x.Lock()
	d.Submit([]*block.Request{r})
	l.x.Unlock()
	return <-end
}

func fill(b byte, sectors int) []byte { return bytes.Repeat([]byte{b}, sectors*512) }

func (l *lab) want(d block.Device, at uint64, want []byte) {
	l.t.Helper()
	if s := l.wantIfRead(d, at, want); s != block.OK {
		l.t.Fatalf("read at %d: %v", at, s)
	}
}

// wantIfRead is want for a read that may fail; it returns how that ends.
func (l *lab) wantIfRead(d block.Device, at uint64, want []byte) block.Status {
	l.t.Helper()
	got := make([]byte, len(want))
	half := len(got) / 1024 * 512
	s := l.do(d, &block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: uint64(len(want) / 512)}, Data: [][]byte{got[:half], got[half:]}})
	if s == block.OK && !bytes.Equal(got, want) {
		l.t.Fatalf("at %d: got %x.., want %x..", at, got[:4], want[:4])
	}
	return s
}

// info describes a unit, whose capacity may be read again at any moment.
func (l *lab) info(d *Device) block.Info {
	d.exec.Lock()
	defer d.exec.Unlock()
	return d.Info()
}

func TestOperationsOfARemoteLUN(t *testing.T) {
	l := newLab(t)
	a, b := l.open("0"), l.open("1")
	if i := l.info(a); i.Sectors != 8192 || i.BlockSize != 512 || i.NAA == [16]byte{} || i.NAA == l.info(b).NAA {
		t.Fatalf("the LUN says %+v", i)
	}
	big := bytes.Join([][]byte{fill(1, 1000), fill(2, 1000)}, nil) // several bursts and R2Ts
	for _, row := range []struct {
		name string
		dev  block.Device
		req  block.Request
		at   uint64
		want []byte
	}{
		{"write", a, block.Request{Op: block.OpWrite, Range: block.Range{Start: 10, Count: 2000}, Data: [][]byte{big[:700], big[700:]}}, 10, big},
		{"fua", a, block.Request{Op: block.OpWrite, Flags: block.FUA, Range: block.Range{Start: 0, Count: 1}, Data: [][]byte{fill(3, 1)}}, 0, fill(3, 1)},
		{"write same", a, block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 100, Count: 50}, Data: [][]byte{fill(4, 1)}}, 100, fill(4, 50)},
		{"zeros", a, block.Request{Op: block.OpWriteSame, Range: block.Range{Start: 110, Count: 5}}, 110, fill(0, 5)},
		{"unmap", a, block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Start: 120, Count: 3}, {Start: 130, Count: 2}}}, 130, fill(0, 2)},
		{"compare and write", a, block.Request{Op: block.OpCompareWrite, Range: block.Range{Start: 0, Count: 1}, Compare: [][]byte{fill(3, 1)}, Data: [][]byte{fill(9, 1)}}, 0, fill(9, 1)},
		{"flush", a, block.Request{Op: block.OpFlush}, 0, fill(9, 1)},
	} {
		if s := l.do(row.dev, &row.req); s != block.OK {
			t.Fatalf("%s: %v", row.name, s)
		}
		l.want(row.dev, row.at, row.want)
	}
	miss := &block.Request{Op: block.OpCompareWrite, Range: block.Range{Start: 0, Count: 1}, Compare: [][]byte{fill(3, 1)}, Data: [][]byte{fill(8, 1)}}
	if s := l.do(a, miss); s != block.Miscompare || miss.Offset != 0 {
		t.Errorf("compare and write of something else: %v at %d", s, miss.Offset)
	}
	status := &block.Request{Op: block.OpStatus, Range: block.Range{Start: 0}, Extents: make([]block.Extent, 0, 4)}
	if s := l.do(a, status); s != block.OK || len(status.Extents) == 0 || status.Extents[0].State != block.Data {
		t.Errorf("status: %v %v", s, status.Extents)
	}
	if s := l.do(a, &block.Request{Op: block.OpRead, Range: block.Range{Start: 8192, Count: 1}, Data: [][]byte{fill(0, 1)}}); s != block.OutOfRange {
		t.Errorf("a read behind the end: %v", s)
	}
	hold := &block.Request{Op: block.OpHold, Ranges: []block.Range{{Start: 100, Count: 8}, {Start: 0, Count: 1}}}
	if s := l.do(a, hold); s != block.OK || hold.Ref.Sectors() != 9 {
		t.Fatalf("hold: %v", s)
	}
	if s := l.do(b, &block.Request{Op: block.OpPlace, Range: block.Range{Start: 500, Count: 7}, Ref: hold.Ref, RefOffset: 2}); s != block.OK {
		t.Fatalf("place: %v", s)
	}
	l.want(b, 500, append(fill(4, 6), fill(9, 1)...))
}

func TestSessionIsRestored(t *testing.T) {
	l := newLab(t)
	d := l.open("0")
	addr := l.addr
	for n := range byte(3) {
		if s := l.do(d, &block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{fill(n, 8)}}); s != block.OK {
			t.Fatalf("write %d: %v", n, s)
		}
		l.stop()
		done := make(chan block.Status, 1)
		l.x.Lock()
		d.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Start: 64, Count: 1}, Data: [][]byte{fill(n, 1)}, Done: func(r *block.Request) { done <- r.Status }}})
		l.x.Unlock()
		l.serve(addr)
		if s := <-done; s != block.OK {
			t.Fatalf("the write that waited for the session: %v", s)
		}
		l.want(d, 0, fill(n, 8))
		l.want(d, 64, fill(n, 1))
	}
}
