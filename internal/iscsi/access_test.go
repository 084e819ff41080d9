package iscsi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

const (
	hostA = "iqn.2026-01.example.test:host-a"
	hostB = "iqn.2026-01.example.test:host-b"
	hostC = "iqn.2026-01.example.test:host-c"
)

var (
	chapA   = &CHAP{User: "a", Secret: []byte("the secret of a"), MutualUser: "array", MutualSecret: []byte("what the array tells a")}
	chapB   = &CHAP{User: "b", Secret: []byte("the secret of b")}
	chapAll = &CHAP{User: "all", Secret: []byte("everybody's secret")}
)

func tenants(common *CHAP) *CHAP {
	c := &CHAP{Initiators: map[string]*CHAP{hostA: chapA, strings.ToUpper(hostB): chapB}}
	if common != nil {
		c.User, c.Secret = common.User, common.Secret
	}
	return c
}

// TestSecretsByInitiator: who has a secret of his own gets in by it alone, and under no name but
// his; in discovery as in a normal session.
func TestSecretsByInitiator(t *testing.T) {
	for _, row := range []struct {
		what   string
		common *CHAP
		name   string
		chap   *CHAP
		status uint16
	}{
		{"his own", nil, hostA, chapA, loginOK},
		{"his own, the other one", nil, hostB, chapB, loginOK},
		{"his own, and a name of other letters", nil, strings.ToUpper(hostA), chapA, loginOK},
		{"a neighbour's name with his own secret", nil, hostA, chapB, loginAuthFailed},
		{"a neighbour's name and user with his own secret", nil, hostA, &CHAP{User: "a", Secret: chapB.Secret}, loginAuthFailed},
		{"a name that nobody has", nil, hostC, chapA, loginAuthFailed},
		{"no CHAP", nil, hostA, nil, loginAuthFailed},
		{"the common secret, for who has none of his own", chapAll, hostC, chapAll, loginOK},
		{"the common secret under the name of who has his own", chapAll, hostA, chapAll, loginAuthFailed},
		{"his own secret under a name without one", chapAll, hostC, chapA, loginAuthFailed},
		{"his own beside the common one", chapAll, hostB, chapB, loginOK},
	} {
		for _, discovery := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/discovery=%v", row.what, discovery), func(t *testing.T) {
				r := newRig(t, func(cfg *Config) {
					cfg.Targets[0].CHAP, cfg.DiscoveryCHAP = tenants(row.common), tenants(row.common)
				})
				c, err := r.tryLogin(func(cfg *ClientConfig) {
					cfg.Initiator, cfg.CHAP = row.name, row.chap
					if discovery {
						cfg.Target = ""
					}
				})
				checkStatus(t, err, row.status)
				if (err == nil) != (len(r.portal.Sessions()) == 1) {
					t.Errorf("%d sessions", len(r.portal.Sessions()))
				}
				if discovery && err == nil {
					if all, err := c.SendTargets(); err != nil || len(all) != 1 {
						t.Error(all, err)
					}
				}
			})
		}
	}
}

// TestSessionsAreNotTaken: a tenant who claims a neighbour's name and ISID ends no session of his.
func TestSessionsAreNotTaken(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Targets[0].CHAP = tenants(nil) })
	as := func(name string, chap *CHAP) (*Client, error) {
		return r.tryLogin(func(cfg *ClientConfig) { cfg.Initiator, cfg.CHAP = name, chap })
	}
	a, err := as(hostA, chapA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := as(hostA, chapB); err == nil {
		t.Error("b got in under the name of a")
	}
	if res, err := a.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
		t.Errorf("the session of a: %+v, %v", res, err)
	}
}

