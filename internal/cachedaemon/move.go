package cachedaemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// What a running cache does when a virtual machine moves: its contents go to the cache of another host,
// or are forgotten.

// Dropped is what became of a cache's blocks.
type Dropped struct {
	Blocks      int64 `json:"dropped_blocks"`
	Left        int64 `json:"left_blocks"`
	BlockSizeKB int   `json:"block_size_kb"`
}

// Contents is what a cache holds of a LUN: first sector and number of sectors of each range.
type Contents struct {
	LUN    string      `json:"lun"`
	NAA    [16]byte    `json:"naa"`
	Ranges [][2]uint64 `json:"ranges"`
}

// Warmed is what a cache read of that.
type Warmed struct {
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Cached  int64   `json:"num_blocks_currently_cached"`
	Blocks  int64   `json:"num_blocks"`
}

// contentsBytes bounds a list of contents: 10 million ranges.
const contentsBytes = 256 << 20

// drop empties the cache of what is clean.
func (d *daemon) drop(w http.ResponseWriter, r *http.Request) {
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
	d.send(w, Dropped{before.NumBlocksCached - after.NumBlocksCached, after.NumBlocksCached, after.BlockSizeKB})
}

// contents lists what the cache holds.
func (d *daemon) contents(w http.ResponseWriter, _ *http.Request) {
	d.exec.Lock()
	info, list := d.disk.Info(), d.disk.Contents()
	d.exec.Unlock()
	a := Contents{LUN: info.Name, NAA: info.NAA, Ranges: make([][2]uint64, len(list))}
	for i, r := range list {
		a.Ranges[i] = [2]uint64{r.Start, r.Count}
	}
	d.send(w, a)
}

// warm reads what another host's cache of the same LUN holds.
func (d *daemon) warm(w http.ResponseWriter, r *http.Request) {
	var a Contents
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
	hears := d.disk.HearsOfOthers()
	if info.NAA == a.NAA && hears {
		d.disk.Warm(list, func(bytes uint64) { done <- bytes })
	}
	d.exec.Unlock()
	if info.NAA != a.NAA {
		http.Error(w, fmt.Sprintf("the other cache is of LUN %s, this one of %s; give caches of the same LUN", a.LUN, info.Name), http.StatusBadRequest)
		return
	}
	if !hears {
		http.Error(w, "this cache does not hear of what others write to the LUN, so that what it reads now would be out of date when the other cache writes or destages; "+
			"serve it with --watch from an array that tells of changes", http.StatusConflict)
		return
	}
	select {
	case bytes := <-done:
		d.exec.Lock()
		s := d.disk.CacheStats()
		d.exec.Unlock()
		d.send(w, Warmed{bytes, time.Since(began).Seconds(), s.NumBlocksCached, s.NumBlocks})
	case <-r.Context().Done():
	}
}

// Drop forgets everything that is clean.
func (c *Client) Drop(ctx context.Context) (r Dropped, err error) {
	err = c.ask(ctx, http.MethodPost, pathDrop, nil, &r)
	return r, err
}

// Contents lists what the cache holds.
func (c *Client) Contents(ctx context.Context) (r Contents, err error) {
	err = c.ask(ctx, http.MethodGet, pathContents, nil, &r)
	return r, err
}

// Warm has the cache read what another host's cache of the same LUN holds.
func (c *Client) Warm(ctx context.Context, contents Contents) (r Warmed, err error) {
	err = c.ask(ctx, http.MethodPost, pathWarm, contents, &r)
	return r, err
}
