package torture

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

const fencePrefix = "fence-"

// fences are the ways in which a host keeps others from a LUN while their commands run: LOGICAL UNIT RESET, TARGET WARM
// RESET, PREEMPT AND ABORT of a reservation, RESERVE of the persistent kind and RESERVE(6), SANITIZE; and how the administrator
// keeps all away: the LUN leaves their maps. The law: nothing of those whom it keeps away lands on the LUN after it has answered.
var fences = []string{"fence-reset", "fence-target", "fence-preempt", "fence-reserve", "fence-reserve6", "fence-sanitize", "fence-unmap"}

// victim is the host whose reservation "fence-preempt" takes.
func (g Group) victim() int { return (g.By + 1) % hosts }

// fenced returns a group that a fence ends: mostly copies to and from the LUN, some of which outlive their commands.
func (g *generator) fenced() Group {
	out := Group{End: fences[g.rng.IntN(len(fences))], By: g.rng.IntN(hosts), On: g.rng.IntN(len(luns)),
		After: []int{0, g.rng.IntN(10), g.rng.IntN(80)}[g.rng.IntN(3)]}
	if out.On == g.reserved && g.rng.IntN(4) > 0 { // a fence takes the reservations that other groups make
		out.On = (out.On + 2) % len(luns)
	}
	for range 2 + g.rng.IntN(5) {
		c := g.command()
		if g.rng.IntN(3) > 0 {
			for !strings.HasPrefix(c.Op, "copy") && c.Op != "use" {
				c = g.command()
			}
		}
		switch {
		case c.Op == "copy4" || c.Op == "copy-many":
			c.Flags = byte(g.rng.IntN(2)) * scsitest.Immed4
		case c.Op == "use":
			c.Flags = byte(g.rng.IntN(2))
		}
		if !slices.ContainsFunc(out.Commands, c.conflicts) {
			c.Ordered = c.to() == out.On && g.rng.IntN(6) == 0
			out.Commands = append(out.Commands, c)
		}
	}
	return out
}

// immed reports whether the command ends before what it does.
func (c Command) immed() bool {
	return c.Op == "copy4" && c.Flags&scsitest.Immed4 != 0 || c.Op == "copy-many" && c.Flags&scsitest.Immed4 != 0 || c.Op == "use" && c.Flags&1 != 0
}

// resets reports whether the group ends with a reset.
func (g Group) resets() bool { return g.End == "reset" || g.End == "target" }

// cutOff reports whether a copy ended because a unit that it uses was reset, be it lun or, with all, any: it is COPY
// ABORTED then, and forwards TASK ABORTED.
func (c Command) cutOff(t *scsi.Task, lun int, all bool) bool {
	uses := slices.ContainsFunc(c.areas(), func(a area) bool { return a.lun == lun })
	if !strings.HasPrefix(c.Op, "copy") || !uses && !all || t.Status != scsi.StatusCheckCondition {
		return false
	}
	key, asc, q := scsitest.SenseCode(t.Sense)
	const aborted = 0x40
	forwarded := t.Sense[0]&0x7F == 0x70 && len(t.Sense) == 19 && t.Sense[18] == aborted ||
		t.Sense[0]&0x7F == 0x72 && (bytes.Contains(t.Sense, []byte{0x0C, 2, 1, aborted}) || bytes.Contains(t.Sense, []byte{0x0C, 2, 2, aborted}))
	return key == 0x0A && asc == 0x0D && q == 1 && forwarded
}

// witness is a volume that remembers what is being written to it.
type witness struct {
	*array.Volume
	r      *rig
	writes []*block.Request
	// barred, while it is set, is what must not come any more; broken says what came all the same.
	barred func(*block.Request) bool
	broken string
}

func (w *witness) Submit(reqs []*block.Request) {
	for _, q := range reqs {
		if q.Op == block.OpRead || q.Op == block.OpStatus || q.Op == block.OpFlush || q.Op == block.OpHold {
			continue
		}
		if w.barred != nil && w.barred(q) {
			w.broken = fmt.Sprintf("%v of %v by host %d comes after the fence has answered", q.Op, q.Range, q.Host)
		}
		w.r.timed(w.Volume, q)
		w.writes = append(w.writes, q)
		done := q.Done
		q.Done = func(q *block.Request) {
			q.Done = done
			w.writes = slices.DeleteFunc(w.writes, func(o *block.Request) bool { return o == q })
			done(q)
		}
	}
	w.Volume.Submit(reqs)
}

// bar begins the time when nothing of what match says may be written.
func (w *witness) bar(match func(*block.Request) bool) {
	w.barred, w.broken = match, ""
	if i := slices.IndexFunc(w.writes, match); i >= 0 {
		q := w.writes[i]
		w.broken = fmt.Sprintf("%v of %v by host %d is under way when the fence answers", q.Op, q.Range, q.Host)
	}
}

