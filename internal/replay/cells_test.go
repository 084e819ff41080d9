package replay

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/hostcache"
)

// cellsVar asks for TestAutoCells, which takes minutes.
const cellsVar = "ARRAYSIM_CELLS"

// cellTraces are the public traces with the blocks that each touches.
var cellTraces = []struct {
	name          string
	block, unique int64
}{
	{"cloudPhysicsIO.csv", 4096, 269_210}, {"w106.trace.xz", 4096, 275_171}, {"arc/OLTP.lis.zst", 512, 186_880}, {"arc/P3.lis.zst", 512, 762_543},
}

// cellParts are the sizes of the caches: one part in so many of the blocks that are touched.
var cellParts = []float64{256, 181, 128, 91, 64, 45, 32, 23, 16, 11, 8, 5.6, 4, 2.8, 2}

// autoCandidates are the policies that auto chooses from.
var autoCandidates = []string{"s3-fifo", "lru", "2q", "arc", "lirs", "w-tinylfu", "sieve", "lfu"}

// TestAutoCells measures auto against the best of its own candidates on 60 cells: four traces and fifteen sizes. It is to be
// within 2 points; docs/hostcache.md has the cells where it is not, with the reason.
func TestAutoCells(t *testing.T) {
	if os.Getenv(cellsVar) == "" {
		t.Skip("set " + cellsVar + " to run it")
	}
	if os.Getenv(tracesVar) == "" {
		t.Fatal("set " + tracesVar + " to the folder of the traces")
	}
	sum, most, n, beyond := 0.0, 0.0, 0, 0
	for _, x := range cellTraces {
		var sizes []CacheSize
		for _, p := range cellParts {
			sizes = append(sizes, CacheSize{Blocks: max(int64(float64(x.unique)/p), 64)})
		}
		cells, err := Table(open(t, x.name), Config{Policies: append(slices.Clone(autoCandidates), hostcache.Auto), Sizes: sizes, BlockSizes: []int64{x.block}})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range sizes {
			auto, best, name := 0.0, 2.0, ""
			for _, c := range cells {
				switch {
				case c.Blocks != size.Blocks:
				case c.Policy == hostcache.Auto:
					auto = c.MissRatio
				case c.MissRatio < best:
					best, name = c.MissRatio, c.Policy
				}
			}
			points := 100 * (auto - best)
			sum, most, n = sum+points, max(most, points), n+1
			line := fmt.Sprintf("%-18s %6d blocks: best %-9s %.4f auto %.4f %+.2f points", x.name, size.Blocks, name, best, auto, points)
			if t.Log(line); points > 2 {
				beyond++
				t.Errorf("%s: more than 2", line)
			}
		}
	}
	// scripts/prove.py keeps this line beside the result.
	t.Logf("%d cells: %.2f points on average, %.2f at most, %d beyond 2", n, sum/float64(n), most, beyond)
}
