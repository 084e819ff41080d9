package rados_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

// metaRun is random batches over owners that die: what each batch made of the map.
type metaRun struct {
	t      *testing.T
	what   string
	rnd    *rand.Rand
	c      *simulated.Cluster
	states []map[string]string // behind each batch; the first is what was found
	acked  int                 // the last batch that ended well
}

// TestMetaKills: owners die at any moment of their commits, in clusters that answer late and are full at
// times, and what they have sent goes on arriving. A successor finds all that was acknowledged, a whole
// number of batches, and nothing else.
func TestMetaKills(t *testing.T) {
	seed, seeds := testkit.Seed(t), uint64(60)
	if testing.Short() {
		seeds = 15
	}
	var late, zombies, again int
	// Seldom are these too few, one in forty: then it takes some more.
	for i := uint64(0); i <= seeds || i <= 120 && (late == 0 || zombies == 0 || again == 0); i++ {
		s := seed + i - 1
		if i == 0 {
			s = 1795421910391814155 // a batch found no room while the store was closed, and those behind it did
		}
		rnd := rand.New(rand.NewPCG(s, 3))
		guarded := rnd.IntN(2) == 0 // by nothing but the epoch
		c := simulated.New(simulated.Options{Latency: rnd.Int64N(3e6), Tail: rnd.IntN(100), OSDs: 1 + rnd.IntN(5), NoBlocklist: guarded}, rnd)
		back := rados.HoldMetadata([]int{128 << 20, 1 << 10}[rnd.IntN(2)])
		x := &metaRun{t: t, what: fmt.Sprintf("-run %s -seed %d", t.Name(), s), rnd: rnd, c: c, states: []map[string]string{{}}}
		for range 8 {
			owner := open(t, c, &block.Virtual{}, rados.Options{})
			m, err := owner.Meta()
			if err != nil {
				t.Fatalf("%s: %v", x.what, err)
			}
			found := x.find(m)
			if found > x.acked {
				late++
			}
			x.states, x.acked = x.states[found:found+1:found+1], 0
			x.commit(owner, m)
			c.Fail = nil
			if rnd.IntN(4) == 0 {
				c.SetCapacity(0)
				if err := owner.Close(); err != nil {
					t.Fatalf("%s: %v", x.what, err)
				}
				x.acked = len(x.states) - 1
				again++
			} else {
				owner.client.Kill()
			}
			if c.SetCapacity(0); rnd.IntN(3) == 0 {
				c.Settle()
			}
			zombies += c.Zombies
		}
		if !guarded {
			x.tidy()
		}
		back()
	}
	if late == 0 || zombies == 0 || again == 0 {
		t.Errorf("the test does not get there: %d starts found what was not acknowledged, %d operations came late, %d stops", late, zombies, again)
	}
}

// tidy looks for what all these owners have left of their batches: objects meta.EPOCH.BATCH.PART.
func (x *metaRun) tidy() {
	for range 2 { // what comes late for the first one, the second one removes
		o := open(x.t, x.c, &block.Virtual{}, rados.Options{})
		m, err := o.Meta()
		if err == nil {
			err = errors.Join(m.CommitNow([]block.KV{{Key: []byte("x"), Value: []byte("y")}}), o.Close())
		}
		if err != nil {
			x.t.Fatalf("%s: %v", x.what, err)
		}
		x.c.Settle()
	}
	left := 0
	for _, name := range x.c.Objects("array") {
		if strings.Count(name, ".") == 3 {
			left++
		}
	}
	if left > 0 {
		x.t.Fatalf("%s: %d objects of batches are left: %v", x.what, left, x.c.Objects("array"))
	}
}

// commit sends batches, some of which end.
func (x *metaRun) commit(o *opened, m block.MetaStore) {
	for range x.rnd.IntN(12) {
		next := maps.Clone(x.states[len(x.states)-1])
		var batch []block.KV
		for range 1 + x.rnd.IntN(20) {
			key := fmt.Sprintf("%c\x00%d\x01", 'a'+x.rnd.IntN(3), x.rnd.IntN(30))
			if x.rnd.IntN(4) == 0 {
				batch = append(batch, block.KV{Key: []byte(key)})
				delete(next, key)
				continue
			}
			value := fmt.Sprint(len(x.states), x.rnd.Uint32())
			if x.rnd.IntN(50) == 0 {
				value += string(make([]byte, x.rnd.IntN(6<<20)))
			}
			batch = append(batch, block.KV{Key: []byte(key), Value: []byte(value)})
			next[key] = value
		}
		x.states = append(x.states, next)
		number := len(x.states) - 1
		if x.rnd.IntN(8) == 0 {
			x.c.SetCapacity(x.c.Used() + x.rnd.IntN(8192))
		} else if x.rnd.IntN(2) == 0 {
			x.c.SetCapacity(0)
		}
		if x.rnd.IntN(6) == 0 {
			x.c.Fail = noShard
		} else if x.rnd.IntN(2) == 0 {
			x.c.Fail = nil
		}
		m.Commit(batch, func(err error) {
			switch {
			case err != nil:
				x.t.Fatalf("%s: a commit failed: %v", x.what, err)
			case number != x.acked+1:
				x.t.Fatalf("%s: batch %d ended behind %d", x.what, number, x.acked)
			}
			x.acked = number
		})
		if x.rnd.IntN(2) == 0 {
			o.exec.RunUntil(o.exec.Now() + x.rnd.Int64N(30e6))
		}
	}
	x.c.SetCapacity(0)
	o.exec.RunUntil(o.exec.Now() + x.rnd.Int64N(300e6))
}

