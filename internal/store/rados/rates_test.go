//go:build rados && linux

package rados_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

var rates = flag.String("rates", "", "NAMESPACE SECONDS ROW...: what TestRates measures, for scripts/rados_bench.py")

// rateSpan is how much of an mdisk the transfers of TestRates go to.
const rateSpan = 256 << 20

// TestRates measures what the store makes of a cluster at depth 32, each row for a while, and prints a line for it:
// transfers of an mdisk, and commits of a page of 4 KiB each to the replicated log.
func TestRates(t *testing.T) {
	words := strings.Fields(*rates)
	if len(words) < 3 {
		t.Skip("scripts/rados_bench.py runs it")
	}
	long, err := time.ParseDuration(words[1] + "s")
	if err != nil {
		t.Fatal(err)
	}
	l, s := openLive(t, startCluster(t), words[0], rados.Options{Dead: dead})
	defer s.Close()
	m := medium(t, s, rateSpan)
	layout := block.RegionLayout{State: 4096, Counters: 64, Descriptors: 4096 * 64, Log: 4 << 20, Pages: 4096 * 4096}
	r, _, err := s.Region("nvram", layout)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(i int, done func(error)) {
		page := i % 4096
		r.Announce(block.PartPages, page*4096, 4096)
		r.Announce(block.PartDescriptors, page*64, 64)
		r.Append(i%(4<<20/128)*128, make([]byte, 128))
		r.Commit(done)
	}
	rows := map[string]func(i int, done func(error)){
		"fill": onMedium(m, true, 256<<10, 1), "log-4k": commit,
		"write-256k": onMedium(m, true, 256<<10, 37), "read-256k": onMedium(m, false, 256<<10, 37),
		"write-4k": onMedium(m, true, 4096, 37), "read-4k": onMedium(m, false, 4096, 37),
	}
	for _, name := range words[2:] {
		begin, n := time.Now(), 0
		l.Wait(func(over func()) {
			keepBusy(rows[name], func() bool {
				n++
				return name == "fill" && n <= rateSpan>>18 || name != "fill" && time.Since(begin) < long
			}, func(err error) {
				if err != nil {
					t.Error(name, err)
				}
			}, over)
		})
		fmt.Printf("rate %s %.1f\n", name, float64(n-1)/time.Since(begin).Seconds())
	}
}

// onMedium returns a row of transfers of one size, each so many sizes behind the one before.
func onMedium(m block.Medium, write bool, size, stride int) func(i int, done func(error)) {
	buf := filled(size, 7)
	free := make([][]byte, 32) // of reads
	for i := range free {
		free[i] = make([]byte, size)
	}
	return func(i int, done func(error)) {
		vec := buf
		if !write {
			vec, free = free[len(free)-1], free[:len(free)-1]
		}
		m.Submit([]*block.IO{{Write: write, Off: uint64(i*stride*size) % rateSpan, N: uint64(size), Vec: [][]byte{vec},
			Done: func(io *block.IO) {
				if !write {
					free = append(free, vec)
				}
				done(io.Err)
			}}})
	}
}

// keepBusy has 32 of what begin begins under way for as long as more says, and calls over when the last has ended.
func keepBusy(begin func(i int, done func(error)), more func() bool, ended func(error), over func()) {
	next, out, last := 0, 0, false
	var fill func()
	fill = func() {
		for out < 32 && !last {
			if last = !more(); last {
				break
			}
			i := next
			next, out = next+1, out+1
			begin(i, func(err error) {
				ended(err)
				out--
				if fill(); out == 0 && last {
					last = true
					over()
				}
			})
		}
	}
	fill()
}
