package tier

import (
	"math/bits"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache"
)

// Stats are counters since the start. Sectors are of 512 bytes.
type Stats struct {
	FilledSectors      uint64
	FillsSkipped       uint64 // for lack of memory, of a frame or of room in the journal, or because the block is not admitted
	DestagedSectors    uint64
	DestageErrors      uint64
	NoSpaceBelow       uint64 // of those, because the pool below is full
	PassedWrites       uint64 // writes that found the area or the cache full
	OrderedWrites      uint64 // overwrites of what is on flash: record first, then data
	ThrottledWrites    uint64
	InjectedNanos      int64
	InvalidatedSectors uint64 // clean ones
	SupersededSectors  uint64 // dirty ones
	// OffloadFlushSectors were destaged because an offload reads them, OffloadWaitNanos is how long
	// offloads that read waited for that.
	OffloadFlushSectors uint64
	OffloadWaitNanos    int64
	ConflictSectors     uint64 // dirty here, and changed below by somebody else
	LostSectors         uint64 // dirty ones whose only copies are gone
	FlashLost           uint64
	PeersLost           uint64
	Transitions         uint64
	ExpiredQuiesces     uint64
	JournalBytes        uint64
	Generations         uint64 // changes by others that were heard of
	ChangedSectors      uint64 // that others changed, as the device told
	PowerLosses         uint64 // of the device below, that may have lost writes
	UnansweredQuestions uint64 // what others changed, that the device did not answer
}

// Flow counts I/Os of one kind. Mean latency is Nanos/IOs.
type Flow struct {
	IOs, Bytes uint64
	Nanos      int64
	Max        int64 // nanoseconds
}

func (f *Flow) add(bytes uint64, nanos int64) {
	f.IOs++
	f.Bytes += bytes
	f.Nanos += nanos
	f.Max = max(f.Max, nanos)
}

// Mean returns the mean latency in nanoseconds.
func (f Flow) Mean() int64 {
	if f.IOs == 0 {
		return 0
	}
	return f.Nanos / int64(f.IOs)
}

// meanMicros is Mean in microseconds, nil without any I/O.
func (f Flow) meanMicros() *int64 {
	if f.IOs == 0 {
		return nil
	}
	return new(f.Mean() / 1000)
}

// Views are the same I/Os as different components see them, by reads and writes.
// Effective is what the client sees.
type Views struct {
	Effective, LocalFlash, NetworkFlash, Datastore struct{ Read, Write Flow }
	// Destages are the destager's writes, which are in Datastore too.
	Destages Flow
}

// window is what all statistics are made of.
type window struct {
	views     Views
	destages  Flow
	hits      uint64 // reads answered by flash alone
	evicted   uint64
	evictOps  uint64
	lastEvict uint64
	lastTime  int64
	maxBytes  uint64
	errors    struct{ flash, disk uint64 } // what the client withdrew is none
	since     int64
	used      struct{ sum, samples uint64 }
	second    struct {
		at   int64
		n    uint64
		most uint64
	}
}

func (w *window) count(d *Disk, bytes uint64) {
	w.maxBytes = max(w.maxBytes, bytes)
	now := d.exec.Now() / 1e9
	if now != w.second.at {
		w.second.at, w.second.n = now, 0
	}
	w.second.n++
	w.second.most = max(w.second.most, w.second.n)
	w.used.sum += uint64(d.ix.Len())
	w.used.samples++
}

// made counts the blocks that left for a new one.
func (w *window) made(d *Disk, evicted uint64) {
	if evicted > 0 {
		w.evictOps++
		w.lastEvict, w.lastTime = evicted, d.exec.Now()
	}
}

func (w *window) read(d *Disk, o *op) {
	if o.status == block.Cancelled {
		return
	}
	bytes, took := o.req.Range.Bytes(), d.exec.Now()-o.start
	w.count(d, bytes)
	w.views.Effective.Read.add(bytes, took)
	if o.status != block.OK {
		w.errors.disk++
	}
	flashed, missed := uint64(0), uint64(0)
	for _, g := range o.segs {
		if g.slot == hostcache.None {
			missed += g.Bytes()
		} else {
			flashed += g.Bytes()
		}
	}
	switch {
	case missed == 0 && d.local().state == memberLost:
		w.views.NetworkFlash.Read.add(flashed, took)
		w.hits++
	case missed == 0:
		w.views.LocalFlash.Read.add(flashed, took)
		w.hits++
	default:
		w.views.Datastore.Read.add(missed, took)
	}
}

// flashWrite is a write that every flash device has.
func (w *window) flashWrite(d *Disk, o *op) {
	bytes, took := o.req.Range.Bytes(), d.exec.Now()-o.start
	w.views.LocalFlash.Write.add(bytes, took)
	if own, external := d.peersPresent(false); own+external > 0 {
		w.views.NetworkFlash.Write.add(bytes, took)
	}
}

// write is the acknowledgement of that.
func (w *window) write(d *Disk, o *op) {
	bytes := o.req.Range.Bytes()
	w.count(d, bytes)
	w.views.Effective.Write.add(bytes, d.exec.Now()-o.start)
}

// below is what the device below did for a client.
func (w *window) below(d *Disk, o *op) {
	if o.req.Op != block.OpWrite || o.status == block.Cancelled {
		return
	}
	bytes, took := o.req.Range.Bytes(), d.exec.Now()-o.start
	w.count(d, bytes)
	if o.status != block.OK {
		w.errors.disk++
	}
	w.views.Effective.Write.add(bytes, took)
	w.views.Datastore.Write.add(bytes, d.exec.Now()-o.sent)
}

