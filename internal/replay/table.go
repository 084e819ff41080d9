package replay

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/trace"
)

// Belady is the name of the policy that knows the future, for [Table] only.
const Belady = "belady"

// Source gives the requests of a trace: a [trace.Reader] or anything like it.
type Source interface {
	// Next fills the record, or returns io.EOF behind the last one.
	Next(*trace.Record) error
	// Objects tells whether records are objects with sizes.
	Objects() bool
}

// Config says what a [Table] has.
type Config struct {
	Policies []string
	// Sizes of the caches in bytes, or in blocks.
	Sizes []CacheSize
	// BlockSizes in bytes. In a trace of objects they do not matter.
	BlockSizes []int64
	// Sectors makes caches as vFRC's: a block that comes in holds only the sectors
	// that were read or written, and a request is a read hit if all its sectors are there.
	// Without it every reference to a block is a hit or a miss of its own.
	Sectors bool
}

// CacheSize is a capacity in bytes, or in blocks if Blocks is not 0.
type CacheSize struct{ Bytes, Blocks int64 }

// Cell is one cache of a table.
type Cell struct {
	Policy    string `json:"policy"`
	Bytes     int64  `json:"size_bytes,omitempty"`
	Blocks    int64  `json:"size_blocks,omitempty"`
	BlockSize int64  `json:"block_size,omitempty"`

	// References to blocks or objects; with Sectors requests.
	Reads       int64 `json:"reads"`
	ReadMisses  int64 `json:"read_misses"`
	Writes      int64 `json:"writes"`
	WriteMisses int64 `json:"write_misses"`
	// BytesMissed of BytesReferenced: differs from the above for objects only.
	BytesReferenced int64 `json:"bytes_referenced,omitempty"`
	BytesMissed     int64 `json:"bytes_missed,omitempty"`

	MissRatio     float64 `json:"miss_ratio"`
	ReadMissRatio float64 `json:"read_miss_ratio"`
	Evicted       int64   `json:"evicted,omitempty"`
	Switches      int64   `json:"policy_switches,omitempty"`
	Ends          string  `json:"policy_at_end,omitempty"` // what auto follows at the end
}

func (c *Cell) count(write, hit bool, size int64) {
	c.BytesReferenced += size
	miss := int64(1)
	if hit {
		miss = 0
	} else {
		c.BytesMissed += size
	}
	if write {
		c.Writes++
		c.WriteMisses += miss
	} else {
		c.Reads++
		c.ReadMisses += miss
	}
}

