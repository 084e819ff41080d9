// Package counters has what the host layer counts: commands, bytes and durations for each volume,
// and commands for each initiator. A command is counted once, when it completes; a copy is counted
// for each unit that took part, by its operation. Counters outlive units, by the names of volumes.
package counters

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi/sam"
)

// Op is how the host layer groups commands.
type Op uint8

// Groups of commands. A copy counts as one command of each unit that took part.
const (
	Read Op = iota
	Write
	WriteSame
	XCopySource
	XCopyTarget
	ODXSource
	ODXTarget
	Unmap
	CAW
	Sync
	Erase
	Other
	numOps
)

// Carries reports whether the data of these commands is what the volume holds or is to hold.
// Parameter lists, and what the array tells about itself, are not what hosts read and write.
func (o Op) Carries() bool { return o == Read || o == Write || o == WriteSame || o == CAW }

// String returns the value of the op label.
func (o Op) String() string { return opNames[o] }

var opNames = [numOps]string{"read", "write", "write_same", "xcopy_src", "xcopy_dst", "odx_src", "odx_dst", "unmap", "caw", "sync", "erase", "other"}

// Outcome is how the status label groups statuses.
type Outcome uint8

const (
	good Outcome = iota
	// Check is the outcome of whatever is neither done nor refused for now: CHECK CONDITION, TASK
	// ABORTED, and tasks that were aborted without a status.
	Check
	busy
	taskSetFull
	conflict
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"good", "check", "busy", "task_set_full", "conflict"}

// OutcomeOf returns the outcome of a SAM status.
func OutcomeOf(status byte) Outcome {
	switch status {
	case sam.StatusGood, sam.StatusConditionMet:
		return good
	case sam.StatusBusy:
		return busy
	case sam.StatusTaskSetFull:
		return taskSetFull
	case sam.StatusReservationConflict:
		return conflict
	}
	return Check
}

// Host counts the commands of one initiator to one volume.
type Host struct {
	name     string
	commands [numOps][numOutcomes]uint64
}

// Count counts a command, or a unit's part in a copy.
func (h *Host) Count(op Op, o Outcome) { h.commands[op][o]++ }

// Queue is the task set of a volume's unit.
type Queue interface{ Depth() int }

// Volume counts what one volume's hosts did. It outlives the unit.
type Volume struct {
	name      string
	pool      string
	queue     Queue     // nil when no unit of this volume exists
	hosts     []*Host   // in order of appearance
	wire      [2]uint64 // bytes read, written
	described [numOps]uint64
	duration  [numOps]metrics.Histogram
}

// Name returns the name of the volume.
func (v *Volume) Name() string { return v.name }

// Attach says that the volume has a unit, in this pool.
func (v *Volume) Attach(pool string, q Queue) { v.pool, v.queue = pool, q }

// Detach says that the volume's unit is gone.
func (v *Volume) Detach() { v.queue = nil }

// Host returns the counters of an initiator.
func (v *Volume) Host(name string) *Host {
	for _, h := range v.hosts {
		if h.name == name {
			return h
		}
	}
	h := &Host{name: name}
	v.hosts = append(v.hosts, h)
	return h
}

// Took notes how long a command, or a copy, lasted, in nanoseconds.
func (v *Volume) Took(op Op, ns int64) { v.duration[op].Observe(ns) }

// Transfer counts bytes that a command read and wrote on the wire.
func (v *Volume) Transfer(read, written uint64) {
	v.wire[0] += read
	v.wire[1] += written
}

// Describe counts the bytes that an offload describes.
func (v *Volume) Describe(op Op, bytes uint64) { v.described[op] += bytes }

// Set is the counters of all volumes of a target.
type Set struct {
	volumes map[string]*Volume
	order   []string // keys of volumes in order
}

