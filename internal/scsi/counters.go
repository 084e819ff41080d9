// What the host layer counts: commands, bytes and durations for each volume, and commands for
// each initiator. A command is counted once, when it completes; a copy is counted for each unit
// that took part, by its operation. Counters outlive units, by the names of volumes.

package scsi

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
)

// opKind is how the host layer groups commands.
type opKind uint8

const (
	opRead opKind = iota
	opWrite
	opWriteSame
	opXCopySource
	opXCopyTarget
	opODXSource
	opODXTarget
	opUnmap
	opCAW
	opSync
	opErase
	opOther
	numOps
)

// carries reports whether the data of these commands is what the volume holds or is to hold.
// Parameter lists, and what the array tells about itself, are not what hosts read and write.
func (k opKind) carries() bool {
	return k == opRead || k == opWrite || k == opWriteSame || k == opCAW
}

var opNames = [numOps]string{"read", "write", "write_same", "xcopy_src", "xcopy_dst", "odx_src", "odx_dst", "unmap", "caw", "sync", "erase", "other"}

// outcomes are the values of the status label.
const numOutcomes = 5

var outcomeNames = [numOutcomes]string{"good", "check", "busy", "task_set_full", "conflict"}

func outcomeOf(status byte) int {
	switch status {
	case StatusGood, StatusConditionMet:
		return 0
	case StatusBusy:
		return 2
	case StatusTaskSetFull:
		return 3
	case StatusReservationConflict:
		return 4
	}
	return 1 // CHECK CONDITION, TASK ABORTED
}

// hostStats counts the commands of one initiator to one volume.
type hostStats struct {
	host     *host
	Commands [numOps][numOutcomes]uint64
}

// unitStats counts what one volume's hosts did. They outlive the unit.
type unitStats struct {
	volume    string
	pool      string
	unit      *Unit        // nil when no unit of this volume exists
	hosts     []*hostStats // in order of appearance
	Wire      [2]uint64    // bytes read, written
	Described [numOps]uint64
	Duration  [numOps]metrics.Histogram
}

func (t *Target) statsOf(volume string) *unitStats {
	s := t.stats[volume]
	if s == nil {
		s = &unitStats{volume: volume}
		t.stats[volume] = s
		i, _ := slices.BinarySearch(t.vols, volume)
		t.vols = slices.Insert(t.vols, i, volume)
	}
	return s
}

// Forget drops the counters of a volume that has no unit any more: another may get its name, and
// counts from 0.
func (t *Target) Forget(volume string) {
	if s := t.stats[volume]; s != nil && s.unit == nil {
		delete(t.stats, volume)
		t.vols = slices.DeleteFunc(t.vols, func(v string) bool { return v == volume })
	}
}

func (s *unitStats) host(h *host) *hostStats {
	for _, x := range s.hosts {
		if x.host == h {
			return x
		}
	}
	x := &hostStats{host: h}
	s.hosts = append(s.hosts, x)
	return x
}

// count books a task that ends. Aborted tasks count as failed.
func (u *Unit) count(t *Task, aborted bool, now int64) {
	st := &t.state
	kind := opOther
	if st.row != nil {
		kind = st.row.kind
	}
	o := outcomeOf(t.Status)
	if aborted {
		o = 1
	}
	s := u.stats
	s.Duration[kind].Observe(now - st.start)
	if kind.carries() {
		s.Wire[0] += uint64(block.VecLen(t.DataIn))
		if t.OutTotal > 0 {
			s.Wire[1] += uint64(min(block.VecLen(t.DataOut), t.OutTotal))
		}
	}
	if !st.countedByCopy {
		st.itl.stats.Commands[kind][o]++
	}
}

// describe books the bytes that an offload describes.
func (t *Task) describe(kind opKind, u *Unit, bytes uint64) { u.stats.Described[kind] += bytes }

var directions = [2]string{"read", "write"}

