package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// withPages returns a store of two pages, their entries, and another key, whose pages are verified by parts.
func withPages(t *testing.T) *fake {
	t.Helper()
	f := &fake{kv: map[string][]byte{}, exec: &block.Virtual{}, limit: 1 << 20}
	l := New(f, f.exec, Hooks{})
	var batch []block.KV
	for _, k := range []string{"1", "2"} {
		page := []byte("the page " + k)
		batch = append(batch, block.KV{Key: []byte("n" + k), Value: page},
			block.KV{Key: []byte("l" + k), Value: append(binary.LittleEndian.AppendUint32(nil, checksumOf(page)), "more"...)})
	}
	if err := l.CommitNow(append(batch, block.KV{Key: []byte("o"), Value: []byte("objects")})); err != nil {
		t.Fatal(err)
	}
	if n := len(f.kv[keyGen]); n != genBytes2 {
		t.Errorf("before all pages have entries the number has %d bytes", n)
	}
	l.VerifyByParts()
	if err := l.CommitNow(nil); err != nil || len(f.kv[keyGen]) != genBytes3 {
		t.Errorf("behind that it has %d bytes, %v", len(f.kv[keyGen]), err)
	}
	return f
}

// startParts loads all but pages, and one page if it is to.
func startParts(f *fake, page bool) (l *Ledger, err error) {
	l = New(f, f.exec, Hooks{})
	if parts, err := l.Parts(); err != nil || !parts {
		return nil, errors.Join(err, errors.New("pages are not verified by parts"))
	}
	for _, prefix := range []string{"l", "o", "n1"} {
		if prefix == "n1" && !page {
			continue
		}
		if err := l.Load(prefix, func(_, _ []byte) error { return nil }); err != nil {
			return nil, err
		}
	}
	return l, l.Check(2, false)
}

// TestParts: a start reads the pages that it needs, and each page that is read is verified.
func TestParts(t *testing.T) {
	for _, page := range []bool{false, true} {
		l, err := startParts(withPages(t), page)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := l.ReadNow([]byte("n2")); err != nil || string(v) != "the page 2" {
			t.Errorf("page 2 reads %q, %v", v, err)
		}
		if _, err := l.ReadNow([]byte("n3")); err == nil {
			t.Error("a page is read that there is not")
		}
	}
	f := withPages(t)
	l, _ := startParts(f, false)
	change := []block.KV{{Key: []byte("n1"), Value: []byte("another")}, {Key: []byte("l1"), Value: binary.LittleEndian.AppendUint32(nil, checksumOf([]byte("another")))},
		{Key: []byte("n2")}, {Key: []byte("l2")}}
	if err := l.CommitNow(change); err != nil {
		t.Fatal(err)
	}
	if l, err := startParts(f, true); err != nil || verify(f, 3) != nil {
		t.Errorf("behind a change of pages that were not read: %v, %v", err, verify(f, 3))
	} else if _, err := l.ReadNow([]byte("n2")); err == nil {
		t.Error("a page is read that was removed")
	}
}

// TestDamagedParts: what is damaged is found when it is read, and all of it by a check.
func TestDamagedParts(t *testing.T) {
	for what, damage := range map[string]func(f *fake){
		"a page":             func(f *fake) { f.kv["n1"][3]++ },
		"a page is gone":     func(f *fake) { delete(f.kv, "n1") },
		"an entry":           func(f *fake) { f.kv["l1"][0]++ },
		"an entry is gone":   func(f *fake) { delete(f.kv, "l1") },
		"what an entry says": func(f *fake) { f.kv["l1"][5]++ },
		"objects":            func(f *fake) { f.kv["o"][0]++ },
		"a page too much":    func(f *fake) { f.kv["n9"] = []byte("page") },
	} {
		f := withPages(t)
		damage(f)
		if verify(f, 2) == nil {
			t.Errorf("%s: a check finds nothing", what)
		}
		l, err := startParts(f, false)
		if page := what == "a page" || what == "a page is gone" || what == "a page too much"; page != (err == nil) {
			t.Errorf("%s: a start without pages: %v", what, err)
		}
		if err == nil && what != "a page too much" {
			if _, err := l.ReadNow([]byte("n1")); !errors.Is(err, errEntry) {
				t.Errorf("%s is read: %v", what, err)
			}
		}
	}
}

// choosing is a pair of which the chosen copy is loaded.
type choosing struct{ *pair }

func (c choosing) Load(prefix []byte, fn func(key, value []byte) error) error {
	return c.of(c.chosen).Load(prefix, fn)
}

