package cachedaemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// apiSocket is the socket of the API, and the file that it is.
type apiSocket struct {
	net.Listener
	path string
	file os.FileInfo
}

// listenSocket opens the socket of the API, which is this user's alone. One that a daemon has left behind makes room for it;
// another file of that name does not, nor does a socket of which nobody can say that it is left behind, such as another user's.
func listenSocket(path string) (*apiSocket, error) {
	nc, err := net.Dial("unix", path)
	switch {
	case err == nil:
		nc.Close()
		return nil, fmt.Errorf("another hostcache answers on %s; choose another with --socket", path)
	case !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED):
		says := "cannot be created"
		if st, gone := os.Lstat(path); gone == nil && st.Mode()&fs.ModeSocket != 0 {
			says = "may be in use"
		}
		return nil, fmt.Errorf("the socket %s %s: %w; choose another with --socket", path, says, errors.Unwrap(err))
	}
	s, err := bindSocket(path)
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be created: %w; choose another with --socket", path, err)
	}
	return s, nil
}

// bindSocket binds a socket in a folder that nobody else can enter, where it gets its mode and then its place: at no moment
// may somebody else connect.
func bindSocket(path string) (_ *apiSocket, err error) {
	if err := noOtherFile(path); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".hostcache-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	dir, err := os.Open(tmp)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const name = "s"
	// By this name it fits an address wherever the socket itself does.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	s := &apiSocket{Listener: l, path: path}
	if err = os.Chmod(filepath.Join(tmp, name), 0o600); err == nil {
		s.file, err = os.Lstat(filepath.Join(tmp, name))
	}
	if err == nil {
		err = os.Rename(filepath.Join(tmp, name), path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

// noOtherFile returns an error if there is something at a path that is no socket.
func noOtherFile(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode()&fs.ModeSocket == 0:
		return errors.New("a file of that name exists and is not a socket")
	}
	return nil
}

// remove removes the socket, and nothing else that may have taken its place, such as the next daemon's.
func (s *apiSocket) remove() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
}
