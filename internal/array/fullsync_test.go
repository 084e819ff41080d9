package array

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestFullStoreAndALostSync: a sync that fails in a store without room has what was written written again, and writes to space
// that has its place there go on behind that, though there is still no room for others, and however long there has been none.
func TestFullStoreAndALostSync(t *testing.T) {
	for _, full := range []int64{5e9, 120e9} {
		t.Run(fmt.Sprintf("%ds", full/1e9), func(t *testing.T) { lostSync(t, full) })
	}
}

func lostSync(t *testing.T, full int64) {
	const each, apart = 8, 256
	r, s, v, w := fullRig(t)
	for at := uint64(0); at < 20*apart; at += apart {
		mustOK(t, r.do(w, written(at, each, 2)))
	}
	r.clock.RunUntil(r.clock.Now() + full)
	if v.Pool().Part.Refused() == 0 {
		t.Fatal("all of it finds room: nothing is shown")
	}
	m := v.Pool().Mdisks[0]
	began, _ := m.Failing()
	r.a.afterStep = func() {
		since, err := m.Failing()
		switch {
		case v.Pool().Part.Refused() == 0:
		case since != began:
			t.Fatalf("it fails since %d s, and not since %d s any more, for want of room", since/1e9, began/1e9)
		case !m.Redoing() && !errors.Is(err, block.ErrFull):
			t.Fatalf("it lacks room, and is said to fail with: %v", err)
		}
	}
	s.lost = errors.New("the sync is lost")
	for round := range 3 {
		for at := uint64(0); at < 24<<11; at += 1024 {
			if status := r.do(v, written(at, 1024, byte(3+round))); status != block.OK {
				t.Fatalf("round %d: a write to space that has its place ends with %v", round, status)
			}
		}
		r.clock.RunUntil(r.clock.Now() + 120e9)
	}
	if s.lost != nil {
		t.Fatal("no sync was lost: nothing is shown")
	}
	r.a.DeleteVolume(v, func(error) {})
	r.clock.RunUntil(r.clock.Now() + 120e9)
	if n := r.a.Dirty(); n != 0 {
		t.Errorf("%d bytes are dirty though a volume was deleted", n)
	}
	got := make([]byte, each*512)
	for at := uint64(0); at < 20*apart; at += apart {
		mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(at, each), Data: [][]byte{got}}))
		if !bytes.Equal(got, bytes.Repeat([]byte{2}, len(got))) {
			t.Fatalf("what was acknowledged at sector %d is gone", at)
		}
	}
	r.check()
}

// slowSync is a medium whose syncs take a while.
type slowSync struct {
	holding
	r *rig
}

func (m slowSync) Sync(done func(error)) {
	m.r.clock.Call(m.r.clock.Now()+3e9, func() { m.Medium.Sync(done) })
}

// TestStopBehindALostSync: an array that stops while it writes again what a lost sync may have lost sends nothing afterwards that
// there was no room for.
func TestStopBehindALostSync(t *testing.T) {
	const each, apart = 8, 256
	r, s, v, w := twoVolumes(t)
	mustOK(t, r.do(v, written(0, 1024, 1)))
	r.clock.RunUntil(r.clock.Now() + 60e9)
	limitRoom(s)
	m := s.media["p.m"]
	m.Medium = slowSync{m.Medium.(holding), r}
	mustOK(t, r.do(v, written(0, 1024, 2)))
	mustOK(t, r.do(w, written(0, each, 2)))
	mustOK(t, r.do(w, written(apart, each, 2)))
	s.lost = errors.New("the sync is lost")
	d := v.Pool().Mdisks[0]
	for !d.Redoing() {
		mustOK(t, r.do(v, written(0, 1024, 3)))
		r.clock.RunUntil(r.clock.Now() + 1e8)
	}
	// Its sync takes three seconds, behind which those are sent again whose time has come meanwhile.
	r.clock.RunUntil(r.clock.Now() + 3e9)
	if !d.Redoing() || v.Pool().Part.Refused() == 0 {
		t.Fatalf("it redoes: %v, %d pages have no room: nothing is shown", d.Redoing(), v.Pool().Part.Refused())
	}
	given, stopped := 0, false
	h := m.Medium.(slowSync)
	submit := h.submit
	h.submit = func(ios []*block.IO) {
		given += len(ios)
		submit(ios)
	}
	m.Medium = h
	r.a.Stop(func(error) { stopped = true })
	r.clock.RunUntil(r.clock.Now() + 120e9)
	if !stopped || d.Redoing() || given > 0 {
		t.Errorf("stopped: %v, it redoes: %v, and %d transfers came behind", stopped, d.Redoing(), given)
	}
}