func TestSecretsThatCannotWork(t *testing.T) {
	for _, row := range []struct {
		what string
		chap *CHAP
		says string
	}{
		{"a user without a secret", &CHAP{User: "u"}, "needs a user and a secret"},
		{"nothing at all", &CHAP{}, "needs a user and a secret"},
		{"an initiator without a user", &CHAP{Initiators: map[string]*CHAP{hostA: {Secret: []byte("s")}}}, "needs a user and a secret"},
		{"no name", &CHAP{Initiators: map[string]*CHAP{"host": chapA}}, "not an iSCSI name"},
		{"a name twice", &CHAP{Initiators: map[string]*CHAP{hostA: chapA, strings.ToUpper(hostA): chapB}}, "twice"},
		{"a secret of two", &CHAP{Initiators: map[string]*CHAP{hostA: chapA, hostB: {User: "b", Secret: chapA.Secret}}}, "same secret"},
		{"the common secret for one", &CHAP{User: "u", Secret: chapA.Secret, Initiators: map[string]*CHAP{hostA: chapA}}, "same secret"},
		{"a proof by the initiator's secret", &CHAP{User: "u", Secret: []byte("s"), MutualUser: "m", MutualSecret: []byte("s")}, "a different one"},
		{"a proof by another's secret", &CHAP{Initiators: map[string]*CHAP{hostA: {User: "a", Secret: []byte("x"), MutualUser: "m", MutualSecret: chapB.Secret}, hostB: chapB}}, "a different one"},
	} {
		exec := block.NewLive()
		for i, cfg := range []Config{{Targets: []TargetConfig{{Name: testTarget, Handler: newFake(exec, 0), CHAP: row.chap}}}, {DiscoveryCHAP: row.chap}} {
			_, err := New(cfg)
			if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), string(chapA.Secret)) {
				t.Errorf("%s (%d): %v, want %q", row.what, i, err, row.says)
			}
		}
		exec.Stop()
	}
}

// TestDiscoveryAsksForCHAP: nobody learns what is there without a password, and a client that has
// one gets in where none is asked for, unless the target is to prove itself.
func TestDiscoveryAsksForCHAP(t *testing.T) {
	for _, row := range []struct {
		what           string
		server, client *CHAP
		ok             bool
	}{
		{"a password", oneWay, oneWay, true},
		{"none", oneWay, nil, false},
		{"a wrong one", oneWay, chapB, false},
		{"both directions", mutual, mutual, true},
		{"a password that is not asked for", nil, oneWay, true},
		{"a proof that the target does not give", nil, mutual, false},
	} {
		t.Run(row.what, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.DiscoveryCHAP = row.server })
			c, err := r.tryLogin(func(cfg *ClientConfig) { cfg.Target, cfg.CHAP = "", row.client })
			if (err == nil) != row.ok {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				if all, err := c.SendTargets(); err != nil || len(all) != 1 || all[0].Name != testTarget {
					t.Error(all, err)
				}
			}
		})
	}
}

// TestDiscoverySessions: they keep no host out, whatever their number, give way to younger ones,
// and do not last.
func TestDiscoverySessions(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	r := newRig(t, func(cfg *Config) {
		cfg.Limits.MaxSessions, cfg.Limits.MaxDiscovery, cfg.Limits.DiscoveryTime = 4, 2, 5*time.Second
	})
	discover := func() *Client { return r.login(func(cfg *ClientConfig) { cfg.Target = "" }) }
	first := discover()
	for range 20 {
		last := discover()
		if all, err := last.SendTargets(); err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
	}
	if _, err := first.Receive(); err == nil {
		t.Error("the first discovery session goes on")
	}
	r.eventually("as many are left as there may be", func(*fakeTarget) bool { return len(r.portal.Sessions()) <= 2 })
	for i := range byte(4) {
		c := r.login(func(cfg *ClientConfig) { cfg.Initiator, cfg.ISID[5] = fmt.Sprint(testInitiator, i), 10+i })
		if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
			t.Errorf("host %d: %+v, %v", i, res, err)
		}
	}
	r.eventually("those that are left have ended", func(*fakeTarget) bool {
		for _, s := range r.portal.Sessions() {
			if s.Target == "" {
				return false
			}
		}
		return true
	})
	if n := len(r.portal.Sessions()); n != 4 {
		t.Errorf("%d sessions are left", n)
	}
}
