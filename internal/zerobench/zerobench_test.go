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

// TestOneLap: all figures of a lazy or thin disk are of the first lap, as those of a target are, whatever the size.
func TestOneLap(t *testing.T) {
	for _, c := range []Config{
		{Disk: "thin", VAAI: true, Size: 64 << 20, Outstanding: 32},
		{Disk: "thin", VAAI: true, Size: 1 << 20, Outstanding: 32},
		{Disk: "lazy", VAAI: true, Size: 2 << 20, Outstanding: 256},
		{Disk: "lazy", Size: 8 << 20, Outstanding: 4},
		{Disk: "eager", VAAI: true, Size: 64 << 20, Outstanding: 32},
		{Disk: "eager", Size: 8 << 20, Outstanding: 32},
	} {
		c.Profile = "purity-5.1"
		r, err := c.OfRun(simulated(t, &c, math.MaxInt64))
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		want := float64(c.Size) // the guest's writes, or the host's zeros
		switch {
		case c.VAAI && c.Disk == "eager":
			want = float64(c.Size >> 20 * 512)
		case c.VAAI:
			want += float64(c.Size >> 20 * 512)
		case c.Disk != "eager":
			want *= 2
		}
		// A thin disk's lock is 1 KiB, and the first command is sent again behind a unit attention.
		if wire := r.WireMBps * r.Seconds * 1e6; wire < want-1 || wire > want+moverIO+2048 {
			t.Errorf("%s disk of %d, VAAI %s: %.0f bytes on the wire, not %.0f", c.Disk, c.Size, r.VAAI, wire, want)
		}
		if got := r.GBps * r.Seconds * 1e9; math.Abs(got-float64(c.Size)) > 1 || !(r.MeanMS > 0 && r.P99MS > r.MeanMS*0.99) || (r.AfterMS > 0) != (c.Disk != "eager") {
			t.Errorf("%s disk of %d, VAAI %s: %+v", c.Disk, c.Size, r.VAAI, r)
		}
	}
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
