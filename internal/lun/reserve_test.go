package lun

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
)

// openAs opens a LUN as another initiator.
func (l *lab) openAs(initiator, n string) *Device {
	l.t.Helper()
	a, err := iscsi.ParseAddress("iscsi://" + l.addr + "/" + testTarget + "/" + n)
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := Dial(a, initiator, initiator, Times{})
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

func (l *lab) write(d *Device, b byte) block.Status {
	return l.do(d, &block.Request{Op: block.OpWrite, Range: block.Range{Count: 1}, Data: [][]byte{fill(b, 1)}})
}

const (
	lostName  = "iqn.2026-01.io.arraysim:lost"
	takerName = "iqn.2026-01.io.arraysim:taker"
	thirdName = "iqn.2026-01.io.arraysim:third"
	lostKey   = 17
	takerKey  = 18
	thirdKey  = 19
)

func TestReservationsFenceALostHost(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := lost.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	if st := l.write(taker, 1); st == block.OK {
		t.Error("a host without registration can write")
	}
	if st := l.write(lost, 2); st != block.OK {
		t.Errorf("the holder cannot write: %v", st)
	}
	for range 2 { // the second time stands for a taker that died in the middle and begins again
		if err := taker.Fence(takerKey, lostKey); err != nil {
			t.Fatal(err)
		}
		if st := l.write(lost, 3); st == block.OK {
			t.Error("the fenced host can still write")
		}
		if st := l.write(taker, 4); st != block.OK {
			t.Errorf("the taker cannot write: %v", st)
		}
	}
	if err := lost.Reserve(lostKey); !errors.Is(err, ErrReserved) {
		t.Errorf("the fenced host comes back: %v", err)
	}
	l.registered(taker, takerKey)
	if st := l.write(lost, 5); st == block.OK {
		t.Error("the fenced host has registered again, and can write")
	}
	// Who is too late finds neither the lost host nor a free reservation.
	third := l.openAs(thirdName, "0")
	if err := third.Fence(thirdKey, lostKey); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a second taker: %v", err)
	}
	l.registered(taker, takerKey)
}

// TestFenceOfAHostThatIsNotRegistered: an array that forgot, or never knew, its registration lets it write until it is fenced.
func TestFenceOfAHostThatIsNotRegistered(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if st := l.write(lost, 1); st != block.OK {
		t.Fatal(st)
	}
	if err := taker.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	if st := l.write(lost, 2); st == block.OK {
		t.Error("the host can still write")
	}
}

// TestFenceBesideOtherRegistrants: the reservation of a cluster's other member stays.
func TestFenceBesideOtherRegistrants(t *testing.T) {
	l := newLab(t)
	third, lost, taker := l.openAs(thirdName, "0"), l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := third.Reserve(thirdKey); err != nil {
		t.Fatal(err)
	}
	if err := lost.reserveOut(prRegisterIgnore, 0, lostKey); err != nil {
		t.Fatal(err)
	}
	if err := taker.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	l.registered(taker, takerKey, thirdKey)
	for _, row := range []struct {
		d    *Device
		want bool
	}{{lost, false}, {third, true}, {taker, true}} {
		if st := l.write(row.d, 1); (st == block.OK) != row.want {
			t.Errorf("a write ends %v", st)
		}
	}
}

// TestRefusedReservationLeavesNoRegistration.
func TestRefusedReservationLeavesNoRegistration(t *testing.T) {
	l := newLab(t)
	holder, other := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := holder.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	if err := other.Reserve(takerKey); !errors.Is(err, ErrReserved) {
		t.Fatalf("a second host reserves: %v", err)
	}
	l.registered(holder, lostKey)
	if st := l.write(other, 1); st == block.OK {
		t.Error("the refused host can write")
	}
}

// registered fails the test unless just these keys are registered.
func (l *lab) registered(d *Device, want ...uint64) {
	l.t.Helper()
	keys, err := d.keys()
	slices.Sort(keys)
	if err != nil || !slices.Equal(keys, want) {
		l.t.Errorf("registered are %d (%v), want %d", keys, err, want)
	}
}

// TestFenceIsKeptOverARestart: what Reserve and Fence register, the array keeps.
func TestFenceIsKeptOverARestart(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := lost.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	l.restart()
	if st := l.write(l.openAs(thirdName, "0"), 1); st == block.OK {
		t.Error("after a restart the reservation is forgotten")
	}
	if err := taker.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	l.restart()
	if st := l.write(lost, 2); st == block.OK {
		t.Error("after a restart the fenced host can write")
	}
	if st := l.write(taker, 3); st != block.OK {
		t.Errorf("after a restart the taker cannot write: %v", st)
	}
}

// TestFenceAbortsWhatIsUnderWay: when Fence returns, nothing of the lost host lands any more.
func TestFenceAbortsWhatIsUnderWay(t *testing.T) {
	l := newLab(t)
	lost, taker := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := lost.Reserve(lostKey); err != nil {
		t.Fatal(err)
	}
	slow := l.files[0]
	slow.delay.Store(int64(300 * time.Millisecond))
	done := make(chan block.Status, 1)
	l.x.Lock()
	lost.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Count: 1}, Data: [][]byte{fill(9, 1)}, Done: func(r *block.Request) { done <- r.Status }}})
	l.x.Unlock()
	for slow.started.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := taker.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	if n := slow.started.Load() - slow.ended.Load(); n != 0 {
		t.Errorf("%d writes of the fenced host are still under way", n)
	}
	<-done
}

// TestHostInItsOwnWay: its flash has another path since it died, so its session has another ISID.
// It is told what to do, and can.
func TestHostInItsOwnWay(t *testing.T) {
	l := newLab(t)
	was, is := l.openAs(lostName, "0"), l.openAs(takerName, "0")
	if err := errors.Join(was.Reserve(lostKey), was.SetGeneration(3)); err != nil {
		t.Fatal(err)
	}
	if err := is.Reserve(lostKey); !errors.Is(err, ErrReserved) || !errors.Is(err, ErrOwnSession) {
		t.Errorf("the host by another session: %v", err)
	}
	if err := is.Fence(takerKey, lostKey); err != nil {
		t.Fatal(err)
	}
	if st := l.write(was, 1); st == block.OK {
		t.Error("the session before can still write")
	}
	if st := l.write(is, 2); st != block.OK {
		t.Errorf("a write ends %v", st)
	}
	other := l.openAs(thirdName, "0")
	if err := other.Reserve(thirdKey); !errors.Is(err, ErrReserved) || errors.Is(err, ErrOwnSession) {
		t.Errorf("another host: %v", err)
	}
}
