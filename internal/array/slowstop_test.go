package array

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// slowMetaStore has a meta store that takes a time for each batch.
type slowMetaStore struct {
	block.Store
	clock   *block.Virtual
	takes   int64 // nanoseconds
	batches int
}

type slowMeta struct {
	block.MetaStore
	s *slowMetaStore
}

func (s *slowMetaStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	return slowMeta{m, s}, err
}

func (m slowMeta) Commit(batch []block.KV, done func(error)) {
	m.s.batches++
	m.s.clock.At(m.s.clock.Now()+m.s.takes, func() { m.MetaStore.Commit(batch, done) })
}

// TestSlowStopMakesProgress: a last checkpoint of many batches on a slow disk takes minutes. Whoever waits for it sees that it gets on
// each time that a batch has ended.
func TestSlowStopMakesProgress(t *testing.T) {
	var s *slowMetaStore
	r := newRig(t, Options{CheckpointBytes: 8 << 10}, false)
	s = &slowMetaStore{Store: r.store, clock: r.clock}
	r.opt.Store = s
	var err error
	if r.a, err = Open(r.opt); err != nil {
		t.Fatal(err)
	}
	r.pool("p", PoolSpec{}, 256<<20)
	v := r.volume("v", "p", 64<<20, true)
	for at := uint64(0); at < 64<<20/512; at += 2 * windowSectors {
		mustOK(t, r.do(v, write(at, 1)))
	}
	s.takes, s.batches = 50e9, 0
	begun, ended := r.clock.Now(), false
	last, seen, silence := begun, r.a.Ended(), int64(0)
	r.a.Stop(func(err error) { mustDo(t, err); ended = true })
	for !ended && r.clock.Step() {
		if n := r.a.Ended(); n != seen {
			seen, last = n, r.clock.Now()
		}
		silence = max(silence, r.clock.Now()-last)
	}
	if took := r.clock.Now() - begun; !ended || s.batches < 4 || took < 4*50e9 {
		t.Fatalf("it ended %v, with %d batches in %d s", ended, s.batches, took/1e9)
	}
	if silence > s.takes+2e9 {
		t.Errorf("nothing ended for %d s, and a batch takes %d s", silence/1e9, s.takes/1e9)
	}
}
