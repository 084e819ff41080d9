package array

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

// TestFormat1 opens a folder that a program of NVRAM format 1 left when it was killed:
// sectors 0+4000 written with stamp 1 and destaged, then 1000+500 zeroed, 2000+300 written with
// stamp 2, 9001+77 with stamp 3.
func TestFormat1(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format1.tar.gz")
	want := make([]byte, 8<<20)
	for _, w := range []struct{ at, n, stamp uint64 }{{0, 4000, 1}, {1000, 500, 0}, {2000, 300, 2}, {9001, 77, 3}} {
		for s := range w.n {
			b := want[(w.at+s)*512 : (w.at+s+1)*512]
			if clear(b); w.stamp != 0 {
				fillStamp(b, w.stamp<<20|s)
			}
		}
	}
	for start := range 3 {
		r := openLive(t, dir, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
		got := make([]byte, len(want))
		r.exec.Lock()
		v, version, rep := r.a.Volume("v"), r.a.cache.NV.Format(), r.a.Check(true)
		r.exec.Unlock()
		if s := r.do(v, &block.Request{Op: block.OpRead, Range: rng(0, 8<<11), Data: [][]byte{got}}); s != block.OK || !bytes.Equal(got, want) {
			t.Errorf("start %d: the data reads %v, equal: %v", start, s, bytes.Equal(got, want))
		}
		if version != nvlog.Version || len(rep.Problems) > 0 {
			t.Errorf("start %d: version %d, %v", start, version, rep.Problems)
		}
		r.close()
	}
	if _, err := os.Stat(filepath.Join(dir, "mdisk", "p.a.sum")); err != nil {
		t.Error(err)
	}
}