// Volume returns the counters of a volume.
func (s *Set) Volume(name string) *Volume {
	v := s.volumes[name]
	if v == nil {
		v = &Volume{name: name}
		if s.volumes == nil {
			s.volumes = make(map[string]*Volume)
		}
		s.volumes[name] = v
		i, _ := slices.BinarySearch(s.order, name)
		s.order = slices.Insert(s.order, i, name)
	}
	return v
}

// Forget drops the counters of a volume that has no unit any more: another may get its name, and
// counts from 0.
func (s *Set) Forget(name string) {
	if v := s.volumes[name]; v != nil && v.queue == nil {
		delete(s.volumes, name)
		s.order = slices.DeleteFunc(s.order, func(v string) bool { return v == name })
	}
}

var directions = [2]string{"read", "write"}

// Emit emits the host layer's families.
func (s *Set) Emit(e metrics.Emitter) {
	for _, name := range s.order {
		v := s.volumes[name]
		for _, h := range v.hosts {
			for op := range numOps {
				for o, n := range h.commands[op] {
					if n > 0 {
						e.Value(metrics.HostCommands, float64(n), name, v.pool, h.name, opNames[op], outcomeNames[o])
					}
				}
			}
		}
		for i, n := range v.wire {
			e.Value(metrics.HostTransferred, float64(n), name, v.pool, directions[i])
		}
		for op := range numOps {
			if n := v.described[op]; n > 0 {
				e.Value(metrics.HostDescribed, float64(n), name, v.pool, opNames[op])
			}
			if v.duration[op].Count > 0 {
				e.Histogram(metrics.HostDuration, &v.duration[op], name, opNames[op])
			}
		}
		if v.queue != nil {
			e.Value(metrics.HostQueueDepth, float64(v.queue.Depth()), name)
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

// Save returns the counters for Load.
func (s *Set) Save() []byte {
	saved := make([]savedVolume, 0, len(s.order))
	for _, name := range s.order {
		saved = append(saved, s.volumes[name].saved())
	}
	b, err := json.Marshal(saved)
	if err != nil {
		panic("scsi: internal error: " + err.Error())
	}
	return b
}

func (v *Volume) saved() savedVolume {
	out := savedVolume{Volume: v.name, Pool: v.pool, Wire: v.wire,
		Described: make(map[string]uint64), Duration: make(map[string]metrics.Histogram)}
	for op, name := range opNames {
		if v.described[op] > 0 {
			out.Described[name] = v.described[op]
		}
		if v.duration[op].Count > 0 {
			out.Duration[name] = v.duration[op]
		}
	}
	for _, h := range v.hosts {
		sh := savedHost{Host: h.name, Commands: make(map[string]map[string]uint64)}
		for op, name := range opNames {
			for o, n := range h.commands[op] {
				if n == 0 {
					continue
				}
				if sh.Commands[name] == nil {
					sh.Commands[name] = make(map[string]uint64)
				}
				sh.Commands[name][outcomeNames[o]] = n
			}
		}
		out.Hosts = append(out.Hosts, sh)
	}
	return out
}

// Load adds what Save returned to the counters. known says by which name an initiator is counted.
// On an error nothing is changed.
func (s *Set) Load(b []byte, known func(initiator string) string) error {
	var saved []savedVolume
	if err := json.Unmarshal(b, &saved); err != nil {
		return fmt.Errorf("saved host counters: %w", err)
	}
	for _, from := range saved {
		v := s.Volume(from.Volume)
		if v.pool == "" {
			v.pool = from.Pool
		}
		v.Transfer(from.Wire[0], from.Wire[1])
		for op, name := range opNames {
			v.described[op] += from.Described[name]
			d := from.Duration[name]
			d.Refine() // what an older version saved
			v.duration[op].Add(&d)
		}
		for _, sh := range from.Hosts {
			h := v.Host(known(sh.Host))
			for op, name := range opNames {
				for o, outcome := range outcomeNames {
					h.commands[op][o] += sh.Commands[name][outcome]
				}
			}
		}
	}
	return nil
}
