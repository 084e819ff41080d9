package report

import (
	"math"
	"testing"
)

// TestCausesBesideSlowDisks: towers of the independent model in which disks take less than at other times, beside a
// copy that brings little or hosts that bring some more than usual. Neither is blamed for what the disks do not take.
func TestCausesBesideSlowDisks(t *testing.T) {
	for _, row := range []struct {
		kind     string
		seed     uint64
		was, now string
	}{
		{"mixed", 936012, "undercover", "back end"}, // 0.8 MB/s of a copy, and hosts bring less than usual
		{"mixed", 946004, "undercover", "back end"},
		{"mixed", 946015, "undercover", "back end"}, // 7 MB/s, and the disks take 600 less
		{"mixed", 966019, "undercover", "unknown"},  // no sample was full throughout
		{"disks", 944008, "hosts", "back end"},      // hosts bring less than in the mean of other times
		{"mixed", 946018, "hosts", "back end"},
	} {
		f := detect(newFieldCase(row.seed, row.kind).run("").data(row.seed))
		got := false
		for _, w := range f.Towers {
			if w.Cause == row.was {
				t.Errorf("%s, seed %d: the tower from %s on is laid upon %s", row.kind, row.seed, w.From, w.Cause)
			}
			got = got || w.Cause == row.now
			if (w.Cause == "unknown") != (len(w.Missing) > 0) {
				t.Errorf("%s, seed %d: cause %s lacks %q", row.kind, row.seed, w.Cause, w.Missing)
			}
		}
		if !got {
			t.Errorf("%s, seed %d: no tower is %s: %+v", row.kind, row.seed, row.now, f.Towers)
		}
	}
}

// TestFilled: who filled a partition, by what came and by what the disks took less.
func TestFilled(t *testing.T) {
	for _, row := range []struct {
		slow              Answer
		more, below, less float64
		want              bool
	}{
		{No, 100, 100, 0, true},
		{No, -10, 5, 0, true}, // hosts that wait write less
		{Yes, 100, 100, 50, true},
		{Yes, 20, 20, 50, false},
		{Yes, -1, 100, 50, false},
		{Unknown, 1, 1, math.NaN(), true},
		{Unknown, -1, 1, math.NaN(), false},
	} {
		if got := filled(row.slow, row.more, row.below, row.less); got != row.want {
			t.Errorf("%+v: %v", row, got)
		}
	}
}
