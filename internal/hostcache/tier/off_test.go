package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// A cache that is off holds nothing: hosts write the LUN then that tell nobody, and the cache may
// be on again later.

// elsewhere writes the first eight sectors of the LUN.
func (l *lab) elsewhere(value uint64) {
	for s := range uint64(8) {
		l.a.data[s] = pattern(value, 1)
	}
}

// setPolicy asks for a mode and waits until it is in effect.
func (l *lab) setPolicy(m Mode) {
	l.t.Helper()
	done := false
	l.d.SetPolicy(Policy{Mode: m}, func() { done = true })
	l.wait(func() bool { return done })
}

// warmed is a cache that has the first eight sectors on flash, with 1 in them.
func warmed(t *testing.T) *lab {
	l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
	l.write(0, 8, 1)
	l.v.RunUntil(l.v.Now() + 100_000_000)
	return l
}

// TestStartWithPolicyOffEmptiesTheCache: what was warm before is not served when it is on again,
// here or after a crash that follows the start at once.
func TestStartWithPolicyOffEmptiesTheCache(t *testing.T) {
	for _, crash := range []bool{false, true} {
		l := warmed(t)
		l.crash()
		if err := l.try(0, func(o *Options) { o.Policy = Policy{} }); err != nil {
			t.Fatal(err)
		}
		if crash {
			l.crash()
			l.elsewhere(5)
			l.boot(0)
		} else {
			l.elsewhere(5)
			l.setPolicy(WriteThrough)
		}
		l.want(0, 8, 5)
	}
}

// TestPolicyOffEmptiesTheCache: as soon as it is in effect, a crash brings nothing back.
func TestPolicyOffEmptiesTheCache(t *testing.T) {
	for luck := range 20 { // what is in flight gets to the flash, or not
		l := warmed(t)
		for range luck {
			l.r.Uint64()
		}
		l.setPolicy(Off)
		l.crash()
		l.elsewhere(5)
		l.boot(0)
		l.want(0, 8, 5)
	}
}

// TestFillDoesNotOutlivePolicyOff: a read that missed fills the flash while the cache is switched
// off, and perhaps on again.
func TestFillDoesNotOutlivePolicyOff(t *testing.T) {
	for _, wait := range []bool{true, false} {
		l := newLab(t, func(w *world) { w.opt.Policy.Mode = WriteThrough })
		l.cards[0].delay = 50_000_000
		l.want(0, 8, 0)
		if len(l.d.active) == 0 || l.d.active[0].mode != fillMode {
			t.Fatal("nothing is filled")
		}
		if wait {
			l.setPolicy(Off)
			l.v.RunUntil(l.v.Now() + 1e9)
		} else {
			l.d.SetPolicy(Policy{}, nil)
		}
		l.elsewhere(5)
		l.setPolicy(WriteThrough)
		l.v.RunUntil(l.v.Now() + 1e9)
		l.want(0, 8, 5)
	}
}

// TestPolicyOffThatIsRefusedItsFlash: a flash that fails as the cache is emptied keeps nobody
// waiting.
func TestPolicyOffThatIsRefusedItsFlash(t *testing.T) {
	l := warmed(t)
	l.cards[0].broken = true
	l.setPolicy(Off)
	l.elsewhere(5)
	if s := l.do(&block.Request{Op: block.OpWrite, Range: block.Range{Start: 64, Count: 8}, Data: [][]byte{pattern(6, 8)}}); s != block.OK {
		t.Errorf("a write ends %v", s)
	}
	l.want(0, 8, 5)
}
