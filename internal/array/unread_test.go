package array

import (
	"bytes"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/node"
	"github.com/arraysim/arraysim/internal/block"
)

// spoil damages pages of leaves of a volume in the store.
func (r *rig) spoil(t *testing.T, v *Volume, leaves ...uint64) {
	t.Helper()
	meta, err := r.store.Meta()
	mustDo(t, err)
	for _, leaf := range leaves {
		key := node.LeafKey(v.ID(), leaf).Bytes()
		page, err := meta.Get(key)
		mustDo(t, err)
		page = bytes.Clone(page)
		page[8] ^= 1
		mustDo(t, meta.CommitNow([]block.KV{{Key: key, Value: page}}))
	}
}

// TestCheckOfDamagedLeaves: a check names pages of maps that no copy has as they were, and nothing that only these say of the
// space. The next start does not read all pages for that, which it could not, and serves what the others have.
func TestCheckOfDamagedLeaves(t *testing.T) {
	for _, stepped := range []bool{false, true} {
		r, v := leavesRig(t, func(s block.Store) block.Store { return s })
		r.spoil(t, v, 3, 5)
		var report Report
		if report = r.a.Check(true); stepped {
			report, _ = r.checkAmong(func() {})
		}
		read := 0
		for _, p := range report.Problems {
			if strings.HasPrefix(p, "space: ") {
				t.Errorf("stepped %v: it says %q", stepped, p)
			} else if strings.Contains(p, "map: volume v: page") {
				read++
			}
		}
		if read != 2 {
			t.Errorf("stepped %v: %q", stepped, report.Problems)
		}
		r.storeMaps(v)
		r.crash()
		if v = r.a.Volume("v"); r.a.Recovery().Derived != "" || !r.reads(v, rng(15*node.LeafSectors, 100), 15<<20) {
			t.Errorf("stepped %v: it reads otherwise behind a start", stepped)
		}
	}
}

// TestStartOfAThickVolumeWithADamagedLeaf: a start does without a page that no copy has as it was, of a volume that is promised its
// space. Space is reserved for its windows, until they can be written again, and what other pages say is served.
func TestStartOfAThickVolumeWithADamagedLeaf(t *testing.T) {
	const leaf = node.LeafSectors
	r := newRig(t, Options{MapBytes: 1}, false)
	r.pool("p", PoolSpec{}, 128<<20)
	v := r.volume("v", "p", 80<<20, false)
	for i := range uint64(5) {
		mustOK(t, r.do(v, stamped(rng(i*leaf, 500), i<<20)))
	}
	r.storeMaps(v)
	homes, free, key := v.Map.Tenant().Marked, r.a.Pool("p").Alloc.Available(), node.LeafKey(v.ID(), 2).Bytes()
	meta, err := r.store.Meta()
	mustDo(t, err)
	good, err := meta.Get(key)
	mustDo(t, err)
	good = bytes.Clone(good)
	r.spoil(t, v, 2)
	r.crash()
	v = r.a.Volume("v")
	if n, now := v.Map.Tenant().Marked, r.a.Pool("p").Alloc.Available(); n != homes-4 || now != free-4 || r.a.Recovery().Unread != 1 {
		t.Errorf("%d homes, before there were %d; %d grains are available, not %d", n, homes, now, free-4)
	}
	for _, p := range r.a.Check(true).Problems {
		if strings.HasPrefix(p, "space: ") {
			t.Errorf("a check says %q", p)
		}
	}
	if got := r.do(v, write(2*leaf, 8)); got != block.MediumWrite || !r.reads(v, rng(4*leaf, 500), 4<<20) {
		t.Errorf("a write to the damaged leaf ends with %v, or the others have other data", got)
	}
	meta, err = r.store.Meta()
	mustDo(t, err)
	mustDo(t, meta.CommitNow([]block.KV{{Key: key, Value: good}}))
	mustOK(t, r.do(v, stamped(rng(2*leaf, 500), 2<<20)))
	if n, now := v.Map.Tenant().Marked, r.a.Pool("p").Alloc.Available(); n != homes || now != free {
		t.Errorf("behind a write in place there are %d homes, not %d; %d grains are available, not %d", n, homes, now, free)
	}
	r.crash()
	r.check()
}

// TestUnreadGarbageBesideDamagedLeaves: a leaf that cannot be read is cut off, and its page removed: the account of space has more
// than the pages say from then on. A start derives it where it can read all pages, and does with it as it is where it cannot: then
// nothing counts as free that a page may refer to.
func TestUnreadGarbageBesideDamagedLeaves(t *testing.T) {
	const leaf = node.LeafSectors
	r, v := leavesRig(t, func(s block.Store) block.Store { return s })
	meta, err := r.store.Meta()
	mustDo(t, err)
	good, err := meta.Get(node.LeafKey(v.ID(), 5).Bytes())
	mustDo(t, err)
	good = bytes.Clone(good)
	r.spoil(t, v, 3, 5)
	mustOK(t, r.do(v, unmap(0, rng(3*leaf, leaf))))
	if r.clock.RunUntil(r.clock.Now() + 1e9); r.a.arena.PassedOver() != 1 {
		t.Fatalf("%d leaves are passed over", r.a.arena.PassedOver())
	}
	free, _, _ := r.a.Pool("p").Space()
	r.storeMaps(v)
	for range 2 { // it is as little known behind a start
		r.crash()
		v = r.a.Volume("v")
		if now, _, _ := r.a.Pool("p").Space(); now > free || !r.reads(v, rng(15*leaf, 100), 15<<20) {
			t.Fatalf("it reads otherwise behind a start, or %d bytes are free, not %d", now, free)
		}
		if got := r.do(v, write(5*leaf, 8)); got != block.MediumWrite {
			t.Errorf("a write to the other leaf ends with %v", got)
		}
	}
	meta, err = r.store.Meta()
	mustDo(t, err)
	mustDo(t, meta.CommitNow([]block.KV{{Key: node.LeafKey(v.ID(), 5).Bytes(), Value: good}}))
	r.crash()
	if now, _, _ := r.a.Pool("p").Space(); r.a.Recovery().Derived == "" || now <= free {
		t.Errorf("with all pages the account is derived because %q, and %d bytes are free, not more than %d", r.a.Recovery().Derived, now, free)
	}
	r.check()
	r.derivesNoMore()
}

// derivesNoMore starts the array anew, which takes the account of space over.
func (r *rig) derivesNoMore() {
	r.t.Helper()
	r.crash()
	if r.check(); r.a.Recovery().Derived != "" {
		r.t.Errorf("the account is derived again: %q", r.a.Recovery().Derived)
	}
}
