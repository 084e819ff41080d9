package block

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestAside: what is to be done beside the core is done once, never in the core, and what follows it in the
// core, behind it; whoever leaves, others who wait, and helpers take part. Nothing is left when all have left.
func TestAside(t *testing.T) {
	was := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(was)
	l := NewLive()
	defer l.Stop()
	const workers, each = 4, 500
	var inCore atomic.Int32
	var worked, ended atomic.Int64
	inside := 0 // changed in the core alone: the race detector looks
	enter := func() {
		if inCore.Add(1) != 1 {
			t.Error("two are in the core")
		}
		inside++
	}
	var all sync.WaitGroup
	all.Add(workers * each * 3)
	for w := range workers {
		go func() {
			for i := range each {
				l.Lock()
				enter()
				for range 3 {
					ready := false
					l.Aside(uint64(w*i)<<10, func() {
						ready = true
						worked.Add(1)
					}, func() {
						enter()
						if !ready {
							t.Error("the core hears of the end of what has not begun")
						}
						ended.Add(1)
						inCore.Add(-1)
						all.Done()
					})
				}
				inCore.Add(-1)
				l.Unlock()
			}
		}()
	}
	all.Wait()
	if worked.Load() != workers*each*3 || ended.Load() != worked.Load() {
		t.Errorf("%d pieces were done and %d ended, of %d", worked.Load(), ended.Load(), workers*each*3)
	}
	l.Lock()
	defer l.Unlock()
	if inside != workers*each*4 {
		t.Errorf("the core was entered %d times, not %d", inside, workers*each*4)
	}
	if n := l.beside.left.Load(); n != 0 || len(l.beside.fresh) > 0 {
		t.Errorf("%d and %d pieces are left", n, len(l.beside.fresh))
	}
}

// TestAsideKeepsNobody: who leaves has answers to send, so that what others leave to be done for ever does
// not keep him.
func TestAsideKeepsNobody(t *testing.T) {
	l := NewLive()
	defer l.Stop()
	var over atomic.Bool
	defer over.Store(true)
	var again func()
	again = func() {
		if !over.Load() {
			l.Aside(0, func() { runtime.Gosched() }, again)
		}
	}
	for range 100 {
		l.Lock()
		again()
		l.Unlock()
	}
}
