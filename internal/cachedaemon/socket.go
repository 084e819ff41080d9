package cachedaemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// listenSocket opens the socket of the API, which is this user's alone. One that a daemon has left behind makes room for it;
// another file of that name does not.
func listenSocket(path string) (net.Listener, error) {
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		return nil, fmt.Errorf("another hostcache answers on %s; choose another by --socket", path)
	}
	l, err := bindSocket(path)
	if err != nil {
		return nil, fmt.Errorf("the socket %s cannot be made: %w; choose another by --socket", path, err)
	}
	return l, nil
}

// bindSocket binds a socket in a folder that nobody else can enter, where it gets its mode and then its place: at no moment
// may somebody else connect.
func bindSocket(path string) (_ net.Listener, err error) {
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
	if err = os.Chmod(filepath.Join(tmp, name), 0o600); err == nil {
		err = os.Rename(filepath.Join(tmp, name), path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
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
		return errors.New("there is a file of that name, which is no socket")
	}
	return nil
}

// removeSocket removes the socket, and nothing else that may have taken its place.
func removeSocket(path string) {
	if noOtherFile(path) == nil {
		os.Remove(path)
	}
}
