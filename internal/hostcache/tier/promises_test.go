package tier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// The promises of docs/hostcache.md on what is acknowledged, flushed, lost and given up, one test each.

// open opens a disk by the lab's options, whatever comes of it.
func (l *lab) open(change func(*Options)) (d *Disk, err error) {
	l.t.Helper()
	l.path = &path{array: l.a}
	opt := l.opt
	opt.Below = l.path
	if opt.Flash == nil {
		l.slots = []*slot{{card: l.cards[0]}}
		opt.Flash = l.slots[0]
	}
	if change != nil {
		change(&opt)
	}
	ended := false
	Open(opt, func(x *Disk, e error) { d, err, ended = x, e, true })
	l.wait(func() bool { return ended })
	l.d = d
	return d, err
}

func withPeers(n int) func(*world) {
	return func(w *world) {
		withoutDestager(w)
		w.opt.Policy.Peers = n
		for range n {
			w.cards = append(w.cards, newCard(w.v, w.r, 1<<20))
		}
	}
}

func TestFormattedFlashReplaysNothing(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.write(8, 8, 2)
	l.crash()
	l.opt.Format = true
	l.boot(0)
	l.crash()
	l.opt.Format = false
	l.boot(0)
	if n := l.d.Recovery().DirtySectors; n > 0 {
		t.Fatalf("%d sectors are dirty that a format gave up", n)
	}
}

func TestPeerThatServedAnotherCacheHasThisOnes(t *testing.T) {
	l := newLab(t, withPeers(1))
	for range 20 { // many epochs
		l.d.j.renew()
		l.d.pump()
		l.wait(func() bool { return !l.d.j.compact })
	}
	l.write(0, 8, 1)
	l.crash()
	l.cards[0] = newCard(l.v, l.r, 1<<20)
	l.opt.Format = true
	l.boot(0)
	l.opt.Format = false
	l.wait(func() bool { return l.d.State().Why == "" })
	l.write(0, 8, 7)
	l.crash()
	l.opt.Destager = nil
	l.boot(1)
	l.want(0, 8, 7)
}

func TestFlushWaitsForTheOneBefore(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.write(0, 8, 1)
	l.a.gate[block.OpFlush] = true
	one := l.start(&block.Request{Op: block.OpFlush})
	two := l.start(&block.Request{Op: block.OpFlush})
	l.v.RunUntil(l.v.Now() + 1e9)
	if one() || two() {
		t.Fatalf("flushes ended (%v, %v), and the array has flushed nothing", one(), two())
	}
	l.path.open(block.OpFlush)
	l.wait(func() bool { return one() && two() })
}

func TestFlushCoversAWriteThatEndedBehindTheLastOne(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough; w.a.undo = map[uint64][][]byte{} })
	l.a.gate[block.OpWrite] = true
	wrote := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(1, 8)}})
	l.wait(func() bool { return len(l.a.kept) == 1 })
	if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
		t.Fatal(s)
	}
	l.path.open(block.OpWrite)
	l.wait(wrote)
	if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
		t.Fatal(s)
	}
	if n := len(l.a.undo); n > 0 {
		t.Fatalf("a flush ended well, and %d sectors are volatile in the array", n)
	}
}

func TestFlushCoversADestageThatIsUnderWay(t *testing.T) {
	l := newLab(t, func(w *world) { w.a.undo = map[uint64][][]byte{} })
	l.dirty(0, 8, 1)
	l.wait(func() bool { return len(l.a.kept) == 1 }) // the destage is below, not FUA, and hangs
	if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
		t.Fatal(s)
	}
	l.path.open(block.OpWrite)
	l.wait(l.d.clean)
	if n := len(l.a.undo); n > 0 {
		t.Fatalf("%d sectors that were flushed are volatile in the array, and clean here", n)
	}
}

