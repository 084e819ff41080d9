package array

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/array/account"
	"github.com/arraysim/arraysim/internal/array/alloc"
	"github.com/arraysim/arraysim/internal/block"
)

// accountRig has a volume with data that a checkpoint has, and the grain of its beginning.
func accountRig(t *testing.T) (r *rig, v *Volume, grain uint64) {
	t.Helper()
	r = newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v = r.volume("v", "p", 40<<20, true) // it ends in another leaf
	mustOK(t, r.do(v, stamped(rng(0, 1000), 1)))
	grain = ^uint64(0)
	for g := range uint64(64) {
		if v.Pool().Alloc.MapRefs(g) > 0 {
			grain = min(grain, g)
		}
	}
	return r, v, grain
}

// storeMaps has a checkpoint written.
func (r *rig) storeMaps(v *Volume) {
	r.t.Helper()
	mustOK(r.t, r.do(v, stamped(rng(2000, 8), 1)))
	r.a.checkpoint(true)
	r.clock.Run()
}

// TestWrongAccountIsDerived: where a check finds that the account of space is wrong, which is stored as it is, the next start
// derives it from all leaves.
func TestWrongAccountIsDerived(t *testing.T) {
	r, v, grain := accountRig(t)
	r.a.arena.Account().Has(v.ID(), grain)
	v.Pool().Alloc.Retain(grain)
	r.storeMaps(v)
	r.crash()
	if len(r.a.Check(true).Problems) == 0 {
		t.Fatal("a check finds nothing")
	}
	r.storeMaps(r.a.Volume("v"))
	r.crash()
	r.check()
	if got := r.a.Recovery(); got.PagesRead != got.MapPages {
		t.Errorf("of %d pages %d were read", got.MapPages, got.PagesRead)
	}
	r.crash()
	r.check()
	if got := r.a.Recovery(); got.PagesRead == got.MapPages {
		t.Errorf("all %d pages were read again", got.MapPages)
	}
}

// TestLostPageWhereAllAreRead: a start that reads all leaves, because the account is not known to be right, finds that one is
// gone, which the digest does not cover.
func TestLostPageWhereAllAreRead(t *testing.T) {
	r, v, _ := accountRig(t)
	r.a.arena.Account().Unsure()
	r.storeMaps(v)
	meta, err := r.store.Meta()
	mustDo(t, err)
	var leaf []byte
	mustDo(t, meta.Load([]byte("n"), func(key, _ []byte) error {
		if key[5] == 0 {
			leaf = append([]byte(nil), key...)
		}
		return nil
	}))
	mustDo(t, meta.CommitNow([]block.KV{{Key: leaf}}))
	clock := &block.Virtual{}
	opt := r.opt
	opt.Exec, opt.Store = clock, r.store.Clone(clock)
	if _, err := Open(opt); err == nil || !strings.Contains(err.Error(), "1 map pages are missing") {
		t.Errorf("it opens: %v", err)
	}
}

// accountKeys returns the keys of the entries of the account of space.
func (r *rig) accountKeys() (meta block.MetaStore, keys [][]byte) {
	r.t.Helper()
	meta, err := r.store.Meta()
	if err == nil {
		err = meta.Load([]byte(account.Prefix), func(key, _ []byte) error {
			keys = append(keys, bytes.Clone(key))
			return nil
		})
	}
	if err != nil || len(keys) == 0 {
		r.t.Fatalf("the account has %d entries: %v", len(keys), err)
	}
	return meta, keys
}

// derives starts the array anew, which derives the account from all pages, and again, which does not.
func (r *rig) derives(v string, g block.Range, stamp uint64) {
	r.t.Helper()
	for n := range 2 {
		r.crash()
		r.check()
		if why := r.a.Recovery().Derived; (why != "") != (n == 0) {
			r.t.Errorf("start %d: why the account was derived: %q", n, why)
		}
		if !r.reads(r.a.Volume(v), g, stamp) {
			r.t.Errorf("start %d: the data is another one", n)
		}
	}
}

// TestDamagedAccountIsDerived: whatever the account of space is in the store, a start opens the array.
func TestDamagedAccountIsDerived(t *testing.T) {
	for what, damage := range map[string]func(key, value []byte) []block.KV{
		"a bit":                func(k, v []byte) []block.KV { v[1] ^= 2; return []block.KV{{Key: k, Value: v}} },
		"it is cut":            func(k, v []byte) []block.KV { return []block.KV{{Key: k, Value: v[:5]}} },
		"it is gone":           func(k, v []byte) []block.KV { return []block.KV{{Key: k}} },
		"behind the pool":      func(k, v []byte) []block.KV { k[3] = 9; return []block.KV{{Key: k, Value: v}} },
		"a key that is no key": func(k, v []byte) []block.KV { return []block.KV{{Key: k[:4], Value: v}} },
		"of no pool":           func(k, v []byte) []block.KV { k[1] = 9; return []block.KV{{Key: k, Value: v}} },
	} {
		t.Run(what, func(t *testing.T) {
			r, v, _ := accountRig(t)
			r.storeMaps(v)
			meta, keys := r.accountKeys()
			value, err := meta.Get(keys[0])
			mustDo(t, err)
			mustDo(t, meta.CommitNow(damage(keys[0], bytes.Clone(value))))
			r.derives("v", rng(0, 1000), 1)
		})
	}
}

