// Package torture runs random programs of SCSI commands on arrays that differ in everything that must not matter to
// hosts: the store, the profile, how copies are made, when the process dies or the power fails. A naive model says what
// each command must answer, and what the model does not know must be the same everywhere.
//
// It consists of tests: `make torture SEEDS=...` runs many seeds over all setups, `go test` a part of them over some.
package torture

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
)

// Command is one command of a program. Addresses and lengths are in blocks of its LUN.
type Command struct {
	Op        string // see ops
	Form      int    // length of the CDB; of a copy, 1: the source gets it, else the destination; of inform, which
	Host, LUN int
	LBA, N    uint64
	From      int    // LUN, or token, that a copy reads
	FromLBA   uint64 // there
	Stamp     uint64 // what the data is made of; 0 is zeros
	Flags     byte   // of the CDB
	Ordered   bool   // task attribute ORDERED
	Wrong     bool   // a comparison must fail
}

// Group is commands that are under way together, and what ends them.
type Group struct {
	Commands []Command
	// End: "" waits for all. "abort" aborts the task of the first command, "reset" and "clear" are LOGICAL UNIT RESET and
	// CLEAR TASK SET for its LUN, "target" is a warm reset; "kill" is the death of the process, "power" a loss of power,
	// "stop" a loss of power when all have ended and the array has stopped;
	// "fence-..." is a fence of a LUN by a host, see fences; "erase-..." a death around an erasure of one, see erasures.
	End   string
	By    int // host that fences
	On    int // LUN that is fenced
	After int // events of the clock before End
	Pause int // milliseconds until the next group
	Stage int // of an erasure: 0 it may have an answer, 1 it has, 2 those wait for its end who write
	Slow  int // milliseconds that a save of its unit's state takes
	Fail  int // the save that fails, 0: none
}

// crashes tells whether the group ends with another life of the array.
func (g Group) crashes() bool { return g.End == "kill" || g.End == "power" || g.End == "stop" }

// What a command touches.
type area struct {
	lun   int
	at, n uint64 // sectors
	write bool
}

const hosts = 3

// shape is a LUN as programs know it.
type shape struct {
	pool    string
	sectors uint64
	block   uint64 // sectors of a block
	thin    bool
}

// luns: one pool, where copies are by reference or not, and another; blocks of both sizes.
var luns = []shape{{"a", 2048, 1, true}, {"a", 2048, 1, false}, {"b", 2048, 1, true}, {"a", 2048, 8, true}}

func (s shape) blocks() uint64 { return s.sectors / s.block }

const tokens = 3

// alone lists the operations that change what others see of a whole unit, or see it themselves: each is a group of its
// own.
var alone = []string{"sync", "status", "populate", "register", "unregister", "reserve", "release", "clear", "preempt", "reserve6", "release6", "sanitize", "format", "dsense"}

// areas returns what a command reads and writes.
func (c Command) areas() []area {
	s := luns[c.LUN]
	own := area{c.LUN, c.LBA * s.block, c.N * s.block, false}
	switch c.Op {
	case "copy-many":
		return c.copyAreas()
	case "unmap-many":
		return c.unmapAreas()
	case "read", "verify", "prefetch":
		return []area{own}
	case "write", "write-verify", "or", "caw", "atomic", "same", "unmap", "use":
		own.write = true
		return []area{own}
	case "copy", "copy4", "copy-offset":
		own.write = true
		return []area{{c.From, c.FromLBA * luns[c.From].block, c.N * s.block, false}, own}
	}
	return nil
}

// to returns the LUN that gets the command.
func (c Command) to() int {
	if c.Form == 1 && strings.HasPrefix(c.Op, "copy") {
		return c.From
	}
	return c.LUN
}

// conflicts tells whether the order of two commands matters.
func (c Command) conflicts(d Command) bool {
	for _, x := range c.areas() {
		for _, y := range d.areas() {
			if x.lun == y.lun && (x.write || y.write) && x.at < y.at+y.n && y.at < x.at+x.n {
				return true
			}
		}
	}
	return false
}

// generate returns the program of a seed.
func generate(seed uint64, groups int) []Group {
	rng := rand.New(rand.NewPCG(seed, 0x70))
	g := &generator{rng: rng}
	// Legacy and persistent reservations exclude each other, on a unit and mostly in life.
	g.legacy, g.reserved, g.kind = rng.IntN(3) == 0, rng.IntN(2), []byte{1, 3, 5, 6, 7, 8}[rng.IntN(6)]
	var out []Group
	for range groups {
		out = append(out, g.group())
	}
	return out
}

