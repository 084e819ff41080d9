package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a start prints names the demonstration first, by the command as it was called, and no more than a screen shows.
func TestGreetingBeginsWithTheDemonstration(t *testing.T) {
	data := filepath.Join(t.TempDir(), "its data")
	r := startWith(t, parse(t, testConfig, data), func(d *daemon) { d.env.Command = "bin/arraysim" })
	_, next, ok := strings.Cut(r.out.String(), "Try next, in another terminal:\n")
	lines := strings.Split(strings.TrimSpace(next), "\n")
	if want := "bin/arraysim demo --running --data '" + data + "'"; !ok || !strings.HasSuffix(lines[0], want) {
		t.Errorf("the first line is %q, want one that ends with %q", lines[0], want)
	}
	if len(lines) > 8 {
		t.Errorf("%d lines:\n%s", len(lines), next)
	}
	for _, l := range lines {
		if strings.Contains(l, " arraysim ") {
			t.Errorf("a command is not as it was called: %q", l)
		}
	}
}

// A demonstration cannot log in by CHAP, so that it is not what to try.
func TestGreetingWithCHAP(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("twelve bytes or more"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, testConfig, filepath.Join(dir, "d"))
	cfg.Portal.CHAP = &CHAPConfig{User: "u", SecretFile: secret}
	if out := start(t, cfg).out.String(); strings.Contains(out, "demo --running") || !strings.Contains(out, "u%SECRET@") {
		t.Errorf("it prints\n%s", out)
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"bin/arraysim": "bin/arraysim", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$x": "'$x'"} {
		if got := ShellWord(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}
