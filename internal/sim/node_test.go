package sim

import (
	"strings"
	"testing"
)

const threeNodes = `
name: nodes
profile: none
until: 10s
arrays:
  - name: a
    nodes: [{name: b, command: 1ms, latency: 2ms, bandwidth: 64MiB}]
    pools: [{name: p, mdisks: [{size: 1GiB}]}]
    volumes: [{name: v, count: 3, size: 64MiB, filled: 64MiB}]
hosts: [{name: x}, {name: y, node: b}, {name: z, node: b}]
jobs:
  - {name: owner, host: x, volume: v0, outstanding: 1, think: 10ms, io: 4KiB, write: 1}
  - {name: one, host: y, volume: v1, outstanding: 1, think: 10ms, io: 4KiB, write: 1}
  - {name: other, host: z, off: true, volume: v2, outstanding: 8, io: 1MiB, write: 1}
`

// TestNodes: a host of a node that forwards pays the hop there and back, and waits for what other hosts of that node send.
func TestNodes(t *testing.T) {
	latency := func(s *Scenario, volume string) float64 {
		t.Helper()
		r, err := carryOut(s)
		if err != nil {
			t.Fatal(err)
		}
		h := &r.volumeNamed(volume).host
		if h.ops[1] == 0 {
			t.Fatalf("nothing is written to %s", volume)
		}
		return float64(h.wait[1]) / float64(h.ops[1]) / 1e6
	}
	s, err := Parse([]byte(threeNodes))
	if err != nil {
		t.Fatal(err)
	}
	// 1 ms, 4 KiB at 64 MiB/s, and 2 ms each way. The first write of all is sent twice, behind a unit attention.
	hop := 1 + 4096./(64<<20)*1e3 + 4
	if at, over := latency(s, "v0"), latency(s, "v1"); over-at < hop || over-at > hop*1.005 {
		t.Errorf("a write takes %.3f ms at the owner and %.3f over a node; the hop is %.3f", at, over, hop)
	}
	busy, err := s.Set("jobs.other.off", false)
	if err != nil {
		t.Fatal(err)
	}
	if at, over := latency(busy, "v0"), latency(busy, "v1"); at > 1 || over < 3*hop {
		t.Errorf("while another host of the node writes, a write takes %.3f ms at the owner and %.3f over the node", at, over)
	}
	for _, row := range []struct {
		key   string
		value any
		want  string
	}{
		{"hosts.y.node", "c", `no array has a node "c"`},
		{"arrays.a.nodes", []any{map[string]any{"latency": "1ms"}}, "a node has no name"},
		{"arrays.a.nodes", []any{map[string]any{"name": "b"}, map[string]any{"name": "b"}}, `there are two nodes "b"`},
	} {
		s, err := s.Set(row.key, row.value)
		if err == nil {
			_, err = New(s)
		}
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v says %v, and not %q", row.key, row.value, err, row.want)
		}
	}
}
