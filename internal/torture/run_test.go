package torture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// run is one program on one array.
type run struct {
	*rig
	m *model
	// answers are those that must be the same everywhere; states are those of GET LBA STATUS, which must be the same
	// where copies are made in the same way.
	answers, states []string
	at              int            // group
	good            map[string]int // commands that ended well
	got             []byte         // what verify reads into
	conflicts       int
	erased          struct{ over, written, failed, again int }
}

// play runs a program; the error says where it went wrong.
func play(groups []Group, s Setup) (*run, error) {
	rig, err := newRig(s)
	if err != nil {
		return nil, err
	}
	r := &run{rig: rig, m: newModel(), good: map[string]int{}}
	defer func() {
		if r.files != nil {
			r.files.Close()
		}
	}()
	r.attentions(false)
	for i, g := range groups {
		r.at = i
		if err := r.group(g); err != nil {
			return r, fmt.Errorf("group %d: %w", i, err)
		}
		if b := r.beside; b != nil && b.broken != "" {
			return r, fmt.Errorf("group %d: %s", i, b.broken)
		}
		if g.Pause > 0 {
			r.exec.RunUntil(r.exec.Now() + int64(g.Pause)*1e6)
		}
	}
	if err := r.endBeside(); err != nil {
		return r, err
	}
	drained := false
	r.arr.Drain(func() { drained = true })
	if r.until(func() bool { return drained }); !drained {
		return r, fmt.Errorf("the cache is not drained")
	}
	if err := r.verify("at the end", nil); err != nil {
		return r, err
	}
	if err := r.checkSpace(); err != nil {
		return r, err
	}
	return r, r.freeAll()
}

func (r *run) note(format string, args ...any) {
	r.answers = append(r.answers, fmt.Sprintf("group %d: ", r.at)+fmt.Sprintf(format, args...))
}

// attentions takes all unit attentions; told says that they must be the same everywhere.
func (r *run) attentions(told bool) {
	for h := range hosts {
		for lun := range luns {
			for range 8 {
				x := r.do(h, lun, make([]byte, 6), nil, 0)
				if x.task.Status != scsi.StatusCheckCondition {
					break
				}
				if told {
					r.note("host %d LUN %d is told %s", h, lun, answer(x.task))
				}
			}
		}
	}
}

// group runs one group.
func (r *run) group(g Group) error {
	if len(g.Commands) == 1 && !strings.HasPrefix(g.End, erasePrefix) && slices.Contains(alone, g.Commands[0].Op) {
		return r.single(g.Commands[0])
	}
	switch {
	case strings.HasPrefix(g.End, fencePrefix):
		return r.fence(g)
	case strings.HasPrefix(g.End, erasePrefix):
		return r.eraseGroup(g)
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
		if g.End == "" {
			r.m.apply(w.effects)
		}
		cmds, wants = append(cmds, c), append(wants, w)
		started = append(started, r.send(c.Host, lun, cdb, list, in, c.Ordered))
	}
	if g.End != "" {
		under := func(x *running) bool { return !x.over }
		for i := 0; i < g.After && slices.ContainsFunc(started, under); i++ {
			r.exec.Step()
		}
	}
	if g.crashes() {
		return r.die(g, started, wants, nil)
	}
	managed := g.End == "" || len(started) == 0
	if !managed {
		c := cmds[0]
		fn := map[string]scsi.TMF{"abort": scsi.AbortTask, "reset": scsi.LogicalUnitReset, "clear": scsi.ClearTaskSet, "target": scsi.TargetWarmReset}[g.End]
		if fn == scsi.LogicalUnitReset || fn == scsi.TargetWarmReset {
			for i, u := range r.m.luns {
				if i == c.LUN || fn == scsi.TargetWarmReset {
					u.legacy = -1
				}
			}
		}
		r.units[c.Host].Manage(fn, uint64(c.LUN)<<48, started[0].task.Tag, func(scsi.TMFResponse) { managed = true })
	}
	r.until(func() bool { return managed && !slices.ContainsFunc(started, func(x *running) bool { return !x.over }) })
	maybe := map[int]map[uint64][]string{}
	var touched []effect
	for i, x := range started {
		c, w := cmds[i], wants[i]
		touched = append(touched, w.effects...)
		if !managed || !x.over {
			return fmt.Errorf("%s does not end", source(c))
		}
		if g.End != "" && (x.task.Aborted || x.task.Status == scsi.StatusTaskAborted) || g.resets() && c.cutOff(x.task, cmds[0].LUN, g.End == "target") {
			maybes(maybe, w.effects)
			continue
		}
		if msg := w.verdict(x.task, x.in()); msg != "" {
			return fmt.Errorf("{%s} %s", source(c), msg)
		}
		if g.End != "" {
			r.m.apply(w.effects)
			continue
		}
		if msg := r.keep(c, x); msg != "" {
			return fmt.Errorf("{%s} %s", source(c), msg)
		}
	}
	if g.End == "" {
		return nil
	}
	r.attentions(false)
	if err := r.verify("after "+g.End, maybe); err != nil {
		return err
	}
	return r.heal(touched)
}

