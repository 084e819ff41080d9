package torture

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// model is what hosts may expect, in the plainest way: each sector is a string of 512 bytes.
type model struct {
	luns   []*unit
	tokens [tokens]*token
}

type unit struct {
	shape
	cur     []string
	old     map[uint64][]string // what a loss of power may bring back
	touched map[uint64]bool     // written since the last flush

	keys   [hosts]bool
	kind   byte // of the persistent reservation, 0: none
	holder int
	legacy int // host of RESERVE(6), -1: none
}

type token struct {
	of   int // LUN
	data []string
	// Tokens die with the array and with an erasure of their unit; their bytes are remembered.
	dead bool
}

// effect is what a command makes of sectors.
type effect struct {
	lun  int
	at   uint64
	data []string
}

// want is what a command must answer. Of what the model does not know, any is true.
type want struct {
	any     bool
	refused bool // it must fail somehow
	status  byte
	sense   int
	data    []byte
	effects []effect
}

var zeroSector = strings.Repeat("\x00", 512)

// sectorOf is sector i of the data of a stamp.
func sectorOf(stamp, i uint64) string {
	if stamp == 0 {
		return zeroSector
	}
	b := make([]byte, 512)
	x := (stamp<<20 | i) * 0x9E3779B97F4A7C15
	for k := 0; k < 512; k += 8 {
		binary.LittleEndian.PutUint64(b[k:], x+uint64(k)<<40)
	}
	return string(b)
}

func sectorsOf(stamp, n uint64) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = sectorOf(stamp, uint64(i))
	}
	return out
}

func newModel() *model {
	m := &model{}
	for _, s := range luns {
		u := &unit{shape: s, legacy: -1, holder: -1, old: map[uint64][]string{}, touched: map[uint64]bool{}}
		for range s.sectors {
			u.cur = append(u.cur, zeroSector)
		}
		m.luns = append(m.luns, u)
	}
	return m
}

// apply makes effects certain.
func (m *model) apply(effects []effect) {
	for _, e := range effects {
		u := m.luns[e.lun]
		for i, s := range e.data {
			at := e.at + uint64(i)
			if u.cur[at] != s {
				u.old[at] = append(u.old[at], u.cur[at])
			}
			u.cur[at] = s
		}
	}
	m.touch(effects)
}

func (m *model) touch(effects []effect) {
	for _, e := range effects {
		for i := range e.data {
			m.luns[e.lun].touched[e.at+uint64(i)] = true
		}
	}
}

// flushed forgets what a loss of power could bring back.
func (u *unit) flushed() { clear(u.old); clear(u.touched) }

// died is what the death of the array takes from all units.
func (m *model) died() {
	for i, u := range m.luns {
		u.legacy = -1
		if !aptpl(i) {
			u.keys, u.kind, u.holder = [hosts]bool{}, 0, -1
		}
	}
	for _, k := range m.tokens {
		if k != nil {
			k.dead = true
		}
	}
}

// aptpl tells whether reservations of a LUN survive power loss.
func aptpl(lun int) bool { return lun == 0 }

// holds and excluded are SPC-5 5.14.1 in short.
func (u *unit) holds(host int) bool {
	return u.kind != 0 && (u.kind >= 7 && u.keys[host] || u.holder == host)
}

func (u *unit) excluded(host int, read bool) bool {
	switch {
	case u.legacy >= 0 && u.legacy != host:
		return true
	case u.kind == 0, read && (u.kind == 1 || u.kind == 5 || u.kind == 7):
		return false
	}
	return !u.holds(host) && !(u.keys[host] && u.kind >= 5)
}

var conflict = want{status: scsi.StatusReservationConflict}

func check(sense int) want { return want{status: scsi.StatusCheckCondition, sense: sense} }

