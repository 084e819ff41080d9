package cachedaemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestNoteOfAStart: what a start has heard and could not tell the cache, the next one assumes.
func TestNoteOfAStart(t *testing.T) {
	folder := t.TempDir()
	start := func(session string, opened, heard bool) (found bool) {
		t.Helper()
		var n startNote
		if err := n.begin(folder, session); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(n.path); err != nil {
			t.Fatalf("while the start is under way there is no note: %v", err)
		}
		if err := n.end(opened, heard); err != nil {
			t.Fatal(err)
		}
		return n.found
	}
	for i, row := range []struct {
		opened, heard, want bool
	}{
		{true, false, false},  // the first
		{false, false, false}, // fails, and the LUN had not said anything
		{false, true, false},  // fails behind what it said
		{false, false, true},  // fails again, and has nothing to add
		{true, false, true},   // has told the cache
		{true, true, false},
		{true, false, false},
	} {
		if found := start("a", row.opened, row.heard); found != row.want {
			t.Errorf("start %d finds a note: %v", i, found)
		}
	}
	start("a", false, true)
	if start("b", true, false) {
		t.Error("another cache's note counts")
	}
	var died startNote // its process ends before it knows
	if err := died.begin(folder, "c"); err != nil {
		t.Fatal(err)
	}
	if !start("c", true, false) {
		t.Error("a start that died has left nothing")
	}
	if err := new(startNote).end(true, true); err != nil {
		t.Errorf("without a note: %v", err)
	}
}

// TestNoteWhateverTheSecret: a start with another secret, or with one from elsewhere, finds the note of the start before.
func TestNoteWhateverTheSecret(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const lun = "127.0.0.1:1/iqn.x/0" // nobody listens there
	for i, backend := range []string{"iscsi://bob%first@" + lun, "iscsi://bob%second@" + lun, "iscsi://bob@" + lun + "?secret_file=" + secret, "iscsi://" + lun} {
		d := &daemon{cfg: Config{Initiator: "iqn.2026-01.x:i", Flash: "flash", Backend: backend, Witness: filepath.Join(dir, "witness")}, log: slog.New(slog.DiscardHandler)}
		if _, err := d.device(backend, backendRole); err == nil {
			t.Fatal("somebody listens on port 1")
		}
		if d.note.path == "" || d.note.found != (i > 0) {
			t.Errorf("start %d: the note %q of an earlier start is found: %v", i, d.note.path, d.note.found)
		}
	}
}
