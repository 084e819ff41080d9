package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/block"
)

// What a running cache does when a virtual machine moves: its contents go to the cache of another host,
// or are forgotten.

// dropAnswer is what became of a cache's blocks.
type dropAnswer struct {
	Dropped     int64 `json:"dropped_blocks"`
	Left        int64 `json:"left_blocks"`
	BlockSizeKB int   `json:"block_size_kb"`
}

// contentsAnswer is what a cache holds of a LUN: first sector and number of sectors of each range.
type contentsAnswer struct {
	LUN    string      `json:"lun"`
	NAA    [16]byte    `json:"naa"`
	Ranges [][2]uint64 `json:"ranges"`
}

// warmAnswer is what a cache read of that.
type warmAnswer struct {
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Cached  int64   `json:"num_blocks_currently_cached"`
	Blocks  int64   `json:"num_blocks"`
}

// contentsBytes bounds a list of contents: 10 million ranges.
const contentsBytes = 256 << 20

// drop empties the cache of what is clean.
func (d *cacheDaemon) drop(w http.ResponseWriter, r *http.Request) {
	dropped := make(chan struct{})
	d.exec.Lock()
	before := d.disk.CacheStats()
	d.disk.Drop(func() { close(dropped) })
	d.exec.Unlock()
	select {
	case <-dropped:
	case <-r.Context().Done():
		return
	}
	d.exec.Lock()
	after := d.disk.CacheStats()
	d.exec.Unlock()
	d.send(w, dropAnswer{before.NumBlocksCached - after.NumBlocksCached, after.NumBlocksCached, after.BlockSizeKB})
}

// contents lists what the cache holds.
func (d *cacheDaemon) contents(w http.ResponseWriter, _ *http.Request) {
	d.exec.Lock()
	info, list := d.disk.Info(), d.disk.Contents()
	d.exec.Unlock()
	a := contentsAnswer{LUN: info.Name, NAA: info.NAA, Ranges: make([][2]uint64, len(list))}
	for i, r := range list {
		a.Ranges[i] = [2]uint64{r.Start, r.Count}
	}
	d.send(w, a)
}

// warm reads what another host's cache of the same LUN holds.
func (d *cacheDaemon) warm(w http.ResponseWriter, r *http.Request) {
	var a contentsAnswer
	if err := json.NewDecoder(io.LimitReader(r.Body, contentsBytes)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list := make([]block.Range, len(a.Ranges))
	for i, x := range a.Ranges {
		list[i] = block.Range{Start: x[0], Count: x[1]}
	}
	began, done := time.Now(), make(chan uint64, 1)
	d.exec.Lock()
	info := d.disk.Info()
	if info.NAA == a.NAA {
		d.disk.Warm(list, func(bytes uint64) { done <- bytes })
	}
	d.exec.Unlock()
	if info.NAA != a.NAA {
		http.Error(w, fmt.Sprintf("the other cache is of LUN %s, this one of %s; give caches of the same LUN", a.LUN, info.Name), http.StatusBadRequest)
		return
	}
	select {
	case bytes := <-done:
		d.exec.Lock()
		s := d.disk.CacheStats()
		d.exec.Unlock()
		d.send(w, warmAnswer{bytes, time.Since(began).Seconds(), s.NumBlocksCached, s.NumBlocks})
	case <-r.Context().Done():
	}
}

// cacheDrop is the other way of moving a disk to another host: what is in its cache stays behind.
func (a *app) cacheDrop() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "drop", Short: "Empty a running cache: forget everything that is clean",
		Long: `drop forgets what a cache has of its LUN, except what is dirty: as after a cold
restart, a resume, a snapshot that is reverted, or a move without the cache. It prints
how many blocks that were. Reads come from the array until the cache is warm again.`,
		Example: "  arraysim hostcache drop",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			var r dropAnswer
			if err := askCache(cmd.Context(), socket, http.MethodPost, "/v1/cache/drop", nil, &r); err != nil {
				return err
			}
			return show(a, cmd, r, func(w io.Writer, r dropAnswer) {
				fmt.Fprintf(w, "%d blocks of %d KB are dropped, %d stay\n", r.Dropped, r.BlockSizeKB, r.Left)
			})
		}),
	}
	c.Flags().StringVar(&socket, "socket", defaultSocket, "socket of 'arraysim hostcache serve'")
	return a.jsonFlag(c)
}

func (a *app) cacheMigrate() *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: "migrate", Short: "Make a cache hold what another host's cache of the same LUN holds",
		Long: `migrate asks a running cache what it holds, and makes another one read just that,
so that a virtual machine that moves between their hosts finds its cache warm. It
prints how much that was and how long it took.

The data comes from the array, in the order of addresses, and not over a link between
the hosts: so it is what is there now, whatever was written meanwhile, and both caches may serve.
The first one keeps its contents; empty it by "hostcache drop".`,
		Example: "  arraysim hostcache migrate --from here.sock --to there.sock",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			var list contentsAnswer
			if err := askCache(cmd.Context(), from, http.MethodGet, "/v1/cache/contents", nil, &list); err != nil {
				return err
			}
			var r warmAnswer
			if err := askCache(cmd.Context(), to, http.MethodPost, "/v1/cache/warm", list, &r); err != nil {
				return err
			}
			return show(a, cmd, r, func(w io.Writer, r warmAnswer) {
				fmt.Fprintf(w, "%s in %.3f s; %d of %d blocks are cached\n", admin.Size(r.Bytes).Human(), r.Seconds, r.Cached, r.Blocks)
			})
		}),
	}
	c.Flags().StringVar(&from, "from", "", "socket of the cache whose contents are wanted")
	c.Flags().StringVar(&to, "to", "", "socket of the cache that reads them")
	for _, name := range []string{"from", "to"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return a.jsonFlag(c)
}