// TestDerivationDies: a process that dies while it stores the account that it has derived leaves one that the next start
// does not use.
func TestDerivationDies(t *testing.T) {
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{}, 40<<30) // of more extents than a step looks at
	v := r.volume("v", "p", 40<<20, true)
	mustOK(t, r.do(v, stamped(rng(0, 1000), 1)))
	r.storeMaps(v)
	meta, keys := r.accountKeys()
	mustDo(t, meta.CommitNow([]block.KV{{Key: keys[0], Value: []byte("damage")}}))
	deaths, derived := 0, 0
	for batches := 0; ; batches++ {
		clock := &block.Virtual{}
		st := r.store.Clone(clock)
		opt := r.opt
		opt.Exec, opt.Store, opt.CheckpointBytes = clock, &dyingStore{Store: st, left: batches}, 1
		_, err := Open(opt)
		if !errors.Is(err, errDied) {
			mustDo(t, err)
			break
		}
		deaths++
		left := *r
		left.clock, left.store = clock, st
		left.crash()
		left.check()
		if left.a.Recovery().Derived != "" {
			derived++
		}
		if !left.reads(left.a.Volume("v"), rng(0, 1000), 1) {
			t.Errorf("behind %d batches the data is another one", batches)
		}
	}
	if derived < 2 || derived == deaths {
		t.Errorf("%d deaths, and the account is derived behind %d: the test shows too little", deaths, derived)
	}
}

// TestMiscountedAccount: an account that is wrong, and stored as it is, as a defect of the program would leave it. The array that
// meets it says so, and does not die of what is only in the account; the next start derives it.
func TestMiscountedAccount(t *testing.T) {
	lacking := func(t *testing.T) (*rig, *Volume, uint64) {
		r, v, grain := accountRig(t)
		r.storeMaps(v)
		r.a.arena.Account().Lost(v.ID(), grain)
		r.storeMaps(v)
		return r, v, grain
	}
	t.Run("while it runs", func(t *testing.T) {
		r, v, _ := lacking(t)
		mustOK(t, r.do(v, stamped(rng(0, 1000), 2)))
		mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 1000)}}))
		r.storeMaps(v)
		mustOK(t, r.do(v, stamped(rng(0, 1000), 2)))
		if p := r.a.Check(true).Problems; len(p) != 1 || !strings.Contains(p[0], "lacks a reference") {
			t.Errorf("a check says %q", p)
		}
		r.derives("v", rng(0, 1000), 2)
	})
	t.Run("in replay", func(t *testing.T) {
		r, v, _ := lacking(t)
		mustOK(t, r.do(v, stamped(rng(5000, 1000), 2)))
		mustOK(t, r.do(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{rng(0, 1000)}}))
		r.derives("v", rng(5000, 1000), 2)
	})
	t.Run("and the process dies", func(t *testing.T) {
		r, v, grain := lacking(t)
		func() {
			defer func() {
				if _, ok := recover().(alloc.Miscount); !ok {
					t.Error("it goes on")
				}
			}()
			v.Pool().Alloc.Release(grain) // as an edit would that gives back what the account lacks
			v.Pool().Alloc.Release(grain)
		}()
		r.derives("v", rng(0, 1000), 1)
	})
}

// TestStoredAccountIsCompared: a check of an array that is not served finds that the account in its metadata says something else
// than the pages of maps there, be the counts in memory as they should; the next start derives it.
func TestStoredAccountIsCompared(t *testing.T) {
	r, v, grain := accountRig(t)
	r.storeMaps(v)
	if lines := r.a.CheckCopies(); len(lines) > 0 {
		t.Fatalf("of an account that is right it says %q", lines)
	}
	r.a.arena.Account().Has(v.ID(), grain)
	r.storeMaps(v)
	r.check() // what the array counts is right
	lines := r.a.CheckCopies()
	if want := fmt.Sprintf("space: pool p: the account in the metadata differs from the pages of maps on 1 grains; of grain %d it has 2 references, and they have 1; the next start derives it", grain); len(lines) != 1 || lines[0] != want {
		t.Errorf("it says %q, not %q", lines, want)
	}
	stopped := false
	r.a.Stop(func(err error) { mustDo(t, err); stopped = true })
	if r.clock.RunUntil(r.clock.Now() + 60e9); !stopped {
		t.Fatal("it does not stop")
	}
	r.derives("v", rng(0, 1000), 1)
	if lines := r.a.CheckCopies(); len(lines) > 0 {
		t.Errorf("behind that it says %q", lines)
	}
}
