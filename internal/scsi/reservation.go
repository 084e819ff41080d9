// The persistent reservation of a unit as facts: registrations, who holds the reservation, and
// whom it excludes (SPC-5 5.14). The holder of a reservation is one of the registrations, or
// nobody with the All Registrants types. persist.go and register.go have the commands that change
// it, reserve.go says when such a command ends.

package scsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// registration is one I_T nexus that registered a key. It survives the nexus
// itself: a port that logs in again is still registered (SPC-5 5.14.5).
type registration struct {
	port       string
	targetPort uint16
	key        uint64
}

func (r *registration) is(n *Nexus) bool { return r.targetPort == n.targetPort && r.port == n.port }

// persistent is a unit's persistent reservation state. With aptpl it outlives the
// target.
type persistent struct {
	aptpl      bool // APTPL of the last registration
	kept       bool // what was saved last has reservations
	generation uint32
	regs       []*registration // in the order of registration
	reserved   bool
	kind       byte          // type, when reserved
	holder     *registration // nil with the All Registrants types
}

// Persistent reservation types (SPC-5 table 81).
const (
	prWriteExclusive      = 1
	prExclusive           = 3
	prWriteExclusiveRegs  = 5
	prExclusiveRegs       = 6
	prWriteExclusiveAll   = 7
	prExclusiveAll        = 8
	prTypeMask            = 1<<prWriteExclusive | 1<<prExclusive | 1<<prWriteExclusiveRegs | 1<<prExclusiveRegs | 1<<prWriteExclusiveAll | 1<<prExclusiveAll
	prWriteExclusiveTypes = 1<<prWriteExclusive | 1<<prWriteExclusiveRegs | 1<<prWriteExclusiveAll
)

func allRegistrants(kind byte) bool { return kind >= prWriteExclusiveAll }

func registrants(kind byte) bool { return kind >= prWriteExclusiveRegs }

func (p *persistent) of(n *Nexus) *registration {
	for _, r := range p.regs {
		if r.is(n) {
			return r
		}
	}
	return nil
}

func (p *persistent) find(port string, targetPort uint16) *registration {
	for _, r := range p.regs {
		if r.targetPort == targetPort && r.port == port {
			return r
		}
	}
	return nil
}

func (p *persistent) holds(r *registration) bool {
	return p.reserved && r != nil && (allRegistrants(p.kind) || p.holder == r)
}

// excludes reports whether the reservation keeps n from reading or writing.
func (p *persistent) excludes(n *Nexus, read bool) bool {
	if !p.reserved || read && 1<<p.kind&prWriteExclusiveTypes != 0 {
		return false
	}
	r := p.of(n)
	return !p.holds(r) && (r == nil || !registrants(p.kind))
}

// take makes the reservation.
func (p *persistent) take(reg *registration, kind byte) {
	p.reserved, p.kind, p.holder = true, kind, reg
	if allRegistrants(kind) {
		p.holder = nil
	}
}

// falls reports whether a PREEMPT of this key takes the reservation over.
func (p *persistent) falls(victim uint64) bool {
	switch {
	case !p.reserved:
		return false
	case allRegistrants(p.kind):
		return victim == 0
	}
	return p.holder.key == victim
}

// unregister removes a registration and the reservation that goes with it (SPC-5
// 5.14.11.3).
func (u *Unit) unregister(r *registration) {
	p := &u.pr
	p.regs = slices.DeleteFunc(p.regs, func(q *registration) bool { return q == r })
	if !p.reserved || p.holder != r && !(allRegistrants(p.kind) && len(p.regs) == 0) {
		return
	}
	kind := p.kind
	p.reserved, p.holder = false, nil
	if registrants(kind) {
		for _, q := range p.regs {
			u.establishRegistered(q, sense.UAReservationsReleased)
		}
	}
}

// establishRegistered raises ua on the I_T_L nexuses of a registration.
func (u *Unit) establishRegistered(r *registration, ua sense.Attentions) {
	for _, x := range u.itls {
		if r.is(x.n) {
			x.ua |= ua
		}
	}
}
