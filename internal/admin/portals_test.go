package admin

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// A second network portal is a second target port, whose access state a command
// changes.
func TestFurtherPortal(t *testing.T) {
	text := strings.Replace(testConfig, `portal: {listen: "127.0.0.1:0"}`, `portal: {listen: "127.0.0.1:0", further: ["127.0.0.1:0"], set_groups: ["iqn.2026-01.HOST:a"]}`, 1)
	r := start(t, parse(t, text, t.TempDir()))
	login := func(addr, target string) *iscsi.Client {
		t.Helper()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { nc.Close() })
		c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: "iqn.2026-01.host:a", Target: target, ISID: [6]byte{0x80, 0, 0, 7}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := r.d.portalAddr.String()
	targets, err := login(first, "").SendTargets()
	if err != nil || len(targets) != 1 {
		t.Fatal(targets, err)
	}
	addrs := targets[0].Addresses
	if len(addrs) != 2 || addrs[0] != first+",1" || !strings.HasSuffix(addrs[1], ",2") {
		t.Fatalf("discovery says %v", addrs)
	}
	one := login(first, r.d.cfg.Portal.Target)
	two := login(strings.TrimSuffix(addrs[1], ",2"), r.d.cfg.Portal.Target)
	cdb := []byte{0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0} // REPORT TARGET PORT GROUPS
	res, err := one.Command(0, cdb, nil, 256)
	for err == nil && res.Status == 2 { // unit attentions come first
		res, err = one.Command(0, cdb, nil, 256)
	}
	if err != nil || res.Status != 0 {
		t.Fatalf("REPORT TARGET PORT GROUPS: %v, %+v", err, res)
	}
	var groups []byte
	for at := 4; at+12 <= len(res.Data); at += 8 + 4*int(res.Data[at+7]) {
		groups = append(groups, res.Data[at+3])
	}
	if !slices.Equal(groups, []byte{1, 2}) {
		t.Errorf("the groups are %v", groups)
	}
	// Standby for the second port alone.
	set := []byte{0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0}
	if res, err = one.Command(0, set, []byte{0, 0, 0, 0, 2, 0, 0, 2}, 0); err != nil || res.Status != 0 {
		t.Fatalf("SET TARGET PORT GROUPS: %v, %+v", err, res)
	}
	read := []byte{0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0}
	for name, x := range map[string]struct {
		c    *iscsi.Client
		good bool
	}{"first": {one, true}, "second": {two, false}} {
		for range 4 {
			res, err = x.c.Command(0, read, nil, 512)
		}
		if err != nil || (res.Status == 0) != x.good {
			t.Errorf("a read through the %s port: %v, status %d", name, err, res.Status)
		}
	}
}
