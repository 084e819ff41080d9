package tidy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Output is a file that appears under its name when Commit is called, whole, and takes the place of an older one only then.
// Until then its bytes are beside it, in a file whose name ends in .part. What is no file, as /dev/stdout, another device or
// a FIFO, gets the bytes at once.
type Output struct {
	file *os.File
	name string // "": the bytes go to the place itself
}

// Create begins an output.
func Create(name string) (*Output, error) {
	if stream(name) {
		return inPlace(name)
	}
	var old fs.FileInfo
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target // what a link names is replaced, and not the link
		if old, err = os.Stat(name); err != nil {
			return nil, err
		}
	} else if st, err := os.Lstat(name); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return inPlace(name) // a link to what is not there yet
	}
	f, err := beside(name, old != nil)
	if err != nil {
		if old != nil && errors.Is(err, fs.ErrPermission) {
			return inPlace(name) // only the file may be written, not its folder
		}
		return nil, err
	}
	if old != nil {
		err = like(f, old)
	}
	o := &Output{f, name}
	if err != nil {
		return nil, errors.Join(err, o.Abort())
	}
	return o, nil
}

// like gives a file the mode of the one that it replaces, and its owner and group, if they may be given. Another group gets no more
// than all have.
func like(f *os.File, old fs.FileInfo) error {
	mode := old.Mode().Perm()
	if st, ok := old.Sys().(*syscall.Stat_t); ok && f.Chown(int(st.Uid), int(st.Gid)) != nil && f.Chown(-1, int(st.Gid)) != nil {
		mode &= mode<<3 | 0o707
	}
	return f.Chmod(mode)
}

// stream reports whether a name stands for something that is written from the beginning to the end and never replaced.
func stream(name string) bool {
	clean := name
	if abs, err := filepath.Abs(name); err == nil {
		clean = abs
	}
	for _, dir := range []string{"/dev/std", "/dev/fd/", "/proc/"} { // a link to a file that another program has open
		if strings.HasPrefix(clean, dir) {
			return true
		}
	}
	st, err := os.Stat(name)
	return err == nil && !st.Mode().IsRegular()
}

func inPlace(name string) (*Output, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &Output{file: f}, nil
}

// beside makes a file in the folder of another one, with the mode of new files. If it is to be like an older one nobody else may open it
// before it is: who does may read all that comes.
func beside(name string, private bool) (*os.File, error) {
	mode := fs.FileMode(0o666)
	if private {
		mode = 0o600
	}
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x.part", name, rand.Uint32()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) { return o.file.Write(b) }

// Sync has what was written so far on the disk; Commit does, too, and then it costs nothing.
func (o *Output) Sync() error {
	if o.name == "" {
		return nil // a stream has no disk
	}
	return o.file.Sync()
}

// Commit gives the file its name. It is on the disk when Commit returns; in a folder that may be written and not read, its name may
// not be yet. If Commit fails, the older file stays as it was, unless the folder could not be synced, as the error says.
func (o *Output) Commit() error {
	if o.name == "" {
		return o.file.Close()
	}
	err := errors.Join(o.file.Sync(), o.file.Close())
	if err == nil {
		err = os.Rename(o.file.Name(), o.name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(o.file.Name()))
	}
	if err := SyncFolder(filepath.Dir(o.name)); err != nil {
		return fmt.Errorf("%s is written, and may be lost with a loss of power: %w", o.name, err)
	}
	return nil
}

// SyncFolder has the names in a folder on the disk. Who may only write there cannot sync it, and that is no error.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Abort drops what was written.
func (o *Output) Abort() error {
	err := o.file.Close()
	if o.name == "" {
		return err
	}
	return errors.Join(err, os.Remove(o.file.Name()))
}

// Leave ends an output that has failed, but keeps what was written so far, in the file that it names.
func (o *Output) Leave() (name string, err error) {
	return o.file.Name(), o.file.Close()
}

// Replace writes a file by a function. The file appears whole or not at all, whatever happens meanwhile.
func Replace(name string, write func(io.Writer) error) error {
	o, err := Create(name)
	if err != nil {
		return err
	}
	if err := write(o); err != nil {
		return errors.Join(err, o.Abort())
	}
	return o.Commit()
}

// ReplaceBytes is Replace with all bytes at hand.
func ReplaceBytes(name string, b []byte) error {
	return Replace(name, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
