// The way between the copy managers of I/O groups of one process: each step is a message to the other
// group's executor, and its answer a message back.

package copymgr

import (
	"crypto/subtle"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copysource"
	"github.com/arraysim/arraysim/internal/scsi/counters"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// Join makes the copy managers of the targets of one array know each other. It is called once, before
// any of them has a command.
func Join(all ...*Manager) {
	for _, m := range all {
		for _, p := range all {
			if p != m {
				m.peers = append(m.peers, &peer{partner: group{p, m}})
			}
		}
	}
}

// tell has fn called with the manager's executor held, behind what was told it before. Whoever calls holds another one,
// or this one, or none.
func (m *Manager) tell(fn func()) {
	block.Send(m.t.Exec(), func() {
		m.t.Enter()
		fn()
		m.t.Leave()
	})
}

// group is the copy manager of another I/O group, for that of home.
type group struct{ m, home *Manager }

// visitor is a guest of another I/O group's operation. The operation's side of it is mine, which home's executor guards.
type visitor struct {
	group
	*copysource.Guest
	mine far
}

// ended hears what ended the guest.
func (v *visitor) ended(e copysource.Ending) {
	c := interruption{g: v, status: e.Status, why: e.Why, gone: e.Gone}
	v.home.tell(func() { v.mine.interrupt(c) })
}

// arrives completes a visitor with its guest.
func (v *visitor) arrives(g *copysource.Guest) {
	u := g.Unit()
	v.Guest, v.mine = g, far{volume: u.Volume(), shift: u.Shift()}
}

func (g group) find(who copysource.Caller, want []*copysource.Wanted, answer func([]farUnit)) {
	g.m.tell(func() {
		out := make([]farUnit, len(want))
		for i, w := range want {
			v := &visitor{group: g}
			if guest := g.m.read.Invite(who, w, v.ended); guest != nil {
				v.arrives(guest)
				out[i] = v
			}
		}
		g.home.tell(func() { answer(out) })
	})
}

func (g group) borrow(who copysource.Caller, token []byte, answer func(farToken)) {
	g.m.tell(func() {
		v := &visitor{group: g}
		guest, ref, why := g.m.read.Redeem(who, func(q *copysource.Token) bool { return subtle.ConstantTimeCompare(q.Bytes[:], token) == 1 }, v.ended)
		k := farToken{why: why}
		if guest != nil {
			v.arrives(guest)
			k = farToken{g: v, ref: ref, sectors: ref.Sectors()}
		}
		g.home.tell(func() { answer(k) })
	})
}

func (v *visitor) far() *far        { return &v.mine }
func (v *visitor) partner() partner { return v.group }

func (v *visitor) ask(q *question, answer func(copysource.Reply), late func()) {
	t := v.m.t
	q.letter.Send(t.Exec(), func() {
		t.Enter()
		v.Serve(&q.Step, func(r copysource.Reply) { v.home.tell(func() { answer(r) }) })
		t.Leave()
	}, func() { v.home.tell(late) })
}

func (v *visitor) cancel(q *question) { v.m.tell(func() { v.Withdraw(&q.Step) }) }
func (v *visitor) part()              { v.dismiss() }
func (v *visitor) dismiss()           { v.m.tell(v.Leave) }

func (v *visitor) describe(kind counters.Op, bytes uint64) {
	v.m.tell(func() { v.Unit().Describe(kind, bytes) })
}

func (v *visitor) book(kind counters.Op, status byte, took int64) {
	v.m.tell(func() { v.Count(kind, status, took) })
}

func (v *visitor) endToken(why sense.Code) {
	v.m.tell(func() { v.EndToken(why) })
}