type generator struct {
	rng      *rand.Rand
	stamp    uint64
	legacy   bool
	reserved int  // LUN
	kind     byte // of reservations, for a while
	// registered counts commands of persistent reservations.
	registered int
}

func (g *generator) pick(words ...string) string { return words[g.rng.IntN(len(words))] }

func (g *generator) group() Group {
	if g.rng.IntN(10) == 0 {
		return g.fenced()
	}
	if g.rng.IntN(16) == 0 {
		return g.erasing()
	}
	out := Group{Pause: []int{0, 0, 1, 30, 2000}[g.rng.IntN(5)]}
	if g.rng.IntN(4) == 0 {
		out.Commands = []Command{g.serial()}
		return out
	}
	if g.rng.IntN(4) == 0 {
		out.End = g.pick("abort", "abort", "reset", "clear", "target", "kill", "kill", "power", "stop")
		out.After = []int{0, 1 + g.rng.IntN(8), g.rng.IntN(60)}[g.rng.IntN(3)]
	}
	for range 1 + g.rng.IntN(7) {
		c := g.command()
		free, fenced := true, true
		for _, d := range out.Commands {
			if c.conflicts(d) {
				free, fenced = false, fenced && c.to() == d.to()
			}
		}
		// Commands of one unit keep their order if one says so; nothing else orders commands.
		if !free && (!fenced || out.End != "") {
			break
		}
		c.Ordered = !free || g.rng.IntN(12) == 0
		out.Commands = append(out.Commands, c)
	}
	return out
}

// serial returns a command that is a group of its own.
func (g *generator) serial() Command {
	c := Command{Host: g.rng.IntN(hosts), LUN: g.rng.IntN(len(luns)), Form: 10}
	switch k := g.rng.IntN(100); {
	case k < 20:
		c.Op, c.Form = "sync", []int{10, 16}[g.rng.IntN(2)]
	case k < 32:
		c.Op, c.Form, c.LBA = "status", 16, g.rng.Uint64N(luns[c.LUN].blocks())
	case k < 48:
		c.Op, c.From = "populate", g.rng.IntN(tokens)
		c.N = 1 + g.rng.Uint64N(luns[c.LUN].blocks()/4)
		c.LBA = g.rng.Uint64N(luns[c.LUN].blocks() - c.N + 1)
	case k < 51:
		c.Op = "dsense"
	case k < 54:
		c.Op = g.pick("sanitize", "format")
	case g.legacy:
		c.Op, c.LUN = g.pick("reserve6", "release6", "release6"), g.reserved
	default:
		if g.registered++; g.registered < 3 { // who is not registered can do nothing else
			c.Op, c.LUN, c.Host = "register", g.reserved, g.registered
			break
		}
		c.Op, c.LUN = g.pick("register", "register", "register", "reserve", "reserve", "release", "unregister", "preempt", "preempt", "clear"), g.reserved
		if c.Flags = g.kind; g.rng.IntN(6) == 0 {
			g.kind = []byte{1, 3, 5, 6, 7, 8}[g.rng.IntN(6)]
		}
		c.From = (c.Host + 1 + g.rng.IntN(hosts-1)) % hosts
	}
	return c
}

