package trace

import (
	"bytes"
	"strings"
	"testing"
)

func TestHistogramsCountAsVscsiStatsDoes(t *testing.T) {
	var h Histograms
	// Two sequential reads of 4 KiB, then a write of 64 KiB far behind.
	h.Begin(0, Read, 0, 4096)
	h.Begin(20_000, Read, 4096, 4096)
	h.Complete(Read, 150_000)
	h.Begin(620_000, Write, 1<<30, 65536)
	h.Complete(Read, 99_000_000)
	h.Complete(Write, 101_000_000)
	bucket := func(k Kind, class int, limit int64) int64 {
		for i, l := range kinds[k].limits {
			if l == limit {
				return h.Of[k][class].Buckets[i]
			}
		}
		return h.Of[k][class].Buckets[len(kinds[k].limits)]
	}
	for _, c := range []struct {
		k     Kind
		class int
		limit int64
		want  int64
	}{
		{IOLength, 0, 4096, 2}, {IOLength, 0, 65536, 1}, {IOLength, 1, 4096, 2}, {IOLength, 2, 65536, 1},
		{SeekDistance, 0, 0, 1}, {SeekDistance, 0, 1 << 60, 1},
		{OutstandingIOs, 0, 1, 1}, {OutstandingIOs, 0, 2, 2}, {OutstandingIOs, 2, 1, 1},
		{Latency, 1, 500, 1}, {Latency, 1, 100000, 1}, {Latency, 2, 1 << 60, 1},
		{Interarrival, 0, 100, 1}, {Interarrival, 0, 1000, 1}, {Interarrival, 1, 100, 1},
	} {
		if got := bucket(c.k, c.class, c.limit); got != c.want {
			t.Errorf("kind %d, class %d, up to %d: %d, want %d", c.k, c.class, c.limit, got, c.want)
		}
	}
	var out bytes.Buffer
	if err := h.WriteCSV(&out, "latency", 1, "d"); err != nil {
		t.Fatal(err)
	}
	s := out.String()
	if !strings.HasPrefix(s, "Histogram: latency of IOs in Microseconds (us),virtual machine worldGroupID,1,virtual disk handleID,d\nmin,150\nmax,101000\nmean,66716\ncount,3\nFrequency,Histogram Bucket Limit\n0,1\n0,10\n0,100\n1,500\n") ||
		!strings.Contains(s, "1,100000\n1,>100000\n\nHistogram: latency of Read IOs") {
		t.Error(s)
	}
	h.Begin(1, Read, 0, 512)
	h.Reset()
	h.Begin(2, Read, 0, 512)
	if n := h.Of[OutstandingIOs][0].Max; n != 2 {
		t.Errorf("%d requests are outstanding after a reset, want 2", n)
	}
}
