package blocktest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// Driver runs an executor for the suite.
type Driver interface {
	block.Executor
	// Wait calls start with the executor held and returns when done was called.
	Wait(start func(done func()))
}

// Store runs the contract of block.Store against what open returns. open is
// called again, after the store before was closed, to see what was kept.
func Store(t *testing.T, open func(t *testing.T) (block.Store, Driver)) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) (block.Store, Driver))
	}{
		{"medium/sparse reads zeros", sparseReads},
		{"medium/vectors and boundaries", vectors},
		{"medium/kept", mediumKept},
		{"medium/made and removed", mediumMade},
		{"medium/discard", mediumDiscard},
		{"medium/survey", mediumSurvey},
		{"region/fresh once and kept", regionKept},
		{"meta/order, prefixes, deletes", metaOrder},
		{"meta/point reads, bounded batches", metaBounds},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

func mustClose(t *testing.T, s block.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func transfer(t *testing.T, d Driver, m block.Medium, write bool, off uint64, vec ...[]byte) {
	t.Helper()
	io := &block.IO{Write: write, Off: off, Vec: vec}
	for _, b := range vec {
		io.N += uint64(len(b))
	}
	d.Wait(func(done func()) {
		io.Done = func(*block.IO) { done() }
		m.Submit([]*block.IO{io})
	})
	if io.Err != nil {
		t.Fatal(io.Err)
	}
}

func openMedium(t *testing.T, s block.Store) block.Medium {
	t.Helper()
	m, err := s.Medium("pool.m0", 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	if m.Size() != 8<<20 {
		t.Fatalf("the size is %d", m.Size())
	}
	return m
}

func sparseReads(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	defer mustClose(t, s)
	got := bytes.Repeat([]byte{1}, 8192)
	transfer(t, d, openMedium(t, s), false, 8<<20-8192, got)
	if !bytes.Equal(got, make([]byte, 8192)) {
		t.Error("what was never written is not zero")
	}
}

func vectors(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	defer mustClose(t, s)
	m := openMedium(t, s)
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(i * 31 >> 4)
	}
	// More buffers than one system call takes, across the chunks of any store.
	var vec [][]byte
	for at := 0; at < len(want); at += 1024 {
		vec = append(vec, want[at:at+1024])
	}
	off := uint64(1<<20 - 512)
	transfer(t, d, m, true, off, vec...)
	got := make([]byte, len(want)+1024)
	transfer(t, d, m, false, off-512, got[:700], got[700:])
	if !bytes.Equal(got[512:512+len(want)], want) || !bytes.Equal(got[:512], make([]byte, 512)) || !bytes.Equal(got[512+len(want):], make([]byte, 512)) {
		t.Error("what was read is not what was written, and nothing else")
	}
}

func mediumKept(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	m := openMedium(t, s)
	transfer(t, d, m, true, 4096, []byte("kept"+string(make([]byte, 508))))
	d.Wait(func(done func()) {
		m.Sync(func(err error) {
			if err != nil {
				t.Error(err)
			}
			done()
		})
	})
	mustClose(t, s)
	s, d = open(t)
	got := make([]byte, 512)
	transfer(t, d, openMedium(t, s), false, 4096, got)
	if string(got[:4]) != "kept" {
		t.Errorf("after opening again it holds %q", got[:4])
	}
	if _, err := s.Medium("pool.m0", 4<<20); err == nil {
		t.Error("a medium was opened with another size")
	}
	removeMedium(t, s, d)
	mustClose(t, s)
}

// mediumMade: what MakeMedium makes is empty, whatever was under the name, and RemoveMedium leaves nothing.
func mediumMade(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	defer mustClose(t, s)
	m := openMedium(t, s)
	transfer(t, d, m, true, 4096, []byte("old"+string(make([]byte, 509))))
	removeMedium(t, s, d)
	for _, size := range []uint64{4 << 20, 8 << 20} { // the first one is forgotten, as by a crash
		d.Wait(func(done func()) {
			s.MakeMedium("pool.m0", size, func(err error) {
				if err != nil {
					t.Error(err)
				}
				done()
			})
		})
	}
	found := func(is bool) {
		t.Helper()
		if err := s.FindMedium("pool.m0"); (err == nil) != is {
			t.Errorf("that the medium is there is %v, and looking for it says %v", is, err)
		}
	}
	got := make([]byte, 512)
	transfer(t, d, openMedium(t, s), false, 4096, got)
	if !bytes.Equal(got, make([]byte, 512)) {
		t.Errorf("a new medium holds %q", got[:4])
	}
	found(true)
	for range 2 {
		removeMedium(t, s, d)
		found(false)
	}
}

// mediumSurvey: a medium knows where it has room taken, without reading: all that was written, after the next start, too, and no unit
// that was discarded as a whole.
func mediumSurvey(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	m := openMedium(t, s)
	if x, ok := m.(block.Surveyor); !ok || x.Unit() == 0 {
		mustClose(t, s)
		t.Fatal("it does not know: mdisks of this store would give no room back")
	}
	unit := m.(block.Surveyor).Unit()
	if unit&(unit-1) != 0 || m.Size() < unit {
		t.Fatalf("its unit is %d", unit)
	}
	taken := func(off uint64) (list [][2]uint64) {
		for off < m.Size() {
			d.Wait(func(done func()) {
				m.(block.Surveyor).Survey(off, func(start, end uint64, err error) {
					if err != nil || end < start || end <= off || end > m.Size() {
						t.Fatalf("at %d there is [%d, %d), %v", off, start, end, err)
					}
					if start < end {
						list = append(list, [2]uint64{max(start, off), end})
					}
					off = end
					done()
				})
			})
		}
		return list
	}
	has := func(list [][2]uint64, off, n uint64) bool {
		for _, x := range list {
			if x[0] < off+n && off < x[1] {
				return true
			}
		}
		return false
	}
	if list := taken(0); len(list) > 0 {
		t.Errorf("an empty medium has %v", list)
	}
	data := bytes.Repeat([]byte{7}, 8192)
	last := m.Size() - 8192
	for _, off := range []uint64{4096, unit - 4096, last} {
		transfer(t, d, m, true, off, data)
	}
	for range 2 {
		list := taken(0)
		for _, off := range []uint64{4096, 8192, unit - 4096, unit, last} {
			if !has(list, off, 4096) {
				t.Errorf("what was written at %d is not in %v", off, list)
			}
		}
		if list := taken(last + 4096); !has(list, last+4096, 4096) {
			t.Errorf("from %d on there is %v", last+4096, list)
		}
		d.Wait(func(done func()) { m.Sync(func(error) { done() }) })
		mustClose(t, s)
		s, d = open(t)
		m = openMedium(t, s)
	}
	d.Wait(func(done func()) { m.(block.Discarder).Discard(0, unit, func(error) { done() }) })
	if list := taken(0); has(list, 0, unit) || !has(list, last, 8192) {
		t.Errorf("behind a discard of %d bytes there is %v", unit, list)
	}
	mustClose(t, s)
}

// mediumDiscard: what is discarded reads as zeros, also after the next start, and its neighbours stay; it can be written again.
func mediumDiscard(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	m := openMedium(t, s)
	want := make([]byte, 5<<20)
	for i := range want {
		want[i] = byte(i*37>>3) | 1
	}
	transfer(t, d, m, true, 0, want)
	discarded := uint64(0)
	for _, x := range [][2]uint64{{512, 512}, {4096 - 512, 1024}, {1<<20 - 512, 2<<20 + 1024}, {4 << 20, 1 << 20}, {7 << 20, 4096}} {
		off, n := x[0], x[1]
		d.Wait(func(done func()) {
			m.(block.Discarder).Discard(off, n, func(err error) {
				if err != nil {
					t.Errorf("to discard %d bytes at %d: %v", n, off, err)
				}
				done()
			})
		})
		if discarded += n; off < uint64(len(want)) {
			clear(want[off : off+n])
		}
	}
	if got := m.(block.Discarder).Discarded(); got != discarded {
		t.Errorf("%d bytes were discarded, it says %d", discarded, got)
	}
	transfer(t, d, m, true, 2<<20, want[:1536])
	copy(want[2<<20:], want[:1536])
	for start := range 2 {
		got := make([]byte, len(want))
		transfer(t, d, m, false, 0, got)
		for at := 0; at < len(got); at += 512 {
			if !bytes.Equal(got[at:at+512], want[at:at+512]) {
				t.Fatalf("start %d: the sector at byte %d is not what it should be", start, at)
			}
		}
		if start > 0 {
			break
		}
		d.Wait(func(done func()) { m.Sync(func(error) { done() }) })
		mustClose(t, s)
		s, d = open(t)
		m = openMedium(t, s)
	}
	removeMedium(t, s, d)
	mustClose(t, s)
}

func removeMedium(t *testing.T, s block.Store, d Driver) {
	t.Helper()
	d.Wait(func(done func()) {
		s.RemoveMedium("pool.m0", func(err error) {
			if err != nil {
				t.Error(err)
			}
			done()
		})
	})
}

func regionKept(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	r, fresh, err := s.Region("nvram", testLayout)
	if err != nil || !fresh {
		t.Fatalf("a new region: fresh %v, %v", fresh, err)
	}
	m := r.Memory()
	put := func(p block.Part, off int, text string) {
		if !r.Local() {
			r.Announce(p, off, len(text))
		}
		copy(m.Part(p)[off:], text)
	}
	put(block.PartPages, testLayout.Pages-4, "page")
	put(block.PartDescriptors, 8, "described")
	r.Append(testLog-5, []byte("log it"[:5]))
	put(block.PartState, 777, "kept")
	copy(m.Counters[testLayout.Counters-8:], "counted!")
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	d.Wait(func(done func()) { r.Commit(func(err error) { must(err); done() }) })
	d.Wait(func(done func()) { r.Flush(func(err error) { must(err); done() }) })
	mustClose(t, s)
	s, _ = open(t)
	if r, fresh, err = s.Region("nvram", testLayout); err != nil || fresh {
		t.Fatalf("opened again: fresh %v, %v", fresh, err)
	}
	m = r.Memory()
	log := make([]byte, 5)
	must(r.ReadLog(testLog-5, log))
	for part, got := range map[string][]byte{"page": m.Pages[testLayout.Pages-4:], "described": m.Descriptors[8:17], "log i": log, "kept": m.State[777:781],
		"counted!": m.Counters[testLayout.Counters-8:]} {
		if string(got) != part {
			t.Errorf("opened again, it holds %q, not %q", got, part)
		}
	}
	mustClose(t, s)
	s, _ = open(t)
	l := testLayout
	l.Log *= 2
	if _, _, err := s.Region("nvram", l); !errors.Is(err, block.ErrSize) {
		t.Errorf("a region was opened with another size: %v", err)
	}
	mustClose(t, s)
}

func metaOrder(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	d.Wait(func(done func()) {
		for i := range 10 {
			m.Commit([]block.KV{
				{Key: fmt.Appendf(nil, "n%d", 9-i), Value: []byte{byte(i)}},
				{Key: []byte("last"), Value: []byte{byte(i)}},
			}, func(err error) {
				if err != nil {
					t.Error(err)
				}
				if order = append(order, i); i == 9 {
					done()
				}
			})
		}
	})
	for i, n := range order {
		if i != n {
			t.Fatalf("commits ended in the order %v", order)
		}
	}
	if err := m.CommitNow([]block.KV{{Key: []byte("n5")}, {Key: []byte("m"), Value: nil}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	s, _ = open(t)
	if m, err = s.Meta(); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := m.Load([]byte("n"), func(k, v []byte) error { got += fmt.Sprintf("%s=%d ", k, v[0]); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "n0=9 n1=8 n2=7 n3=6 n4=5 n6=3 n7=2 n8=1 n9=0 "; got != want {
		t.Errorf("the prefix holds %s, not %s", got, want)
	}
	mustClose(t, s)
}

// metaBounds: a key is found without its neighbours, and a batch of more than the limit is refused as a whole.
func metaBounds(t *testing.T, open func(*testing.T) (block.Store, Driver)) {
	s, d := open(t)
	defer mustClose(t, s)
	m, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CommitNow([]block.KV{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("ab"), Value: []byte{}}, {Key: []byte("b"), Value: []byte("2")}}); err != nil {
		t.Fatal(err)
	}
	get := func(key, want string, is bool) {
		t.Helper()
		v, err := m.Get([]byte(key))
		if err != nil || string(v) != want || (v != nil) != is {
			t.Errorf("%s is %q, %v", key, v, err)
		}
		for i := range v { // it is the caller's
			v[i] = 'x'
		}
	}
	for range 2 {
		get("a", "1", true)
		get("ab", "", true)
		get("b", "2", true)
		get("abc", "", false)
	}
	// The values of the batch are one piece of memory.
	value := make([]byte, 1<<20)
	batch := []block.KV{{Key: []byte("a")}}
	for n := 0; n <= m.Limit(); n += len(value) {
		batch = append(batch, block.KV{Key: fmt.Appendf(nil, "large %d", n), Value: value})
	}
	if err := m.CommitNow(batch); !errors.Is(err, block.ErrBatch) {
		t.Errorf("a batch above the limit: %v", err)
	}
	d.Wait(func(done func()) {
		m.Commit(batch, func(err error) {
			if !errors.Is(err, block.ErrBatch) {
				t.Errorf("a batch above the limit: %v", err)
			}
			done()
		})
	})
	get("a", "1", true)
	get("large 0", "", false)
	if m.Limit() < 16<<20 {
		t.Errorf("the limit is %d bytes", m.Limit())
	}
}
