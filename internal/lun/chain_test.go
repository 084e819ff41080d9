package lun

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// chain is a cache with a journal before LUN 0 of a lab, as the daemon puts it there, and a client
// of it.
type chain struct {
	*lab
	flash  *File
	below  *Session
	remote *Device // LUN 0 as the cache has it
	disk   *tier.Disk
	portal *iscsi.Portal
	client *Device
	mu     sync.Mutex
	heard  []uint16 // unit attentions that the client got
}

const cacheTarget = "iqn.2026-01.io.arraysim:cache"

func newChain(t *testing.T) *chain {
	c := &chain{lab: newLab(t)}
	var err error
	if c.flash, err = OpenFile(c.x, filepath.Join(t.TempDir(), "flash"), 8<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.flash.Close() })
	c.begin()
	t.Cleanup(func() { c.kill() })
	return c
}

// begin starts the cache.
func (c *chain) begin() {
	c.t.Helper()
	a, err := iscsi.ParseAddress("iscsi://" + c.addr + "/" + testTarget + "/0")
	if err != nil {
		c.t.Fatal(err)
	}
	if c.below, err = Dial(a, "iqn.2026-01.io.arraysim:cache-host", "flash", Times{}); err != nil {
		c.t.Fatal(err)
	}
	if c.remote, err = Open(c.x, c.below, "lun0"); err != nil {
		c.t.Fatal(err)
	}
	failed := make(chan error, 1)
	c.x.Lock()
	tier.Open(tier.Options{Exec: c.x, Below: c.remote, Flash: c.flash, PowerSafe: true, Policy: tier.Policy{Mode: tier.WriteThrough}, WatchNanos: 20_000_000},
		func(d *tier.Disk, err error) { c.disk = d; failed <- err })
	c.x.Unlock()
	if err := <-failed; err != nil {
		c.t.Fatal(err)
	}
	c.x.Lock()
	target := scsi.NewTarget(scsi.Options{Name: cacheTarget, Vendor: "ARRAYSIM", Product: "hostcache", Revision: "1", Exec: c.x})
	err = target.Map("", 0, target.AddUnit(c.disk, scsi.UnitOptions{}))
	c.x.Unlock()
	if err != nil {
		c.t.Fatal(err)
	}
	if c.portal, err = iscsi.New(iscsi.Config{Targets: []iscsi.TargetConfig{{Name: cacheTarget, Target: target}}}); err != nil {
		c.t.Fatal(err)
	}
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	go c.portal.Serve(nl)
	a.Portal, a.Target = nl.Addr().String(), cacheTarget
	s, err := Dial(a, "iqn.2026-01.io.arraysim:client", "client", Times{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	if c.client, err = Open(c.x, hearing{s, c}, "cached"); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends the cache as the death of its process does: nothing is flushed, and no label says that
// it has ended.
func (c *chain) kill() {
	c.below.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.portal.Shutdown(ctx) // cutting connections off is an end, too
	done := make(chan struct{})
	c.x.Lock()
	c.disk.Close(true, func(error) { close(done) })
	c.x.Unlock()
	<-done
}

// hearing is a transport that notes unit attentions.
type hearing struct {
	Transport
	c *chain
}

func (h hearing) Start(c *Command) {
	done := c.Done
	c.Done = func(c *Command) {
		c.Done = done
		if c.Lost == nil && c.key() == senseAttention {
			_, asc := c.sense()
			h.c.mu.Lock()
			h.c.heard = append(h.c.heard, asc)
			h.c.mu.Unlock()
		}
		done(c)
	}
	h.Transport.Start(c)
}

func (c *chain) told(asc uint16) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.heard, asc)
}

// put writes by the client.
func (c *chain) put(at uint64, b byte) {
	c.t.Helper()
	if s := c.do(c.client, &block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: 8}, Data: [][]byte{fill(b, 8)}}); s != block.OK {
		c.t.Fatalf("a write ends %v", s)
	}
}

