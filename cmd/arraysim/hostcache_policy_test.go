package main

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// TestCacheWithoutIOs: of what was not seen no time is printed, and a guess says so.
func TestCacheWithoutIOs(t *testing.T) {
	r := &cachedaemon.Report{State: tier.State{DirtySectors: 8, Assumed: true}, TimeToGo: 0.1}
	r.Views.LocalFlash.Read = tier.Flow{IOs: 2, Bytes: 8192, Nanos: 3_000_000}
	var b strings.Builder
	printCache(&b, r)
	for _, want := range []string{"read 0 I/Os, 0 KiB, -; write 0 I/Os, 0 KiB, -\n", "read 2 I/Os, 8 KiB, 1.500 ms; write 0", "0.1 s (a guess: nothing was destaged so far)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}
