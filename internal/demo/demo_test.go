package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/admin"
)

// serve starts an array of the demonstration's own in a folder that is there after the test has looked.
func serve(t *testing.T) *Array {
	t.Helper()
	var log bytes.Buffer
	folder := newFolder(t, filepath.Join(t.TempDir(), "array"))
	a, err := Serve(t.Context(), folder, "127.0.0.1:0", &log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), folder.Remove()); err != nil {
			t.Errorf("the array ends with %v\n%s", err, log.String())
		}
		if _, err := os.Stat(a.Data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its folder is left: %v", err)
		}
	})
	return a
}

func newFolder(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := NewFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// leastWait is what the median of the victim's writes is during the clone at least.
const leastWait = 100 * time.Millisecond

// TestRun: the clone is all undercover, it fills its pool's partition, and its victim waits for as long.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	a := serve(t)
	var samples []Sample
	var r *Result
	// Where the process stands still for a second, writes wait before or after the clone, too: it is shown again.
	for range 3 {
		samples = nil
		var err error
		r, err = Run(t.Context(), Options{Array: a.Client, Every: 100 * time.Millisecond, Show: func(s Sample) { samples = append(samples, s) }})
		if err != nil {
			t.Fatal(err)
		}
		if 4*max(r.Before.Median, r.After.Median) <= r.During.Median {
			break
		}
	}
	vols, err := a.Volumes(t.Context())
	if err != nil || len(vols) != 3 {
		t.Fatalf("it leaves %d volumes, %v", len(vols), err)
	}
	size := vols[0].Size
	if r.Golden != size || r.Cloned != size || r.Undercover != size || r.CloneWritten != 0 || r.CloneRead != 0 {
		t.Errorf("of %d bytes: %+v", size, r)
	}
	if r.Peak < 0.8 || r.Peak > 1 {
		t.Errorf("the clone held %.2f of its partition", r.Peak)
	}
	// Behind four copies of 2 MiB each a write waits half a second; a busy machine alone does not make it wait so long.
	if r.During.Median < leastWait || r.During.Median < 4*r.Before.Median || r.During.Median < 4*r.After.Median || r.Before.Writes == 0 || r.After.Writes == 0 {
		t.Errorf("the victim's writes: before %+v, during %+v, after %+v", r.Before, r.During, r.After)
	}
	var undercover, written admin.Size
	var phases []Phase
	for _, s := range samples {
		undercover += s.Volumes[1].Undercover
		written += s.Volumes[1].Written
		if len(phases) == 0 || phases[len(phases)-1] != s.Phase {
			phases = append(phases, s.Phase)
		}
		if s.Done > s.Total {
			t.Errorf("%d of %d bytes are done", s.Done, s.Total)
		}
	}
	if undercover != size || written != 0 {
		t.Errorf("the samples add up to %d bytes undercover and %d written", undercover, written)
	}
	if len(phases) != 4 {
		t.Errorf("the phases are %v", phases)
	}
	if err := Remove(t.Context(), a.Client); err != nil {
		t.Fatal(err)
	}
	if pools, err := a.Pools(t.Context()); err != nil || len(pools) != 0 {
		t.Errorf("Remove leaves %d pools, %v", len(pools), err)
	}
}

// TestInterrupted: a demonstration ends with its context, in whatever phase.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	a := serve(t)
	for _, phase := range []Phase{Filling, Cloning} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Run(ctx, Options{Array: a.Client, Every: 10 * time.Millisecond, Show: func(s Sample) {
			if s.Phase == phase {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted in phase %s it ends with %v", phase, err)
		}
	}
}

// TestFolders: an array of the demonstration's own takes no folder that holds something, and leaves nothing but a folder that
// was there before.
func TestFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	full, empty, none := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFolder(full); err == nil || !strings.Contains(err.Error(), "--running") {
		t.Errorf("a folder that is not empty: %v", err)
	}
	if _, err := os.Stat(filepath.Join(full, "precious")); err != nil {
		t.Error(err)
	}
	for path, stays := range map[string]bool{empty: true, none: false, "": false} {
		f := newFolder(t, path)
		if err := os.MkdirAll(filepath.Join(f.Path, "history", "hour"), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := f.Remove(); err != nil {
				t.Error(err)
			}
		}
		list, err := os.ReadDir(f.Path)
		if (err == nil) != stays || len(list) > 0 {
			t.Errorf("of %q %v is left, %v", path, list, err)
		}
	}
}

// TestFolderThatCannotBeClaimed: a demonstration that does not come about leaves no folder.
func TestFolderThatCannotBeClaimed(t *testing.T) {
	parent := t.TempDir()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil { // nothing can be opened
		t.Fatal(err)
	}
	f, err := NewFolder(filepath.Join(parent, "none"))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Fatalf("%+v", f)
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) > 0 {
		t.Errorf("%v is left, %v", list, err)
	}
}

// TestFolderWithATrailingSlash: it is the folder without one.
func TestFolderWithATrailingSlash(t *testing.T) {
	for _, slash := range []string{"/", "//", "/./"} {
		path := filepath.Join(t.TempDir(), "none")
		f, err := NewFolder(path + slash)
		if err != nil {
			t.Errorf("%q: %v", slash, err)
			continue
		}
		if f.Path != path {
			t.Errorf("%q: its path is %s", slash, f.Path)
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%q: it stays", slash)
		}
	}
}

