package main

import (
	"runtime"
	"testing"
)

// started is what the process had allocated when all packages that the program imports had been initialized.
var started = func() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}()

// TestStartIsSmall: each command pays for what packages make as they are initialized, and beyond 4 MiB, where
// the first collection of garbage begins, for that, too.
func TestStartIsSmall(t *testing.T) {
	if started.TotalAlloc > 3<<20 || started.NumGC > 0 {
		t.Errorf("before it does anything, the program has allocated %d bytes and collected garbage %d times: make large variables arrays, or when they are first used", started.TotalAlloc, started.NumGC)
	}
}
