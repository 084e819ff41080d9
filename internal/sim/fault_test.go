package sim

import (
	"strings"
	"testing"
)

// TestPoolAddThatFails: a pool that cannot be added ends the run with an error, and not with a panic or a line in the event log.
func TestPoolAddThatFails(t *testing.T) {
	for pool, want := range map[string]string{
		"{name: p, mdisks: [{size: 1GiB}]}":             "array a: pool-add: ",
		"{name: q, mdisks: [{kind: tape, size: 1GiB}]}": `array a: pool-add: pool q: the profile all-flash has no mdisks of kind "tape"`,
	} {
		r := runOf(t, "%s", inSmall("{name: j, volume: v, io: 4KiB, rate: 10}", ", faults: [{at: 1s, kind: pool-add, new: "+pool+"}]"))
		if err := r.Problem(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || r.Ended() || r.now() > 1.1e9 {
			t.Errorf("%s: %v at %s, want %q", pool, err, Duration(r.now()), want)
		}
	}
}