// TestResizeReachesTheCachesClients: an array's volume grows under a cache that is at work.
func TestResizeReachesTheCachesClients(t *testing.T) {
	c := newChain(t)
	c.put(0, 1)
	c.x.Lock()
	was := c.client.Info().Sectors
	c.files[0].grown = 1024
	for _, fn := range c.files[0].listen {
		fn(block.Event{Kind: block.EventCapacity})
	}
	c.x.Unlock()
	if c.remote.TracksChanges() {
		t.Fatal("the cache asks what others change, and would hear by that")
	}
	// The cache hears with the next command that goes to the array, so each read is of what it does
	// not have; the client hears with its next one.
	next := uint64(1024)
	if !soon(func() bool {
		c.want(c.client, next, fill(0, 8))
		next += 8
		return c.told(ascCapacity)
	}) {
		t.Fatal("the client does not hear that the capacity has changed")
	}
	sectors := func() uint64 {
		c.x.Lock()
		defer c.x.Unlock()
		return c.client.Info().Sectors
	}
	if !soon(func() bool { return sectors() == was+1024 }) {
		t.Errorf("the client has %d sectors, the volume %d", sectors(), was+1024)
	}
}

// TestArrayLosesPowerWhileTheCacheIsDown: what the array has lost is not served from flash, and a
// flush fails.
func TestArrayLosesPowerWhileTheCacheIsDown(t *testing.T) {
	c := newChain(t)
	c.put(0, 1)
	if s := c.do(c.client, &block.Request{Op: block.OpFlush}); s != block.OK {
		t.Fatal(s)
	}
	c.put(0, 2)
	c.want(c.client, 0, fill(2, 8))
	c.kill()
	c.restart() // a target that does not know its initiators says POWER ON
	if s := c.do(c.files[0].Device, &block.Request{Op: block.OpWrite, Range: block.Range{Count: 8}, Data: [][]byte{fill(1, 8)}}); s != block.OK {
		t.Fatal(s)
	}
	c.begin()
	c.want(c.client, 0, fill(1, 8))
	if s := c.do(c.client, &block.Request{Op: block.OpFlush}); s == block.OK {
		t.Error("a flush of what is lost succeeds")
	}
	if s := c.do(c.client, &block.Request{Op: block.OpFlush}); s != block.OK {
		t.Errorf("the next one ends %v", s)
	}
	c.kill()
	c.below.Close()
	c.begin() // the array has been up all the time
	c.want(c.client, 0, fill(1, 8))
	if s := c.do(c.client, &block.Request{Op: block.OpFlush}); s != block.OK {
		t.Errorf("without a loss a flush ends %v", s)
	}
}

// TestAbortsReachTheArray: what a client withdraws from a cache is withdrawn from the array.
func TestAbortsReachTheArray(t *testing.T) {
	c := newChain(t)
	c.put(0, 1)
	slow := c.files[0]
	kept := func() int {
		c.x.Lock()
		defer c.x.Unlock()
		return len(slow.kept)
	}
	for name, r := range map[string]*block.Request{
		"read":  {Op: block.OpRead, Range: block.Range{Start: 1024, Count: 8}, Data: [][]byte{fill(0, 8)}},
		"write": {Op: block.OpWrite, Range: block.Range{Start: 1024, Count: 8}, Data: [][]byte{fill(2, 8)}},
		"flush": {Op: block.OpFlush},
	} {
		slow.stuck.Store(true)
		done := make(chan block.Status, 1)
		r.Done = func(r *block.Request) { done <- r.Status }
		c.x.Lock()
		c.client.Submit([]*block.Request{r})
		c.x.Unlock()
		if !soon(func() bool { return kept() == 1 }) {
			t.Fatalf("the array does not have the %s", name)
		}
		c.x.Lock()
		c.client.Cancel(r)
		c.x.Unlock()
		c.ends(done, block.Cancelled)
		if !soon(func() bool { return kept() == 0 }) {
			t.Errorf("the %s is still at the array", name)
		}
		slow.stuck.Store(false)
		c.want(c.client, 0, fill(1, 8))
	}
}
