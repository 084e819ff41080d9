package array

import (
	"errors"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// badSectors are sectors of mdisks that fail to be read, and say which or not.
type badSectors struct{ sums, silent map[uint64]bool }

func (s *badSectors) submit(m block.Medium, ios []*block.IO) {
	for _, io := range ios {
		done := io.Done
		io.Done = func(io *block.IO) {
			io.Done = done
			if io.Err == nil && !io.Write {
				io.Err = s.errorOf(io)
			}
			done(io)
		}
	}
	m.Submit(ios)
}

func (s *badSectors) errorOf(io *block.IO) error {
	bad := &block.ChecksumError{Medium: "m"}
	for at := (io.Off + io.N) / 512; at > io.Off/512; at-- { // in no order that helps
		if s.silent[at-1] {
			return errors.New("unreadable")
		}
		if s.sums[at-1] {
			bad.Sectors = append(bad.Sectors, at-1)
			bad.Sums = append(bad.Sums, 0)
		}
	}
	if len(bad.Sectors) == 0 {
		return nil
	}
	return bad
}

// TestFirstBadSector: a read or compare that meets bad sectors says where the first is, if that is known.
func TestFirstBadSector(t *testing.T) {
	for _, c := range []struct {
		name         string
		sums, silent []uint64 // sectors of the volume
		at           int64    // the first bad one, -1: unknown
	}{
		{"one checksum", []uint64{37}, nil, 37},
		{"several checksums", []uint64{200, 41, 90}, nil, 41},
		{"an error of an unknown place", nil, []uint64{50}, -1},
		{"one behind a known one", []uint64{13}, []uint64{1000}, 13},
		{"one before a known one", []uint64{1000}, []uint64{13}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &badSectors{sums: map[uint64]bool{}, silent: map[uint64]bool{}}
			r := hookedRig(t, Options{}, s.submit)
			r.pool("p", PoolSpec{}, 64<<20)
			v := r.volume("v", "p", 1<<20, true)
			// Not as they lie on the mdisk: the second half was written first.
			r.do(v, write(512, 1536))
			r.do(v, write(0, 512))
			r.clock.RunUntil(r.clock.Now() + 60e9)
			for _, at := range c.sums {
				_, off, _ := v.Pool().Alloc.Locate(physOf(t, v, at))
				s.sums[off/512] = true
			}
			for _, at := range c.silent {
				_, off, _ := v.Pool().Alloc.Locate(physOf(t, v, at))
				s.silent[off/512] = true
			}
			for _, q := range []*block.Request{
				{Op: block.OpRead, Range: rng(8, 1400), Data: [][]byte{make([]byte, 1400*512)}},
				{Op: block.OpOrWrite, Range: rng(8, 1400), Data: [][]byte{make([]byte, 1400*512)}},
				{Op: block.OpRead, Range: rng(8, 1400), Data: [][]byte{make([]byte, 1400*512)}}, // known from before
			} {
				if got := r.do(v, q); got != block.MediumRead {
					t.Fatalf("%v ended %v", q.Op, got)
				}
				got := int64(-1)
				if q.Located {
					got = int64(8 + q.Offset/512)
				}
				if got != c.at {
					t.Errorf("%v: the first bad sector is said to be %d, and is %d", q.Op, got, c.at)
				}
			}
		})
	}
}

// TestAbortBehindAStuckMdisk: what is cancelled while an mdisk does not answer ends in time for open-iscsi,
// which waits 15 s for the answer to an abort; an mdisk that answers slowly is waited for.
func TestAbortBehindAStuckMdisk(t *testing.T) {
	const n, soon = 1024, 7_500_000_000
	sector := make([]byte, 512)
	for name, newRequest := range map[string]func(r *rig, v, w *Volume) *block.Request{
		"read": func(*rig, *Volume, *Volume) *block.Request {
			return &block.Request{Op: block.OpRead, Range: rng(0, n), Data: [][]byte{make([]byte, n*512)}}
		},
		"compare and write": func(*rig, *Volume, *Volume) *block.Request {
			return &block.Request{Op: block.OpCompareWrite, Range: rng(7, 1), Compare: [][]byte{sector}, Data: [][]byte{sector}}
		},
		"or": func(*rig, *Volume, *Volume) *block.Request {
			return &block.Request{Op: block.OpOrWrite, Range: rng(7, 1), Data: [][]byte{sector}}
		},
		"place": func(r *rig, _, w *Volume) *block.Request {
			h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, n)}}
			r.do(w, h)
			r.t.Cleanup(h.Ref.Release)
			return &block.Request{Op: block.OpPlace, Range: rng(0, n), Ref: h.Ref, Origin: block.OriginXCopy}
		},
		"write through": func(r *rig, v, _ *Volume) *block.Request {
			v.Pool().SetWriteMode(FlushThrough)
			return write(0, 8)
		},
		"write through of more than the cache": func(r *rig, v, _ *Volume) *block.Request {
			v.Pool().SetWriteMode(FlushThrough)
			return write(0, 8192)
		},
		"write of more than the cache": func(*rig, *Volume, *Volume) *block.Request { return write(0, 8192) },
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/slow=%v", name, slow), func(t *testing.T) {
				r, s := stuckRig(t, Options{CacheBytes: 1 << 20, LogBytes: 64 << 10})
				r.pool("p", PoolSpec{}, 64<<20)
				r.pool("q", PoolSpec{}, 64<<20)
				v, w := r.volume("v", "p", 16<<20, true), r.volume("w", "q", 16<<20, true)
				r.do(v, write(0, n))
				r.do(w, write(0, n))
				r.clock.RunUntil(r.clock.Now() + 60e9)
				s.stuck = true
				q := newRequest(r, v, w)
				ended := int64(0)
				q.Done = func(*block.Request) { ended = r.clock.Now() }
				v.Submit([]*block.Request{q})
				r.clock.RunUntil(r.clock.Now() + 1e9)
				if ended != 0 {
					t.Fatalf("it ended by itself: %v", q.Status)
				}
				at := r.clock.Now()
				v.Cancel(q)
				if slow {
					r.clock.RunUntil(at + 2e9)
					s.answer()
				}
				r.clock.RunUntil(at + 15e9)
				if ended == 0 || ended-at > soon {
					t.Errorf("the abort is answered after %d ms", (ended-at)/1e6)
				}
				s.answer()
				r.clock.RunUntil(r.clock.Now() + 60e9)
				r.check()
				if what := r.a.engine.Leftover(); what != "" || r.a.back.WaitedFor() != 0 {
					t.Errorf("%s; %d reads are left", what, r.a.back.WaitedFor())
				}
			})
		}
	}
}
