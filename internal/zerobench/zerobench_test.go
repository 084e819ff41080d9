package zerobench

import (
	"math"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/sim"
)

// simulated runs a benchmark in virtual time, to its end or to some ns of it.
func simulated(t *testing.T, c *Config, until int64) *sim.Run {
	t.Helper()
	s, err := c.Scenario()
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.New(s)
	if err != nil {
		t.Fatal(err)
	}
	for now := int64(0); !r.Advance(now) && now < until; now += 1e6 {
	}
	r.Finish()
	return r
}

// TestNoResult: a run that was cut off, or in which nothing takes time, has none.
func TestNoResult(t *testing.T) {
	thin := Config{Disk: "thin", VAAI: true, Size: 64 << 20, Outstanding: 32, Profile: "purity-5.1"}
	eager := Config{Disk: "eager", VAAI: true, Size: 1 << 30, Outstanding: 32, Profile: "purity-5.1"}
	none := thin
	none.Profile = "none"
	for _, row := range []struct {
		c    Config
		run  *sim.Run
		want string
	}{
		{thin, nil, "ended after 0 of 128MiB in two laps"},
		{thin, simulated(t, &thin, 30e6), "of 128MiB in two laps"},
		{eager, simulated(t, &eager, 30e6), "of 1GiB"},
		{none, simulated(t, &none, math.MaxInt64), "give another --profile"},
	} {
		if r, err := row.c.OfRun(row.run); err == nil || !strings.HasSuffix(err.Error(), row.want) {
			t.Errorf("%s disk: %+v, %v; want %s", row.c.Disk, r, err, row.want)
		}
	}
}
