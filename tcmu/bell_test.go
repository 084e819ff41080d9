package tcmu

import "testing"

// TestBell: rings before a wait are heard together, and the end does not hide work.
func TestBell(t *testing.T) {
	b, err := newBell()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, row := range []struct {
		rings     []uint64
		work, end bool
	}{
		{[]uint64{bellWork}, true, false},
		{[]uint64{bellWork, bellWork, bellWork}, true, false},
		{[]uint64{bellEnd}, false, true},
		{[]uint64{bellWork, bellEnd}, true, true},
	} {
		for _, r := range row.rings {
			b.ring(r)
		}
		if work, end := b.wait(); work != row.work || end != row.end {
			t.Errorf("%d: work %v, end %v", row.rings, work, end)
		}
	}
	heard := make(chan bool)
	go func() {
		work, _ := b.wait()
		heard <- work
	}()
	b.ring(bellWork)
	if !<-heard {
		t.Error("who waited was woken for no work")
	}
}
