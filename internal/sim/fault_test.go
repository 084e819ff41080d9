package sim

import (
	"fmt"
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

// TestFaultsWithoutEffect: a change of what there is not ends the run with an error. The event log said that it had happened.
func TestFaultsWithoutEffect(t *testing.T) {
	const gone = "{at: 1s, kind: pool-add, new: {name: q, mdisks: [{size: 1GiB}]}}, {at: 2s, kind: pool-remove, pool: q}, "
	for faults, want := range map[string]string{
		"{at: 1s, kind: write-mode, pool: typo, mode: fast}": `array a: write-mode: there is no pool "typo"`,
		"{at: 1s, kind: pool-remove, pool: typo}":            `array a: pool-remove: there is no pool "typo"`,
		"{at: 1s, kind: pool-remove, pool: p}":               "array a: pool-remove: ", // it has a volume
		gone + "{at: 2500ms, kind: pool-remove, pool: q}":    `array a: pool-remove: there is no pool "q"`,
		gone + "{at: 1s, kind: mdisk-offline, pool: p}":      "<nil>",
		gone: "<nil>",
	} {
		r := runOf(t, "%s", inSmall("{name: j, volume: v, io: 4KiB, rate: 10}", ", faults: ["+faults+"]"))
		if got := fmt.Sprint(r.Problem()); !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s, want %s", faults, got, want)
		}
	}
	// Of a pool that is taken away before.
	r := runOf(t, "%s", strings.Replace(inSmall("{name: j, volume: v, io: 4KiB, rate: 10}", ", faults: [{at: 1s, kind: pool-remove, pool: q}, {at: 2s, kind: mdisk-slow, pool: q, factor: 2}]"),
		"pools: [", "pools: [{name: q, mdisks: [{size: 1GiB}]}, ", 1))
	if got := fmt.Sprint(r.Problem()); got != `array a: mdisk-slow: there is no pool "q"` {
		t.Errorf("the run ends with %s", got)
	}
	// What cannot be is refused by its number.
	_, err := New(parsed(t, inSmall("{name: j, volume: v, io: 4KiB, rate: 10}", ", faults: [{kind: node-loss}, {kind: mdisk-slow, pool: typo}]")))
	if err == nil || !strings.HasPrefix(err.Error(), "fault 2 (mdisk-slow): ") {
		t.Errorf("the error is %v", err)
	}
}
