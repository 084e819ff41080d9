// What a front end does that has hosts of its own behind one nexus: LIO's, which the kernel tells of some things itself.

package scsi

import (
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/sam"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// unitAt returns what a nexus has at a LUN, or nil.
func unitAt(n *Nexus, lun uint64) *server.ITL {
	if i, ok := names.ParseLUN(lun); ok && i < len(n.ITLs()) {
		return n.ITLs()[i]
	}
	return nil
}

// ClearAttentions takes unit attention conditions from a unit of the nexus: those of which its front
// end tells its hosts in another way, and no others.
func ClearAttentions(n *Nexus, lun uint64, which Attentions) {
	if x := unitAt(n, lun); x != nil {
		x.Attentions().Clear(which)
	}
}

// SyncCache has the device of a unit of the nexus bring to the medium what it has acknowledged, for a
// front end that lets a command end no earlier. It is part of that command and none of its own: no
// state refuses it, no unit attention condition is reported by it, and it cannot be aborted. done is
// called on the executor, never from inside SyncCache, with the status and the sense data that a
// SYNCHRONIZE CACHE would end with.
func SyncCache(n *Nexus, lun uint64, done func(status byte, senseData []byte)) {
	x := unitAt(n, lun)
	end := func(status byte, s sense.Data) {
		var b []byte
		if status == sam.StatusCheckCondition {
			b = s.Encode(make([]byte, 64), x != nil && x.Unit().DescriptorSense())
		}
		done(status, b)
	}
	if x == nil {
		n.Target().Exec().Post(func() { end(sam.StatusCheckCondition, sense.Data{Code: sense.LUNNotSupported}) })
		return
	}
	r := &block.Request{Op: block.OpFlush, Host: n.HostID(), Port: n.PortNumber()}
	r.Done = func(r *block.Request) { end(x.Unit().Outcome(r)) }
	n.Target().Enqueue(x.Unit(), r)
}

// EndCopies ends the copies that use the unit of this LUN of the nexus, those too that have arrived and
// are yet to begin: for a front end that keeps reservations itself, and knows that one fenced the unit,
// but not whose copies they are.
func EndCopies(n *Nexus, lun uint64) {
	t := n.Target()
	t.Enter()
	defer t.Leave()
	if x := unitAt(n, lun); x != nil {
		x.Unit().Shut(func(*Nexus) bool { return true })
		x.Unit().Fence(nil, server.Rest, server.Aborts)
	}
}
