package tier

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/lab/plug"
)

// What the counters count, and what they do not.

// TestWithdrawnRequestsAreNoFailures: a client that gives a request up says nothing of the LUN.
func TestWithdrawnRequestsAreNoFailures(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	for _, r := range []*block.Request{
		{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{make([]byte, 8*512)}},
		{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(1, 8)}},
	} {
		ended := l.start(r)
		l.wait(func() bool { return len(l.d.active) == 1 && l.d.active[0].below != nil })
		l.d.Cancel(r)
		l.wait(ended)
		if r.Status != block.Cancelled {
			t.Fatalf("%v: %v", r.Op, r.Status)
		}
	}
	if s := l.d.CacheStats(); s.FailedDisk != 0 || s.IOs != 0 {
		t.Errorf("two requests were withdrawn: %d failed, %d I/Os", s.FailedDisk, s.IOs)
	}
}

// TestFailedDestagesAreNoWrites: the LUN has nothing of them, and the time of a refusal is not that of a write.
func TestFailedDestagesAreNoWrites(t *testing.T) {
	l := newLab(t, nil)
	l.a.failing = 100
	l.write(0, 8, 1)
	l.wait(func() bool { return l.d.stats.DestageErrors == 3 })
	v := l.d.Views()
	if v.Destages != (Flow{}) || v.Datastore.Write != (Flow{}) {
		t.Errorf("nothing was destaged: %+v, datastore %+v", v.Destages, v.Datastore.Write)
	}
	if n := l.d.CacheStats().FailedDisk; n != 3 {
		t.Errorf("%d failed disk I/Os, want 3", n)
	}
	l.a.failing = 0
	l.wait(l.d.clean)
	if v := l.d.Views(); v.Destages.IOs != 1 || v.Destages.Bytes != 8*512 {
		t.Errorf("one destage: %+v", v.Destages)
	}
}

// TestReadsOfAFailingFlashAreLocal: it takes no writes, and what is dirty on it is read there.
func TestReadsOfAFailingFlashAreLocal(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.cards[0].tired = true
	l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 8}, Data: [][]byte{pattern(2, 8)}})
	l.wait(func() bool { return l.d.local().state == memberFailing })
	l.want(0, 8, 1)
	if v := l.d.Views(); v.LocalFlash.Read.IOs != 1 || v.NetworkFlash.Read.IOs != 0 {
		t.Errorf("a read of this host's flash: local %+v, network %+v", v.LocalFlash.Read, v.NetworkFlash.Read)
	}
}

// TestIntegralIsBounded: writers that pause for long above the threshold find the largest delay, not an overflow.
func TestIntegralIsBounded(t *testing.T) {
	for _, k := range []int64{1, 50, 1_000_000, 1 << 62} {
		var th throttle
		th.set(Throttle{Area: 1 << 20, Gain: k, Integral: k}, 1<<20)
		a := areaOf(&th, th.area*9/10)
		for _, now := range []int64{1, 1e9, 3600e9, 1e6 * 3600e9} {
			a.Now = now
			if d := th.Delay(a); d < 0 || d > maxInjectedFactor*a.Destage {
				t.Errorf("Gain and Integral %d: %d ns of delay after %d s", k, d, now/1e9)
			}
		}
	}
}

func areaOf(t *throttle, dirty uint64) plug.Area {
	return plug.Area{Dirty: dirty << block.SectorShift, Size: t.area << block.SectorShift, Threshold: t.threshold << block.SectorShift, Destage: 3_000_000}
}

// TestTokensOfAnEarlierOpening: a token of a quiesce that ended with its process ends no other one.
func TestTokensOfAnEarlierOpening(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.ID = 0x9e3779b97f4a7c15 })
	was := l.d.Quiesce(1e12, func(uint64) {})
	l.crash()
	l.opt.ID = 0xd1b54a32d192ed03
	l.boot(0)
	is := l.d.Quiesce(1e12, func(uint64) {})
	if is == 0 || l.d.Resume(was) {
		t.Errorf("token %d of the opening before ends the quiesce with token %d", was, is)
	}
	if !l.d.Resume(is) {
		t.Errorf("token %d is not held", is)
	}
}

