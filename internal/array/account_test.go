package array

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// accountRig has a volume with data that a checkpoint has, and the grain of its beginning.
func accountRig(t *testing.T) (r *rig, v *Volume, grain uint64) {
	t.Helper()
	r = newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v = r.volume("v", "p", 40<<20, true) // it ends in another leaf
	mustOK(t, r.do(v, stamped(rng(0, 1000), 1)))
	grain = ^uint64(0)
	for g := range uint64(64) {
		if v.Pool().Alloc.MapRefs(g) > 0 {
			grain = min(grain, g)
		}
	}
	return r, v, grain
}

// storeMaps has a checkpoint written.
func (r *rig) storeMaps(v *Volume) {
	r.t.Helper()
	mustOK(r.t, r.do(v, stamped(rng(2000, 8), 1)))
	r.a.checkpoint(true)
	r.clock.Run()
}

// TestWrongAccountIsDerived: where a check finds that the account of space is wrong, which is stored as it is, the next start
// derives it from all leaves.
func TestWrongAccountIsDerived(t *testing.T) {
	r, v, grain := accountRig(t)
	r.a.arena.Account().Has(v.ID(), grain)
	v.Pool().Alloc.Retain(grain)
	r.storeMaps(v)
	r.crash()
	if len(r.a.Check(true).Problems) == 0 {
		t.Fatal("a check finds nothing")
	}
	r.storeMaps(r.a.Volume("v"))
	r.crash()
	r.check()
	if got := r.a.Recovery(); got.PagesRead != got.MapPages {
		t.Errorf("of %d pages %d were read", got.MapPages, got.PagesRead)
	}
	r.crash()
	r.check()
	if got := r.a.Recovery(); got.PagesRead == got.MapPages {
		t.Errorf("all %d pages were read again", got.MapPages)
	}
}

// TestLostPageWhereAllAreRead: a start that reads all leaves, because the account is not known to be right, finds that one is
// gone, which the digest does not cover.
func TestLostPageWhereAllAreRead(t *testing.T) {
	r, v, _ := accountRig(t)
	r.a.arena.Account().Unsure()
	r.storeMaps(v)
	meta, err := r.store.Meta()
	mustDo(t, err)
	var leaf []byte
	mustDo(t, meta.Load([]byte("n"), func(key, _ []byte) error {
		if key[5] == 0 {
			leaf = append([]byte(nil), key...)
		}
		return nil
	}))
	mustDo(t, meta.CommitNow([]block.KV{{Key: leaf}}))
	clock := &block.Virtual{}
	opt := r.opt
	opt.Exec, opt.Store = clock, r.store.Clone(clock)
	if _, err := Open(opt); err == nil || !strings.Contains(err.Error(), "1 map pages are missing") {
		t.Errorf("it opens: %v", err)
	}
}
