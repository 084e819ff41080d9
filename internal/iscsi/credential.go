package iscsi

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The environment variables of libiscsi and its tools. Unlike arguments, other users of the machine cannot see them.
const (
	EnvUser         = "LIBISCSI_CHAP_USERNAME"
	EnvSecret       = "LIBISCSI_CHAP_PASSWORD"
	EnvMutualUser   = "LIBISCSI_CHAP_TARGET_USERNAME"
	EnvMutualSecret = "LIBISCSI_CHAP_TARGET_PASSWORD"
)

// ShowsSecret reports whether an address has a secret in itself. Given as an argument, everybody on the machine can read it.
func ShowsSecret(s string) bool {
	a, why := parse(s)
	return why == "" && a.CHAP != nil && len(a.CHAP.Secret) > 0
}

// LoadAddress is [ParseAddress] with all that a login needs. What the address does not say itself it reads from the files
// that the address names, and then takes from the environment variables of libiscsi. Its errors show no secret.
func LoadAddress(s string) (Address, error) {
	a, err := ParseAddress(s)
	if err != nil {
		return a, err
	}
	if err := a.loadCHAP(); err != nil {
		return Address{}, fmt.Errorf("%s: %w", WithoutSecret(s), err)
	}
	return a, nil
}

// loadCHAP completes CHAP. An address that says nothing of it may do without, as with libiscsi, unless the target is to
// prove itself.
func (a *Address) loadCHAP() error {
	var c CHAP
	said := a.CHAP != nil
	if said {
		c = *a.CHAP
	}
	for _, s := range []struct {
		what, file, env string
		to              *[]byte
	}{{"the CHAP secret", a.SecretFile, EnvSecret, &c.Secret}, {"the target's CHAP secret", a.MutualSecretFile, EnvMutualSecret, &c.MutualSecret}} {
		if s.file != "" {
			b, err := ReadSecret(s.what, s.file)
			if err != nil {
				return err
			}
			*s.to = b
		} else if len(*s.to) == 0 {
			*s.to = []byte(os.Getenv(s.env))
		}
	}
	c.User, c.MutualUser = cmp.Or(c.User, os.Getenv(EnvUser)), cmp.Or(c.MutualUser, os.Getenv(EnvMutualUser))
	mutual := c.MutualUser != "" || len(c.MutualSecret) > 0
	switch {
	case c.User != "" && len(c.Secret) > 0:
	case !said && !mutual:
		return nil
	case c.User == "":
		return fmt.Errorf("CHAP needs a user; write iscsi://user@host/iqn/lun, or set %s", EnvUser)
	default:
		return fmt.Errorf("CHAP needs the user's secret; add ?secret_file=FILE, or set %s", EnvSecret) // a user may be user:secret
	}
	switch {
	case !mutual:
		c.MutualSecret = nil // asks for no proof
	case c.MutualUser == "":
		return fmt.Errorf("the target's CHAP secret is of no user; add ?mutual_user=USER, or set %s", EnvMutualUser)
	case len(c.MutualSecret) == 0:
		return fmt.Errorf("the target's CHAP user has no secret; add ?mutual_secret_file=FILE, or set %s", EnvMutualSecret)
	}
	a.CHAP = &c
	return c.Check()
}

// maxSecretLine bounds what is read of a file, which may be the wrong one: an image of a disk, say.
const maxSecretLine = 64 << 10

// ReadSecret reads a file of a secret: its first line, of 64 KiB at the most. what is it, for people. A file that others may
// read is refused, and errors say what to do.
func ReadSecret(what, path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; write the secret into that file with mode 600", what, err)
	}
	if !st.Mode().IsRegular() { // a pipe may never have what to read
		return nil, fmt.Errorf("%s: %s is not a regular file; write the secret into one with mode 600", what, path)
	}
	owner, group := -1, -1
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		owner, group = int(s.Uid), int(s.Gid)
	}
	mode := st.Mode()
	if owner == 0 && ofService(path) {
		mode &^= 0o040
	}
	if othersMayRead(mode, owner, group, os.Geteuid(), os.Getegid()) {
		return nil, fmt.Errorf("%s: others may read %s; run chmod 600 %s", what, path, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretLine+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	line, _, ended := strings.Cut(string(b), "\n")
	line = strings.TrimRight(line, "\r")
	switch {
	case line == "":
		return nil, fmt.Errorf("%s: the first line of %s is empty; write the secret there", what, path)
	case !ended && len(b) > maxSecretLine:
		return nil, fmt.Errorf("%s: the first line of %s is longer than %d KiB; is it the right file?", what, path, maxSecretLine>>10)
	}
	return []byte(line), nil
}

// ofService reports whether a file is one of the credentials that systemd gives to this service alone. They are root's, with an
// access list (ACL) for the service's user, and what that grants shows as the mode of the group.
func ofService(path string) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	path, err := filepath.Abs(path)
	return err == nil && filepath.IsAbs(dir) && filepath.Dir(path) == filepath.Clean(dir)
}

// othersMayRead reports whether a file with this mode, owner and group can be read by others than its
// owner and a process of this user and group. A service's own group may read what is root's: so
// Kubernetes mounts secrets for a container that is not root.
func othersMayRead(mode os.FileMode, owner, group, user, ownGroup int) bool {
	if owner == 0 && user != 0 && group == ownGroup {
		mode &^= 0o040
	}
	return mode&0o077 != 0
}
