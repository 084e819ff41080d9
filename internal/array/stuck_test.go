package array

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// stuckStore has mdisks that can stop to answer.
type stuckStore struct {
	block.Store
	stuck bool
	held  []func()
}

type stuckMedium struct {
	block.Medium
	s *stuckStore
}

func (s *stuckStore) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	return stuckMedium{m, s}, err
}

func (m stuckMedium) Submit(ios []*block.IO) {
	if !m.s.stuck {
		m.Medium.Submit(ios)
		return
	}
	for _, io := range ios {
		m.s.held = append(m.s.held, func() { m.Medium.Submit([]*block.IO{io}) })
	}
}

// TestStuckMdisk: an mdisk takes work and never answers. Who waits for room in the cache ends with a medium error before
// an initiator would abort, reads of what is in the cache go on, health says why, and when the mdisk answers again so does all.
func TestStuckMdisk(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10}, false)
	s := &stuckStore{Store: r.store}
	r.opt.Store = s
	a, err := Open(r.opt)
	if err != nil {
		t.Fatal(err)
	}
	r.a = a
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 16<<20, true)
	s.stuck = true
	good, bad := 0, 0
	for i := range uint64(12) {
		at := r.clock.Now()
		switch status := r.do(v, write(i*512, 512)); status {
		case block.OK:
			good++
		case block.MediumWrite:
			bad++
		default:
			t.Fatalf("write %d ended %v", i, status)
		}
		if took := r.clock.Now() - at; took > patience+5e9 {
			t.Errorf("write %d took %d s", i, took/1e9)
		}
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d writes ended well, %d did not", good, bad)
	}
	buf := make([]byte, 512*512)
	if status := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 512), Data: [][]byte{buf}}); status != block.OK {
		t.Errorf("a read of what is in the cache ended %v", status)
	}
	if h := strings.Join(r.a.Health(), "; "); !strings.Contains(h, "nothing was read or written") {
		t.Errorf("health is %q", h)
	}
	s.stuck = false
	held := s.held
	s.held = nil
	for _, fn := range held {
		fn()
	}
	for i := range uint64(12) {
		if status := r.do(v, write(i*512, 512)); status != block.OK {
			t.Errorf("afterwards write %d ended %v", i, status)
		}
	}
	if h := r.a.Health(); len(h) > 0 {
		t.Errorf("health is %q", h)
	}
	r.clock.RunUntil(r.clock.Now() + 60e9)
	r.check()
}
