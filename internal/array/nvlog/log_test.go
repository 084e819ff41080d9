package nvlog

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// newLog returns the log of a region of its own.
func newLog(t testing.TB, l Layout) *Log {
	t.Helper()
	nv, err := open(newTestRegion(l, nil, nil), true, l)
	if err != nil {
		t.Fatal(err)
	}
	return NewLog(nv)
}

// TestClaim: a claim takes what was claimed, once, and nothing after somebody else has appended; what it refuses
// changes nothing.
func TestClaim(t *testing.T) {
	edits := make([]Edit, 2*MaxEdits)
	take := func(c *Claim, n int) bool {
		_, ok := c.Append(edits[:n], 0)
		return ok
	}
	claim := func(l *Log, n int) *Claim {
		c, ok := l.Claim(n)
		if !ok {
			t.Fatal("an empty log has no room")
		}
		return &c
	}
	for name, row := range map[string]func(l *Log) (ok bool){
		"one that was refused":                       func(*Log) bool { return take(&Claim{}, 0) },
		"more than was claimed":                      func(l *Log) bool { return take(claim(l, 1), 2) },
		"fewer, so that the command would never end": func(l *Log) bool { return take(claim(l, MaxEdits+2), MaxEdits+1) },
		"twice": func(l *Log) bool {
			c := claim(l, 1)
			take(c, 1)
			return take(c, 1)
		},
		"nothing, twice": func(l *Log) bool {
			c := claim(l, 0)
			take(c, 0)
			return take(c, 0)
		},
		"after another": func(l *Log) bool {
			c, o := claim(l, 1), claim(l, 1)
			take(o, 1)
			return take(c, 1)
		},
		"between two of another": func(l *Log) bool {
			c := claim(l, MaxEdits+1)
			rest, _ := c.Append(edits[:MaxEdits+1], 0)
			take(claim(l, 1), 1)
			_, ok := c.Append(rest, 0)
			return ok
		},
	} {
		l := newLog(t, Layout{Rows: 1, LogBytes: MinLogBytes, Payload: true})
		if row(l) {
			t.Errorf("%s: it is appended", name)
		}
		if want := map[string]uint64{"twice": 1, "nothing, twice": 1, "after another": 1, "between two of another": 2}[name]; l.Seq() != want {
			t.Errorf("%s: the log ends with record %d, not %d", name, l.Seq(), want)
		}
	}
}

// TestEverFits: what can ever be appended fits an empty ring wherever its head is, and in as many bytes as were claimed.
func TestEverFits(t *testing.T) {
	for _, size := range []int{MinLogBytes, MinLogBytes + 8, 100_000} {
		l := newLog(t, Layout{Rows: 1, LogBytes: size, Payload: true})
		least := 0 // of those that may be refused
		for l.EverFits(least) {
			least++
		}
		if least < MaxEdits {
			t.Errorf("a ring of %d bytes never has room for %d edits", size, least)
		}
		most := 0
		for at := 0; at < size; at += 8 {
			if l.head = at; at+recordHead > size {
				continue // no head is there: a record leaves room for a wrap behind it
			}
			l.Trim(at)
			for _, n := range []int{0, 1, MaxEdits - 1, MaxEdits, MaxEdits + 1, least - 1} {
				if l.EverFits(n) && !l.Fits(n) {
					t.Fatalf("a ring of %d bytes, empty at %d, has no room for %d edits", size, at, n)
				}
			}
			n := least - 1
			if !l.Fits(n) {
				t.Fatalf("a ring of %d bytes, empty at %d, has no room for %d edits", size, at, n)
			}
			c, _ := l.Claim(n)
			for rest, ok := make([]Edit, n), true; len(rest) > 0; {
				if rest, ok = c.Append(rest, 0); !ok {
					t.Fatalf("a ring of %d bytes, empty at %d, refuses what was claimed", size, at)
				}
			}
			most = max(most, l.Used())
			if l.Used()+8 >= size {
				t.Fatalf("a ring of %d bytes, empty at %d: %d are used", size, at, l.Used())
			}
			if at > 4*maxRecord && at < size-4*maxRecord {
				at += 512
			}
		}
		t.Logf("a ring of %d bytes: up to %d edits at once, %d bytes used", size, least-1, most)
	}
}

