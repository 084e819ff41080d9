package array

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// hungSync is a store whose mdisks never end a sync, if their pool's name is one.
type hungSync struct {
	block.Store
	name string
}

type hungMedium struct {
	block.Medium
	s    *hungSync
	name string
}

func (s *hungSync) Medium(name string, size uint64) (block.Medium, error) {
	m, err := s.Store.Medium(name, size)
	return hungMedium{m, s, name}, err
}

func (m hungMedium) Abandon(io *block.IO) { m.Medium.(block.Abandoner).Abandon(io) }

func (m hungMedium) Sync(done func(error)) {
	if m.s.name == "" || !strings.HasSuffix(m.name, m.s.name) {
		m.Medium.Sync(done)
	}
}

// TestHungSync: the sync of an mdisk never ends. The writes of its pool end when nobody waits any longer,
// those of another pool in good time and well, and the array stops.
func TestHungSync(t *testing.T) {
	var h *hungSync
	r := rigOver(t, Options{CacheBytes: 16 << 20}, func(under block.Store) block.Store { h = &hungSync{Store: under}; return h })
	disk := func(name string) PoolSpec {
		return PoolSpec{Mdisks: []MdiskSpec{{Name: name, Size: 64 << 20}}}
	}
	r.pool("a", disk("hangs"), 0)
	r.pool("b", disk("works"), 0)
	hangs, works := r.volume("va", "a", 32<<20, true), r.volume("vb", "b", 32<<20, true)
	h.name = "hangs"
	ended := [2]map[block.Status]int{{}, {}}
	for i := range uint64(512) { // 32 MiB each
		for j, v := range []*Volume{hangs, works} {
			q := write(i*128, 128)
			q.Done = func(q *block.Request) { ended[j][q.Status]++ }
			v.Submit([]*block.Request{q})
		}
	}
	r.clock.RunUntil(r.clock.Now() + 15e9)
	if n := ended[1][block.OK]; n != 512 {
		t.Errorf("of 512 writes to a pool whose disk works %d have ended in 15 s", n)
	}
	r.clock.RunUntil(r.clock.Now() + 15e9)
	if n := ended[0][block.OK] + ended[0][block.MediumWrite]; n != 512 || ended[0][block.OK] == n {
		t.Errorf("the writes to the pool whose disk hangs have ended: %v", ended[0])
	}
	stopped := false
	r.a.Stop(func(error) { stopped = true })
	r.clock.RunUntil(r.clock.Now() + 30e9)
	if !stopped {
		t.Error("the array does not stop")
	}
}
