package rados_test

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// virtual drives a suite in virtual time.
type virtual struct{ block.Virtual }

func (v *virtual) Wait(start func(done func())) {
	ended := false
	start(func() { ended = true })
	for !ended && v.Step() {
	}
	if !ended {
		panic("it never ended")
	}
}

// dead takes every owner for dead.
func dead(rados.Owner) bool { return true }

// opened is a store over a simulated cluster.
type opened struct {
	*rados.Store
	exec   *block.Virtual
	client *simulated.Client
}

func open(t *testing.T, c *simulated.Cluster, exec *block.Virtual, opt rados.Options) *opened {
	t.Helper()
	if opt.Self == (rados.Owner{}) {
		opt.Self = rados.Owner{Host: "here", PID: 1}
	}
	if opt.Log == "" {
		opt.Log = rados.LogReplicated
	}
	if opt.Dead == nil {
		opt.Dead = dead
	}
	client := c.Connect(exec, "array")
	opt.Cookie = client.Address()
	s, err := rados.Open(exec, client, opt)
	if err != nil {
		t.Fatal(err)
	}
	return &opened{s, exec, client}
}

// TestStoreSimulated: the contract of block.Store, over clusters of all speeds.
func TestStoreSimulated(t *testing.T) {
	seed := testkit.Seed(t)
	for name, opt := range map[string]simulated.Options{
		"at once":  {},
		"usual":    {Latency: 2e6},
		"unsteady": {Latency: 2e6, Tail: 200, OSDs: 7},
	} {
		t.Run(name, func(t *testing.T) {
			clusters := map[string]*simulated.Cluster{}
			blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
				if clusters[t.Name()] == nil {
					clusters[t.Name()] = simulated.New(opt, rand.New(rand.NewPCG(seed, 1)))
				}
				v := &virtual{}
				return open(t, clusters[t.Name()], &v.Virtual, rados.Options{}), v
			})
		})
	}
}

// TestStoreLocalLog: the same with the log at home.
func TestStoreLocalLog(t *testing.T) {
	seed := testkit.Seed(t)
	clusters, homes := map[string]*simulated.Cluster{}, map[string]*store.Memory{}
	blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
		v := &virtual{}
		if clusters[t.Name()] == nil {
			clusters[t.Name()] = simulated.New(simulated.Options{Latency: 1e6}, rand.New(rand.NewPCG(seed, 1)))
			homes[t.Name()] = store.NewMemory(v, store.MemoryOptions{})
		}
		home := homes[t.Name()].Reopen(v)
		homes[t.Name()] = home
		return open(t, clusters[t.Name()], &v.Virtual, rados.Options{Log: rados.LogLocal, Local: home, Home: "here"}), v
	})
}

// TestRegionSimulated: the replicated log holds the contract of block.Region when processes die at any
// moment, and operations of the dead go on arriving.
func TestRegionSimulated(t *testing.T) {
	var zombies, refused int
	blocktest.Region(t, testkit.Seed(t), func(t *testing.T, rnd *rand.Rand) blocktest.RegionRig {
		// The guards alone have to do for the log.
		c := simulated.New(simulated.Options{Latency: rnd.Int64N(2000), Tail: rnd.IntN(100), OSDs: 1 + rnd.IntN(5), NoBlocklist: rnd.IntN(2) == 0}, rnd)
		var s *opened
		return blocktest.RegionRig{
			Whole: true,
			Open: func(exec *block.Virtual) (block.Store, error) {
				if s = open(t, c, exec, rados.Options{}); rnd.IntN(2) == 0 {
					c.Settle()
				}
				return s, nil
			},
			Kill: func() {
				s.client.Kill()
				zombies, refused = zombies+c.Zombies, refused+c.Refused
			},
		}
	})
	if zombies == 0 || refused == 0 {
		t.Errorf("%d operations of dead clients took effect, and %d were refused: the test does not get there", zombies, refused)
	}
}
