package array

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// TestFullFileSystem writes more than the file system under the store takes: commands end
// with 27/07 in time, what was acknowledged stays readable, a start is refused with a word about
// room, and one with room finds everything, and serves.
func TestFullFileSystem(t *testing.T) {
	r := newPowerRig(t, 1, false)
	var v *Volume
	r.a.CreateVolume(VolumeSpec{Name: "big", Pool: "a", Sectors: 40 << 11, Thin: true}, func(x *Volume, err error) { r.must(nil, err); v = x })
	r.clock.Run()
	r.disk.SetFree(2 << 20)
	write := func(at uint64) (block.Status, int64) {
		buf := make([]byte, 64<<10)
		fillStamp(buf, at+1)
		q := &block.Request{Op: block.OpWrite, Range: rng(at, 128), Data: [][]byte{buf}}
		ended, from := false, r.clock.Now()
		q.Done = func(*block.Request) { ended = true }
		v.Submit([]*block.Request{q})
		for !ended && r.clock.Step() {
		}
		return q.Status, r.clock.Now() - from
	}
	var acked []uint64
	at := uint64(0)
	for ; ; at += 128 {
		s, took := write(at)
		if s == block.OK {
			acked = append(acked, at)
			continue
		}
		if s != block.NoSpace || took > 60e9 {
			t.Fatalf("write %d ended %v after %v", at/128, s, time.Duration(took))
		}
		break
	}
	if n := len(acked) * 64 << 10; n < 2<<20 {
		t.Errorf("%d bytes were taken where there is room for 2 MiB", n)
	}
	if len(r.a.Health()) == 0 {
		t.Error("nobody is told")
	}
	check := func() {
		t.Helper()
		got := make([]byte, 64<<10)
		for _, at := range acked {
			q := &block.Request{Op: block.OpRead, Range: rng(at, 128), Data: [][]byte{got}}
			ended := false
			q.Done = func(*block.Request) { ended = true }
			v.Submit([]*block.Request{q})
			for !ended && r.clock.Step() {
			}
			if q.Status != block.OK || le.Uint64(got) != at+1 || le.Uint64(got[len(got)-8:]) != at+1 {
				t.Fatalf("sector %d reads %v, %x", at, q.Status, le.Uint64(got))
			}
		}
	}
	check()
	image := r.disk.Kill()
	r.files.Close()
	r.disk = image
	refused := make(chan error, 1)
	go func() {
		_, _, err := openOn(r.disk, &block.Virtual{}, rand.New(rand.NewPCG(1, 1)), r.opt)
		refused <- err
	}()
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), "make room") {
			t.Errorf("without room it starts with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a start without room does not end")
	}
	r.disk.SetFree(-1)
	r.open()
	v = r.a.Volume("big")
	check()
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if h := r.a.Health(); len(h) > 0 || r.a.Dirty() != 0 {
		t.Errorf("with room there are %d dirty bytes and %v", r.a.Dirty(), h)
	}
	if s, _ := write(at); s != block.OK {
		t.Errorf("with room a write ends %v", s)
	}
	check()
	if p := r.a.Check(true).Problems; len(p) > 0 {
		t.Error(p[0])
	}
	r.files.Close()
}