// TestLogWithoutPayload: nothing is written, and there is always room.
func TestLogWithoutPayload(t *testing.T) {
	l := newLog(t, Layout{Rows: 1, Pages: 4, LogBytes: MinLogBytes})
	c, ok := l.Claim(1 << 20)
	n := 0
	for rest := make([]Edit, 1<<20); ok && len(rest) > 0; n++ {
		rest, ok = c.Append(rest, 0)
	}
	if !ok || n != 1<<20/MaxEdits || l.Seq() != uint64(n) || l.Used() != 0 || !slices.Equal(ringOf(t, l), make([]byte, MinLogBytes)) {
		t.Errorf("%d records, number %d, %d bytes used, %v", n, l.Seq(), l.Used(), ok)
	}
}

// ringOf reads a log's ring.
func ringOf(t *testing.T, l *Log) []byte {
	t.Helper()
	b := make([]byte, l.Size())
	if err := l.nv.region.ReadLog(0, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEditsAreKept: all fields of an edit come back as they were.
func TestEditsAreKept(t *testing.T) {
	l := newLog(t, Layout{Rows: 1, LogBytes: MinLogBytes, Payload: true})
	want := []Edit{
		{Volume: 1<<32 - 1, State: block.Data, Range: block.Range{Start: 1 << 60, Count: 1<<64 - 1}, Phys: 1<<48 + 5},
		{State: block.Unmapped}, {Volume: 3, State: block.Zero, Range: block.Range{Start: 7, Count: 8}}, {State: block.Anchored},
	}
	c, _ := l.Claim(len(want))
	if _, ok := c.Append(want, 65535); !ok {
		t.Fatal("refused")
	}
	again := NewLog(l.nv)
	var got []Edit
	if err := again.Replay(l.Seq(), func(e Edit, _ bool) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || again.head != l.head || again.Seq() != 1 {
		t.Errorf("%+v, not %+v", got, want)
	}
	if p := recordPages(ringOf(t, again)); p != 65535 {
		t.Errorf("it has %d pages", p)
	}
}

// TestDamagedLogIsRefused: records that must be there and are not are an error that says what is missing.
func TestDamagedLogIsRefused(t *testing.T) {
	for _, row := range []struct {
		what    string
		flushed uint64
		power   bool
		refused bool
	}{
		{"it was flushed", 4, false, true},
		{"it was flushed, and power was lost", 4, true, true},
		{"it was not flushed", 0, false, true}, // the newest record is known
		{"it was not flushed, and power was lost", 0, true, false},
	} {
		l := newLog(t, Layout{Rows: 1, LogBytes: MinLogBytes, Payload: true})
		for range 4 {
			c, _ := l.Claim(1)
			c.Append(make([]Edit, 1), 0)
		}
		l.nv.write(2*recordBytes(1), make([]byte, recordBytes(1)))
		boot := l.nv.region.Boot()
		if row.power {
			boot++
		}
		l.nv.saveState(false, row.flushed, 0, boot)
		again := NewLog(l.nv)
		end, err := again.FindEnd(l.nv.Saved(), row.flushed, false)
		if (err != nil) != row.refused || err == nil && end.Last != 2 {
			t.Errorf("%s: %+v, %v", row.what, end, err)
		}
	}
	l := newLog(t, Layout{Rows: 1, LogBytes: MinLogBytes, Payload: true})
	for _, tail := range []int{-8, MinLogBytes + 8} {
		if l.Start(1, tail) == nil {
			t.Errorf("a log begins at %d", tail)
		}
	}
}
