package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/zerobench"
)

// An interrupted benchmark in virtual time has no result, as one against a target.
func TestInterruptedZero(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, disk := range []string{"eager", "thin"} {
		f := zeroFlags{Config: zerobench.Config{Disk: disk, VAAI: true, Size: 1 << 30, Profile: "purity-5.1", Outstanding: 32}}
		if r, err := f.runVirtual(ctx, nil, false); r != nil || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "ended after 0 of ") {
			t.Errorf("%s: %+v, %v", disk, r, err)
		}
	}
}
