package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
	"github.com/arraysim/arraysim/internal/store"
)

// tortureStore keeps bytes as a disk does: flushes of NVRAM, commits of the meta store and files of mdisks take their
// time, and fail while they are told to. When the power goes, a commit that nobody has an answer to may have taken
// effect or not, and of NVRAM since the last flush any sectors are kept.
type tortureStore struct {
	*store.Memory
	exec  block.Executor
	rng   *Rand
	made  map[string]bool // mdisks that there are
	queue []metaCommit    // that have no answer yet, the oldest first
	lost  []metaCommit    // that failed
	slow  uint64          // what a flush or a commit takes at most, in ns
	boot  uint64
	nvram []byte
	// stable is what the medium has of the NVRAM for sure, nil: all of it. changed are the pages in which it may have
	// something else, taken are pictures of such pages with flushes that are under way, and free are others.
	stable            []byte
	spare             []byte // memory for that
	layout            block.RegionLayout
	changed           nvramChanges
	taken, free       []*picture
	flushBad, metaBad bool
	failObjects       bool // the next commit of the objects fails
	// shaky of 4 commits fail, and the store has the batch or not; of shakyObjects only those of objects.
	shaky        uint64
	shakyObjects bool
	// partner keeps the NVRAM, nil: it is local memory. remote is the way to it.
	partner  *blocktest.Partner
	remote   *blocktest.Remote
	flushing bool  // there is one at a time
	lastBad  int64 // when something has failed last
	commits  int   // batches with map pages that were committed
	pages    badPages
}

type metaCommit struct {
	batch []block.KV
	done  func(error)
}

// pages reports whether a commit is a part of a checkpoint that has map pages.
func (c metaCommit) pages() bool {
	for _, kv := range c.batch {
		if kv.Key[0] == 'n' {
			return true
		}
	}
	return false
}

var errTorture = errors.New("input/output error")

func newTortureStore(exec block.Executor, rng *Rand, slow uint64) *tortureStore {
	return &tortureStore{Memory: store.NewMemory(exec, store.MemoryOptions{}), exec: exec, rng: rng, made: map[string]bool{}, slow: slow, boot: 1, lastBad: -1}
}

// age has the store hold an array that has made so many pools, of which none is left.
func (s *tortureStore) age(uuid uint64, pools int) error {
	meta, err := s.Memory.Meta()
	if err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{"uuid": uuid, "next_volume": 1, "next_pool": pools})
	if err != nil {
		return err
	}
	return meta.CommitNow([]block.KV{{Key: []byte("o"), Value: b}})
}

// reopen is the store after a death of its process, on another executor.
func (s *tortureStore) reopen(exec block.Executor) *tortureStore {
	open := s.queue
	if len(s.lost) > 0 { // the first one may be there all the same, and after it nothing was written
		open = s.lost[:1]
	}
	for _, c := range open { // in their order
		if s.rng.N(2) == 0 {
			break
		}
		if err := (tortureMeta{s}).CommitNow(c.batch); err != nil {
			panic(err)
		}
	}
	boot, spare := s.boot, s.spare
	switch {
	case s.partner != nil && s.stable != nil:
		s.remote.Cut()
	case s.partner != nil:
		s.remote.Kill()
	case s.stable != nil:
		boot++
		s.loseNVRAM()
		spare = s.stable
	}
	return &tortureStore{Memory: s.Memory.Reopen(exec), exec: exec, rng: s.rng, made: s.made, slow: s.slow, boot: boot, lastBad: -1, commits: s.commits,
		partner: s.partner, free: append(s.free, s.taken...), spare: spare}
}

// loseNVRAM takes back what is not on the medium: of each sector that has changed, or of few.
func (s *tortureStore) loseNVRAM() {
	kept := []uint64{0, 5, 50, 95}[s.rng.N(4)]
	for _, p := range s.taken {
		p.back(&s.changed)
	}
	s.changed.add(s.layout.Offset(block.PartCounters), s.layout.Counters)
	for at := 0; at < len(s.nvram); at += 512 {
		end := min(at+512, len(s.nvram))
		if bytes.Equal(s.nvram[at:end], s.stable[at:end]) {
			continue
		}
		if !s.changed.has(at) {
			panic(fmt.Sprintf("byte %d of NVRAM was written to without an announcement", at))
		}
		if s.rng.N(100) >= kept {
			copy(s.nvram[at:end], s.stable[at:end])
		}
	}
}

// arm has the medium take all of the NVRAM now; what comes later may be lost until it is flushed.
func (s *tortureStore) arm() {
	if s.partner != nil {
		s.stable = []byte{}
		s.partner.Settle()
		return
	}
	s.stable, s.spare = append(s.spare[:0], s.nvram...), nil
	clear(s.changed.of)
}

// later calls fn when a disk would have done something.
func (s *tortureStore) later(fn func()) {
	s.exec.At(s.exec.Now()+int64(s.rng.N(s.slow)), fn)
}

// Medium opens an mdisk that was made.
func (s *tortureStore) Medium(name string, size uint64) (block.Medium, error) {
	if !s.made[name] {
		return nil, fmt.Errorf("the file of mdisk %s is missing", name)
	}
	return s.Memory.Medium(name, size)
}

