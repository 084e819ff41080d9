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
