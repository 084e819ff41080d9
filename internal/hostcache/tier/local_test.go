package tier

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// A device below that is a file or block device of the host: what is volatile there goes with the
// host's power, and no event tells of it.

// cutLocal cuts the power of a host that has died, and with it that of its device below.
func (w *world) cutLocal() {
	w.cutHost()
	w.a.powerCut()
	w.a.dark, w.a.cuts = false, 0 // nobody is told, so no flush may fail for it
}

// eventLocalPower cuts the power of a host whose device below is its own.
func (w *world) eventLocalPower() {
	if w.taker > 0 {
		return
	}
	if !w.opt.LocalBelow {
		w.settle()
		w.stop()
		w.crash()
		w.opt.LocalBelow, w.a.listens = true, false
		if w.a.undo == nil {
			w.a.undo = map[uint64][][]byte{}
		}
		w.reboot()
		return
	}
	if w.r.IntN(2) == 0 {
		w.eventPolicy()
		w.steps(w.r.IntN(40))
	}
	w.sharpFlush()
	if w.r.IntN(4) == 0 {
		w.settle()
		w.stop()
	}
	w.crash()
	w.powerLost()
	w.cutLocal()
	w.reboot()
}

// TestLocalPower is TestModel with a device below that loses power with its host, and no other
// events.
func TestLocalPower(t *testing.T) { runWorlds(t, *seeds/3, (*world).eventLocalPower) }

func local(w *world) {
	w.opt.LocalBelow, w.opt.PowerSafe = true, true
	w.cards[0].volatile, w.a.undo = true, map[uint64][][]byte{}
}

// TestAcknowledgedWritesSurviveTheHostsPower: a flash that syncs every write keeps what it has
// acknowledged, also once that is destaged to a device of the host, and so does a write that finds
// no room on it. Their client never flushes.
func TestAcknowledgedWritesSurviveTheHostsPower(t *testing.T) {
	destaged, passed := uint64(0), uint64(0)
	for n := range 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, func(w *world) { local(w); w.opt.Throttle = Throttle{Area: 64 << 9, Threshold: 900} })
			for range n {
				l.r.Uint64()
			}
			acknowledged := map[uint64]uint64{}
			for value := uint64(1); value < 60; value++ {
				at := 8 * l.r.Uint64N(32)
				r := &block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: 8}, Data: [][]byte{pattern(value, 8)}}
				if value%20 == 0 { // more than the destaging area takes
					r.Range.Count, r.Data = 72, [][]byte{pattern(value, 72)}
				}
				if s := l.do(r); s != block.OK {
					t.Fatal(s)
				}
				for s := at; s < r.Range.End(); s++ {
					acknowledged[s] = value
				}
				l.v.RunUntil(l.v.Now() + l.r.Int64N(8_000_000))
			}
			destaged, passed = destaged+l.d.Stats().DestagedSectors, passed+l.d.Stats().PassedWrites
			l.crash()
			l.cutLocal()
			l.boot(0)
			for s := range l.a.sectors {
				if acknowledged[s] > 0 {
					l.want(s, 1, acknowledged[s])
				}
			}
			l.wait(l.d.clean)
			for s := range l.a.sectors {
				l.wantBelow(s, 1, acknowledged[s])
			}
		})
	}
	if destaged == 0 || passed == 0 {
		t.Errorf("%d sectors were destaged and %d writes went past the flash: the test tests nothing", destaged, passed)
	}
}

// TestCleanDataOfALocalDevice: what was written through and not flushed is perhaps gone below after
// a loss of the host's power. It is not served from flash then. An end of the process costs
// nothing, and neither does a loss of power behind an orderly stop.
func TestCleanDataOfALocalDevice(t *testing.T) {
	for _, row := range []struct {
		name        string
		stop, power bool
		want        uint64
	}{
		{"the process dies", false, false, 2},
		{"power is lost", false, true, 1},
		{"power is lost behind a stop", true, true, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, func(w *world) { local(w); w.opt.Policy = Policy{Mode: WriteThrough} })
			l.write(0, 8, 1)
			if s := l.flush(); s != block.OK {
				t.Fatal(s)
			}
			l.write(0, 8, 2)
			l.v.RunUntil(l.v.Now() + 100_000_000) // the fill, and its record
			if row.stop {
				l.stop()
			}
			l.crash()
			if row.power {
				for s, older := range l.a.undo { // each on its own: order does not matter
					l.a.data[s] = older[0]
				}
				clear(l.a.undo)
				l.cutLocal()
			}
			l.boot(0)
			if row.want == 2 {
				l.warm(2)
				return
			}
			l.want(0, 8, row.want)
		})
	}
}