func TestFlushOfTheFlashWaitsForTheOneBefore(t *testing.T) {
	l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
	l.write(0, 8, 1)
	l.cards[0].delay = 50_000_000
	one := l.start(&block.Request{Op: block.OpFlush})
	l.wait(func() bool { return l.d.local().syncing })
	two := l.start(&block.Request{Op: block.OpFlush})
	for !two() {
		if l.v.Step(); two() && l.d.local().syncing && !one() {
			t.Fatal("the second flush ended before the flash's sync")
		}
	}
}

func TestStalePeerIsNotTakenOver(t *testing.T) {
	l := newLab(t, withPeers(2))
	l.write(0, 8, 1) // on the flash and both peers
	l.cards[1].broken = true
	l.write(0, 8, 2) // without the first peer: below, or on what is left
	l.cards[1].broken = false
	l.crash()
	l.opt.Destager = nil
	peers := []Peer{{Name: "p2", Medium: &slot{card: l.cards[2]}}}
	_, err := l.open(func(o *Options) {
		o.Flash, o.Peers, o.TakeOver, o.Policy = &slot{card: l.cards[1]}, peers, true, Policy{Mode: WriteThrough}
	})
	if err == nil {
		l.wait(l.d.clean)
		l.want(0, 8, 2)
		t.Fatal("a peer that was left out was taken over")
	}
	if !strings.Contains(err.Error(), "p2") {
		t.Errorf("the error does not say who has more: %v", err)
	}
}

func TestFlashThatWasLeftOutIsNotReplayed(t *testing.T) {
	l := newLab(t, withPeers(1))
	l.write(0, 8, 1)
	l.cards[0].broken = true
	l.write(0, 8, 2)
	l.cards[0].broken = false
	l.crash()
	l.opt.Destager = nil
	_, err := l.open(func(o *Options) {
		o.Flash, o.Peers = &slot{card: l.cards[0]}, []Peer{{Name: "p1", Medium: &slot{card: l.cards[1]}}}
	})
	if err == nil {
		l.wait(l.d.clean)
		l.want(0, 8, 2)
		t.Fatal("a flash that was left out was replayed")
	}
}

func TestErrorOfACleanBlockCostsNothing(t *testing.T) {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.write(0, 8, 1)
	l.want(0, 8, 1)
	l.wait(func() bool { return len(l.d.active) == 0 })
	l.d.SetPolicy(Policy{Mode: WriteBack}, nil)
	l.d.destager.used = l.d.destager.ahead()
	l.write(64, 8, 2)
	s := l.d.ix.Lookup(0)
	l.cards[0].bad = map[int]bool{int(l.d.flashOffset(l.d.frameOf[s], 0)): true}
	l.want(0, 8, 1)
	l.want(64, 8, 2)
	if st := l.d.State(); st.FlashLost || st.Why != "" {
		t.Fatalf("one bad sector of a clean block, and the flash is lost: %+v", st)
	}
}

func TestErrorOfADirtySectorCostsThatSectorAlone(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.write(64, 8, 2)
	s := l.d.ix.Lookup(0)
	l.cards[0].bad = map[int]bool{int(l.d.flashOffset(l.d.frameOf[s], 3)): true}
	buf := make([]byte, 8*512)
	if st := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{buf}}); st != block.MediumRead {
		t.Fatalf("a read of a dirty sector that cannot be read: %v", st)
	}
	l.want(0, 3, 1)
	l.want(4, 4, 1)
	l.want(64, 8, 2)
	l.write(3, 1, 5)
	l.cards[0].bad = nil
	l.want(3, 1, 5)
}

func TestDamagedSectorsStaySoUntilTheyAreWritten(t *testing.T) {
	l := newLab(t, func(w *world) { withoutDestager(w); w.opt.PowerSafe = true })
	l.write(0, 8, 7)
	l.write(0, 8, 1) // twice: a first write that is not there may never have been acknowledged
	s := l.d.ix.Lookup(0)
	off := l.d.flashOffset(l.d.frameOf[s], 2)
	l.crash()
	l.cards[0].b[off] ^= 1
	bad := func(want block.Status) {
		t.Helper()
		if st := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Start: 2, Count: 1}, Data: [][]byte{make([]byte, 512)}}); st != want {
			t.Fatalf("%v, want %v", st, want)
		}
	}
	for range 3 {
		if _, err := l.open(nil); err != nil {
			t.Fatal(err)
		}
		bad(block.MediumRead)
		l.want(3, 5, 1)
		l.crash()
	}
	l.open(nil)
	l.write(2, 1, 9)
	l.crash()
	l.open(nil)
	l.want(2, 1, 9)
}

