package hostcache

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/trace"
)

// TestAutoPrice measures what a change of policy costs on the CloudPhysics sample: the misses of a cache that begins with
// s3-fifo and changes at a given time, less those of a cache that had the other policy all along, in cache fulls. It is for
// docs/hostcache.md, and fails only if a change costs more than a cache full on average.
func TestAutoPrice(t *testing.T) {
	dir := os.Getenv("ARRAYSIM_TRACES")
	if dir == "" || os.Getenv("ARRAYSIM_CELLS") == "" {
		t.Skip("set ARRAYSIM_CELLS, and ARRAYSIM_TRACES to the folder of the public traces")
	}
	keys := traceKeys(t, filepath.Join(dir, "cloudPhysicsIO.csv"), 4096)
	var prices []float64
	sum, led, after := 0.0, 0, 0.0
	for _, capacity := range []int64{24473, 33651, 48073, 67302, 96146, 134605} {
		alone := map[string][]int64{}
		for _, name := range autoCandidates {
			alone[name] = missesBy(keys, mustNew(Config{Policy: name, Capacity: capacity}), -1, 0)
		}
		for next, name := range autoCandidates[1:] {
			for _, percent := range []int{20, 40, 60} {
				at := len(keys) * percent / 100
				got := missesBy(keys, mustNew(Config{Policy: Auto, Capacity: capacity}), at, next+1)
				behind := func(m []int64) float64 { return float64(m[len(m)-1]-m[at]) / float64(capacity) }
				price := behind(got) - behind(alone[name])
				prices, sum = append(prices, price), sum+price
				if lead := alone["s3-fifo"][at] - alone[name][at]; lead > capacity/10 {
					led, after = led+1, after+behind(alone["s3-fifo"])-behind(alone[name])
				}
			}
		}
	}
	slices.Sort(prices)
	n := len(prices)
	t.Logf("%d changes: %.2f of a cache full on average, quartiles %.2f, %.2f, %.2f, at most %.2f", n, sum/float64(n), prices[n/4], prices[n/2], prices[3*n/4], prices[n-1])
	t.Logf("%d candidates led s3-fifo by more than a tenth at the time; afterwards they missed %.2f of a cache full more than it, on average", led, -after/float64(led))
	if sum > float64(n) {
		t.Error("a change costs more than a cache full")
	}
}

// missesBy gives the references to a cache, of which auto changes to a candidate before reference at and never otherwise
// (-1: no auto), and returns the misses before each reference and behind the last one.
func missesBy(keys []Key, ix *Index, at, next int) []int64 {
	out := make([]int64, 0, len(keys)+1)
	a, _ := ix.policy.(*auto)
	if a != nil {
		a.left = 1 << 62 // the shadows are not compared
	}
	for i, k := range keys {
		if i == at {
			a.follow(next)
		}
		out = append(out, ix.Stats().Misses)
		ix.Access(k, 0)
	}
	return append(out, ix.Stats().Misses)
}

// traceKeys returns the blocks that a trace references.
func traceKeys(t *testing.T, path string, block uint64) []Key {
	r, err := trace.Open(path, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []Key
	for {
		var rec trace.Record
		if err := r.Next(&rec); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		for b := rec.Offset / block; b <= (rec.Offset+uint64(rec.Length)-1)/block; b++ {
			out = append(out, MakeKey(rec.Disk, b))
		}
	}
}
