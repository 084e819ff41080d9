package tidy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// put writes a file in place.
func put(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

// holds checks what a file has.
func holds(t *testing.T, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(name); string(b) != want || err != nil {
		t.Errorf("%s holds %q, want %q; %v", filepath.Base(name), b, want, err)
	}
}

// alone checks that a folder has only these files.
func alone(t *testing.T, dir string, want ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("there are %q, want %q", names, want)
	}
}

// TestReplace: a file is the old one until the new one is whole, keeps its mode, and stays where a link names it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	put(t, file, "old", 0o640)
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	if err := Replace(file, func(w io.Writer) error {
		_, err := io.WriteString(w, "part")
		holds(t, file, "old")
		return errors.Join(err, full)
	}); !errors.Is(err, full) {
		t.Errorf("it ends with %v", err)
	}
	holds(t, file, "old")
	alone(t, dir, "file", "link")
	if err := ReplaceBytes(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new")
	alone(t, dir, "file", "link")
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := ReplaceBytes(filepath.Join(dir, "none", "file"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if err := ReplaceBytes(dir, nil); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("in place of a folder: %v", err)
	}
}

// TestOutputStreams: what is no file is written at once and stays what it is, as is what a link names that is not there yet.
func TestOutputStreams(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("later", link)); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	o, err := Create(fifo)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.WriteString(o, "line"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(in, b); err != nil || string(b) != "line" {
		t.Errorf("%q, %v", b, err)
	}
	if err := o.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{os.DevNull: true, "/dev/stdout": true, "/dev/fd/1": true, "/proc/self/fd/1": true,
		fifo: true, link: false, filepath.Join(dir, "none"): false} {
		if stream(name) != want {
			t.Errorf("%s: a stream is %v", name, !want)
		}
	}
	if err := ReplaceBytes("/dev/full", []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full device: %v", err)
	}
	if err := ReplaceBytes(link, []byte("x")); err != nil {
		t.Fatal(err)
	}
	holds(t, filepath.Join(dir, "later"), "x")
	alone(t, dir, "fifo", "later", "link")
}

// TestOutputLeft: what a stream has when it fails stays beside the older file.
func TestOutputLeft(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	put(t, file, "old", 0o600)
	o, err := Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(o, "part"); err != nil {
		t.Fatal(err)
	}
	part, err := o.Leave()
	if err != nil || !strings.HasPrefix(part, file+".") || !strings.HasSuffix(part, ".part") {
		t.Errorf("it is left as %s, %v", part, err)
	}
	holds(t, file, "old")
	holds(t, part, "part")
}

// TestFolderThatMayOnlyBeWritten: in a folder that may be written and not read an output is written without an error.
func TestFolderThatMayOnlyBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o333)); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends as another user
		if os.Getuid() == 0 {
			_, _ = unix.SetfsuidRetUid(65534)
		}
		if _, err := os.Open(dir); !errors.Is(err, os.ErrPermission) {
			end <- errors.New("the folder can be read")
			return
		}
		end <- ReplaceBytes(filepath.Join(dir, "file"), []byte("new"))
	}()
	if err := <-end; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	holds(t, filepath.Join(dir, "file"), "new")
	alone(t, dir, "file")
}

// TestOwnerStays: who may replace everybody's files leaves them to their owners.
func TestOwnerStays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "old", 0o600)
	if err := errors.Join(os.Chown(file, 1234, 2345), ReplaceBytes(file, []byte("new"))); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if of := st.Sys().(*syscall.Stat_t); of.Uid != 1234 || of.Gid != 2345 || st.Mode() != 0o600 {
		t.Errorf("it has owner %d, group %d, mode %v", of.Uid, of.Gid, st.Mode())
	}
}

// TestGroupThatIsNotGiven: who may not give an output its group gives his own one no more than all have.
func TestGroupThatIsNotGiven(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes files of others")
	}
	for mode, want := range map[os.FileMode]os.FileMode{0o660: 0o600, 0o664: 0o644, 0o646: 0o646, 0o677: 0o677} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		put(t, file, "old", mode)
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777), os.Chown(file, 1234, 2345)); err != nil {
			t.Fatal(err)
		}
		end := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // for good: the thread ends as another user
			_, _ = unix.SetfsuidRetUid(65534)
			end <- ReplaceBytes(file, []byte("new"))
		}()
		if err := <-end; err != nil {
			t.Errorf("it ends with %v", err)
		}
		holds(t, file, "new")
		if st, err := os.Stat(file); err != nil || st.Mode() != want {
			t.Errorf("of %v it has mode %v, want %v; %v", mode, st.Mode(), want, err)
		}
	}
}

// TestOutputOfAPrivateFile: until an output is like the file that it replaces nobody else may open it: who has would read what comes.
func TestOutputOfAPrivateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "old", 0o600)
	f, err := beside(file, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Mode() != 0o600 {
		t.Errorf("it has mode %v; %v", st.Mode(), err)
	}
}