// barredBy returns what a fence keeps away: a reset and an erasure everything that was sent before, PREEMPT AND ABORT all
// of its victim, and reservations the copies of those whom they exclude. (Plain commands that have begun may end.)
func (r *run) barredBy(g Group) func(*block.Request) bool {
	by, victim := r.units[g.By].HostID(), r.units[g.victim()].HostID()
	return func(q *block.Request) bool {
		copies := q.Origin == block.OriginXCopy || q.Origin == block.OriginODX
		switch g.End {
		case "fence-preempt":
			return q.Host == victim || copies && q.Host != by
		case "fence-reserve", "fence-reserve6":
			return copies && q.Host != by
		}
		return true
	}
}

// order sends a command that changes reservations and must end well.
func (r *run) order(host, lun int, what string, cdb, list []byte) error {
	for range 2 {
		x := r.do(host, lun, cdb, list, 0)
		if x.over && x.task.Status == scsi.StatusGood {
			return nil
		}
		if key, _, _ := scsitest.SenseCode(x.task.Sense); !x.over || key != 6 { // a unit attention condition is no answer
			return fmt.Errorf("%s: ended %v, %s", what, x.over, answer(x.task))
		}
	}
	return fmt.Errorf("%s: unit attentions without end", what)
}

func (r *run) reservation(host int, op string, lun int, kind byte, from int) error {
	c := Command{Op: op, Host: host, LUN: lun, Flags: kind, From: from}
	return r.order(host, lun, op, prOut(c), prList(c))
}

// prepare makes the reservations that a fence needs, and takes away those that it cannot do with.
func (r *run) prepare(g Group) error {
	u := r.m.luns[g.On]
	r.attentions(false)
	switch g.End {
	case "fence-reset", "fence-target", "fence-unmap":
		return nil
	case "fence-sanitize":
		if !u.excluded(g.By, false) {
			return nil
		}
	}
	if u.legacy >= 0 {
		if err := r.order(u.legacy, g.On, "RELEASE(6)", []byte{0x17, 0, 0, 0, 0, 0}, nil); err != nil {
			return err
		}
		u.legacy = -1
	}
	if err := r.reservation(g.By, "register", g.On, 0, 0); err != nil {
		return err
	}
	if err := r.reservation(g.By, "clear", g.On, 0, 0); err != nil {
		return err
	}
	u.keys, u.kind, u.holder = [hosts]bool{}, 0, -1
	if g.End == "fence-preempt" || g.End == "fence-reserve" {
		for h := range hosts {
			if err := r.reservation(h, "register", g.On, 0, 0); err != nil {
				return err
			}
			u.keys[h] = true
		}
	}
	if g.End == "fence-preempt" {
		u.kind, u.holder = 5, g.victim() // registrants may write
		return r.reservation(g.victim(), "reserve", g.On, 5, 0)
	}
	return nil
}

