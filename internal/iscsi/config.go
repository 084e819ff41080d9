package iscsi

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// Config describes a Portal.
type Config struct {
	// Targets may each have an executor of their own.
	Targets []TargetConfig
	// Log receives logins, logouts and what peers did wrong; nil discards.
	Log *slog.Logger
	// DiscoveryCHAP, when set, is asked of discovery sessions.
	DiscoveryCHAP *CHAP
	// Address is what discovery reports as TargetAddress, host:port. Empty
	// reports the address that the initiator reached.
	Address string
	Limits  Limits

	sys      socketCalls   // nil: the kernel's; for tests
	stays    int           // how many readers may stay: 0: half of the runtime's processors, negative: none; for tests
	heldPing time.Duration // 0: heldPing; for tests
}

// TargetConfig describes one target behind the portal.
type TargetConfig struct {
	Name   string // iSCSI name: iqn., eui. or naa.
	Alias  string
	Target *scsi.Target
	// CHAP, when set, is asked of every initiator of this target.
	CHAP *CHAP
	// AllowedInitiators lists the names that may log in; empty allows all.
	AllowedInitiators []string
	// Handler, when set, takes the place of Target: a front end to a target that is elsewhere.
	Handler Handler
}

// Limits bound what peers can make the portal do. Zero fields take the values of
// [DefaultLimits].
type Limits struct {
	MaxConnections int // TCP connections, those in login included
	// MaxSessions bounds the sessions of targets; discovery sessions have a limit of their own. One
	// initiator name has at most a quarter of them.
	MaxSessions int
	// MaxDiscovery bounds the discovery sessions: beyond it the oldest one ends.
	MaxDiscovery int
	Window       int // commands in progress a session, advertised by MaxCmdSN
	// MaxRecvSegment is our MaxRecvDataSegmentLength; FirstBurst and MaxBurst are
	// the largest values that we agree to. All in bytes.
	MaxRecvSegment    int
	FirstBurst        int
	MaxBurst          int
	MaxOutstandingR2T int
	// MaxCommandData is the longest data transfer of one command, in bytes; longer
	// ones end with ILLEGAL REQUEST. It should not be below the MAXIMUM TRANSFER
	// LENGTH that the logical units report.
	MaxCommandData int
	// ConnMemory bounds the data, in bytes, of the commands that a connection has
	// in progress, beyond one first burst for each of them. Commands above it wait.
	ConnMemory int
	// Memory bounds the data, in bytes, of the commands that all connections together have in progress: what came, was
	// asked for by R2T, or is read. Half of it is divided among MaxSessions, so that each session has a share of its own;
	// the rest is common. A command above it ends with TASK SET FULL, and what comes with it is dropped: initiators try
	// again. Commands of at most 8 KiB are not counted.
	Memory int
	// DataTimeout bounds how long a peer may let a sequence of Data-Out, or a PDU that it began, wait, and leave answers
	// unread. The command ends with CHECK CONDITION, the connection where there is no command. Negative: no bound.
	DataTimeout  time.Duration
	LoginTimeout time.Duration
	// DiscoveryTime is how long a discovery session may last; it is over in a moment.
	DiscoveryTime time.Duration
	// PingInterval of silence makes the portal send a NOP-In; PingTimeout without an
	// answer ends the connection. A negative interval sends none.
	PingInterval time.Duration
	PingTimeout  time.Duration
}

// initiatorSessions is how many sessions of targets one initiator name may have.
func (l *Limits) initiatorSessions() int { return max(4, l.MaxSessions/4) }

// DefaultLimits returns the limits of a portal that is not told otherwise.
func DefaultLimits() Limits {
	return Limits{
		MaxConnections:    256,
		MaxSessions:       128,
		MaxDiscovery:      16,
		Window:            128,
		MaxRecvSegment:    256 << 10,
		FirstBurst:        256 << 10,
		MaxBurst:          1 << 20,
		MaxOutstandingR2T: 8,
		MaxCommandData:    64 << 20,
		ConnMemory:        64 << 20,
		Memory:            1 << 30,
		DataTimeout:       30 * time.Second,
		LoginTimeout:      15 * time.Second,
		DiscoveryTime:     30 * time.Second,
		PingInterval:      30 * time.Second,
		PingTimeout:       30 * time.Second,
	}
}

