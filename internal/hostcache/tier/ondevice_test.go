package tier

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestDeviceThatLosesPower: a sync after it says nothing of what was written before.
func TestDeviceThatLosesPower(t *testing.T) {
	v := &block.Virtual{}
	a := newArray(v, rand.New(rand.NewPCG(1, 1)), 1024)
	m := OnDevice(&path{array: a})
	write := func() {
		t.Helper()
		ended := false
		m.Submit([]*block.IO{{Write: true, N: 512, Vec: [][]byte{pattern(1, 1)}, Done: func(io *block.IO) { ended = io.Err == nil }}})
		for !ended && v.Step() {
		}
		if !ended {
			t.Fatal("the write failed")
		}
	}
	sync := func() (err error) {
		ended := false
		m.Sync(func(e error) { err, ended = e, true })
		for !ended && v.Step() {
		}
		return err
	}
	lose := func() {
		for _, fn := range a.notify {
			fn(block.Event{Kind: block.EventPowerLoss})
		}
	}
	lose() // nothing is lost
	write()
	if err := sync(); err != nil {
		t.Fatal(err)
	}
	lose() // nor now
	if err := sync(); err != nil {
		t.Fatal(err)
	}
	write()
	lose()
	for range 2 {
		if err := sync(); err == nil {
			t.Error("a sync of what is lost succeeds")
		}
	}
	var failed error
	m.Submit([]*block.IO{{N: 512, Vec: [][]byte{make([]byte, 512)}, Done: func(io *block.IO) { failed = io.Err }}})
	for v.Step() {
	}
	if failed == nil {
		t.Error("what may be older than what was written there is read")
	}
}

// TestWriteBesideASyncOfADevice: a sync covers what had ended when it began. Of a write that ends
// later a loss of power takes what the sync after it would have covered.
func TestWriteBesideASyncOfADevice(t *testing.T) {
	v := &block.Virtual{}
	a := newArray(v, rand.New(rand.NewPCG(1, 1)), 1024)
	below := &path{array: a}
	m := OnDevice(below)
	below.gate[block.OpWrite] = true
	ended := false
	m.Submit([]*block.IO{{Write: true, N: 512, Vec: [][]byte{pattern(1, 1)}, Done: func(io *block.IO) { ended = io.Err == nil }}})
	var errs []error
	sync := func() {
		n := len(errs)
		m.Sync(func(err error) { errs = append(errs, err) })
		for len(errs) == n && v.Step() {
		}
	}
	sync()
	below.open(block.OpWrite)
	for !ended && v.Step() {
	}
	for _, fn := range a.notify {
		fn(block.Event{Kind: block.EventPowerLoss})
	}
	sync()
	if len(errs) != 2 || errs[0] != nil || errs[1] == nil {
		t.Errorf("a sync of a write that came beside another one and was lost ends: %v", errs)
	}
}

// darkFlash has lost power while the cache was down.
type darkFlash struct{ block.Medium }

func (darkFlash) LostPower() bool { return true }

// TestFlashLosesPowerWhileTheCacheIsDown: a flash that another machine has may have lost what was not
// flushed there, though this machine goes on. Nothing of it is warm, as after a loss of power here.
func TestFlashLosesPowerWhileTheCacheIsDown(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy = Policy{Mode: WriteThrough} })
	l.write(0, 64, 1)
	l.v.RunUntil(l.v.Now() + 100_000_000)
	for _, dark := range []bool{false, true} {
		l.crash()
		if err := l.try(0, func(o *Options) {
			if dark {
				o.Flash = darkFlash{o.Flash}
			}
		}); err != nil {
			t.Fatal(err)
		}
		l.want(0, 64, 1)
		if warm := l.d.Views().Datastore.Read.IOs == 0; warm == dark {
			t.Errorf("flash lost power: %t, and it is warm: %t", dark, warm)
		}
	}
}

// TestDeviceSaysThatItHasLostPower: before anything was sent, and once. What it loses when it was asked is
// lost to this process.
func TestDeviceSaysThatItHasLostPower(t *testing.T) {
	v := &block.Virtual{}
	below := &path{array: newArray(v, rand.New(rand.NewPCG(1, 1)), 1024), news: true} // as lun.Device keeps it
	m := OnDevice(below).(*deviceMedium)
	if !m.LostPower() {
		t.Error("it does not say so")
	}
	for _, fn := range below.array.notify {
		fn(block.Event{Kind: block.EventPowerLoss})
	}
	var failed error
	m.Submit([]*block.IO{{N: 512, Vec: [][]byte{make([]byte, 512)}, Done: func(io *block.IO) { failed = io.Err }}})
	for v.Step() {
	}
	if failed == nil {
		t.Error("what may have been lost since is read")
	}
	if OnDevice(&path{array: newArray(v, rand.New(rand.NewPCG(1, 1)), 1024)}).(*deviceMedium).LostPower() {
		t.Error("one that has told of none has lost power")
	}
}