func (s *tortureStore) MakeMedium(name string, size uint64, done func(error)) {
	s.later(func() {
		s.made[name] = true
		s.Memory.MakeMedium(name, size, done)
	})
}

func (s *tortureStore) RemoveMedium(name string, done func(error)) {
	s.later(func() {
		delete(s.made, name)
		s.Memory.RemoveMedium(name, done)
	})
}

func (s *tortureStore) Region(name string, l block.RegionLayout) (block.Region, bool, error) {
	if s.partner != nil {
		s.partner.FailFlush = func() bool { return s.flushBad }
		s.remote = blocktest.NewRemote(nil, s.exec, s.partner, int64(s.slow), rand.New(rand.NewPCG(s.rng.Uint64(), 0)))
		r, fresh, err := s.remote.Region(name, l)
		return remoteRegion{r, s}, fresh, err
	}
	r, fresh, err := s.Memory.Region(name, l)
	if err != nil {
		return nil, false, err
	}
	s.nvram, s.layout = s.Memory.NVRAM(), l
	return tortureRegion{r, s}, fresh, nil
}

// remoteRegion is a partner's, and notes when a flush has failed.
type remoteRegion struct {
	block.Region
	s *tortureStore
}

func (r remoteRegion) Flush(done func(error)) {
	r.s.beginFlush()
	r.Region.Flush(func(err error) {
		r.s.flushing = false
		if err != nil {
			r.s.lastBad = r.s.exec.Now()
		}
		done(err)
	})
}

// beginFlush holds the array to the contract of a region.
func (s *tortureStore) beginFlush() {
	if s.flushing {
		panic("a flush of NVRAM begins while another one is under way")
	}
	s.flushing = true
}

type tortureRegion struct {
	block.Region
	s *tortureStore
}

func (r tortureRegion) Boot() uint64 { return r.s.boot }

// Listen is true: the store keeps books of what has changed.
func (r tortureRegion) Listen() bool { return true }

func (r tortureRegion) Announce(p block.Part, off, n int) {
	if r.s.stable != nil {
		r.s.changed.add(r.s.layout.Offset(p)+off, n)
	}
}

func (r tortureRegion) Append(at int, record []byte) {
	r.Announce(block.PartLog, at, len(record))
	r.Region.Append(at, record)
}

func (r tortureRegion) Flush(done func(error)) {
	s := r.s
	s.beginFlush()
	var now *picture
	if s.stable != nil {
		now = &picture{}
		if n := len(s.free); n > 0 {
			now, s.free = s.free[n-1], s.free[:n-1]
		}
		r.Announce(block.PartCounters, 0, r.s.layout.Counters) // they count in place, and nobody says so
		now.take(s.nvram, &s.changed)
		s.taken = append(s.taken, now)
	}
	s.later(func() {
		s.flushing = false
		if now != nil {
			s.taken = slices.DeleteFunc(s.taken, func(p *picture) bool { return p == now })
			s.free = append(s.free, now)
		}
		if s.flushBad {
			s.lastBad = s.exec.Now()
			if now != nil {
				now.back(&s.changed)
			}
			done(errTorture)
			return
		}
		if now != nil {
			now.put(s.stable)
		}
		done(nil)
	})
}

func (s *tortureStore) Meta() (block.MetaStore, error) { return tortureMeta{s}, nil }

type tortureMeta struct{ s *tortureStore }

func (k tortureMeta) inner() block.MetaStore {
	meta, err := k.s.Memory.Meta()
	if err != nil {
		panic(err)
	}
	return meta
}

func (k tortureMeta) CommitNow(batch []block.KV) error { return k.inner().CommitNow(batch) }

func (k tortureMeta) Limit() int { return k.inner().Limit() }

func (k tortureMeta) Get(key []byte) ([]byte, error) { return k.inner().Get(key) }

func (k tortureMeta) Read(key []byte, done func([]byte, error)) {
	value, err := k.inner().Get(key)
	k.s.pages.read(k.s, value, err, done)
}

func (k tortureMeta) Load(prefix []byte, fn func(key, value []byte) error) error {
	return k.inner().Load(prefix, fn)
}

func (k tortureMeta) Commit(batch []block.KV, done func(error)) {
	s := k.s
	s.queue = append(s.queue, metaCommit{batch, done})
	s.later(func() {
		c := s.queue[0]
		s.queue = s.queue[1:]
		if s.metaBad { // nothing goes there any more until the next start
			s.lastBad = s.exec.Now()
			s.lost = append(s.lost, c)
			c.done(errTorture)
			return
		}
		if s.failObjects && c.batch[0].Key[0] == 'o' {
			s.failObjects, s.lastBad = false, s.exec.Now()
			c.done(errTorture)
			return
		}
		if s.shaky > 0 && (!s.shakyObjects || c.batch[0].Key[0] == 'o') && s.rng.N(4) < s.shaky {
			if s.rng.N(2) == 0 {
				if err := k.CommitNow(c.batch); err != nil {
					panic(err)
				}
			}
			s.lastBad = s.exec.Now()
			c.done(errTorture)
			return
		}
		if c.pages() {
			s.commits++
		}
		c.done(k.CommitNow(c.batch))
	})
}
