//go:build rados && linux

package rados_test

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// BenchmarkCluster is what the store makes of a real cluster of one OSD in memory: transfers of an mdisk at depth 32,
// and commits of one page each, one at a time and 32.
func BenchmarkCluster(b *testing.B) {
	cfg := startCluster(b)
	for _, size := range []int{4096, 256 << 10} {
		name := map[int]string{4096: "4k", 256 << 10: "256k"}[size]
		l, s := openLive(b, cfg, "bench"+name, rados.Options{})
		m := medium(b, s, 64<<20)
		for _, write := range []bool{true, false} {
			b.Run(map[bool]string{true: "write-", false: "read-"}[write]+name, func(b *testing.B) {
				b.SetBytes(int64(size))
				l.Wait(func(done func()) { transfers(b, m, write, size, b.N, done) })
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	l, s := openLive(b, cfg, "benchlog", rados.Options{})
	defer s.Close()
	r, _, err := s.Region("nvram", block.RegionLayout{State: 4096, Counters: 64, Descriptors: 4096 * 64, Log: 4 << 20, Pages: 4096 * 4096})
	if err != nil {
		b.Fatal(err)
	}
	for _, depth := range []int{1, 32} {
		b.Run(map[int]string{1: "commit-1", 32: "commit-32"}[depth], func(b *testing.B) {
			l.Wait(func(done func()) { commits(b, r, depth, b.N, done) })
		})
	}
}

// transfers carries out n transfers, 32 at a time.
func transfers(b *testing.B, m block.Medium, write bool, size, n int, done func()) {
	begun, out := 0, 0
	var next func()
	next = func() {
		for out < 32 && begun < n {
			io := &block.IO{Write: write, Off: uint64(begun*37*size) % (64 << 20), N: uint64(size), Vec: [][]byte{make([]byte, size)}}
			io.Done = func(io *block.IO) {
				if out--; io.Err != nil {
					b.Error(io.Err)
				}
				if next(); out == 0 && begun == n {
					done()
				}
			}
			begun, out = begun+1, out+1
			m.Submit([]*block.IO{io})
		}
	}
	next()
}

// commits commits n commands of a page each, so many at a time.
func commits(b *testing.B, r block.Region, depth, n int, done func()) {
	begun, out := 0, 0
	record := make([]byte, 128)
	var next func()
	next = func() {
		for out < depth && begun < n {
			page := begun % 4096
			r.Announce(block.PartPages, page*4096, 4096)
			r.Announce(block.PartDescriptors, page*64, 64)
			r.Append(begun%(4<<20/128)*128, record)
			begun, out = begun+1, out+1
			r.Commit(func(err error) {
				if out--; err != nil {
					b.Error(err)
				}
				if next(); out == 0 && begun == n {
					done()
				}
			})
		}
	}
	next()
}
