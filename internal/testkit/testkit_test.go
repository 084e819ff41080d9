package testkit

import "testing"

// TestNextSeeds: each run of a test has seeds of its own, unless it was given one to repeat.
func TestNextSeeds(t *testing.T) {
	first := NextSeeds(t, 0, 10) // more than 1 where -count has run this before
	if next := NextSeeds(t, 0, 10); first%10 != 1 || next != first+10 {
		t.Errorf("10 seeds from %d on, and then from %d", first, next)
	}
	if s := NextSeeds(t, 7, 10); s != 7 {
		t.Errorf("seed 7 was given, and it is %d", s)
	}
	t.Run("other", func(t *testing.T) {
		if s := NextSeeds(t, 0, 10); first == 1 && s != 1 {
			t.Errorf("the seeds of another test begin at %d", s)
		}
	})
}