// command returns a command that may run beside others.
func (g *generator) command() Command {
	if g.rng.IntN(20) == 0 {
		return g.many()
	}
	c := Command{Host: g.rng.IntN(hosts), LUN: g.rng.IntN(len(luns))}
	s := luns[c.LUN]
	limit := []uint64{4, 40, 400}[g.rng.IntN(3)]
	c.N = 1 + g.rng.Uint64N(min(limit, s.blocks()/4))
	c.LBA = g.rng.Uint64N(s.blocks() - c.N + 1)
	if g.rng.IntN(3) == 0 {
		c.LBA &^= 128/s.block - 1
	}
	g.stamp++
	c.Stamp = g.stamp
	forms := func(f ...int) { c.Form = f[g.rng.IntN(len(f))] }
	switch k := g.rng.IntN(100); {
	case k < 16:
		c.Op = "read"
		forms(6, 10, 12, 16)
	case k < 34:
		c.Op = "write"
		forms(6, 10, 12, 16)
	case k < 37:
		c.Op = "write-verify"
		forms(10, 12, 16)
	case k < 41:
		c.Op, c.Wrong = "verify", g.rng.IntN(3) == 0
		c.Flags = []byte{0, 2}[g.rng.IntN(2)]
		forms(10, 12, 16)
	case k < 44:
		c.Op, c.Form = "or", 16
	case k < 49:
		c.Op, c.Form, c.Wrong = "caw", 16, g.rng.IntN(3) == 0
		c.N = min(c.N, 1+g.rng.Uint64N(64))
	case k < 51:
		c.Op, c.Form, c.N = "atomic", 16, min(c.N, 8)
	case k < 64:
		c.Op = "same"
		forms(10, 16, 32)
		if g.rng.IntN(2) == 0 {
			c.Stamp = 0
			if c.Form != 10 && g.rng.IntN(2) == 0 {
				c.Flags = 1 // NDOB
			}
		}
		if s.thin && g.rng.IntN(2) == 0 {
			c.Flags |= []byte{8, 8, 0x18}[g.rng.IntN(3)] // UNMAP, ANCHOR
		}
	case k < 70:
		c.Op, c.Form = "unmap", 10
		if !s.thin {
			c.Op = "read"
		}
		c.Flags = byte(g.rng.IntN(4) / 3)
	case k < 84:
		c.Op = g.pick("copy", "copy", "copy4", "copy-offset")
		c.From = g.rng.IntN(len(luns))
		n := c.N * s.block
		if luns[c.From].block > s.block {
			c.N, n = 8, 8
			c.LBA = min(c.LBA, s.blocks()-8)
		}
		c.FromLBA = g.rng.Uint64N((luns[c.From].sectors - n) / luns[c.From].block)
		c.Form = g.rng.IntN(2) // who gets the command
	case k < 89:
		c.Op, c.From, c.Form = "use", g.rng.IntN(tokens), 16
	case k < 91:
		c.Op = "prefetch"
		forms(10, 16)
	default:
		c.Op, c.Form = "inform", g.rng.IntN(len(informs))
	}
	if c.Op == "read" || c.Op == "write" {
		if c.Form == 6 {
			c.N = min(c.N, 255)
		} else if g.rng.IntN(8) == 0 {
			c.Flags = 8 // FUA
		}
		if g.rng.IntN(30) == 0 {
			c.LBA = s.blocks() - c.N/2 // beyond the end
		}
	}
	return c
}

// source prints a value as Go source, zero fields left out.
func source(v any) string {
	x := reflect.ValueOf(v)
	switch x.Kind() {
	case reflect.Slice:
		var b strings.Builder
		for i := range x.Len() {
			b.WriteString("\n\t{" + source(x.Index(i).Interface()) + "},")
		}
		return b.String() + "\n"
	case reflect.Struct:
		var parts []string
		for i := range x.NumField() {
			f := x.Field(i)
			switch {
			case f.IsZero():
			case f.Kind() == reflect.Slice:
				parts = append(parts, fmt.Sprintf("%s: %s{%s}", x.Type().Field(i).Name, strings.ReplaceAll(f.Type().String(), "torture.", ""), source(f.Interface())))
			default:
				parts = append(parts, fmt.Sprintf("%s: %#v", x.Type().Field(i).Name, f.Interface()))
			}
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%#v", v)
}

// asTest prints a program as a Go test.
func asTest(groups []Group, setups []Setup) string {
	return fmt.Sprintf("func TestFound(t *testing.T) {\n\tif msg := compare([]Group{%s}, []Setup{%s}); msg != \"\" {\n\t\tt.Error(msg)\n\t}\n}\n", source(groups), source(setups))
}

// minimise drops groups, then commands, as long as the program fails.
func minimise(groups []Group, fails func([]Group) bool) []Group {
	for n := max(1, len(groups)/2); n > 0; n /= 2 {
		for at := 0; at < len(groups); {
			less := slices.Concat(groups[:at], groups[min(at+n, len(groups)):])
			if len(less) < len(groups) && fails(less) {
				groups = less
			} else {
				at += n
			}
		}
	}
	for i := 0; i < len(groups); i++ {
		for j := 0; j < len(groups[i].Commands) && len(groups[i].Commands) > 1; {
			less := slices.Clone(groups)
			less[i].Commands = slices.Delete(slices.Clone(less[i].Commands), j, j+1)
			if fails(less) {
				groups = less
			} else {
				j++
			}
		}
		if strings.HasPrefix(groups[i].End, erasePrefix) { // nothing of it means anything without the rest
			continue
		}
		for _, simpler := range []Group{{Commands: groups[i].Commands}, {Commands: groups[i].Commands, End: groups[i].End}, {Commands: groups[i].Commands, End: groups[i].End, After: groups[i].After}} {
			less := slices.Clone(groups)
			less[i] = simpler
			if fails(less) {
				groups = less
				break
			}
		}
	}
	return groups
}
