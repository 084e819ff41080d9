package experiment

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/sim"
)

// Migration is a move of a virtual machine with a write-through cache to another host, while its guest reads its working
// set. The memory goes first, then the cache, over one link.
type Migration struct {
	// Caches is what becomes of the cache: file, with its unused part; blocks, those that are in it; or drop.
	Caches string
	// Size is that of the cache, Memory that of the machine, WorkingSet what the guest reads again and again: bytes.
	Size, Memory, WorkingSet uint64
	// Link is bytes a second, more than 0.
	Link uint64
	// Profile is that of the array.
	Profile string
}

// Migrated is what a migration took.
type Migrated struct {
	Caches  string  `json:"caches"`
	Size    uint64  `json:"cache_bytes"`
	Seconds float64 `json:"seconds"`
	Bytes   uint64  `json:"bytes_moved"`
	// Hits are percent of the guest's reads: in the 3 s before it changes hosts, in the first second
	// after, and 20 s after.
	Before float64 `json:"hit_percent_before"`
	After  float64 `json:"hit_percent_after"`
	Later  float64 `json:"hit_percent_later"`
	// IOPS are the guest's reads a second in the same intervals.
	IOPSBefore float64 `json:"iops_before"`
	IOPSAfter  float64 `json:"iops_after"`
}

// The move begins at migrationStart, and the run goes on for migrationRest after the guest has changed hosts: seconds.
const (
	migrationStart = 3
	migrationRest  = 21
)

// scenario is the migration as one: a host with the machine, one without, an array below both.
func (m *Migration) scenario() (*sim.Scenario, error) {
	most := (m.Memory+m.Size)/m.Link + 2 + migrationStart
	cache := fmt.Sprintf("policy: write_through, size: %d, block: 8KiB, eviction: lru", m.Size)
	return sim.Parse(fmt.Appendf(nil, `
name: migrate
profile: %s
sample: 1s
series: 1s
until: %ds
arrays: [{name: array, adjust: {cache.read_size: 0}, pools: [{name: pool, mdisks: [{size: 2TiB}]}], volumes: [{name: vmdk, pool: pool, size: %d, filled: %d}]}]
hosts:
  - {name: from, cache: [{name: here, volume: vmdk, %s, warm: %d}]}
  - {name: to, cache: [{name: there, volume: vmdk, %s}]}
jobs:
  - {name: guest, host: from, volume: vmdk, io: 8KiB, outstanding: 4, think: 1ms, span: %d}
  - {name: move, kind: vmotion, host: from, volume: vmdk, to: to, at: %ds, memory: %d, bandwidth: %d, caches: "%s"}
`, m.Profile, most+migrationRest, 2*m.WorkingSet, m.WorkingSet, cache, m.WorkingSet, cache, m.WorkingSet, migrationStart, m.Memory, m.Link, m.Caches))
}

// Run carries the migration out in virtual time.
func (m *Migration) Run() (res Migrated, err error) {
	s, err := m.scenario()
	if err != nil {
		return res, err
	}
	r, err := sim.New(s)
	if err != nil {
		return res, err
	}
	for t := int64(1e9); !r.Advance(t); t += 1e9 {
	}
	r.Finish()
	if err := r.Problem(); err != nil {
		return res, err
	}
	value := func(name string, at, over sim.Duration) float64 {
		v, bad := r.Value(name, at, over)
		if err == nil {
			err = bad
		}
		return v
	}
	res = Migrated{Caches: m.Caches, Size: m.Size, Seconds: value("job.move.seconds", 0, 0), Bytes: uint64(value("job.move.bytes", 0, 0))}
	// The series has whole seconds: the last one before, and the first one after.
	there := sim.Duration(int64(migrationStart+res.Seconds) * 1e9)
	res.Before, res.IOPSBefore = value("cache.here.hit_percent", there, 2e9), value("cache.here.effective_read_iops", there, 2e9)
	res.After, res.IOPSAfter = value("cache.there.hit_percent", there+2e9, 1e9), value("cache.there.effective_read_iops", there+2e9, 1e9)
	res.Later = value("cache.there.hit_percent", there+20e9, 1e9)
	return res, err
}