// TestSuspectCopy: a copy of which a page was damaged that was read is said to be so with the next batch, and the next start
// reads all of each copy and takes the whole one, once.
func TestSuspectCopy(t *testing.T) {
	for _, now := range []bool{true, false} {
		one, two := withPages(t), withPages(t)
		p := choosing{&pair{fake: one, other: two}}
		l, err := startParts(one, false)
		if err != nil {
			t.Fatal(err)
		}
		l.store = p
		one.kv["n2"] = []byte("damage")
		if now {
			_, err = l.ReadNow([]byte("n2"))
		} else {
			l.Read([]byte("n2"), func(_ []byte, e error) { err = e })
			for one.exec.Step() || two.exec.Step() {
			}
		}
		if err != nil || !l.seen {
			t.Fatalf("read now %v: %v, suspect %v", now, err, l.seen)
		}
		for i := range 2 {
			if err := p.of(i).CommitNow(l.seal(l.mark([]block.KV{{Key: []byte("o"), Value: []byte("more")}}))); err != nil {
				t.Fatal(err)
			}
			l.gen, l.marked = l.gen-1, false // the same batch for the other copy
		}
		opened := []int{}
		again, err := FromBest(p, func() Known { return Known{Some: true} }, func(damaged []error, _ error) (*Ledger, error) {
			opened = append(opened, p.chosen)
			if damaged[0] == nil || damaged[1] != nil {
				t.Errorf("damaged: %v", damaged)
			}
			l, err := startParts(p.of(p.chosen), false)
			return l, err
		})
		if err != nil || fmt.Sprint(opened) != "[1]" || !again.marked {
			t.Fatalf("read now %v: copies %v are opened: %v", now, opened, err)
		}
		again.store = two
		if err := again.CommitNow(nil); err != nil || two.kv[keySuspect] != nil || again.marked {
			t.Errorf("it is suspect still: %v, %v", err, two.kv[keySuspect])
		}
		if l, err := startParts(two, true); err != nil || l.marked {
			t.Errorf("behind that: %v", err)
		}
	}
}

// damagedOnce has each copy say that one is damaged, and damages a page of each, another one.
func damagedOnce(t *testing.T, start func(*fake, bool) (*Ledger, error), copies ...*fake) {
	t.Helper()
	for i, f := range copies {
		l, err := start(f, false)
		if err != nil {
			t.Fatal(err)
		}
		l.seen = true
		if err := l.CommitNow(nil); err != nil {
			t.Fatal(err)
		}
		f.kv[fmt.Sprint("n", i+1)] = []byte("damage")
	}
}

