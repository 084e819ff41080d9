package sim

import (
	"fmt"
	"strings"
	"testing"
)

// movingGuest is a guest that reads 4 MiB through a cache, and another host with a cache of the same volume.
const movingGuest = `name: moving
until: 3s
series: 1s
sample: 1s
profile: all-flash
arrays: [{name: a, cache: 16MiB, pools: [{name: p, mdisks: [{size: 1GiB}]}], volumes: [{name: v, pool: p, size: 256MiB, filled: 64MiB}]}]
hosts:
  - {name: h, cache: [{name: here, volume: v, policy: write_through, size: 16MiB, block: 8KiB, warm: 4MiB}]}
  - {name: g, cache: [{name: there, volume: v, policy: write_through, size: 16MiB, block: 8KiB}]}
jobs:
  - {name: guest, host: h, volume: v, io: 8KiB, span: 4MiB, outstanding: 2, think: 1ms}
`

// TestMoveOfAGuest: the guest is at one host at a time, its I/Os go on, and the cache that is left behind is empty.
func TestMoveOfAGuest(t *testing.T) {
	r := runOf(t, "%s", movingGuest+`  - {name: move, kind: vmotion, host: h, volume: v, to: g, at: 1s, memory: 16MiB, bandwidth: 32MiB, caches: blocks}
`)
	v := func(name string, at, over Duration) float64 { return figureOf(t, r, name, at, over) }
	if s := v("job.move.seconds", 0, 0); s < 0.624 || s > 0.627 {
		t.Errorf("16 MiB of memory and 4 MiB of blocks over 32 MiB a second took %.4f s, want 0.625", s)
	}
	if here, there := v("cache.here.effective_iops", 3e9, 1e9), v("cache.there.effective_iops", 1e9, 1e9); here != 0 || there != 0 {
		t.Errorf("%.0f I/Os a second at the old host after the move, %.0f at the new one before it", here, there)
	}
	if before, after := v("cache.here.effective_iops", 1e9, 1e9), v("cache.there.effective_iops", 3e9, 1e9); after < 0.9*before {
		t.Errorf("%.0f I/Os a second before, %.0f after", before, after)
	}
	if hits := v("cache.there.hit_percent", 3e9, 2e9); hits != 100 {
		t.Errorf("%.1f %% of the reads hit at the new host", hits)
	}
	if n := v("cache.here.blocks", 3e9, 1e9); n != 0 {
		t.Errorf("%.0f blocks are left behind", n)
	}
}

// TestMovesThatAreRefused has the message of each.
func TestMovesThatAreRefused(t *testing.T) {
	for _, row := range []struct{ more, says string }{
		{"  - {name: move, kind: vmotion, host: h, volume: v, bandwidth: 1MiB}", "a vmotion goes to another host; add to"},
		{"  - {name: move, kind: vmotion, host: h, volume: v, to: g}", "needs the bandwidth of its link"},
		{"  - {name: move, kind: vmotion, host: h, volume: v, to: g, bandwidth: 1MiB, caches: some}", `jobs[1].caches is "some"; it is one of file, blocks, drop`},
		{"  - {name: move, kind: vmotion, host: h, volume: v, to: h, bandwidth: 1MiB}", `there is no other host "h"`},
		{"faults: [{at: 1s, kind: suspend, cache: nowhere}]", `there is no cache "nowhere"`},
		{"  - {name: tx, kind: transactions, volume: v, users: 1, steps: [{compute: 1ms}], types: [{percent: 50}]}", "it has a name"},
	} {
		s, err := Parse([]byte(movingGuest + row.more + "\n"))
		if err == nil {
			_, err = New(s)
		}
		if got := fmt.Sprint(err); !strings.Contains(got, row.says) {
			t.Errorf("%s: got %s, want %s", row.more, got, row.says)
		}
	}
}

// TestMoveToACacheWithClients: a disk that moves has no clients at the other host, before the guest is there.
func TestMoveToACacheWithClients(t *testing.T) {
	const move = "  - {name: move, kind: vmotion, host: h, volume: v, to: g, at: 1s, memory: 16MiB, bandwidth: 32MiB, caches: %s}\n"
	for _, row := range []struct{ caches, job, says string }{
		{"blocks", "host: g, volume: v, io: 8KiB, write: 1, rate: 100", "job move: cache there has clients of host g while its volume moves there from host h"},
		{"file", "host: g, volume: v, at: 1200ms, io: 8KiB, write: 1, outstanding: 1, bytes: 8KiB", "job move: cache there has clients of host g"},
		{"drop", "host: g, volume: v, at: 1200ms, io: 8KiB, write: 1, outstanding: 1, bytes: 8KiB", "<nil>"},
		{"drop", "host: g, volume: v, io: 8KiB, write: 1, outstanding: 1", "<nil>"},
		{"blocks", "host: g, volume: v, after: move, io: 8KiB, write: 1, outstanding: 1", "<nil>"},
		{"blocks", "host: g, volume: w, io: 8KiB, write: 1, outstanding: 1", "<nil>"},
	} {
		text := strings.Replace(movingGuest, "filled: 64MiB}", "filled: 64MiB}, {name: w, pool: p, size: 16MiB}", 1)
		s, err := Parse([]byte(text + fmt.Sprintf(move, row.caches) + "  - {name: other, " + row.job + "}\n"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := carryOut(s)
		if err == nil {
			err = r.Problem()
		}
		if !strings.Contains(fmt.Sprint(err), row.says) {
			t.Errorf("%s: got %v, want %s", row.job, err, row.says)
		}
	}
	// There is nothing to copy where the guest has no cache.
	text := strings.Replace(movingGuest, ", cache: [{name: here, volume: v, policy: write_through, size: 16MiB, block: 8KiB, warm: 4MiB}]", "", 1)
	r := runOf(t, "%s", text+fmt.Sprintf(move, "blocks")+"  - {name: other, host: g, volume: v, io: 8KiB, write: 1, rate: 100}\n")
	if err := r.Problem(); err != nil {
		t.Errorf("without a cache to copy: %v", err)
	}
}

func TestSendTime(t *testing.T) {
	for _, row := range []struct {
		bytes, bandwidth uint64
		want             int64
	}{{1 << 30, 1 << 30, 1e9}, {32 << 30, 1 << 30, 32e9}, {1 << 62, 1 << 30, 1 << 32 * 1e9}, {0, 1, 0}} {
		if got := sendTime(row.bytes, row.bandwidth); got != row.want {
			t.Errorf("%d bytes at %d a second take %d ns, want %d", row.bytes, row.bandwidth, got, row.want)
		}
	}
}