// judge returns what a command must answer, and its data-out.
func (m *model) judge(c Command) (out []byte, w want) {
	u := m.luns[c.LUN]
	n, at := c.N*u.block, c.LBA*u.block
	data := sectorsOf(c.Stamp, n)
	reads := slices.Contains([]string{"read", "verify", "prefetch", "status", "populate"}, c.Op)
	beyond := c.LBA+c.N > u.blocks()
	now := func() []string { return slices.Clone(u.cur[at : at+n]) }
	become := func(d []string) { w.effects = []effect{{c.LUN, at, d}} }
	switch c.Op {
	case "inform":
		return nil, want{any: true}
	case "write", "write-verify", "or", "atomic":
		out = []byte(strings.Join(data, ""))
	case "same":
		data = sectorsOf(c.Stamp, u.block)
		if c.Flags&1 == 0 {
			out = []byte(strings.Join(data, ""))
		}
	case "caw", "verify":
		if !beyond {
			seen := now()
			if c.Wrong {
				seen[len(seen)-1] = sectorOf(c.Stamp|1<<40, 1)
			}
			if c.Op == "caw" || c.Flags == 2 {
				out = []byte(strings.Join(seen, ""))
			}
			if c.Op == "caw" {
				out = append(out, strings.Join(data, "")...)
			}
		}
	case "copy", "copy4", "copy-offset":
		return nil, m.judgeCopy(c)
	case "copy-many":
		return nil, m.judgeMany(c)
	case "use":
		if k := m.tokens[c.From]; k == nil {
			return nil, want{any: true} // it is not sent
		} else if u.excluded(c.Host, false) {
			return nil, conflict
		} else if k.dead || luns[k.of].block != u.block {
			return nil, want{refused: true}
		} else {
			become(k.data[:min(n, uint64(len(k.data)))])
			return nil, w
		}
	case "register", "unregister", "reserve", "release", "clear", "preempt", "reserve6", "release6":
		return nil, u.judgeReservation(c)
	case "dsense":
		return nil, want{any: true}
	}
	switch {
	case u.excluded(c.Host, reads):
		return out, conflict
	case beyond:
		return out, check(0x052100)
	}
	switch c.Op {
	case "read":
		w.data = []byte(strings.Join(now(), ""))
	case "write", "write-verify", "atomic":
		become(data)
	case "or":
		d := now()
		for i := range d {
			b := []byte(d[i])
			for k := range b {
				b[k] |= data[i][k]
			}
			d[i] = string(b)
		}
		become(d)
	case "caw":
		if c.Wrong {
			return out, check(0x0E1D00)
		}
		become(data)
	case "verify":
		if c.Wrong && c.Flags == 2 {
			return out, check(0x0E1D00)
		}
	case "same":
		become(slices.Repeat(data, int(c.N)))
	case "unmap":
		become(sectorsOf(0, n))
	case "unmap-many":
		for _, a := range c.unmapAreas() {
			w.effects = append(w.effects, effect{a.lun, a.at, sectorsOf(0, a.n)})
		}
	case "prefetch":
		w.any = true // GOOD or CONDITION MET
	case "sanitize", "format":
		w.effects = []effect{{c.LUN, 0, sectorsOf(0, u.sectors)}}
		for _, k := range m.tokens {
			if k != nil && k.of == c.LUN {
				k.dead = true
			}
		}
	case "overwrite":
		become(slices.Repeat(sectorsOf(c.Stamp, u.block), int(u.blocks())))
	case "populate":
		m.tokens[c.From] = &token{of: c.LUN, data: now()}
	}
	return out, w
}

// judgeCopy is EXTENDED COPY with one segment.
func (m *model) judgeCopy(c Command) want {
	src, dst, to := m.luns[c.From], m.luns[c.LUN], m.luns[c.to()]
	from, at, n := c.FromLBA*src.block, c.LBA*dst.block, c.N*dst.block
	switch {
	case to.excluded(c.Host, false):
		return conflict
	case src.excluded(c.Host, true) || dst.excluded(c.Host, false):
		return want{refused: true}
	}
	return want{effects: []effect{{c.LUN, at, slices.Clone(src.cur[from : from+n])}}}
}

// judgeReservation is SPC-5 5.14 and SPC-2 5.5 for three hosts with a key each.
func (u *unit) judgeReservation(c Command) want {
	registered := u.keys != [hosts]bool{}
	if c.Op == "reserve6" || c.Op == "release6" {
		switch {
		case registered, c.Op == "reserve6" && u.legacy >= 0 && u.legacy != c.Host:
			return conflict
		case c.Op == "reserve6":
			u.legacy = c.Host
		case u.legacy == c.Host:
			u.legacy = -1
		}
		return want{}
	}
	if u.legacy >= 0 || c.Op != "register" && c.Op != "unregister" && !u.keys[c.Host] {
		return conflict
	}
	gone := func(host int) {
		u.keys[host] = false
		if u.kind != 0 && (u.holder == host || u.kind >= 7 && u.keys == [hosts]bool{}) {
			u.kind, u.holder = 0, -1
		}
	}
	take := func() {
		if u.kind, u.holder = c.Flags, c.Host; c.Flags >= 7 {
			u.holder = -1
		}
	}
	switch c.Op {
	case "register":
		u.keys[c.Host] = true
	case "unregister":
		gone(c.Host)
	case "reserve":
		if u.kind != 0 && (!u.holds(c.Host) || u.kind != c.Flags) {
			return conflict
		}
		take()
	case "release":
		if u.holds(c.Host) {
			if u.kind != c.Flags {
				return check(0x052604)
			}
			u.kind, u.holder = 0, -1
		}
	case "clear":
		u.keys, u.kind, u.holder = [hosts]bool{}, 0, -1
	case "preempt":
		if !u.keys[c.From] {
			return conflict
		}
		if u.kind != 0 && u.holder == c.From {
			u.keys[c.From] = false
			take()
		} else {
			gone(c.From)
		}
	}
	return want{}
}

// verdict tells what is wrong with an answer, "" if nothing.
func (w *want) verdict(t *scsi.Task, in []byte) string {
	key, asc, q := scsitest.SenseCode(t.Sense)
	sense := int(key)<<16 | int(asc)<<8 | int(q)
	switch {
	case w.any:
	case w.refused && t.Status == scsi.StatusGood:
		return "ended well, and should not"
	case w.refused:
	case t.Status != w.status || w.status == scsi.StatusCheckCondition && sense != w.sense:
		return answer(t) + ", and should be " + codes(w.status, w.sense)
	case w.status == scsi.StatusGood && w.data != nil && string(in) != string(w.data):
		for i := range in {
			if in[i] != w.data[i] {
				return "read something else from " + ordinal(i/512) + " on"
			}
		}
		return "read too little"
	}
	return ""
}