// TestNothingToDoEnds: requests of no sectors.
func TestNothingToDoEnds(t *testing.T) {
	l := newLab(t, nil)
	for _, r := range []*block.Request{
		{Op: block.OpRead}, {Op: block.OpWrite}, {Op: block.OpWrite, Flags: block.FUA}, {Op: block.OpWriteSame}, {Op: block.OpUnmap}, {Op: block.OpHold},
	} {
		if s := l.do(r); s != block.OK {
			t.Errorf("%v of nothing: %v", r.Op, s)
		}
	}
}

// TestFiguresOfNothing: a rate or a mean of no I/O is not known. It is no 0.
func TestFiguresOfNothing(t *testing.T) {
	l := newLab(t, nil)
	s := l.d.CacheStats()
	if s.HitRate != nil || s.MeanLatency != nil || s.MaxLatency != nil || s.MeanKBPerIO != nil || s.MeanCacheLatency != nil ||
		s.MeanDiskLatency != nil || s.EvictMeanBlocks != nil || s.EvictLastTime != nil || s.MeanBlocksInUse != nil {
		t.Errorf("without any I/O: %+v", s)
	}
	b, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(b), `"cache_hit_rate_percent":null`) {
		t.Errorf("%s, %v", b, err)
	}
	l.write(0, 8, 1)
	l.want(0, 8, 1)
	s = l.d.CacheStats()
	if s.HitRate == nil || *s.HitRate != 100 || s.MeanKBPerIO == nil || *s.MeanKBPerIO != 4 || s.EvictMeanBlocks != nil {
		t.Errorf("with a write and a read: %+v", s)
	}
}

// TestLossOfPowerIsNoConflict: what is dirty here was changed by nobody else, as it is where the LUN does not remember what others have
// changed.
func TestLossOfPowerIsNoConflict(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.write(64, 8, 2)
	l.d.volatile.ended++ // something is volatile below
	l.d.event(block.Event{Kind: block.EventPowerLoss})
	l.wait(func() bool { return len(l.d.active) == 0 })
	if s := l.d.Stats(); s.ConflictSectors != 0 || s.PowerLosses != 1 {
		t.Errorf("%d sectors are in conflict behind %d losses of power", s.ConflictSectors, s.PowerLosses)
	}
	l.a.listens = true
	for _, forgot := range []bool{true, false} {
		l.a.gen++
		l.a.forgot, l.a.changed = forgot, []block.Range{{Start: 60, Count: 6}}
		l.d.event(block.Event{Kind: block.EventGeneration})
		l.wait(func() bool { return !l.d.generation.asking && len(l.d.active) == 0 })
		if n := l.d.Stats().ConflictSectors; forgot != (n == 0) || !forgot && n != 2 {
			t.Errorf("it does not remember: %v; %d sectors are in conflict", forgot, n)
		}
	}
}

// TestMeanIOPSOfMany: of 40 billion I/Os, too.
func TestMeanIOPSOfMany(t *testing.T) {
	l := newLab(t, nil)
	l.d.ResetStats()
	l.d.window.views.Effective.Read.IOs = 40e9
	l.v.RunUntil(l.v.Now() + 1_000_000_000_000)
	if n := *l.d.CacheStats().MeanIOPS; n != 40e6 {
		t.Errorf("%d a second", n)
	}
}

// TestTimeOfADestageIsUnknownBeforeTheFirst: it is no 0, and a time that is reckoned without it is a guess.
func TestTimeOfADestageIsUnknownBeforeTheFirst(t *testing.T) {
	l := newLab(t, withoutDestager)
	if s := l.d.State(); s.SANNanos != nil || s.Assumed {
		t.Errorf("nothing is dirty: %+v", s)
	}
	l.write(0, 8, 1)
	if s := l.d.State(); s.SANNanos != nil || !s.Assumed || s.TimeToDestage == 0 {
		t.Errorf("nothing was destaged: %+v", s)
	}
	l.destages()
	l.wait(l.d.clean)
	l.d.destager.used = l.d.destager.ahead()
	l.write(0, 8, 1)
	if s := l.d.State(); s.SANNanos == nil || *s.SANNanos == 0 || s.Assumed {
		t.Errorf("something was: %+v", s)
	}
}
