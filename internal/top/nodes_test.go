package top

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// The view of the nodes says who has the array, in which epoch, and who stands by for it. What is not known is no zero.
func TestNodes(t *testing.T) {
	epoch, age := int64(7), 0.5
	status := func(commands uint64) admin.Status {
		return admin.Status{Ownership: &admin.OwnershipStatus{State: admin.StateServing, Epoch: &epoch, LeaseAge: &age}, Nodes: []admin.NodeStatus{
			{ID: 1, Name: "a", State: admin.NodeOwner, Sessions: 2}, {ID: 2, Name: "b", State: admin.NodeForwarding, StandsBy: true, Sessions: 3, Commands: commands},
			{ID: 3, Name: "c", State: admin.NodeAway}}}
	}
	m := newModel("volumes", time.Second, nil)
	m.last, m.now = reading{Counters: admin.Counters{Time: 1e9}, status: status(10)}, reading{Counters: admin.Counters{Time: 3e9}, status: status(30)}
	m.width, m.height = 100, 30
	press(m, "n")
	rows := strings.Split(m.View(), "\n")[2:6]
	for i, want := range [][]string{
		{"NODE", "STATE", "STANDS BY", "EPOCH", "SESSIONS"}, {"a", "1", "owner", "-", "7", "500.00", "2"}, {"b", "2", "forwarding", "yes", "-", "3", "10", "30"}, {"c", "3", "away", "no"},
	} {
		at := 0
		for _, w := range want {
			k := strings.Index(rows[i][at:], w)
			if k < 0 {
				t.Errorf("line %d lacks %q: %q", i, w, rows[i])
				break
			}
			at += k + len(w)
		}
	}
	var b strings.Builder
	table := newTable("nodes", m.last, m.now)
	w := csv.NewWriter(&b)
	if err := table.lines(w, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if !strings.Contains(b.String(), "a,1,owner,-,7,500000000,2,0,0\n") || !strings.Contains(b.String(), "c,3,away,no,,,0,0,0\n") {
		t.Errorf("as CSV:\n%s", &b)
	}
}
