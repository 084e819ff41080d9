package profile

import (
	"fmt"
	"strings"
	"testing"
)

func TestYAMLError(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1 localhost\n127.0.0.1 vm\n": "line 1: string was used where mapping is expected",
		"name: x\nnaem: y\n":                  `line 2: unknown field "naem"`,
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestAliases: what the decoder would take for null is refused, and what it reads is read.
func TestAliases(t *testing.T) {
	for text, want := range map[string]string{
		"a: &each\n  x: &third {v: 3}\n  y: *third\nb: *each\n": "line 3: *third stands inside of the value of &each, as &third does",
		"a: &each\n  y: *each\n":                                "line 2: *each stands inside of the value of &each",
		"a: &o\n  b: &i\n    x: &t {v: 3}\n  c: {d: *t}\n":      "line 4: *t stands inside of the value of &o",
		"x: &third {v: 3}\na: &each {y: *third}\nb: *each\n":    "",
		"x: &third {v: 3}\ny: *third\n":                         "",
		"a: &each {x: 1}\nb: &other {y: *each}\nc: *other\n":    "",
		"a: 1 & 2 * 3\n": "",
	} {
		var v map[string]any
		switch err := DecodeYAML([]byte(text), &v); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if want == "" && strings.Contains(fmt.Sprint(v), "nil") {
			t.Errorf("%q was read as %v", text, v)
		}
	}
}
