package rados_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

var smallLayout = block.RegionLayout{State: 512, Counters: 64, Descriptors: 64 * 64, Log: 9 << 20, Pages: 64 * 4096}

// TestRegionFailures: an operation that fails takes no other one's place. All messages behind it fail, the next one that
// succeeds brings what they were to bring, and of what is there when the process dies no record lacks one before it.
func TestRegionFailures(t *testing.T) {
	seed, seeds := testkit.Seed(t), uint64(300)
	if testing.Short() {
		seeds = 60
	}
	failures, recovered := 0, 0
	for i := range seeds + 1 {
		s := seed + i - 1
		if i == 0 {
			s = 1795422480261284236 // a record that came again became one with a later one
		}
		what := fmt.Sprintf("-run %s -seed %d", t.Name(), s)
		rnd := rand.New(rand.NewPCG(s, 5))
		c, x := simulated.New(simulated.Options{Latency: 1 + rnd.Int64N(2000)}, rnd), &block.Virtual{}
		owner := open(t, c, x, rados.Options{})
		r, _, err := owner.Region("nvram", smallLayout)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Memory()
		chance := rnd.IntN(30)
		c.Fail = func(*rados.Op) error {
			if rnd.IntN(100) < chance {
				return errors.New("injected")
			}
			return nil
		}
		sure := 0 // commands that a commit covers that ended well
		// Records lie 3 MiB apart, so that those of one message may be in several objects.
		const commands, apart = 48, 3 << 20
		place := func(i int) int { return i*apart%(9<<20) + i/3*512 }
		for i := 1; i <= commands; i++ {
			r.Announce(block.PartPages, i*4096, 4096)
			copy(m.Pages[i*4096:], filled(4096, byte(i)))
			r.Announce(block.PartDescriptors, i*64, 64)
			copy(m.Descriptors[i*64:], filled(64, byte(i)))
			r.Append(place(i), filled(512, byte(i)))
			r.Announce(block.PartState, 0, 1)
			m.State[0] = byte(i)
			if rnd.IntN(2) == 0 {
				r.Commit(func(err error) {
					if err == nil {
						sure = max(sure, i)
					} else {
						failures++
					}
				})
			}
			if rnd.IntN(3) == 0 {
				x.RunUntil(x.Now() + rnd.Int64N(8000))
			}
		}
		if rnd.IntN(3) == 0 {
			c.Fail, chance = nil, 0
			x.Run()
			r.Commit(func(err error) {
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				sure = commands
				recovered++
			})
			x.Run()
		}
		owner.client.Kill()
		c.Fail = nil
		next := open(t, c, &block.Virtual{}, rados.Options{})
		c.Settle()
		if r, _, err = next.Region("nvram", smallLayout); err != nil {
			t.Fatal(err)
		}
		m, b, last := r.Memory(), make([]byte, 512), 0
		for i := 1; i <= commands; i++ {
			r.ReadLog(place(i), b)
			there := bytes.Equal(b, filled(512, byte(i)))
			whole := bytes.Equal(m.Pages[i*4096:(i+1)*4096], filled(4096, byte(i))) && bytes.Equal(m.Descriptors[i*64:i*64+64], filled(64, byte(i)))
			switch {
			case there && (last != i-1 || !whole):
				t.Fatalf("%s: record %d is there behind %d, with its page: %v", what, i, last, whole)
			case there:
				last = i
			}
		}
		if last < sure || int(m.State[0]) > last {
			t.Fatalf("%s: the last record is %d, committed were %d, the state names %d", what, last, sure, m.State[0])
		}
		next.Close()
	}
	if failures == 0 || recovered == 0 {
		t.Errorf("%d commits failed, %d runs recovered: the test does not get there", failures, recovered)
	}
}

// TestGroupCommit: what is committed while messages are under way goes together. Of 32 commands at a time as many share a
// message as can, so that three cost the cluster less than an operation.
func TestGroupCommit(t *testing.T) {
	const latency, commands, depth = 1e6, 4000, 32
	operations := 0
	c, x := simulated.New(simulated.Options{Latency: latency}, rand.New(rand.NewPCG(1, 2))), &block.Virtual{}
	owner := open(t, c, x, rados.Options{})
	r, _, err := owner.Region("nvram", smallLayout)
	if err != nil {
		t.Fatal(err)
	}
	c.Fail = func(*rados.Op) error { operations++; return nil }
	begin, begun, ended := x.Now(), 0, 0
	var next func()
	next = func() {
		for begun-ended < depth && begun < commands {
			r.Announce(block.PartPages, begun%64*4096, 4096)
			r.Announce(block.PartDescriptors, begun%64*64, 64)
			r.Append(begun%(9<<20/512)*512, filled(512, 1))
			begun++
			r.Commit(func(err error) {
				if err != nil {
					t.Error(err)
				}
				ended++
				next()
			})
		}
	}
	next()
	x.Run()
	took := float64(x.Now() - begin)
	t.Logf("%d commands at depth %d: %d operations, each command %.2f of an operation's time", commands, depth, operations, took/commands/latency)
	if ended != commands || operations*3 > commands {
		t.Errorf("%d of %d commands have ended, and took %d operations: more than a third each", ended, commands, operations)
	}
	owner.Close()
}
