package array

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/storetest"
	"github.com/arraysim/arraysim/internal/testkit"
)

// onceFS fails to open a file once: a disk that answers with an error for a moment.
type onceFS struct {
	store.FS
	path string
	left *int
}

func (f onceFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if name == f.path && *f.left > 0 {
		*f.left--
		return nil, syscall.EIO
	}
	return f.FS.Open(name, o...)
}

// openAnyway opens the array in a folder, which may fail, and closes it.
func openAnyway(t *testing.T, dir string, fs store.FS, see func(a *Array, st *store.Files)) error {
	live := block.NewLive()
	defer live.Stop()
	st, err := store.OpenFiles(live, dir, store.FilesOptions{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	live.Lock()
	defer live.Unlock()
	a, err := Open(Options{CacheBytes: 1 << 20, LogBytes: 64 << 10, Exec: live, Store: st})
	if err == nil {
		see(a, st)
	}
	return err
}

// refuseOnce starts over a folder of which the first copy of the metadata cannot be read for a moment: the start is refused, and the
// next one, with a disk that works, finds the volume.
func refuseOnce(t *testing.T, dir string) {
	t.Helper()
	once := 1
	err := openAnyway(t, dir, onceFS{store.OS, filepath.Join(dir, "meta", "CURRENT"), &once}, func(a *Array, _ *store.Files) {
		t.Errorf("it starts over metadata that cannot be read; the volume is there: %v", a.Volume("v") != nil)
	})
	if err != nil && !strings.Contains(err.Error(), "input/output error") {
		t.Error(err)
	}
	if err := openAnyway(t, dir, store.OS, func(a *Array, _ *store.Files) {
		if a.Volume("v") == nil {
			t.Error("with a disk that works the volume is gone")
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestEmptyCopyIsNotTaken: a folder of an older version has one copy of the metadata, and that cannot be read for a moment.
// The start is refused; it does not take the other copy, which it has just made, and which is empty.
func TestEmptyCopyIsNotTaken(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format1.tar.gz")
	refuseOnce(t, dir)
}

// TestLostMetadataIsRefused: a folder of an older version has lost all files of its one copy of the metadata. NVRAM knows that there
// was something.
func TestLostMetadataIsRefused(t *testing.T) {
	dir := testkit.Unpack(t, "testdata/format1.tar.gz")
	if err := os.RemoveAll(filepath.Join(dir, "meta")); err != nil {
		t.Fatal(err)
	}
	if err := openAnyway(t, dir, store.OS, func(*Array, *store.Files) {}); err == nil || !strings.Contains(err.Error(), "nothing in it") {
		t.Errorf("without metadata it starts with %v", err)
	}
}

// TestRestOfACopy: a copy of the metadata has lost the file that says what is in it, or all files but its log. It is made anew.
func TestRestOfACopy(t *testing.T) {
	for _, copied := range []string{"meta", "meta.copy"} {
		for _, what := range []string{"CURRENT", "all but the log"} {
			t.Run(copied+" without "+what, func(t *testing.T) {
				dir := t.TempDir()
				r := openLive(t, dir, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
				r.wait(func(done func()) {
					r.a.CreatePool(PoolSpec{Name: "p", Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20}}}, func(*Pool, error) { done() })
				})
				r.close()
				list, _ := os.ReadDir(filepath.Join(dir, copied))
				for _, e := range list {
					if n := e.Name(); n == what || what != "CURRENT" && !strings.HasSuffix(n, ".log") {
						os.Remove(filepath.Join(dir, copied, n))
					}
				}
				if err := openAnyway(t, dir, store.OS, func(a *Array, st *store.Files) {
					if lines := a.CheckCopies(); st.Renewed() != 1 || len(lines) > 0 || a.Pool("p") == nil {
						t.Errorf("%d copies were made anew, %v; the pool is there: %v", st.Renewed(), lines, a.Pool("p") != nil)
					}
				}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDamagedTableOfACopy: an older table of the copy that a start reads is damaged, and the last batch, which says how new the copy
// is, lies in another file. The start reads the other copy, and makes this one anew.
func TestDamagedTableOfACopy(t *testing.T) {
	r := newPowerRig(t, 1, false)
	for n := range uint64(10) {
		r.put(2, n*100, 100, n+1)
		r.commit()
	}
	r.reopen() // the log of the meta store becomes a table
	r.put(2, 1500, 100, 77)
	r.commit()
	r.reopen()
	image := r.disk.Kill()
	r.files.Close()
	names, _ := image.List("/data/meta")
	for _, n := range names {
		if strings.HasSuffix(n, ".sst") { // the oldest one
			for bit := range 8 {
				image.FlipAt("/data/meta/"+n, 20, bit)
			}
			break
		}
	}
	r.disk = image
	for start := range 2 {
		r.open()
		if lines := r.a.CheckCopies(); len(lines) > 0 || r.files.Renewed() != 1-start {
			t.Errorf("start %d: %d copies were made anew: %v", start, r.files.Renewed(), lines)
		}
		r.disk = r.disk.Kill()
		r.files.Close()
	}
}

// TestChangeThatWaitsForNVRAM: one copy of the metadata has failed, and NVRAM cannot be flushed. A change waits for that, and
// ends when the array is about to stop.
func TestChangeThatWaitsForNVRAM(t *testing.T) {
	r := newPowerRig(t, 1, false)
	r.clock.RunUntil(r.clock.Now() + 60e9)
	r.failing("/data/meta.copy/", "/data/nvram")
	ended := 0
	var got error
	r.a.SetBlob("x", []byte("y"), func(err error) { ended++; got = err })
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if ended != 0 {
		t.Errorf("the change ended: %v", got)
	}
	r.a.StopWaiting()
	r.clock.RunUntil(r.clock.Now() + 10e9)
	if ended != 1 || got == nil {
		t.Errorf("the array is to stop; the change ended %d times, the last with %v", ended, got)
	}
	stopped := 0
	r.a.Stop(func(error) { stopped++ })
	r.clock.RunUntil(r.clock.Now() + 60e9)
	if stopped != 1 || ended != 1 {
		t.Errorf("it stopped %d times, and the change ended %d times", stopped, ended)
	}
	r.files.Close()
}

// TestCheckpointThatWaitsForNVRAM: NVRAM begins to fail when the batch of a checkpoint is in the copy that works. Hosts that wait for
// room in the log hear of a failing array, and health names NVRAM, not a full file system.
func TestCheckpointThatWaitsForNVRAM(t *testing.T) {
	r := newPowerRig(t, 4, false)
	r.clock.RunUntil(r.clock.Now() + 60e9)
	written := false
	r.disk.SetFault(func(op storetest.Op, path string, n int) (int, error) {
		switch {
		case op == storetest.Read:
		case strings.HasPrefix(path, "/data/meta.copy/"):
			return 0, syscall.EIO
		case strings.HasPrefix(path, "/data/meta/") && op == storetest.Sync:
			written = true
		case path == "/data/nvram" && written:
			return 0, syscall.EIO
		}
		return n, nil
	})
	r.put(2, 0, 100, 1)
	r.a.checkpoint(true)
	r.clock.RunUntil(r.clock.Now() + 5e9)
	if !written || r.a.ckpt.Since() == 0 || r.a.flusher.FailingSince() == 0 {
		t.Fatalf("the checkpoint does not wait: written %v", written)
	}
	s := block.OK
	for n := uint64(0); n < 3000 && s == block.OK; n++ {
		s = r.put(2, n%1900, 3, n)
	}
	health := strings.Join(r.a.Health(), "; ")
	if s != block.Hardware || !strings.Contains(health, "flushes of NVRAM have failed") || strings.Contains(health, "make room in the file system") {
		t.Errorf("a write ended %v; health: %s", s, health)
	}
	// Between a flush that succeeds and the next try to keep the batch, NVRAM does not fail and the batch still waits.
	r.disk.SetFault(nil)
	for r.a.flusher.FailingSince() != 0 && r.clock.Step() {
	}
	if r.a.ckpt.Since() == 0 {
		t.Fatal("the batch was kept at once; nothing is between")
	}
	r.a.watchdog.look()
	if health := strings.Join(r.a.Health(), "; "); strings.Contains(health, "make room in the file system") {
		t.Error(health)
	}
	r.files.Close()
}
