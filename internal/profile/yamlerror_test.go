package profile

import "testing"

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