// find returns the number of the state that is there.
func (x *metaRun) find(m block.MetaStore) int {
	got := map[string]string{}
	last := ""
	if err := m.Load(nil, func(key, value []byte) error {
		if last >= string(key) {
			return errors.New("keys are not in their order")
		}
		last = string(key)
		got[last] = string(value)
		return nil
	}); err != nil {
		x.t.Fatalf("%s: %v", x.what, err)
	}
	for i := len(x.states) - 1; i >= x.acked; i-- {
		if !maps.Equal(x.states[i], got) {
			continue
		}
		for k, want := range got {
			if v, err := m.Get([]byte(k)); err != nil || string(v) != want {
				x.t.Fatalf("%s: %q is %.20q, not %.20q: %v", x.what, k, v, want, err)
			}
			break
		}
		return i
	}
	x.t.Fatalf("%s: what is there is no state from %d to %d", x.what, x.acked, len(x.states)-1)
	return 0
}

// noShard fails what brings metadata to their place.
func noShard(op *rados.Op) error {
	for i := range op.Steps {
		if k := op.Steps[i].Kind; strings.HasPrefix(op.Object, "meta.") && (k == rados.OmapSet || k == rados.OmapRemove) {
			return errInjected
		}
	}
	return nil
}

// TestMetadataAreBounded: metadata that do not get to their place do not fill the memory: who makes more waits, until they do,
// or fails when the array stops.
func TestMetadataAreBounded(t *testing.T) {
	const batches, size, held = 60, 256 << 10, 8 << 20
	defer rados.HoldMetadata(held)()
	for _, stops := range []bool{false, true} {
		c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
		said := ""
		s := open(t, c, x, rados.Options{Patience: 5e9, Notice: func(line string) { said += line + "\n" }})
		m, err := s.Meta()
		if err != nil {
			t.Fatal(err)
		}
		c.Fail = noShard
		ended, failed := 0, 0
		for i := range batches {
			m.Commit([]block.KV{{Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte{byte(i)}, size)}}, func(err error) {
				if ended++; err != nil {
					failed++
				} else if failed > 0 {
					t.Error("a batch was committed behind one that failed")
				}
			})
		}
		x.RunUntil(x.Now() + 20e9)
		if ended == 0 || ended*size > held || failed > 0 {
			t.Errorf("%d of %d batches of %d bytes were committed, and %d failed", ended, batches, size, failed)
		}
		if !strings.Contains(said, "further ones wait") {
			t.Errorf("it said %q", said)
		}
		if stops {
			s.StopWaiting()
		} else {
			c.Fail = nil
		}
		if x.RunUntil(x.Now() + 20e9); ended != batches || stops != (failed > 0) {
			t.Errorf("with a stop %v: %d of %d batches ended, %d of them failed", stops, ended, batches, failed)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		c.Fail = nil
		if m, err = open(t, c, x, rados.Options{}).Meta(); err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			v, err := m.Get(fmt.Append(nil, i))
			if there := len(v) == size && v[0] == byte(i); err != nil || there != (i < batches-failed) {
				t.Errorf("batch %d is there: %v, %v", i, there, err)
			}
		}
	}
}

// TestMetaReads: entries are read beside commits, from the shards and from batches that have not got there.
func TestMetaReads(t *testing.T) {
	blocktest.MetaReads(t, testkit.Seed(t), func(t *testing.T, rnd *rand.Rand, exec *block.Virtual) block.MetaStore {
		c := simulated.New(simulated.Options{Latency: rnd.Int64N(3e6), Tail: rnd.IntN(100), OSDs: 1 + rnd.IntN(5)}, rnd)
		m, err := open(t, c, exec, rados.Options{}).Meta()
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}
