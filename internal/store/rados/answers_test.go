package rados_test

import (
	"errors"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// TestOutagesOfTheHead: an owner that has an answer late behind two outages of the head, each shorter than the pause behind
// which a standby begins anew, keeps the array: the standby had no more answers than it had. One that is dead loses it also
// where each answer takes long.
func TestOutagesOfTheHead(t *testing.T) {
	for phase := int64(0); phase < 1e9; phase += 50e6 {
		c, v := newCluster(simulated.Options{Latency: 1e6, OSDs: 1}), &block.Virtual{}
		owner := stand(c, v, 1, nil)
		v.RunUntil(v.Now() + 1e9)
		standby := stand(c, v, 2, nil)
		v.RunUntil(v.Now() + 5e9 + phase)
		late := true
		c.Fail = func(op *rados.Op) error {
			if late && len(op.Steps) > 2 && op.Steps[0].Name == "epoch" && op.Steps[1].Name == "lease" {
				return errors.New("injected")
			}
			return nil
		}
		for range 2 {
			c.Stop(0)
			v.RunUntil(v.Now() + 4.8e9)
			c.Continue()
			v.RunUntil(v.Now() + 100e6)
		}
		v.RunUntil(v.Now() + 3e9)
		late = false
		if v.RunUntil(v.Now() + 10e9); !owner.serves() || owner.lost || standby.s != nil || standby.err != nil {
			t.Errorf("with a phase of %d ms the owner serves: %v, lost: %v; the standby: %v", phase/1e6, owner.serves(), owner.lost, standby.err)
		}
		owner.end()
		standby.end()
	}
	c, v := newCluster(simulated.Options{Latency: 600e6}), &block.Virtual{}
	owner := stand(c, v, 1, nil)
	v.RunUntil(v.Now() + 20e9)
	standby := stand(c, v, 2, nil)
	if v.RunUntil(v.Now() + 60e9); !owner.serves() || owner.lost {
		t.Fatalf("an owner whose answers take long serves: %v, lost: %v, %v", owner.serves(), owner.lost, owner.err)
	}
	owner.end()
	if v.RunUntil(v.Now() + 90e9); !standby.serves() {
		t.Errorf("where answers take long nobody serves: %v", standby.err)
	}
	standby.end()
}