func (c *Cell) ratios() {
	c.MissRatio = ratio(c.ReadMisses+c.WriteMisses, c.Reads+c.Writes)
	c.ReadMissRatio = ratio(c.ReadMisses, c.Reads)
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// request is a record in a batch.
type request struct {
	key    hostcache.Key // first block of the range, or object
	blocks uint32
	first  uint32 // sector in the first block
	count  uint32 // sectors, or bytes of an object
	write  bool
}

// lane is all caches of one block size: they get the same requests.
type lane struct {
	blockSize int64
	sectors   int
	batch     []request
	caches    []*cache
	refs      []hostcache.Key // only if Belady is asked for
	sizes     []uint32
	writes    []bool
	keep      bool
}

// cache is a cell at work.
type cache struct {
	cell    Cell
	ix      *hostcache.Index // nil for Belady
	fetched uint32           // what Ahead returned; nobody looks
}

const batchSize = 4096

// Table runs a trace through all combinations of policies, sizes and block
// sizes, in one pass, with as many caches at a time as there are processors. The result does not depend on
// how many there are. Cells come by block size, then policy, then size.
//
// Belady needs all references in memory, 8 bytes each; all else is in constant memory.
func Table(src Source, cfg Config) ([]Cell, error) {
	lanes, err := newLanes(src, cfg)
	if err != nil {
		return nil, err
	}
	var rec trace.Record
	for done := false; !done; {
		for _, l := range lanes {
			l.batch = l.batch[:0]
		}
		for range batchSize {
			err := src.Next(&rec)
			if errors.Is(err, io.EOF) {
				done = true
				break
			}
			if err != nil {
				return nil, err
			}
			for _, l := range lanes {
				if err := l.add(&rec, src.Objects()); err != nil {
					return nil, err
				}
			}
		}
		each(lanes, func(l *lane, c *cache) {
			if c.ix != nil {
				c.run(l, cfg.Sectors)
			}
		})
	}
	each(lanes, func(l *lane, c *cache) {
		if c.ix == nil {
			c.runBelady(l)
		}
	})
	var out []Cell
	for _, l := range lanes {
		for _, c := range l.caches {
			c.cell.ratios()
			if c.ix != nil {
				s := c.ix.Stats()
				c.cell.Evicted, c.cell.Switches = s.Evicted, s.Switches
				if c.cell.Policy == hostcache.Auto {
					c.cell.Ends = c.ix.Policy()
				}
			}
			out = append(out, c.cell)
		}
	}
	return out, nil
}

func newLanes(src Source, cfg Config) ([]*lane, error) {
	blockSizes := cfg.BlockSizes
	if src.Objects() {
		blockSizes = []int64{0}
		if cfg.Sectors {
			return nil, errors.New("a trace of objects has no sectors")
		}
	}
	var lanes []*lane
	for _, b := range blockSizes {
		if b != 0 && (b < trace.SectorSize || b > 1<<30 || b&(b-1) != 0) {
			return nil, fmt.Errorf("a block size of %d bytes is not possible; give a power of two from 512 to 1GiB", b)
		}
		l := &lane{blockSize: b, sectors: int(b / trace.SectorSize)}
		for _, p := range cfg.Policies {
			for _, size := range cfg.Sizes {
				c, err := newCache(p, size, b, cfg.Sectors)
				if err != nil {
					return nil, err
				}
				l.caches = append(l.caches, c)
				l.keep = l.keep || c.ix == nil
			}
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

func newCache(policy string, size CacheSize, blockSize int64, sectors bool) (*cache, error) {
	c := &cache{cell: Cell{Policy: policy, Bytes: size.Bytes, Blocks: size.Blocks, BlockSize: blockSize}}
	icfg := hostcache.Config{Policy: policy}
	switch {
	case blockSize == 0 && size.Blocks != 0:
		return nil, errors.New("the caches of a trace of objects have sizes in bytes")
	case blockSize == 0:
		icfg.Sized, icfg.Capacity = true, size.Bytes
	case size.Blocks != 0:
		c.cell.Bytes, icfg.Capacity = size.Blocks*blockSize, size.Blocks
	default:
		c.cell.Blocks, icfg.Capacity = size.Bytes/blockSize, size.Bytes/blockSize
		if icfg.Capacity == 0 {
			return nil, fmt.Errorf("a cache of %d bytes has no room for a block of %d", size.Bytes, blockSize)
		}
	}
	if policy == Belady {
		if sectors {
			return nil, errors.New("belady is defined for whole blocks, not for sectors")
		}
		return c, nil
	}
	if sectors {
		icfg.BlockSectors = int(blockSize / trace.SectorSize)
	}
	var err error
	c.ix, err = hostcache.New(icfg)
	return c, err
}

// add puts a record into the batch of the lane.
func (l *lane) add(rec *trace.Record, objects bool) error {
	q := request{write: rec.Op == trace.Write}
	if objects {
		q.key, q.blocks, q.count = hostcache.Key(rec.Offset), 1, rec.Length
	} else {
		b := uint64(l.blockSize)
		first, last := rec.Offset/b, (rec.Offset+uint64(rec.Length)-1)/b
		if last >= hostcache.MaxBlocks { // its key would be that of another block
			return fmt.Errorf("a request at byte %d lies behind the %d blocks of %d bytes that a cache can distinguish; give a larger block size", rec.Offset, uint64(hostcache.MaxBlocks), b)
		}
		q.key, q.blocks = hostcache.MakeKey(rec.Disk, first), uint32(last-first+1)
		from := rec.Offset / trace.SectorSize
		q.first = uint32(from - first*uint64(l.sectors))
		q.count = uint32((rec.Offset+uint64(rec.Length)+trace.SectorSize-1)/trace.SectorSize - from)
	}
	l.batch = append(l.batch, q)
	if l.keep {
		for i := range q.blocks {
			l.refs = append(l.refs, q.key+hostcache.Key(i))
			l.writes = append(l.writes, q.write)
			if objects {
				l.sizes = append(l.sizes, q.count)
			}
		}
	}
	return nil
}

// run gives the lane's batch to a cache.
func (c *cache) run(l *lane, sectors bool) {
	for i := range l.batch {
		q := &l.batch[i]
		if sectors {
			c.cell.count(q.write, c.bySector(q, l.sectors), int64(q.count)*trace.SectorSize)
			continue
		}
		size := l.blockSize
		if size == 0 {
			size = int64(q.count)
		}
		if i%hostcache.AheadMax == 0 {
			c.ahead(l.batch[i:])
		}
		for n := range q.blocks {
			hit := c.ix.Access(q.key+hostcache.Key(n), q.count)
			c.cell.count(q.write, hit, size)
		}
	}
}

// ahead lets the memory of the next requests' first blocks come while those before are done.
func (c *cache) ahead(batch []request) {
	var keys [hostcache.AheadMax]hostcache.Key
	n := min(len(batch), len(keys))
	for i := range batch[:n] {
		keys[i] = batch[i].key
	}
	c.fetched += c.ix.Ahead(keys[:n])
}

// bySector is a request to a write-through cache with allocation on write: it
// tells whether all sectors were there, and now they are.
func (c *cache) bySector(q *request, per int) bool {
	all := true
	first, left := int(q.first), int(q.count)
	for n := range q.blocks {
		k := q.key + hostcache.Key(n)
		m := min(per-first, left)
		s := c.ix.Lookup(k)
		if s == hostcache.None {
			all = false
			s = c.ix.Insert(k)
		} else {
			all = all && c.ix.Valid(s, first, m)
			c.ix.Touch(s)
		}
		c.ix.SetValid(s, first, m)
		left -= m
		first = 0
	}
	return all
}

func (c *cache) runBelady(l *lane) {
	capacity := c.cell.Blocks
	if l.blockSize == 0 {
		capacity = c.cell.Bytes
	}
	hostcache.Belady(l.refs, l.sizes, capacity, func(i int, hit bool) {
		size := l.blockSize
		if l.sizes != nil {
			size = int64(l.sizes[i])
		}
		c.cell.count(l.writes[i], hit, size)
	})
}

// each calls fn for all caches, on all processors.
func each(lanes []*lane, fn func(*lane, *cache)) {
	type job struct {
		l *lane
		c *cache
	}
	var jobs []job
	for _, l := range lanes {
		for _, c := range l.caches {
			jobs = append(jobs, job{l, c})
		}
	}
	workers := min(runtime.GOMAXPROCS(0), len(jobs))
	if workers < 2 {
		for _, j := range jobs {
			fn(j.l, j.c)
		}
		return
	}
	next := make(chan job, len(jobs))
	for _, j := range jobs {
		next <- j
	}
	close(next)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for j := range next {
				fn(j.l, j.c)
			}
		})
	}
	wg.Wait()
}