func (l *Limits) fill() error {
	d := DefaultLimits()
	for _, f := range []struct {
		v         *int
		def       int
		low, high int
		name      string
	}{
		{&l.MaxConnections, d.MaxConnections, 1, 1 << 20, "MaxConnections"},
		{&l.MaxSessions, d.MaxSessions, 1, 1 << 15, "MaxSessions"},
		{&l.MaxDiscovery, d.MaxDiscovery, 1, 1 << 10, "MaxDiscovery"},
		{&l.Window, d.Window, 1, 4096, "Window"},
		{&l.MaxRecvSegment, d.MaxRecvSegment, leastSegment, mostSegment, "MaxRecvSegment"},
		{&l.FirstBurst, d.FirstBurst, leastSegment, mostSegment, "FirstBurst"},
		{&l.MaxBurst, d.MaxBurst, leastSegment, mostSegment, "MaxBurst"},
		{&l.MaxOutstandingR2T, d.MaxOutstandingR2T, 1, 65535, "MaxOutstandingR2T"},
		{&l.MaxCommandData, d.MaxCommandData, 1 << 16, min(1<<31, math.MaxInt), "MaxCommandData"},
		{&l.ConnMemory, max(d.ConnMemory, l.MaxCommandData), 1 << 16, min(1<<40, math.MaxInt), "ConnMemory"},
		{&l.Memory, max(d.Memory, l.MaxCommandData), 1 << 16, min(1<<40, math.MaxInt), "Memory"},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < f.low || *f.v > f.high {
			return fmt.Errorf("iscsi: %s is %d, not in %d to %d", f.name, *f.v, f.low, f.high)
		}
	}
	if l.ConnMemory < l.MaxCommandData {
		return fmt.Errorf("iscsi: ConnMemory is below MaxCommandData (%d)", l.MaxCommandData)
	}
	if l.Memory < l.MaxCommandData {
		return fmt.Errorf("iscsi: Memory is below MaxCommandData (%d)", l.MaxCommandData)
	}
	for _, f := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&l.LoginTimeout, d.LoginTimeout}, {&l.DiscoveryTime, d.DiscoveryTime}, {&l.DataTimeout, d.DataTimeout}, {&l.PingInterval, d.PingInterval}, {&l.PingTimeout, d.PingTimeout}} {
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	return nil
}

// ServedBy returns the handler of a target that is in this process, for Rehome.
func ServedBy(t *scsi.Target) Handler { return scsiHandler{t} }

// Handler is what the portal needs of a scsi.Target, see there. All of it is called with its executor
// held, but for Exec.
type Handler interface {
	Exec() block.Executor
	// OpenNexus makes the nexus of a session; names are as the initiator wrote them.
	OpenNexus(initiator, port string, targetPort uint16) Nexus
	Visible(initiator string) bool
}

// Nexus is what the portal needs of a scsi.Nexus; see there.
type Nexus interface {
	Submit([]*scsi.Task)
	Manage(fn scsi.TMF, lun, tag uint64, done func(scsi.TMFResponse))
	Close(done func())
	OnReset(func())
	CountRemaps(count func() uint64, now uint64)
}

type scsiHandler struct{ *scsi.Target }

func (h scsiHandler) OpenNexus(initiator, port string, targetPort uint16) Nexus {
	// LUN maps are kept by folded names: RFC 7143 compares names without case.
	return h.Target.OpenNexus(FoldName(initiator), FoldName(port), targetPort)
}

// target is a configured target. It does not change after New, but for its home.
type target struct {
	TargetConfig
	home    atomic.Pointer[home]
	allowed map[string]bool // nil allows all
}

func newTarget(c TargetConfig) (*target, error) {
	switch {
	case !validName(c.Name):
		return nil, fmt.Errorf("iscsi: %q is not an iSCSI name (iqn., eui. or naa.)", c.Name)
	case c.Handler == nil && c.Target == nil:
		return nil, errors.New("iscsi: target " + c.Name + " has no SCSI target")
	}
	t := &target{TargetConfig: c}
	var err error
	if t.CHAP, err = c.CHAP.prepared(); err != nil {
		return nil, fmt.Errorf("iscsi: target %s: %w", c.Name, err)
	}
	if t.Handler == nil {
		t.Handler = scsiHandler{c.Target}
	}
	t.home.Store(newHome(t.Handler))
	for _, name := range c.AllowedInitiators {
		if t.allowed == nil {
			t.allowed = make(map[string]bool)
		}
		t.allowed[FoldName(name)] = true
	}
	return t, nil
}

func (t *target) allows(initiator string) bool {
	return t.allowed == nil || t.allowed[FoldName(initiator)]
}

func validName(name string) bool { return CheckName(name) == nil }

func (h scsiHandler) Visible(initiator string) bool { return h.Target.Visible(FoldName(initiator)) }