func TestWriteIsNotAcknowledgedWithFewerCopies(t *testing.T) {
	l := newLab(t, withPeers(1))
	l.cards[1].delay = 20_000_000
	l.a.gate[block.OpWrite] = true
	ended := l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{pattern(1, 8)}})
	l.v.RunUntil(l.v.Now() + 1e6)
	l.cards[1].broken = true
	l.v.RunUntil(l.v.Now() + 2e9)
	if ended() {
		t.Fatal("a write of write_back+1 was acknowledged with one copy")
	}
	l.path.open(block.OpWrite)
	l.wait(ended)
	l.wantBelow(0, 8, 1)
}

func TestSnapshotsAreWrittenInPieces(t *testing.T) {
	l := newLab(t, func(w *world) { w.cards[0] = newCard(w.v, w.r, 64<<20); w.opt.PowerSafe = true })
	l.d.SetPolicy(Policy{Mode: WriteThrough}, nil)
	for at := uint64(0); at < 4096; at += 512 {
		l.want(at, 512, 0)
	}
	l.wait(func() bool { return len(l.d.active) == 0 })
	most := uint64(0)
	l.cards[0].heard = func(io *block.IO) {
		if io.Write && io.Off < l.d.dataStart {
			most = max(most, io.N)
		}
	}
	l.d.pieceBytes = 4096
	l.d.j.renew()
	l.d.pump()
	l.wait(func() bool { return !l.d.j.compact && l.d.j.snapshot == nil })
	if most == 0 || most > 4096 {
		t.Fatalf("a snapshot of %d blocks had a write of %d bytes", l.d.ix.Len(), most)
	}
	n := l.d.ix.Len()
	l.crash()
	l.open(nil)
	if got := l.d.Recovery().CleanBlocks; int64(got) != n {
		t.Fatalf("%d blocks are warm, of %d", got, n)
	}
}

func TestDirtyDataSurvivesAResizeOfTheLUN(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.write(0, 8, 1)
	l.write(4088, 8, 2)
	l.crash()
	l.a.sectors = 8192
	if _, err := l.open(nil); err != nil {
		t.Fatalf("after the LUN grew: %v", err)
	}
	l.want(0, 8, 1)
	l.want(4088, 8, 2)
	l.crash()
	l.a.sectors = 4092 // in the middle of a block
	if _, err := l.open(nil); err != nil {
		t.Fatalf("after the LUN shrank: %v", err)
	}
	l.want(0, 8, 1)
	l.want(4088, 4, 2)
	l.crash()
	l.opt.Destager = nil
	l.open(nil)
	l.wait(l.d.clean)
	l.wantBelow(0, 8, 1)
	l.wantBelow(4088, 4, 2)
}

func TestFlushedVersionSurvivesTwoThatWereNot(t *testing.T) {
	for n := range 50 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, func(w *world) { withoutDestager(w); w.cards[0].volatile = true })
			for range n {
				l.r.Uint64()
			}
			l.write(0, 8, 1)
			if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
				t.Fatal(s)
			}
			l.write(0, 8, 2)
			l.write(0, 8, 3)
			l.crash()
			l.cards[0].powerCut()
			l.open(nil)
			buf := make([]byte, 8*512)
			if s := l.do(&block.Request{Op: block.OpRead, Range: block.Range{Count: 8}, Data: [][]byte{buf}}); s != block.OK {
				t.Fatalf("what was flushed cannot be read: %v, %+v", s, l.d.Recovery())
			}
			for i := range 8 {
				if v, whole := valueOf(buf[i*512 : i*512+512]); !whole || v < 1 || v > 3 {
					t.Fatalf("sector %d is %d (whole %v)", i, v, whole)
				}
			}
		})
	}
}

