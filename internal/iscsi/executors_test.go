package iscsi

import (
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestTargetsOfTwoExecutors: what holds the executor of one target keeps nobody from another target
// of the same portal, neither commands nor logins.
func TestTargetsOfTwoExecutors(t *testing.T) {
	const second = testTarget + "2"
	other := block.NewLive()
	t.Cleanup(other.Stop)
	r := newRig(t, func(cfg *Config) {
		cfg.Targets = append(cfg.Targets, TargetConfig{Name: second, Handler: newFake(other, 1<<20)})
	})
	toSecond := func(port byte) func(cfg *ClientConfig) {
		return func(cfg *ClientConfig) { cfg.Target, cfg.ISID = second, [6]byte{0x80, 0, 0, port} }
	}
	first, before := r.login(nil), r.login(toSecond(2))
	r.exec.Lock()
	after := r.login(toSecond(3))
	for _, c := range []*Client{before, after} {
		if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
			t.Errorf("a command of the other target: %+v, %v", res, err)
		}
	}
	r.exec.Unlock()
	if res, err := first.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Errorf("a command of the first target: %+v, %v", res, err)
	}
}
