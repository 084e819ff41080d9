package lab

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/lab/plug"
)

// fifo is the policy that comes with arraysim under that name, on an Order.
type fifo struct{ *plug.Order }

func (f fifo) Insert(slot int, block uint64) { f.Push(slot) }
func (fifo) Hit(int)                         {}

// TestCompare: a row for each value and a column for each figure. A policy on an Order has exactly the figures of the
// built-in one. A figure, a setting or a policy that there is not is an error of one line, and no table.
func TestCompare(t *testing.T) {
	s := small()
	s.Hosts[0].Cache[0].Size = MiB
	s.Plugged.Eviction = plug.Evictions{"mine": func(c plug.Cache) (plug.Eviction, error) { return fifo{plug.NewOrder(c.Blocks)}, nil }}
	compare := func(key string, values []string, figures ...string) (string, error) {
		var b bytes.Buffer
		err := s.Compare(context.Background(), &b, key, values, figures...)
		return b.String(), err
	}
	out, err := compare("hosts.h.cache.v.eviction", []string{"fifo", "mine", "lru", ""}, "cache.v.hit_percent", "job.load.iops")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(rows) != 5 || !strings.HasPrefix(rows[4], "default ") {
		t.Fatalf("%v\n%s", err, out)
	}
	fields := func(i int) string { return strings.Join(strings.Fields(rows[i])[1:], " ") }
	if fields(1) != fields(2) || fields(1) == fields(3) || strings.Contains(out, " -") {
		t.Errorf("fifo and the same on an Order differ, or lru does not:\n%s", out)
	}
	for _, row := range []struct{ key, value, figure, says string }{
		{"hosts.h.cache.v.eviction", "lru", "cache.v.hits_percent", `hosts.h.cache.v.eviction "lru": `},
		{"hosts.h.cache.v.evicted", "lru", "cache.v.hit_percent", "evicted"},
		{"hosts.h.cache.w.eviction", "lru", "cache.v.hit_percent", `there is no "w" in the list`},
		{"hosts.h.cache.v.eviction", "nobody", "cache.v.hit_percent", `no eviction policy is named "nobody"`},
	} {
		out, err := compare(row.key, []string{row.value}, row.figure)
		if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("%+v: %v\n%s", row, err, out)
		}
	}
}