// Emit emits the host layer's families.
func (t *Target) Emit(e metrics.Emitter) {
	for _, volume := range t.vols {
		s := t.stats[volume]
		for _, h := range s.hosts {
			for kind := range numOps {
				for o, n := range h.Commands[kind] {
					if n > 0 {
						e.Value(metrics.HostCommands, float64(n), volume, s.pool, h.host.name, opNames[kind], outcomeNames[o])
					}
				}
			}
		}
		for i, n := range s.Wire {
			e.Value(metrics.HostTransferred, float64(n), volume, s.pool, directions[i])
		}
		for kind := range numOps {
			if n := s.Described[kind]; n > 0 {
				e.Value(metrics.HostDescribed, float64(n), volume, s.pool, opNames[kind])
			}
			if s.Duration[kind].Count > 0 {
				e.Histogram(metrics.HostDuration, &s.Duration[kind], volume, opNames[kind])
			}
		}
		if s.unit != nil {
			e.Value(metrics.HostQueueDepth, float64(s.unit.size), volume)
		}
	}
}

// Saved state of the counters, keyed by names so that it survives changes of the
// order of anything.
type savedVolume struct {
	Volume    string                       `json:"volume"`
	Pool      string                       `json:"pool"`
	Wire      [2]uint64                    `json:"wire"`
	Described map[string]uint64            `json:"described,omitempty"`
	Duration  map[string]metrics.Histogram `json:"duration,omitempty"`
	Hosts     []savedHost                  `json:"hosts,omitempty"`
}

type savedHost struct {
	Host     string                       `json:"host"`
	Commands map[string]map[string]uint64 `json:"commands"`
}

// SaveCounters returns the host layer's counters for LoadCounters.
func (t *Target) SaveCounters() []byte {
	saved := make([]savedVolume, 0, len(t.vols))
	for _, volume := range t.vols {
		s := t.stats[volume]
		v := savedVolume{Volume: volume, Pool: s.pool, Wire: s.Wire,
			Described: make(map[string]uint64), Duration: make(map[string]metrics.Histogram)}
		for kind, name := range opNames {
			if s.Described[kind] > 0 {
				v.Described[name] = s.Described[kind]
			}
			if s.Duration[kind].Count > 0 {
				v.Duration[name] = s.Duration[kind]
			}
		}
		for _, h := range s.hosts {
			sh := savedHost{Host: h.host.name, Commands: make(map[string]map[string]uint64)}
			for kind, name := range opNames {
				for o, n := range h.Commands[kind] {
					if n == 0 {
						continue
					}
					if sh.Commands[name] == nil {
						sh.Commands[name] = make(map[string]uint64)
					}
					sh.Commands[name][outcomeNames[o]] = n
				}
			}
			v.Hosts = append(v.Hosts, sh)
		}
		saved = append(saved, v)
	}
	b, err := json.Marshal(saved)
	if err != nil {
		panic("scsi: internal error: " + err.Error())
	}
	return b
}

// LoadCounters adds what SaveCounters returned to the counters. On an error
// nothing is changed.
func (t *Target) LoadCounters(b []byte) error {
	var saved []savedVolume
	if err := json.Unmarshal(b, &saved); err != nil {
		return fmt.Errorf("saved host counters: %w", err)
	}
	for _, v := range saved {
		s := t.statsOf(v.Volume)
		if s.pool == "" {
			s.pool = v.Pool
		}
		s.Wire[0] += v.Wire[0]
		s.Wire[1] += v.Wire[1]
		for kind, name := range opNames {
			s.Described[kind] += v.Described[name]
			from := v.Duration[name]
			from.Refine() // what an older version saved
			s.Duration[kind].Add(&from)
		}
		for _, sh := range v.Hosts {
			h := s.host(t.hostNamed(sh.Host))
			for kind, name := range opNames {
				for o, outcome := range outcomeNames {
					h.Commands[kind][o] += sh.Commands[name][outcome]
				}
			}
		}
	}
	return nil
}
