package history

import (
	"os"
	"testing"
	"time"
)

// TestDiedInTheFirstStep: an object that dies in the step with which a file begins is in the file with its
// life, and a start that finds no more of it than that goes well.
func TestDiedInTheFirstStep(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, true)
	end := 0
	second := func(rows ...Row) {
		end++
		h.second(end, append(rows, volume("keep", 1, 0, 0, unknown, unknown))...)
		if end%10 == 0 {
			h.Flush()
		}
	}
	for range 30 {
		second(volume("gone", 5, 0, 0, unknown, unknown))
	}
	for range 9000 { // longer than there are files of seconds
		second()
	}
	h.Close()
	h = open(t, dir, true)
	for _, o := range h.objects {
		if o != nil && len(o.lives) == 0 {
			t.Errorf("%q has no life", o.key.name)
		}
	}
	second()
	if got := h.find(Query{From: at(0), To: at(300), Points: 1, Top: 8}, "volume", "gone", "rate"); len(got) == 0 || got[0] <= 0 {
		t.Errorf("of the one that has gone there is %v", got)
	}
}

// TestNumberIsFreeLater: an object that died a week ago is still in the steps that are kept for longer, and its
// number is not given to another one meanwhile.
func TestNumberIsFreeLater(t *testing.T) {
	h := open(t, "", true)
	end := 0
	for range 60 {
		end++
		h.second(end, volume("gone", 5, 0, 0, unknown, unknown))
	}
	week := int(CoarseAge / time.Second)
	for end < week-60 {
		end += 60
		h.Append(at(end), time.Minute, []Row{total(1)})
	}
	for range 20 {
		end += 60
		h.Append(at(end), time.Minute, []Row{total(1), volume("new", 1, 0, 0, unknown, unknown)})
		q := Query{From: at(0), To: at(300), Points: 1, Top: 8}
		if got := h.find(q, "volume", "new", "rate"); len(got) > 0 && got[0] > 0 {
			t.Fatalf("%d s behind its death, a new object has its figures: %v", end-60, got)
		}
	}
}

// TestFullDiskBeginsNoSegments: a segment that could not be written is not one of those that are kept, and
// leaves no file.
func TestFullDiskBeginsNoSegments(t *testing.T) {
	h := open(t, t.TempDir(), false)
	end := 0
	seconds := func() {
		for range 10 {
			end++
			h.second(end)
		}
		h.Flush()
	}
	seconds()
	f := h.fine.files
	was := f.newest
	for range 3 * maxSegments {
		if err := os.Symlink("/dev/full", f.path(f.newest+1)); err != nil {
			t.Fatal(err)
		}
		f.fresh = true
		seconds()
	}
	if _, err := os.Stat(f.path(was)); err != nil || f.newest != was {
		t.Errorf("%d segments were begun on a full disk: %v", f.newest-was, err)
	}
	seconds()
	if list := f.segments(); len(list) != 2 {
		t.Errorf("then there are segments %v", list)
	}
	h.Close()
}