// raise sends the fence; answered is set when it has answered.
func (r *run) raise(g Group, answered *bool) *running {
	manage := func(fn scsi.TMF) *running {
		r.units[g.By].Manage(fn, uint64(g.On)<<48, 0, func(scsi.TMFResponse) { *answered = true })
		return nil
	}
	var cdb, list []byte
	switch g.End {
	case "fence-reset":
		return manage(scsi.LogicalUnitReset)
	case "fence-target":
		return manage(scsi.TargetWarmReset)
	case "fence-unmap":
		r.tg.Remap(func() { r.tg.Unmap("", uint16(g.On)) }, func() { *answered = true })
		return nil
	case "fence-preempt":
		c := Command{Op: "preempt", Host: g.By, LUN: g.On, Flags: 1, From: g.victim()}
		cdb, list = prOut(c), prList(c)
		cdb[1] = 5 // AND ABORT
	case "fence-reserve":
		c := Command{Op: "reserve", Host: g.By, LUN: g.On, Flags: 3}
		cdb, list = prOut(c), prList(c)
	case "fence-reserve6":
		cdb = []byte{0x16, 0, 0, 0, 0, 0}
	case "fence-sanitize":
		cdb = []byte{0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	x := r.send(g.By, g.On, cdb, list, 0, false)
	x.task.Done = func(*scsi.Task) { x.over, *answered = true, true }
	return x
}

// contents reads a LUN behind the SCSI layer.
func (r *run) contents(lun int) ([]byte, error) {
	n := luns[lun].sectors
	b := make([]byte, n*512)
	return b, r.device(lun, &block.Request{Op: block.OpRead, Range: block.Range{Count: n}, Data: [][]byte{b}})
}

// fence runs a group that a fence ends.
func (r *run) fence(g Group) error {
	if err := r.prepare(g); err != nil {
		return fmt.Errorf("before %s: %w", g.End, err)
	}
	var started []*running
	var wants []want
	var cmds []Command
	for _, c := range g.Commands {
		if c.Op == "use" && r.token[c.From] == nil {
			continue
		}
		out, w := r.m.judge(c)
		lun, cdb, list, in := r.cdb(c, out)
		cmds, wants = append(cmds, c), append(wants, w)
		started = append(started, r.send(c.Host, lun, cdb, list, in, c.Ordered))
	}
	for i := 0; i < g.After && len(r.tg.Offloads(nil)) > 0; i++ {
		r.exec.Step()
	}
	answered := false
	fence := r.raise(g, &answered)
	if r.until(func() bool { return answered }); !answered {
		return fmt.Errorf("%s of LUN %d does not answer", g.End, g.On)
	}
	if fence != nil && fence.task.Status != scsi.StatusGood {
		return fmt.Errorf("%s of LUN %d: %s", g.End, g.On, answer(fence.task))
	}
	if err := r.nothingLands(g, func() bool {
		return len(r.tg.Offloads(nil)) == 0 && !slices.ContainsFunc(started, func(x *running) bool { return !x.over })
	}); err != nil {
		return err
	}
	maybe := map[int]map[uint64][]string{}
	var touched []effect
	for i, x := range started {
		touched = append(touched, wants[i].effects...)
		if x.task.Aborted || x.task.Status != scsi.StatusGood || cmds[i].immed() {
			maybes(maybe, wants[i].effects)
			continue
		}
		if msg := wants[i].verdict(x.task, x.in()); msg != "" {
			return fmt.Errorf("{%s} %s", source(cmds[i]), msg)
		}
		r.good[cmds[i].Op]++
		r.m.apply(wants[i].effects)
	}
	if err := r.lower(g, maybe); err != nil {
		return fmt.Errorf("after %s: %w", g.End, err)
	}
	r.attentions(false)
	if err := r.verify("after "+g.End, maybe); err != nil {
		return err
	}
	return r.heal(touched)
}

// nothingLands is the law: it holds from the answer of the fence until all commands have ended.
func (r *run) nothingLands(g Group, ended func() bool) error {
	barred := r.barredBy(g)
	for i, w := range r.seen {
		if i == g.On || g.End == "fence-target" {
			w.bar(barred)
		}
	}
	defer func() {
		for _, w := range r.seen {
			w.barred = nil
		}
	}()
	quiet := g.End == "fence-reset" || g.End == "fence-target" || g.End == "fence-sanitize" || g.End == "fence-unmap"
	before, err := r.contents(g.On)
	if err != nil {
		return err
	}
	if r.until(ended); !ended() {
		return fmt.Errorf("after %s of LUN %d a command does not end", g.End, g.On)
	}
	for i, w := range r.seen {
		if w.barred != nil && w.broken != "" {
			return fmt.Errorf("%s of LUN %d: on LUN %d %s", g.End, g.On, i, w.broken)
		}
	}
	after, err := r.contents(g.On)
	if err != nil {
		return err
	}
	if quiet && string(before) != string(after) {
		return fmt.Errorf("%s of LUN %d: its contents have checksum %08x then, and %08x later", g.End, g.On, crc32.ChecksumIEEE(before), crc32.ChecksumIEEE(after))
	}
	return nil
}

// lower takes the fence away and tells the model what it did.
func (r *run) lower(g Group, maybe map[int]map[uint64][]string) error {
	u := r.m.luns[g.On]
	switch g.End {
	case "fence-reset":
		u.legacy = -1
	case "fence-target":
		for _, u := range r.m.luns {
			u.legacy = -1
		}
	case "fence-unmap":
		u.legacy = -1
		return r.tg.Map("", uint16(g.On), r.exports[g.On])
	case "fence-preempt":
		u.keys[g.victim()], u.kind, u.holder = false, 0, -1
		return r.reservation(g.By, "release", g.On, 1, 0)
	case "fence-reserve":
		return r.reservation(g.By, "release", g.On, 3, 0)
	case "fence-reserve6":
		return r.order(g.By, g.On, "RELEASE(6)", []byte{0x17, 0, 0, 0, 0, 0}, nil)
	case "fence-sanitize":
		for at, may := range maybe[g.On] { // written and erased: a loss of power may bring it back
			u.old[at] = append(u.old[at], may...)
		}
		delete(maybe, g.On)
		r.m.apply([]effect{{g.On, 0, sectorsOf(0, u.sectors)}})
		for _, k := range r.m.tokens {
			if k != nil && k.of == g.On {
				k.dead = true
			}
		}
	}
	return nil
}