func (w *window) destage(d *Disk, o *op, took int64) {
	if o.status != block.OK {
		if !d.cutOff(o) {
			w.errors.disk++
		}
		return
	}
	bytes := o.ranges[0].Bytes()
	w.destages.add(bytes, took)
	w.views.Datastore.Write.add(bytes, took)
}

// Stats returns the counters.
func (d *Disk) Stats() Stats { return d.stats }

// Views returns the I/Os as the components see them.
func (d *Disk) Views() Views {
	v := d.window.views
	v.Destages = d.window.destages
	return v
}

// CacheStats are the figures of `esxcli storage vflash cache stats get`, and of the
// paper on vFRC, in their units. A rate, a mean or a greatest value of nothing is nil: nobody knows it.
type CacheStats struct {
	// Read.
	HitRate          *int    `json:"cache_hit_rate_percent"` // vFlash:cacheHitPercentage
	CacheIOs         uint64  `json:"total_cache_ios"`
	MeanCacheLatency *int64  `json:"mean_cache_io_latency_us"`
	MeanDiskLatency  *int64  `json:"mean_disk_io_latency_us"`
	IOs              uint64  `json:"total_ios"`
	MeanIOPS         *uint64 `json:"mean_iops"`
	MaxIOPS          uint64  `json:"max_observed_iops"`
	MeanKBPerIO      *uint64 `json:"mean_kb_per_io"`
	MaxKBPerIO       *uint64 `json:"max_observed_kb_per_io"`
	MeanLatency      *int64  `json:"mean_io_latency_us"`
	MaxLatency       *int64  `json:"max_observed_io_latency_us"`
	EvictLastTime    *int64  `json:"evict_last_io_operation_time_ms"`
	EvictLastBlocks  *uint64 `json:"evict_blocks_in_last_operation"`
	EvictMeanBlocks  *uint64 `json:"evict_mean_blocks_per_operation"` // Evict:avgNumBlocksPerOp
	Evictions        uint64  `json:"evicted_blocks"`
	UsageRate        int     `json:"cache_usage_rate_percent"`
	FailedSSD        uint64  `json:"total_failed_ssd_ios"`
	FailedDisk       uint64  `json:"total_failed_disk_ios"`
	MeanBlocksInUse  *uint64 `json:"mean_cache_blocks_in_use"`
	NumBlocks        int64   `json:"num_blocks"`
	NumBlocksCached  int64   `json:"num_blocks_currently_cached"`
	MemoryBytes      int64   `json:"memory_bytes"`
	BlockSizeKB      int     `json:"block_size_kb"`
	DirtyBlocks      int64   `json:"dirty_blocks"`
}

// CacheStats returns the figures since the start or the last ResetStats.
func (d *Disk) CacheStats() CacheStats {
	w := &d.window
	r := w.views.Effective.Read
	ios := r.IOs + w.views.Effective.Write.IOs
	s := CacheStats{
		CacheIOs:         w.views.LocalFlash.Read.IOs + w.views.LocalFlash.Write.IOs,
		MeanCacheLatency: w.views.LocalFlash.Read.meanMicros(),
		MeanDiskLatency:  w.views.Datastore.Read.meanMicros(),
		IOs:              ios,
		MaxIOPS:          w.second.most,
		Evictions:        w.evicted,
		FailedSSD:        w.errors.flash,
		FailedDisk:       w.errors.disk,
		NumBlocks:        d.ix.Capacity(),
		NumBlocksCached:  d.ix.Len(),
		DirtyBlocks:      d.ix.DirtyBlocks(),
		BlockSizeKB:      d.per / 2,
		UsageRate:        int(d.ix.Len() * 100 / d.ix.Capacity()),
		MemoryBytes:      d.Memory(),
	}
	if r.IOs > 0 {
		s.HitRate = new(int(w.hits * 100 / r.IOs))
	}
	if ios > 0 {
		s.MeanLatency = new((r.Nanos + w.views.Effective.Write.Nanos) / int64(ios) / 1000)
		s.MaxLatency = new(max(r.Max, w.views.Effective.Write.Max) / 1000)
		s.MeanKBPerIO = new((r.Bytes + w.views.Effective.Write.Bytes) / ios >> 10)
		s.MaxKBPerIO = new(w.maxBytes >> 10)
	}
	if t := d.exec.Now() - w.since; t > 0 {
		hi, lo := bits.Mul64(ios, 1e9)
		n, _ := bits.Div64(hi%uint64(t), lo, uint64(t)) // no more than 2^64 I/Os a nanosecond
		s.MeanIOPS = new(n)
	}
	if w.evictOps > 0 {
		s.EvictMeanBlocks = new(w.evicted / w.evictOps)
		s.EvictLastTime, s.EvictLastBlocks = new(w.lastTime/1e6), new(w.lastEvict)
	}
	if w.used.samples > 0 {
		s.MeanBlocksInUse = new(w.used.sum / w.used.samples)
	}
	return s
}

// ResetStats begins the figures of CacheStats and Views anew.
func (d *Disk) ResetStats() { d.window = window{since: d.exec.Now()} }

// Memory returns the bytes of memory that the cache's bookkeeping takes: by block size,
// the figure that the paper on vFRC shows.
func (d *Disk) Memory() int64 {
	m := d.ix.Memory()
	return m.SlotBytes + m.BitmapBytes + m.PolicyBytes + int64(len(d.frameOf))*4 + int64(cap(d.freeFrames))*4
}