// TestFolderWithoutRenames: on a file system whose renames can replace a folder, as over NFS, somebody else's stays.
func TestFolderWithoutRenames(t *testing.T) {
	was := renameNoReplace
	defer func() { renameNoReplace = was }()
	for _, early := range []bool{false, true} {
		parent := t.TempDir()
		path := filepath.Join(parent, "none")
		var theirs os.FileInfo
		renameNoReplace = func(string, string) (err error) {
			if early { // somebody makes it in this moment
				if err = os.Mkdir(path, 0o700); err == nil {
					theirs, err = os.Stat(path)
				}
			}
			return errors.Join(err, unix.EINVAL)
		}
		f := newFolder(t, path)
		if now, err := os.Stat(path); err != nil || early && !os.SameFile(now, theirs) {
			t.Errorf("early %v: it is another folder (error %v)", early, err)
		}
		if _, err := NewFolder(path); err == nil || !strings.Contains(err.Error(), "another demonstration runs in it") {
			t.Errorf("early %v: a second one: %v", early, err)
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
		if list, err := os.ReadDir(parent); err != nil || (len(list) == 1) != early || len(list) > 1 {
			t.Errorf("early %v: %v is left, %v", early, list, err)
		}
	}
}

// TestTwoDemonstrations: of two that begin in one empty folder at once, one gets it.
func TestTwoDemonstrations(t *testing.T) {
	for path, stays := range map[string]bool{t.TempDir(): true, filepath.Join(t.TempDir(), "none"): false} {
		got := make(chan *Folder, 8)
		for range cap(got) {
			go func() {
				f, err := NewFolder(path)
				if err != nil && !strings.Contains(err.Error(), "another demonstration runs in it") {
					t.Error(err)
				}
				got <- f
			}()
		}
		var mine []*Folder
		for range cap(got) {
			if f := <-got; f != nil {
				mine = append(mine, f)
			}
		}
		if len(mine) != 1 {
			t.Fatalf("%d of %d have the folder", len(mine), cap(got))
		}
		if err := mine[0].Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s, which was there: %v, is it still: %v", path, stays, err)
		}
		f := newFolder(t, path) // it is free again
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// TestRemoveTakesTheDemonstrationsOwn: what has its names and is somebody else's stays, and so does all else with it.
func TestRemoveTakesTheDemonstrationsOwn(t *testing.T) {
	a := serve(t)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		vols, err := a.Volumes(ctx)
		check(err)
		pools, err := a.Pools(ctx)
		check(err)
		var names []string
		for _, v := range vols {
			names = append(names, v.Pool+"/"+v.Name)
		}
		for _, p := range pools {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	refused := func(what string) {
		t.Helper()
		before := state()
		if err := Remove(ctx, a.Client); err == nil || !strings.Contains(err.Error(), "not the demonstration's") {
			t.Errorf("%s: Remove gives %v", what, err)
		}
		if after := state(); after != before {
			t.Errorf("%s: there was %s, and now there is %s", what, before, after)
		}
	}
	check(Remove(ctx, a.Client)) // nothing is there
	_, err := create(ctx, a.Client, 0)
	check(err)
	_, err = a.CreatePool(ctx, admin.NewPool{Name: "mine", Mdisks: []admin.NewMdisk{{Name: "m0", Size: 1 << 30}}})
	check(err)
	_, err = a.CreateVolume(ctx, admin.NewVolume{Name: "kept", Pool: "mine", Size: mebibyte})
	check(err)
	_, err = a.CreateVolume(ctx, admin.NewVolume{Name: "precious", Pool: SharedPool, Size: mebibyte})
	check(err)
	refused("another volume in its pool")
	check(a.DeleteVolume(ctx, "precious", true))
	check(Remove(ctx, a.Client))
	if got := state(); got != "mine mine/kept" {
		t.Errorf("there is %s", got)
	}
	// Pools of somebody else that have its names, empty and not.
	_, err = a.CreatePool(ctx, admin.NewPool{Name: ImagePool, Mdisks: []admin.NewMdisk{{Name: "m0", Size: 1 << 30}}})
	check(err)
	refused("an empty pool of another size")
	_, err = a.CreateVolume(ctx, admin.NewVolume{Name: Golden, Pool: ImagePool, Size: mebibyte})
	check(err)
	refused("a pool of another size with a volume of its name")
	if _, err := Run(ctx, Options{Array: a.Client, Every: time.Second}); err == nil || !strings.Contains(err.Error(), "not the demonstration's") {
		t.Errorf("Run gives %v", err)
	}
	check(a.DeleteVolume(ctx, Golden, true))
	// A volume of its name in a pool of others.
	_, err = a.CreateVolume(ctx, admin.NewVolume{Name: Clone, Pool: "mine", Size: mebibyte})
	check(err)
	for {
		if err := a.DeletePool(ctx, ImagePool); err == nil {
			break
		}
		check(wait(ctx, 50*time.Millisecond))
	}
	check(Remove(ctx, a.Client))
	if got := state(); got != "mine mine/"+Clone+" mine/kept" {
		t.Errorf("there is %s", got)
	}
}

// TestTakenPage: an array whose page has no address is not left half started.
func TestTakenPage(t *testing.T) {
	a := serve(t)
	s, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	taken := strings.TrimSuffix(strings.TrimPrefix(s.Page, "http://"), "/")
	folder := newFolder(t, filepath.Join(t.TempDir(), "second"))
	if _, err := Serve(t.Context(), folder, taken, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("Serve gives %v", err)
	}
	if err := folder.Remove(); err != nil {
		t.Error(err)
	}
}

func TestFreeLUNs(t *testing.T) {
	exports := []admin.Export{{LUN: 0}, {LUN: 5}, {LUN: 7}}
	if got := freeLUNs(exports, 5); got != [3]int{6, 8, 9} {
		t.Errorf("free are %v", got)
	}
}
