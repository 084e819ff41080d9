package cachedaemon

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/lun"
)

// slowDevice is a LUN that takes a time for each read, and tells of changes.
type slowDevice struct {
	block.Device
	exec  *block.Live
	takes int64 // nanoseconds
	reads atomic.Int64
	stuck atomic.Bool // writes have no answer
}

// Info makes all of them the same LUN.
func (s *slowDevice) Info() block.Info {
	i := s.Device.Info()
	i.NAA = [16]byte{0x60, 1}
	return i
}

func (s *slowDevice) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		if r.Op == block.OpWrite && s.stuck.Load() {
			continue
		}
		if r.Op != block.OpRead {
			s.Device.Submit([]*block.Request{r})
			continue
		}
		s.reads.Add(1)
		s.exec.At(s.exec.Now()+s.takes, func() { s.Device.Submit([]*block.Request{r}) })
	}
}

func (s *slowDevice) TracksChanges() bool { return true }

func (s *slowDevice) ChangedSince(_ uint64, done func(uint64, []block.Range, bool)) {
	s.exec.Post(func() { done(1, nil, true) })
}

// serveCache serves the API of a cache.
func serveCache(t *testing.T, takes time.Duration) (*daemon, *slowDevice, *Client) {
	t.Helper()
	return serveCacheOf(t, takes, tier.Policy{Mode: tier.WriteThrough})
}

func serveCacheOf(t *testing.T, takes time.Duration, policy tier.Policy) (*daemon, *slowDevice, *Client) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "lun")
	x := block.NewLive()
	t.Cleanup(x.Stop)
	below, err := lun.OpenFile(x, path, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	flash, err := lun.OpenFile(x, filepath.Join(dir, "flash"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { below.Close(); flash.Close() })
	s := &slowDevice{Device: below.Device(path, block.SectorSize), exec: x, takes: int64(takes)}
	d := &daemon{cfg: Config{Socket: filepath.Join(dir, "sock")}, exec: x, log: slog.New(slog.DiscardHandler)}
	opened := make(chan error, 1)
	x.Lock()
	tier.Open(tier.Options{Exec: x, Below: s, Flash: flash, Volatile: policy.Mode == tier.WriteThrough, BlockSectors: 8, Eviction: "lru", Policy: policy,
		WatchNanos: 1e9}, func(disk *tier.Disk, err error) { d.disk = disk; opened <- err })
	x.Unlock()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	api, err := d.control()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	return d, s, NewClient(d.cfg.Socket)
}

// alternate are so many blocks, with one that is not wanted between two.
func alternate(blocks uint64) (c Contents) {
	for i := range blocks {
		c.Ranges = append(c.Ranges, [2]uint64{i * 16, 8})
	}
	return c
}

// TestMovePageByPage: all that a cache holds gets to another one, however many pages that are, and is dropped by a client that
// hears how much it was.
func TestMovePageByPage(t *testing.T) {
	defer func(n int) { pageRanges = n }(pageRanges)
	pageRanges = 1000
	const blocks = 5000
	a, _, here := serveCache(t, 0)
	_, reads, there := serveCache(t, 0)
	list := alternate(blocks)
	list.NAA = a.disk.Info().NAA
	if r, err := here.Warm(t.Context(), list); err != nil || r.Cached != blocks {
		t.Fatalf("%+v, %v", r, err)
	}
	first, err := here.Contents(t.Context(), 0)
	if err != nil || first.Next == 0 || len(first.Ranges) < pageRanges || len(first.Ranges) > 3*pageRanges {
		t.Fatalf("the first page has %d ranges and goes on at %d: %v", len(first.Ranges), first.Next, err)
	}
	r, err := Migrate(t.Context(), here, there)
	if err != nil || r.Cached != blocks || r.Bytes != blocks*8<<9 || reads.reads.Load() != blocks {
		t.Errorf("%+v by %d reads, %v", r, reads.reads.Load(), err)
	}
	if n, err := there.Drop(t.Context()); err != nil || n.Blocks != blocks || n.Left != 0 {
		t.Errorf("%+v, %v", n, err)
	}
	for _, from := range []int{-1, 1 << 40, math.MaxInt} {
		c, err := here.Contents(t.Context(), from)
		if (err != nil) != (from < 0) || len(c.Ranges) > 0 || c.Next != 0 {
			t.Errorf("the page from %d on: %+v, %v", from, c, err)
		}
	}
}

// TestQuiesceEndsWithItsClient: a quiesce whose client goes away before it has the token does not go on until it expires.
func TestQuiesceEndsWithItsClient(t *testing.T) {
	d, s, c := serveCacheOf(t, 0, tier.Policy{Mode: tier.WriteBack})
	s.stuck.Store(true)
	written := make(chan block.Status, 1)
	d.exec.Lock()
	d.disk.Submit([]*block.Request{{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{make([]byte, 8<<9)}, Done: func(r *block.Request) { written <- r.Status }}})
	d.exec.Unlock()
	if st := <-written; st != block.OK {
		t.Fatal(st)
	}
	quiesced := func() bool { return d.locked(d.disk.State).Quiesced > 0 }
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { _, err := c.Quiesce(ctx, time.Hour); end <- err }()
	for deadline := time.Now().Add(time.Minute); !quiesced(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not quiesced")
		}
	}
	cancel()
	if err := <-end; err == nil {
		t.Fatal("the client has a token")
	}
	for deadline := time.Now().Add(time.Minute); quiesced(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it stays quiesced, and nobody has the token")
		}
	}
}

// TestWarmEndsWithItsClient: nobody waits for what it reads any more.
func TestWarmEndsWithItsClient(t *testing.T) {
	d, s, c := serveCache(t, 50*time.Millisecond)
	list := alternate(5000) // of half a minute
	list.NAA = d.disk.Info().NAA
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { _, err := c.Warm(ctx, list); end <- err }()
	for s.reads.Load() < 50 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-end; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the client hears %v", err)
	}
	still := int64(0)
	for deadline := time.Now().Add(time.Minute); still != s.reads.Load(); time.Sleep(100 * time.Millisecond) {
		if still = s.reads.Load(); time.Now().After(deadline) {
			break
		}
	}
	if still >= 4000 {
		t.Errorf("%d of 5000 blocks were read for nobody", still)
	}
}
