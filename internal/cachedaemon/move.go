package cachedaemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// What a running cache does when a virtual machine moves: its contents go to the cache of another host,
// or are forgotten. Either goes piece by piece, with the executor given back between two, and ends when
// the client goes.

// Dropped is what became of a cache's blocks.
type Dropped struct {
	Blocks      int64 `json:"dropped_blocks"`
	Left        int64 `json:"left_blocks"`
	BlockSizeKB int   `json:"block_size_kb"`
}

// Contents is a page of what a cache holds of a LUN: first sector and number of sectors of each range, in the
// order of addresses.
type Contents struct {
	LUN    string      `json:"lun"`
	NAA    [16]byte    `json:"naa"`
	Ranges [][2]uint64 `json:"ranges"`
	// Next is where the next page begins, 0 behind the last one.
	Next int `json:"next,omitempty"`
}

// Warmed is what a cache read of a page, or by Migrate of all of them.
type Warmed struct {
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Cached  int64   `json:"num_blocks_currently_cached"`
	Blocks  int64   `json:"num_blocks"`
}

// pageRanges is how long a page of contents is. The piece of the cache that fills it may make it longer: by
// every other one of 2^18 sectors. Tests shorten it.
var pageRanges = 1 << 16

const pageBytes = (1<<16 + 1<<17) * int64(len("[18446744073709551615,18446744073709551615],"))

// drop empties the cache of what is clean.
func (d *daemon) drop(w http.ResponseWriter, r *http.Request) {
	type piece struct {
		blocks int64
		next   int
	}
	a := Dropped{}
	for next := 0; ; {
		dropped := make(chan piece, 1)
		d.exec.Lock()
		d.disk.DropSome(next, func(blocks int64, next int) { dropped <- piece{blocks, next} })
		d.exec.Unlock()
		select {
		case p := <-dropped:
			a.Blocks, next = a.Blocks+p.blocks, p.next
		case <-r.Context().Done():
			return
		}
		if next == 0 {
			break
		}
	}
	d.exec.Lock()
	after := d.disk.CacheStats()
	d.exec.Unlock()
	a.Left, a.BlockSizeKB = after.NumBlocksCached, after.BlockSizeKB
	d.send(w, a)
}

// contents lists a page of what the cache holds.
func (d *daemon) contents(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.FormValue("from"))
	if err != nil && r.FormValue("from") != "" || from < 0 {
		http.Error(w, "from is the next of the page before", http.StatusBadRequest)
		return
	}
	var a Contents
	var list []block.Range
	for a.Next = from; len(list) < pageRanges; {
		if r.Context().Err() != nil {
			return
		}
		d.exec.Lock()
		info := d.disk.Info()
		list, a.Next = d.disk.Contents(list, a.Next)
		d.exec.Unlock()
		a.LUN, a.NAA = info.Name, info.NAA
		if a.Next == 0 {
			break
		}
	}
	list = block.Union(list)
	a.Ranges = make([][2]uint64, len(list))
	for i, r := range list {
		a.Ranges[i] = [2]uint64{r.Start, r.Count}
	}
	d.send(w, a)
}

// warm reads a page of what another host's cache of the same LUN holds, until it has it or the client goes.
func (d *daemon) warm(w http.ResponseWriter, r *http.Request) {
	var a Contents
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, pageBytes)).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list := make([]block.Range, len(a.Ranges))
	for i, x := range a.Ranges {
		list[i] = block.Range{Start: x[0], Count: x[1]}
	}
	began, done := time.Now(), make(chan uint64, 1)
	stop := func() {}
	d.exec.Lock()
	info := d.disk.Info()
	hears := d.disk.HearsOfOthers()
	if info.NAA == a.NAA && hears {
		stop = d.disk.Warm(list, func(bytes uint64) { done <- bytes })
	}
	d.exec.Unlock()
	if info.NAA != a.NAA {
		http.Error(w, fmt.Sprintf("the other cache is of LUN %s, this one of %s; give caches of the same LUN", a.LUN, info.Name), http.StatusBadRequest)
		return
	}
	if !hears {
		http.Error(w, "this cache is not notified of what others write to the LUN, so data that it reads now would be stale when the other cache writes or destages; "+
			"serve it with --watch from an array that reports changes", http.StatusConflict)
		return
	}
	select {
	case bytes := <-done:
		d.exec.Lock()
		s := d.disk.CacheStats()
		d.exec.Unlock()
		d.send(w, Warmed{bytes, time.Since(began).Seconds(), s.NumBlocksCached, s.NumBlocks})
	case <-r.Context().Done():
		d.exec.Lock()
		stop()
		d.exec.Unlock()
	}
}

// Drop forgets everything that is clean.
func (c *Client) Drop(ctx context.Context) (r Dropped, err error) {
	err = c.ask(ctx, http.MethodPost, pathDrop, nil, &r)
	return r, err
}

// Contents lists a page of what the cache holds; the first one begins at 0.
func (c *Client) Contents(ctx context.Context, from int) (r Contents, err error) {
	err = c.ask(ctx, http.MethodGet, pathContents+"?from="+strconv.Itoa(from), nil, &r)
	return r, err
}

// Warm has the cache read a page of what another host's cache of the same LUN holds.
func (c *Client) Warm(ctx context.Context, contents Contents) (r Warmed, err error) {
	err = c.ask(ctx, http.MethodPost, pathWarm, contents, &r)
	return r, err
}

// Migrate has a cache read what another host's cache of the same LUN holds, page by page.
func Migrate(ctx context.Context, from, to *Client) (sum Warmed, err error) {
	began := time.Now()
	for next := 0; ; {
		page, err := from.Contents(ctx, next)
		if err != nil {
			return sum, err
		}
		r, err := to.Warm(ctx, page)
		if err != nil {
			return sum, err
		}
		r.Bytes += sum.Bytes
		sum = r
		if page.Next == 0 {
			break
		}
		if page.Next <= next {
			return sum, fmt.Errorf("the cache at %s answers page %d and names page %d as the next; it is not a hostcache of this version", from.socket, next, page.Next)
		}
		next = page.Next
	}
	sum.Seconds = time.Since(began).Seconds()
	return sum, nil
}
