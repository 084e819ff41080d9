package array

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/testkit"
)

// stampedAt is sectors that were written with a stamp; 0: they are zeros.
type stampedAt struct{ at, n, stamp uint64 }

// contents returns what a volume holds that was written so.
func contents(size int, writes []stampedAt) []byte {
	b := make([]byte, size)
	for _, w := range writes {
		for s := range w.n {
			sector := b[(w.at+s)*512 : (w.at+s+1)*512]
			if clear(sector); w.stamp != 0 {
				fillStamp(sector, w.stamp<<20|s)
			}
		}
	}
	return b
}

// opensOld opens a folder that an older program has left, several times, and compares its volumes.
func opensOld(t *testing.T, dir string, want map[string][]byte, look func(*Array)) {
	t.Helper()
	for start := range 3 {
		r := openLive(t, dir, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
		r.exec.Lock()
		version, rep := r.a.cache.NV.Format(), r.a.Check(true)
		look(r.a)
		r.exec.Unlock()
		for name, data := range want {
			got := make([]byte, len(data))
			if s := r.do(r.a.Volume(name), &block.Request{Op: block.OpRead, Range: rng(0, uint64(len(data)/512)), Data: [][]byte{got}}); s != block.OK || !bytes.Equal(got, data) {
				t.Errorf("start %d: the data of %s reads %v, equal: %v", start, name, s, bytes.Equal(got, data))
			}
		}
		if version != nvlog.Version || len(rep.Problems) > 0 {
			t.Errorf("start %d: version %d, %v", start, version, rep.Problems)
		}
		r.close()
	}
}

// TestFormat1 opens a folder that a program of NVRAM format 1 left when it was killed:
// sectors 0+4000 written with stamp 1 and destaged, then 1000+500 zeroed, 2000+300 written with
// stamp 2, 9001+77 with stamp 3.
func TestFormat1(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format1.tar.gz")
	v := contents(8<<20, []stampedAt{{0, 4000, 1}, {1000, 500, 0}, {2000, 300, 2}, {9001, 77, 3}})
	opensOld(t, dir, map[string][]byte{"v": v}, func(*Array) {})
	if _, err := os.Stat(filepath.Join(dir, "mdisk", "p.a.sum")); err != nil {
		t.Error(err)
	}
}

// TestFormat2 opens a folder that a program of the present formats left when it was killed, before NVRAM
// was cut into parts and batches were bounded. Behind a drain, a checkpoint and a blob it did the same as
// in TestFormat1, and placed sectors 512+2048 of v at the start of w before the last write.
func TestFormat2(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format2.tar.gz")
	v := contents(8<<20, []stampedAt{{0, 4000, 1}, {1000, 500, 0}, {2000, 300, 2}})
	w := make([]byte, 8<<20)
	copy(w, v[512*512:2560*512])
	copy(v[9001*512:], contents(77*512, []stampedAt{{0, 77, 3}}))
	opensOld(t, dir, map[string][]byte{"v": v, "w": w}, func(a *Array) {
		if got := a.Blob("b"); string(got) != "blob" {
			t.Errorf("the blob is %q", got)
		}
	})
}

// dyingStore is a store whose metadata takes a number of batches at a start, and no more.
type dyingStore struct {
	block.Store
	left int
}

type dyingMeta struct {
	block.MetaCopies
	left *int
}

var errDied = errors.New("it died")

func (s *dyingStore) Meta() (block.MetaStore, error) {
	m, err := s.Store.Meta()
	if err != nil {
		return nil, err
	}
	if copies, ok := m.(block.MetaCopies); ok {
		return dyingMeta{copies, &s.left}, nil
	}
	return dyingCopy{m, &s.left}, nil
}

// dyingCopy is dyingMeta of a store that has one copy.
type dyingCopy struct {
	block.MetaStore
	left *int
}

func (m dyingCopy) CommitNow(batch []block.KV) error {
	if *m.left--; *m.left < 0 {
		return errDied
	}
	return m.MetaStore.CommitNow(batch)
}

func (m dyingMeta) CommitNow(batch []block.KV) error {
	if *m.left--; *m.left < 0 {
		return errDied
	}
	return m.MetaCopies.CommitNow(batch)
}

// TestUpgradeDies opens a folder of format 2 with a process that dies behind each batch of the first checkpoint: NVRAM says from
// the first one on that it is of format 3, the next start goes on, and the one that ends it finds all that there was.
func TestUpgradeDies(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format2.tar.gz")
	deaths := 0
	for batches := 0; ; batches++ {
		live := block.NewLive()
		st, err := store.OpenFiles(live, dir, store.FilesOptions{})
		if err != nil {
			t.Fatal(err)
		}
		live.Lock()
		_, err = Open(Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, CheckpointBytes: 1, Exec: live, Store: &dyingStore{Store: st, left: batches}})
		live.Unlock()
		live.Stop()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errDied) {
			t.Fatalf("behind %d batches: %v", batches, err)
		}
		if deaths++; deaths > 100 {
			t.Fatal("it never ends")
		}
		nv, err := os.ReadFile(filepath.Join(dir, "nvram"))
		if err != nil || nv[8] != nvlog.Version {
			t.Errorf("behind %d batches: %v, NVRAM is of format %d", batches, err, nv[8])
		}
	}
	t.Logf("%d deaths", deaths)
	if deaths < 3 {
		t.Error("the test shows too little")
	}
	v := contents(8<<20, []stampedAt{{0, 4000, 1}, {1000, 500, 0}, {2000, 300, 2}, {9001, 77, 3}})
	opensOld(t, dir, map[string][]byte{"v": v}, func(*Array) {})
}
