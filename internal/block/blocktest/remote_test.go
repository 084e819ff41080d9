package blocktest

import (
	"math/rand/v2"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestRemote: NVRAM that a partner keeps holds the contract.
func TestRemote(t *testing.T) {
	Region(t, testkit.Seed(t), func(_ *testing.T, rnd *rand.Rand) RegionRig {
		p, fails := NewPartner(), false
		p.FailFlush = func() bool { return fails }
		var r *Remote
		return RegionRig{
			Open: func(exec *block.Virtual) (block.Store, error) {
				r = NewRemote(nil, exec, p, rnd.Int64N(2000), rnd)
				return r, nil
			},
			Kill: func() { r.Kill() },
			Cut:  func() { r.Cut() },
			Fail: func(yes bool) { fails = yes },
		}
	})
}