// TestEachCopyIsSuspect: where each copy has a damaged page that another one has, a start takes the newest as it is, and knows what both
// are. All that there is can still be read.
func TestEachCopyIsSuspect(t *testing.T) {
	one, two := withPages(t), withPages(t)
	damagedOnce(t, startParts, one, two)
	p := choosing{&pair{fake: one, other: two}}
	l, err := FromBest(p, func() Known { return Known{Some: true} }, func(damaged []error, _ error) (*Ledger, error) {
		l, err := startParts(p.of(p.chosen), false)
		if l != nil {
			l.Mistrust(damaged)
		}
		return l, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if one, each := l.Damaged(); !one || !each {
		t.Errorf("a copy is damaged: %v, each is: %v", one, each)
	}
	l.store = p
	for _, key := range []string{"n1", "n2"} {
		if v, err := l.ReadNow([]byte(key)); err != nil || string(v) != "the page "+key[1:] {
			t.Errorf("page %s reads %q, %v", key, v, err)
		}
	}
}

// renewing is choosing whose copies are made anew.
type renewing struct{ choosing }

func (r renewing) Renew(i int, _ error, entries func(func(key, value []byte) error) error) {
	kv := map[string][]byte{}
	if err := entries(func(k, v []byte) error {
		kv[string(k)] = bytes.Clone(v)
		return nil
	}); err != nil {
		panic(err)
	}
	r.of(i).kv = kv
}

func (r renewing) CommitNow(batch []block.KV) error {
	return errors.Join(r.of(0).CommitNow(batch), r.of(1).CommitNow(batch))
}

// TestRescuedPage: the newer copy has a page that is damaged, and nobody has read it; the older one, which is made anew, has it
// as it was. It is not lost.
func TestRescuedPage(t *testing.T) {
	one, two := withPages(t), withPages(t)
	l, err := startParts(one, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.CommitNow([]block.KV{{Key: []byte("o"), Value: []byte("newer")}}); err != nil { // and then the process died
		t.Fatal(err)
	}
	one.kv["n2"] = []byte("damage")
	delete(one.kv, "n1")
	if l, err = startParts(one, false); err != nil {
		t.Fatal(err)
	}
	l.store = renewing{choosing{&pair{fake: one, other: two}}}
	if err := l.SettleCopies(); err != nil {
		t.Fatal(err)
	}
	for i, f := range []*fake{one, two} {
		if string(f.kv["n2"]) != "the page 2" || string(f.kv["n1"]) != "the page 1" || string(f.kv["o"]) != "newer" {
			t.Errorf("copy %d has %q, %q and %q", i, f.kv["n2"], f.kv["n1"], f.kv["o"])
		}
		if err := verify(f, l.gen); err != nil {
			t.Errorf("copy %d: %v", i, err)
		}
	}
}

// withAccount is withPages and an account of space.
func withAccount(t *testing.T) *fake {
	t.Helper()
	f := withPages(t)
	l, err := startParts(f, false)
	if err == nil {
		err = l.CommitNow([]block.KV{{Key: []byte("a1"), Value: []byte("account")}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startAccount loads all but pages.
func startAccount(f *fake, derived bool) (*Ledger, error) {
	l := New(f, f.exec, Hooks{})
	if _, err := l.Parts(); err != nil {
		return nil, err
	}
	for _, prefix := range []string{"a", "l", "o"} {
		if err := l.Load(prefix, func(_, _ []byte) error { return nil }); err != nil {
			return nil, err
		}
	}
	return l, l.Check(2, derived)
}

// TestDamagedAccount: a start takes the copy whose account is whole, and derives it if there is none, be there copies or not.
func TestDamagedAccount(t *testing.T) {
	for n := range 8 {
		all := []*fake{withAccount(t), withAccount(t)}
		for i, f := range all {
			if n>>i&1 != 0 {
				f.kv["a1"] = []byte("damage")
				if verify(f, 0) == nil {
					t.Errorf("case %d: a check of copy %d finds nothing", n, i)
				}
			}
		}
		p := choosing{&pair{fake: all[0], other: all[1]}}
		var store block.MetaStore = p
		if n&4 != 0 {
			store = all[0]
		}
		var tries []string
		l, err := FromBest(store, func() Known { return Known{Some: true} }, func(damaged []error, wrong error) (*Ledger, error) {
			bad := []bool{}
			for _, err := range damaged {
				bad = append(bad, err != nil)
			}
			tries = append(tries, fmt.Sprint(p.chosen, bad, wrong != nil))
			return startAccount(p.of(p.chosen), wrong != nil)
		})
		if err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
		want := []string{
			"[0 [false false] false]", "[0 [false false] false 1 [true false] false]", "[0 [false false] false]",
			"[0 [false false] false 1 [true false] false 0 [false true] true]",
			"[0 [] false]", "[0 [] false 0 [] true]", "[0 [] false]", "[0 [] false 0 [] true]",
		}[n]
		if got := fmt.Sprint(tries); got != want {
			t.Errorf("case %d: tries %s, not %s", n, got, want)
		}
		if l.derived {
			if err := l.CommitNow([]block.KV{{Key: []byte("a1"), Value: []byte("derived")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := startAccount(p.of(p.chosen), false); err != nil {
				t.Errorf("case %d: behind a batch: %v", n, err)
			}
		}
	}
}

// TestAccountOfEitherSuspect: where both copies have damaged pages, and the newest has a damaged account, a start takes the account of the
// other one: it need not read all pages, of which neither may have each.
func TestAccountOfEitherSuspect(t *testing.T) {
	all := []*fake{withAccount(t), withAccount(t)}
	damagedOnce(t, startAccount, all...)
	all[0].kv["a1"] = []byte("damage")
	p := choosing{&pair{fake: all[0], other: all[1]}}
	_, err := FromBest(p, func() Known { return Known{Some: true} }, func(damaged []error, wrong error) (*Ledger, error) {
		if wrong != nil {
			t.Error("the account is to be derived")
		}
		return startAccount(p.of(p.chosen), wrong != nil)
	})
	if err != nil || p.chosen != 1 {
		t.Errorf("copy %d is open: %v", p.chosen, err)
	}
}

// TestSuspectCopyBesideAnOlderOne: the newest copy says that it is damaged, and the other one, which does not, lacks batches. The
// newest one is taken: most of it can be read.
func TestSuspectCopyBesideAnOlderOne(t *testing.T) {
	for newest := range 2 {
		all := []*fake{withPages(t), withPages(t)}
		l, err := startParts(all[newest], false)
		if err != nil {
			t.Fatal(err)
		}
		l.seen = true
		if err := l.CommitNow([]block.KV{{Key: []byte("o"), Value: []byte("newer")}}); err != nil {
			t.Fatal(err)
		}
		all[newest].kv["n2"] = []byte("damage")
		p := choosing{&pair{fake: all[0], other: all[1]}}
		last := l.gen
		l, err = FromBest(p, func() Known { return Known{Least: last, Some: true} }, func(damaged []error, _ error) (*Ledger, error) {
			if p.chosen == newest && (!isTorn(damaged[newest]) || damaged[1-newest] == nil || isTorn(damaged[1-newest])) {
				t.Errorf("copies are to be made anew: %v", damaged)
			}
			l, err := startParts(p.of(p.chosen), false)
			if err == nil {
				l.Mistrust(damaged)
				err = l.Check(last, false)
			}
			return l, err
		})
		if err != nil || p.chosen != newest {
			t.Errorf("copy %d of which %d is the newest: %v", p.chosen, newest, err)
			continue
		}
		if one, each := l.Damaged(); !one || !each {
			t.Errorf("the only copy that is new is damaged: %v, %v", one, each)
		}
		if v, err := l.ReadNow([]byte("n1")); err != nil || string(v) != "the page 1" {
			t.Errorf("a page reads %q, %v", v, err)
		}
	}
}