// maybes adds what may be there or not.
func maybes(maybe map[int]map[uint64][]string, effects []effect) {
	for _, e := range effects {
		if maybe[e.lun] == nil {
			maybe[e.lun] = map[uint64][]string{}
		}
		for i, s := range e.data {
			at := e.at + uint64(i)
			maybe[e.lun][at] = append(maybe[e.lun][at], s)
		}
	}
}

// keep notes what must be the same everywhere.
func (r *run) keep(c Command, x *running) string {
	line := fmt.Sprintf("{%s} %s", source(c), answer(x.task))
	if x.task.Status == scsi.StatusReservationConflict {
		r.conflicts++
	}
	if x.task.Status == scsi.StatusGood {
		r.good[c.Op]++
		switch c.Op {
		case "inform":
			line += fmt.Sprintf(" %x", x.in())
		case "status":
			r.states = append(r.states, fmt.Sprintf("group %d: {%s} %x", r.at, source(c), x.in()))
			return r.provisioning(c, x.in())
		}
	}
	r.note("%s", line)
	return ""
}

// provisioning checks that what is not mapped is zero.
func (r *run) provisioning(c Command, b []byte) string {
	u := r.m.luns[c.LUN]
	if len(b) < 24 || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
		return "ended well with no descriptor"
	}
	for d := b[8:]; len(d) >= 16; d = d[16:] {
		at, n := binary.BigEndian.Uint64(d)*u.block, uint64(binary.BigEndian.Uint32(d[8:]))*u.block
		for s := at; s < min(at+n, u.sectors) && d[12]&15 != 0; s++ {
			if u.cur[s] != zeroSector {
				return fmt.Sprintf("says that sector %d has state %d, which holds data", s, d[12]&15)
			}
		}
	}
	return ""
}

// single runs a command that changes what others see.
func (r *run) single(c Command) error {
	_, w := r.m.judge(c)
	var x *running
	var named uint32 // list identifier; what goes on beside the command takes more of them
	if c.Op == "dsense" {
		x = r.dsense(c)
	} else {
		lun, cdb, list, in := r.cdb(c, nil)
		named = r.lists
		x = r.do(c.Host, lun, cdb, list, in)
	}
	if !x.over {
		return fmt.Errorf("{%s} does not end", source(c))
	}
	msg := w.verdict(x.task, x.in())
	if msg == "" {
		msg = r.keep(c, x)
	}
	if msg != "" {
		return fmt.Errorf("{%s} %s", source(c), msg)
	}
	good := x.task.Status == scsi.StatusGood
	switch {
	case good && c.Op == "sync":
		r.m.luns[c.LUN].flushed()
	case good && c.Op == "populate":
		b := make([]byte, 16)
		b[0], b[1] = 0x84, 7
		binary.BigEndian.PutUint32(b[2:], named)
		binary.BigEndian.PutUint32(b[10:], 2048)
		y := r.do(c.Host, c.LUN, b, nil, 2048)
		info := y.in()
		if y.task.Status == scsi.StatusReservationConflict { // who may read may not ask for the token
			r.m.tokens[c.From], r.token[c.From] = nil, nil
			break
		}
		if len(info) < 38+512 {
			return fmt.Errorf("{%s}: no token: %s", source(c), answer(y.task))
		}
		r.token[c.From] = slices.Clone(info[38 : 38+512])
	}
	r.m.apply(w.effects)
	r.attentions(true)
	return nil
}

