package sim

import (
	"strings"
	"testing"
)

// TestNamesOfTwo: what two objects would be known by is refused. Figures were those of the last one.
func TestNamesOfTwo(t *testing.T) {
	const one = "{name: a, cache: 16MiB, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 64MiB}]}"
	for _, row := range []struct{ other, faults, says string }{
		{one, "", `there are two arrays "a"; rename one`},
		{strings.Replace(one, "name: a", "name: b", 1), "", "arrays a and b both have a pool p; rename one"},
		{strings.NewReplacer("name: a", "name: b", "name: p", "name: q", "pool: p", "pool: q").Replace(one), "", "arrays a and b both have a volume v; rename one"},
		{strings.NewReplacer("name: a", "name: b", "name: p", "name: q", "pool: p", "pool: q", "name: v", "name: w").Replace(one), "", ""},
		{strings.NewReplacer("name: a", "name: b", "name: p", "name: q", "pool: p", "pool: q", "name: v", "name: w").Replace(one),
			"{kind: pool-add, array: b, new: {name: p, mdisks: [{size: 1GiB}]}}", "fault 1 (pool-add): arrays a and b would both have a pool p; rename one"},
	} {
		s, err := Parse([]byte("{name: s, until: 1s, profile: all-flash, arrays: [" + one + ", " + row.other + "], hosts: [{name: h}], faults: [" + row.faults + "]}"))
		if err == nil {
			_, err = New(s)
		}
		if row.says == "" && err != nil || row.says != "" && (err == nil || err.Error() != row.says) {
			t.Errorf("%s: %v, want %q", row.other, err, row.says)
		}
	}
	if _, err := Parse([]byte(strings.Replace(inSmall("", ""), "{name: h}", "{name: h}, {name: h}", 1))); err == nil || err.Error() != `there are two hosts "h"; rename one` {
		t.Errorf("the error is %v", err)
	}
}
