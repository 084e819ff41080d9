package iscsi

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestSecretFile(t *testing.T) {
	for _, row := range []struct {
		name, text string
		mode       os.FileMode
		want, err  string
	}{
		{"a line", "correct horse\nbattery\n", 0o600, "correct horse", ""},
		{"no end of line", "s", 0o400, "s", ""},
		{"an end of line of other systems", "s\r\n", 0o600, "s", ""},
		{"nothing", "\nx", 0o600, "", "is empty"},
		{"for the group", "s", 0o640, "", "run chmod 600"},
		{"for all", "s", 0o604, "", "run chmod 600"},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(row.text), row.mode); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSecret("CHAP secret", path)
		if string(got) != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: got %q, %v", row.name, got, err)
		}
	}
	if _, err := ReadSecret("CHAP secret", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist was read")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, t.TempDir(), "/dev/zero"} {
		if _, err := ReadSecret("CHAP secret", path); err == nil || !strings.Contains(err.Error(), path+" is not a regular file; ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestSecretFileOfAnyLength: what is not a secret at all, such as an image of a disk, takes no memory.
func TestSecretFileOfAnyLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	for first, want := range map[string]string{"s\n": "s", "s": ""} {
		if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 64<<20); err != nil { // sparse
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := ReadSecret("CHAP secret", path)
		runtime.ReadMemStats(&after)
		if string(got) != want || (err == nil) != (want != "") || err != nil && !strings.HasSuffix(err.Error(), "is longer than 64 KiB; is it the right file?") {
			t.Errorf("%q at its beginning: got %d bytes, %v", first, len(got), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%q at its beginning: took %d MiB", first, took>>20)
		}
	}
}

// What is root's and for a service's own group is for the service alone; that needs a service of its own.
func TestWhoMayReadASecret(t *testing.T) {
	for _, row := range []struct {
		mode                         os.FileMode
		owner, group, user, ownGroup int
		others                       bool
	}{
		{0o600, 1000, 1000, 1000, 1000, false},
		{0o400, 0, 0, 0, 0, false},
		{0o440, 0, 65532, 65532, 65532, false},
		{0o640, 0, 65532, 65532, 65532, false},
		{0o440, 0, 100, 65532, 65532, true},
		{0o440, 1000, 65532, 65532, 65532, true},
		{0o440, 0, 0, 0, 0, true},
		{0o460, 0, 65532, 65532, 65532, true},
		{0o444, 0, 65532, 65532, 65532, true},
		{0o440, -1, -1, 65532, 65532, true},
	} {
		if got := othersMayRead(row.mode, row.owner, row.group, row.user, row.ownGroup); got != row.others {
			t.Errorf("%+v: got %v", row, got)
		}
	}
}

// TestCredentialOfAService: systemd's files for a service are root's and have an ACL, whose mask is where the mode of the group is.
func TestCredentialOfAService(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bob")
	if err := os.WriteFile(path, []byte("s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		env  string
		mode os.FileMode
		ok   bool
	}{
		{dir, 0o440, os.Geteuid() == 0}, // root's
		{dir + "/", 0o440, os.Geteuid() == 0},
		{dir, 0o400, true},
		{dir, 0o444, false},
		{dir, 0o460, false},
		{filepath.Dir(dir), 0o440, false},
		{"", 0o440, false},
	} {
		t.Setenv("CREDENTIALS_DIRECTORY", row.env)
		if err := os.Chmod(path, row.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret("CHAP secret", path); (err == nil) != row.ok {
			t.Errorf("mode %o, in %s: %v", row.mode, row.env, err)
		}
	}
}

// TestLoadAddress: what an address does not say is in files, or in the environment as libiscsi's tools want it.
func TestLoadAddress(t *testing.T) {
	dir := t.TempDir()
	for name, secret := range map[string]string{"mine": "secret of a file", "theirs": "proof of a file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const both = "?secret_file=DIR/mine&mutual_user=array&mutual_secret_file=DIR/theirs"
	for _, row := range []struct{ address, env, want, err string }{
		{"iscsi://h/iqn.x/0", "", "", ""},
		{"iscsi://bob%s@h/iqn.x/0", "", "bob s  ", ""},
		{"iscsi://bob@h/iqn.x/0?secret_file=DIR/mine", "", "bob secret of a file  ", ""},
		{"iscsi://bob@h/iqn.x/0" + both, "", "bob secret of a file array proof of a file", ""},
		{"iscsi://h/iqn.x/0", "alice p  ", "alice p  ", ""},
		{"iscsi://h/iqn.x/0", "alice p array q", "alice p array q", ""},
		{"iscsi://bob@h/iqn.x/0", "alice p  ", "bob p  ", ""},
		{"iscsi://bob%s@h/iqn.x/0", "alice p  ", "bob s  ", ""},
		{"iscsi://bob@h/iqn.x/0" + both, "alice p other q", "bob secret of a file array proof of a file", ""},
		{"iscsi://h/iqn.x/0?secret_file=DIR/mine", "alice   ", "alice secret of a file  ", ""},
		{"iscsi://h/iqn.x/0", "alice   ", "", ""}, // as libiscsi
		{"iscsi://h/iqn.x/0", " p  ", "", ""},
		{"iscsi://bob@h/iqn.x/0", "", "", "needs the user's secret; add ?secret_file=FILE, or set LIBISCSI_CHAP_PASSWORD"},
		{"iscsi://h/iqn.x/0?secret_file=DIR/mine", "", "", "needs a user"},
		{"iscsi://h/iqn.x/0", "  array q", "", "needs a user"}, // or nobody would prove itself
		{"iscsi://h/iqn.x/0", "alice p array ", "", "the target's CHAP user has no secret"},
		{"iscsi://h/iqn.x/0", "alice p  q", "", "the target's CHAP secret is of no user"},
		{"iscsi://h/iqn.x/0", "alice p array p", "", "give it a different one"},
		{"iscsi://bob@h/iqn.x/0?secret_file=DIR/none", "", "", "the CHAP secret: stat "},
	} {
		env := strings.SplitN(row.env+strings.Repeat(" ", 4), " ", 5)
		for i, name := range []string{EnvUser, EnvSecret, EnvMutualUser, EnvMutualSecret} {
			t.Setenv(name, env[i])
		}
		a, err := LoadAddress(strings.ReplaceAll(row.address, "DIR", dir))
		got := ""
		if a.CHAP != nil {
			got = a.CHAP.User + " " + string(a.CHAP.Secret) + " " + a.CHAP.MutualUser + " " + string(a.CHAP.MutualSecret)
			if a.CHAP.MutualUser == "" && a.CHAP.MutualSecret != nil {
				t.Errorf("%s: the target is asked for a proof", row.address)
			}
		}
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s with %q: got %q, %v", row.address, row.env, got, err)
		}
	}
}