// TestCrashAfterAFailedFlashWriteLosesNothing: the last flash takes no writes any more, and the host dies before what was
// acknowledged there is below. The next start must have it: nobody has been told yet that this flash was left out.
func TestCrashAfterAFailedFlashWriteLosesNothing(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.dirty(0, 8, 1)
	l.cards[0].tired = true
	l.start(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 100, Count: 8}, Data: [][]byte{pattern(2, 8)}})
	l.wait(func() bool { return l.d.local().state == memberFailing })
	l.v.RunUntil(l.v.Now() + 10_000_000)
	l.crash()
	l.cards[0].tired = false
	delete(l.a.gate, block.OpWrite)
	if err := l.try(0, nil); err != nil {
		t.Fatalf("what was acknowledged is given up: %v", err)
	}
	l.want(0, 8, 1)
}

// TestJournalThatCannotBeRead: an error of the flash inside the journal is not its end. What lies behind it was acknowledged.
func TestJournalThatCannotBeRead(t *testing.T) {
	l := newLab(t, withoutDestager)
	for i := range uint64(4) {
		l.write(8*i, 8, 1+i)
	}
	l.crash()
	end := len(l.cards[0].b)
	journal := int(labelBytes + 2*l.d.j.half)
	refused, served := 0, 0
	for off := labelBytes; off < min(journal, end); off += block.SectorSize {
		l.cards[0].bad = map[int]bool{int(off): true}
		if err := l.try(0, nil); err != nil {
			refused++
			continue
		}
		served++
		for i := range uint64(4) {
			l.want(8*i, 8, 1+i)
		}
		l.crash()
	}
	if refused == 0 || served == 0 {
		t.Errorf("%d starts were refused, %d served", refused, served)
	}
	l.cards[0].bad = nil
	l.boot(0)
	l.want(0, 8, 1)
}

// TestFlushesFailWhileTheOnlyCopyIsNotDurable: a sync that failed is not made up for by the next one, which has nothing to do.
func TestFlushesFailWhileTheOnlyCopyIsNotDurable(t *testing.T) {
	l := newLab(t, withoutDestager)
	l.dirty(0, 8, 1)
	l.cards[0].tired = true
	for i := range 3 {
		if s := l.do(&block.Request{Op: block.OpFlush}); s == block.OK {
			t.Errorf("flush %d succeeds, and %d sectors are dirty on a flash that took no sync", i, l.d.ix.DirtySectors())
		}
	}
	l.path.open(block.OpWrite)
	l.d.destager.used = 0
	l.d.turn.wake(l.d)
	l.d.pump()
	l.wait(l.d.clean)
	if s := l.do(&block.Request{Op: block.OpFlush}); s != block.OK {
		t.Errorf("a flush of what is below ends %v", s)
	}
	l.wantBelow(0, 8, 1)
}

// TestSilentPeerCostsItsTimeOnce: whatever a peer was doing as it fell silent, a write waits for the time of one command.
func TestSilentPeerCostsItsTimeOnce(t *testing.T) {
	const writes, apart, room = 8, 90_000, 10_000_000 // room is for the mark, and for writes below one after the other
	for silent := int64(0); silent < 2_000_000; silent += 50_000 {
		l := newLab(t, func(w *world) { withPeers(1)(w); w.opt.PowerSafe = true })
		l.wait(func() bool { return l.d.State().Why == "" })
		began, ended := l.v.Now(), 0
		for i := range uint64(writes) {
			l.v.At(began+int64(i)*apart, func() {
				sent := l.v.Now()
				l.d.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Start: 8 * i, Count: 8}, Data: [][]byte{pattern(1+i, 8)}, Done: func(r *block.Request) {
					ended++
					if took := l.v.Now() - sent; r.Status != block.OK || took > stallTimeout+room {
						t.Errorf("silent after %d us: write %d ended %v after %d us", silent/1000, i, r.Status, took/1000)
					}
				}}})
			})
		}
		l.v.At(began+silent, func() { l.cards[1].stalled = true })
		l.wait(func() bool { return ended == writes })
	}
}
