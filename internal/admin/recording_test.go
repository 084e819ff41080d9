package admin

import (
	"testing"
	"time"
)

// TestRecordClock: the times of a recording follow a clock that is set forward, and pass steadily under one that is set back.
func TestRecordClock(t *testing.T) {
	var c recordClock
	for _, x := range []struct{ wall, elapsed, want int64 }{
		{1000, 0, 1000},
		{1060, 60, 1060},
		{520, 120, 1120}, // set back by ten minutes
		{580, 180, 1180},
		{2000, 240, 2000}, // set forward
		{2060, 300, 2060},
	} {
		if got := c.at(x.wall*1e9, time.Duration(x.elapsed)*time.Second); got != x.want*1e9 {
			t.Errorf("after %d s the clock says %d: recorded as %d, want %d", x.elapsed, x.wall, got/1e9, x.want)
		}
	}
}
