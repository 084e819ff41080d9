package cachedaemon

import (
	"strings"
	"testing"
)

// TestHostsHaveNamesOfTheirOwn: by default two cache hosts are two initiators, and one is the same after a restart.
func TestHostsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, m := range [][2]string{{"a1b2", "one"}, {"a1b2", "two"}, {"c3d4", "one"}, {"", "one"}, {"uninitialized", "two"}, {"a1b2", "localhost"}, {"c3d4", ""}} {
		name, err := initiatorName(m[0], m[1])
		if err != nil {
			t.Errorf("%q: %v", m, err)
			continue
		}
		if again, _ := initiatorName(m[0], m[1]); again != name || !strings.HasPrefix(name, initiatorPrefix) || m[0] != "" && strings.Contains(name, m[0]) {
			t.Errorf("%q is named %s, then %s", m, name, again)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %s have one name, %s", m, other, name)
		}
		seen[name] = m[0] + " " + m[1]
	}
	for _, m := range [][2]string{{"", ""}, {"", "localhost"}, {"", "localhost.localdomain"}, {"uninitialized", "(none)"}} {
		if name, err := initiatorName(m[0], m[1]); err == nil || !strings.Contains(err.Error(), "--initiator") {
			t.Errorf("%q is named %q, error %v", m, name, err)
		}
	}
}