// die ends this life of the array in the middle of commands. then, if any, comes before the next one is verified, and
// tells what may differ there between setups.
func (r *run) die(g Group, started []*running, wants []want, then func() ([]effect, error)) error {
	if g.End == "stop" { // what was acknowledged up to here is not lost with the power
		r.until(func() bool { return !slices.ContainsFunc(started, func(x *running) bool { return !x.over }) })
		if err := r.stop(); err != nil {
			return err
		}
	}
	maybe := map[int]map[uint64][]string{}
	var touched []effect
	for i, x := range started {
		touched = append(touched, wants[i].effects...)
		if x.over && x.task.Status == scsi.StatusGood && !x.task.Aborted {
			if msg := wants[i].verdict(x.task, x.in()); msg != "" {
				return fmt.Errorf("{%s} %s", source(g.Commands[i]), msg)
			}
			r.m.apply(wants[i].effects)
		} else {
			maybes(maybe, wants[i].effects)
		}
	}
	power := g.End == "power"
	if power {
		for i, u := range r.m.luns {
			for at, was := range u.old {
				for _, s := range was {
					maybes(maybe, []effect{{i, at, []string{s}}})
				}
			}
		}
	}
	if err := r.crash(power || g.End == "stop"); err != nil {
		return err
	}
	r.m.died()
	for i, u := range r.m.luns {
		for at := range u.touched {
			if power { // the order does not matter
				touched = append(touched, effect{i, at, []string{""}})
			}
		}
	}
	r.attentions(false)
	if then != nil {
		more, err := then()
		if err != nil {
			return err
		}
		touched = append(touched, more...)
	}
	if err := r.verify("after "+g.End, maybe); err != nil {
		return err
	}
	return r.heal(touched)
}

// verify compares all sectors with the model; where something else may be, the model learns what is there.
func (r *run) verify(when string, maybe map[int]map[uint64][]string) error {
	if rep := r.arr.Check(true); len(rep.Problems) > 0 {
		return fmt.Errorf("%s, check: %s", when, strings.Join(rep.Problems, "; "))
	}
	for i, u := range r.m.luns {
		r.got = slices.Grow(r.got[:0], int(u.sectors*512))[:u.sectors*512]
		got := r.got
		if err := r.device(i, &block.Request{Op: block.OpRead, Range: block.Range{Count: u.sectors}, Data: [][]byte{got}}); err != nil {
			return err
		}
		for at := range u.sectors {
			s := got[at*512 : (at+1)*512]
			if may := maybe[i][at]; len(may) > 1 && when != "after power" {
				// What is there now may have been written over something else, which a loss of power brings back.
				u.old[at] = append(u.old[at], may...)
			}
			if string(s) == u.cur[at] {
				continue
			}
			if !slices.Contains(maybe[i][at], string(s)) {
				return fmt.Errorf("%s, sector %d of LUN %d has checksum %08x; it should be %08x, or one of %d others",
					when, at, i, crc32.ChecksumIEEE(s), crc32.ChecksumIEEE([]byte(u.cur[at])), len(maybe[i][at]))
			}
			u.old[at] = append(append(u.old[at], u.cur[at]), maybe[i][at]...)
			u.cur[at] = string(s)
		}
	}
	return nil
}

// heal gives sectors whose contents are not the same everywhere some that are.
func (r *run) heal(effects []effect) error {
	blocks := make([]map[uint64]bool, len(luns))
	for i := range blocks {
		blocks[i] = map[uint64]bool{}
	}
	for _, e := range effects {
		for i := range e.data {
			blocks[e.lun][(e.at+uint64(i))/8] = true
		}
	}
	for lun := range luns {
		for at := range luns[lun].sectors / 8 {
			if !blocks[lun][at] {
				continue
			}
			data := sectorsOf(1<<30+at, 8)
			if err := r.device(lun, &block.Request{Op: block.OpWrite, Range: block.Range{Start: 8 * at, Count: 8}, Data: [][]byte{[]byte(strings.Join(data, ""))}}); err != nil {
				return err
			}
			r.m.apply([]effect{{lun, 8 * at, data}})
		}
	}
	return nil
}

// compare runs a program on several arrays and tells the first thing that is wrong.
func compare(groups []Group, setups []Setup) string {
	var first, same [2]*run
	for _, s := range setups {
		r, err := play(groups, s)
		if err != nil {
			return fmt.Sprintf("%v: %v", s, err)
		}
		mode := 0
		if s.CopyData {
			mode = 1
		}
		if first[0] == nil {
			first[0] = r
		} else if msg := differ(first[0].answers, r.answers); msg != "" {
			return fmt.Sprintf("%v and %v differ: %s", first[0].setup, s, msg)
		}
		if same[mode] == nil {
			same[mode] = r
		} else if msg := differ(same[mode].states, r.states); msg != "" {
			return fmt.Sprintf("%v and %v differ: %s", same[mode].setup, s, msg)
		}
	}
	return ""
}

func differ(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "\n  " + a[i] + "\n  " + b[i]
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d answers", len(a), len(b))
	}
	return ""
}
