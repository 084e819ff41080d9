package tier

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// lateBelow keeps the answers to questions of changes back.
type lateBelow struct {
	*path
	hold    bool
	answers []func()
}

func (b *lateBelow) ChangedSince(since uint64, done func(uint64, []block.Range, bool)) {
	b.path.ChangedSince(since, func(g uint64, e []block.Range, complete bool) {
		if !b.hold {
			done(g, e, complete)
			return
		}
		b.answers = append(b.answers, func() { done(g, e, complete) })
	})
}

// TestLateAnswers: an answer that was long under way says nothing of what has been changed since it was given.
func TestLateAnswers(t *testing.T) {
	const second = 1_000_000_000
	var below *lateBelow
	l := newLab(t, func(w *world) {
		w.a.listens, w.a.gen = true, 5
		w.opt.Policy = Policy{Mode: WriteThrough}
	})
	l.crash()
	if err := l.try(0, func(o *Options) {
		below = &lateBelow{path: l.path}
		o.Below, o.WatchNanos = below, second
	}); err != nil {
		t.Fatal(err)
	}
	l.write(0, 64, 1)
	l.v.RunUntil(l.v.Now() + second/10)
	below.hold = true
	l.wait(func() bool { return len(below.answers) == 1 })
	for s := 8; s < 16; s++ { // by another host
		l.a.data[s] = pattern(2, 1)
	}
	l.a.gen++
	l.a.changed = append(l.a.changed, block.Range{Start: 8, Count: 8})
	l.v.RunUntil(l.v.Now() + 3*second)
	if !l.d.State().Unsure {
		t.Error("it is sure although there is no answer")
	}
	below.answers[0]()
	l.wait(func() bool { return len(below.answers) == 2 })
	if !l.d.State().Unsure {
		t.Error("a late answer makes it sure")
	}
	l.want(8, 8, 2)
	below.answers[1]()
	l.wait(func() bool { return !l.d.State().Unsure })
	l.want(0, 8, 1)
	l.want(8, 8, 2)
}
