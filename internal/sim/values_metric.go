package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/metrics"
)

// metric sums the increase of a counter, or the present values of a gauge. A family, a label or a
// label's value that there is not is an error: its sum would be 0, and a bound from above would hold.
func (r *Run) metric(spec string) (float64, error) {
	parts := strings.Split(spec, ",")
	i := slices.IndexFunc(metrics.All(), func(f *metrics.Family) bool {
		return f.Name == parts[0] || f.Name == "arraysim_"+parts[0]
	})
	if i < 0 {
		var known []string
		for _, f := range metrics.All() {
			known = append(known, strings.TrimPrefix(f.Name, "arraysim_"))
		}
		return 0, fmt.Errorf("there is no counter %q; there are %s", parts[0], strings.Join(known, ", "))
	}
	family := metrics.All()[i]
	want := make([]string, len(family.Labels)) // by label; "" is any
	for _, cond := range parts[1:] {
		label, value, _ := strings.Cut(cond, "=")
		k := slices.Index(family.Labels, label)
		if k < 0 {
			return 0, fmt.Errorf("%s has no label %q; it has %s", parts[0], label, strings.Join(family.Labels, ", "))
		}
		want[k] = value
	}
	now := r.counted()
	sum := 0.0
	seen := make([]map[string]bool, len(want))
	for k := range seen {
		seen[k] = map[string]bool{}
		for _, v := range labelValues[family.Labels[k]] {
			seen[k][v] = true
		}
	}
	for i := range now.samples {
		x := &now.samples[i]
		if x.family != family {
			continue
		}
		match := true
		for k, v := range want {
			seen[k][x.labels[k]] = true
			match = match && (v == "" || v == x.labels[k])
		}
		if match {
			sum += x.value - r.base.before(x)
		}
	}
	for k, v := range want {
		if v != "" && !seen[k][v] {
			return 0, fmt.Errorf("%s is never counted by %s=%s; there are %s", parts[0], family.Labels[k], v, strings.Join(sortedKeys(seen[k]), ", "))
		}
	}
	return sum, nil
}

// labelValues are the values of labels that are no names of objects, docs/counters.md has them, too:
// one that a run did not count is 0, not unknown.
var labelValues = map[string][]string{
	"op":        {"read", "write", "write_same", "xcopy_src", "xcopy_dst", "odx_src", "odx_dst", "unmap", "caw", "sync", "erase", "other"},
	"status":    {"good", "check", "busy", "task_set_full", "conflict"},
	"direction": {"read", "write"},
	"origin":    {"host", "write_same", "xcopy", "odx", "caw", "unmap", "rebuild", "migrate"},
	"reason":    {"destage", "write_through", "flush", "stage", "copy_read", "rmw"},
	"mode":      {"fast", "write_through", "flush_through", "fast_short_memory"},
	"primitive": {"write_same", "unmap", "xcopy", "odx"},
	"path":      {"metadata", "copy", "rejected"},
	"state":     {"mapped", "zero", "anchored", "unmapped"},
}
