package array

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// countingStore counts the mdisks that are there, and fails to open one of a name.
type countingStore struct {
	block.Store
	open map[string]bool
	bad  string
}

func (s *countingStore) Medium(name string, size uint64) (block.Medium, error) {
	if name == s.bad {
		return nil, errors.New("no more descriptors")
	}
	m, err := s.Store.Medium(name, size)
	if err == nil {
		s.open[name] = true
	}
	return m, err
}

func (s *countingStore) RemoveMedium(name string, done func(error)) {
	delete(s.open, name)
	s.Store.RemoveMedium(name, done)
}

// TestPoolsThatCannotBeMade: more mdisks than an extent's number can tell apart are refused before one is opened, and of a
// pool with an mdisk that cannot be opened nothing stays.
func TestPoolsThatCannotBeMade(t *testing.T) {
	r := newRig(t, Options{}, true)
	s := &countingStore{Store: r.store, open: map[string]bool{}}
	opt := r.opt
	opt.Exec, opt.Store = r.clock, s
	a, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	create := func(mdisks int) (err error) {
		spec := PoolSpec{Name: "p"}
		for i := range mdisks {
			spec.Mdisks = append(spec.Mdisks, MdiskSpec{Name: fmt.Sprintf("m%d", i), Size: extentBytes})
		}
		a.CreatePool(spec, func(_ *Pool, e error) { err = e })
		r.clock.Run()
		return err
	}
	if err := create(4097); err == nil || !strings.Contains(err.Error(), "4096") || len(s.open) != 0 {
		t.Errorf("4097 mdisks: %v, %d are open", err, len(s.open))
	}
	s.bad = "p.m7"
	if err := create(20); err == nil || len(s.open) != 0 || a.Pool("p") != nil {
		t.Errorf("an mdisk that cannot be opened: %v, %d are open", err, len(s.open))
	}
	s.bad = ""
	if err := create(4096); err != nil || len(s.open) != 4096 {
		t.Fatalf("4096 mdisks: %v, %d are open", err, len(s.open))
	}
	// Each extent lies on an mdisk of its own.
	p, seen := a.Pool("p"), map[int]bool{}
	for e := range uint64(4096) {
		md, off, _ := p.Alloc.Locate(e * extentSectors)
		if seen[md] || off != 0 {
			t.Fatalf("extent %d is on mdisk %d, as another is", e, md)
		}
		seen[md] = true
	}
}
