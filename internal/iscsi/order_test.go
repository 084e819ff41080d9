package iscsi

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

// orderly sends commands that the fake target knows by a letter, their LBA.
type orderly struct {
	*Client
	t    *testing.T
	r    *rig
	tags map[string]uint32
	sns  map[string]uint32
	ttts map[string]uint32
	seen string // guarded by the executor
}

// flatSpace makes a LUN in peripheral device addressing one in flat space addressing, of the same unit (SAM-5 4.7.7.3).
const flatSpace = 1 << 62

func newOrderly(t *testing.T, change func(*Config), keys map[string]string) *orderly {
	r := newRig(t, change)
	o := &orderly{t: t, r: r, tags: make(map[string]uint32), sns: make(map[string]uint32), ttts: make(map[string]uint32)}
	o.Client = r.login(func(cfg *ClientConfig) { cfg.Keys = keys })
	r.withFake(func(f *fakeTarget) { f.seen = func(t *scsi.Task) { o.seen += string(rune(t.CDB[5])) } })
	return o
}

// send sends a command: a letter, then what it is: S, O or H for its attribute, w
// for a write of one block, u for one with unsolicited data to come, 1 for LUN 1, f for flat space addressing.
func (o *orderly) send(name, how string) {
	op, out, lun := byte(opTestUnitReady), 0, uint64(0)
	if strings.ContainsAny(how, "wu") {
		op, out = opWrite10, fakeBlock
	}
	if strings.Contains(how, "1") {
		lun = 1 << 48
	}
	if strings.Contains(how, "f") {
		lun |= flatSpace
	}
	hdr, _ := o.CommandHeader(lun, cdb10(op, int(name[0]), out/fakeBlock), out, 0)
	h := bhs(hdr[:])
	attr := map[byte]scsi.Attr{'S': scsi.AttrSimple, 'O': scsi.AttrOrdered, 'H': scsi.AttrHeadOfQueue}[how[0]]
	h[offFlags] = h[offFlags]&^attrMask | byte(attr)
	if strings.Contains(how, "u") {
		h[offFlags] &^= flagFinal
	}
	o.tags[name], o.sns[name] = h.itt(), h.cmdSN()
	o.Send(hdr, nil, nil)
}

// r2t takes the R2T of a write.
func (o *orderly) r2t(name string) {
	o.t.Helper()
	pdu, err := o.Receive()
	if err != nil || pdu.Header[0] != opR2T || bhs(pdu.Header[:]).itt() != o.tags[name] {
		o.t.Fatalf("no R2T for %s: %v, %v", name, pdu, err)
	}
	o.ttts[name] = bhs(pdu.Header[:]).ttt()
}

// data sends a write's data: solicited when its R2T has been taken.
func (o *orderly) data(name string) {
	ttt, ok := o.ttts[name]
	if !ok {
		ttt = noTag
	}
	o.SendData(o.tags[name], ttt, make([]byte, fakeBlock), 0, fakeBlock)
}

// arrived tells that these commands and no other are with the target, in this
// order; it pings first, so that all that was sent is worked off.
func (o *orderly) arrived(want string) {
	o.t.Helper()
	hdr := o.NewHeader(opNopOut|immediateBit, 0)
	o.Send(hdr, nil, nil)
	for {
		pdu, err := o.Receive()
		if err != nil {
			o.t.Fatal(err)
		}
		if h := bhs(pdu.Header[:]); h.itt() == bhs(hdr[:]).itt() {
			break
		} else if h.opcode() != opResponse {
			o.t.Fatalf("opcode %#x", h.opcode())
		}
	}
	if got := o.target(); got != want {
		o.t.Fatalf("the target has seen %q, want %q", got, want)
	}
}

// opens waits until no command takes up room in the window any more.
func (o *orderly) opens() {
	o.t.Helper()
	var n uint32
	for range 200 {
		o.arrived(o.target())
		if n = o.MaxCmdSN - o.CmdSN + 1; n == uint32(DefaultLimits().Window) {
			return
		}
	}
	o.t.Errorf("the window is %d in the end", n)
}

// target returns what the target has seen.
func (o *orderly) target() (seen string) {
	o.r.withFake(func(*fakeTarget) { seen = o.seen })
	return seen
}

var solicitedOnly = map[string]string{keyInitialR2T: valYes, keyImmediateData: valNo}

// The order that task attributes ask for holds for commands whose data is still
// on its way, and costs the others nothing.
func TestOrderWhileCollecting(t *testing.T) {
	rows := []struct {
		name string
		keys map[string]string
		run  func(o *orderly)
	}{
		{"SIMPLE does not wait", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("s", "S")
			o.arrived("s")
			o.data("w")
			o.arrived("sw")
		}},
		{"ORDERED waits, the younger behind it", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "O")
			o.send("s", "S")
			o.send("p", "O")
			o.arrived("")
			o.send("h", "H")
			o.send("x", "O1")
			o.send("y", "S1")
			o.arrived("hxy")
			o.data("w")
			o.arrived("hxywosp")
			o.send("z", "S")
			o.arrived("hxywospz")
		}},
		{"ORDERED write", solicitedOnly, func(o *orderly) {
			o.send("o", "Ow")
			o.r2t("o")
			o.send("s", "S")
			o.send("w", "Sw")
			o.arrived("")
			o.data("o")
			o.r2t("w")
			o.arrived("os")
			o.data("w")
			o.arrived("osw")
		}},
		{"two ORDERED writes", solicitedOnly, func(o *orderly) {
			o.send("a", "Ow")
			o.r2t("a")
			o.send("b", "Ow") // no R2T: its turn comes later
			o.arrived("")
			o.data("a")
			o.r2t("b")
			o.data("b")
			o.arrived("ab")
		}},
		{"unsolicited data out of order", unsolicited, func(o *orderly) {
			o.send("o", "Ou")
			o.send("a", "Su")
			o.send("b", "Su")
			o.data("b")
			o.data("a")
			o.arrived("")
			o.data("o")
			o.arrived("oab")
		}},
		{"ORDERED behind ORDERED that waits", unsolicited, func(o *orderly) {
			o.send("w", "Su")
			o.send("o", "O")
			o.send("p", "Ou")
			o.data("p")
			o.send("s", "S")
			o.arrived("")
			o.data("w")
			o.arrived("wops")
		}},
		{"what it waits for is aborted", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "O")
			o.send("s", "S")
			o.arrived("")
			if r, err := o.Manage(scsi.AbortTask, 0, o.tags["w"], o.sns["w"]); err != nil || r != scsi.TMFComplete {
				o.t.Fatal(r, err)
			}
			o.arrived("os")
		}},
		{"ORDERED is aborted while it waits", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "O")
			o.send("s", "S")
			o.arrived("")
			if r, err := o.Manage(scsi.AbortTask, 0, o.tags["o"], o.sns["o"]); err != nil || r != scsi.TMFComplete {
				o.t.Fatal(r, err)
			}
			o.arrived("s")
			o.data("w")
			o.arrived("sw")
		}},
		{"data of what it waits for is wrong", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "O")
			o.SendData(o.tags["w"], o.ttts["w"], make([]byte, 100), 0, 100)
			if pdu, err := o.Receive(); err != nil || pdu.Header[0] != opReject {
				o.t.Fatal(pdu, err)
			}
			o.arrived("o")
		}},
		{"one unit, addressed in two ways", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "Of")
			o.send("s", "S")
			o.send("x", "S1f")
			o.arrived("x")
			o.data("w")
			o.arrived("xwos")
		}},
		{"all are reset, addressed in the other way", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("v", "Sw1")
			o.r2t("v")
			if r, err := o.Manage(scsi.LogicalUnitReset, flatSpace, 0, 0); err != nil || r != scsi.TMFComplete {
				o.t.Fatal(r, err)
			}
			o.data("w") // swallowed
			o.data("v")
			o.arrived("v")
		}},
		{"a write is aborted, addressed in the other way", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			if r, err := o.Manage(scsi.AbortTask, flatSpace, o.tags["w"], o.sns["w"]); err != nil || r != scsi.TMFComplete {
				o.t.Fatal(r, err)
			}
			o.data("w")
			o.arrived("")
		}},
		{"all are reset", solicitedOnly, func(o *orderly) {
			o.send("w", "Sw")
			o.r2t("w")
			o.send("o", "O")
			o.send("s", "S")
			o.arrived("")
			if r, err := o.Manage(scsi.LogicalUnitReset, 0, 0, 0); err != nil || r != scsi.TMFComplete {
				o.t.Fatal(r, err)
			}
			o.data("w") // swallowed
			o.send("t", "S")
			o.arrived("t")
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			o := newOrderly(t, nil, row.keys)
			row.run(o)
			o.opens()
		})
	}
}

// What waits for its turn holds no memory that an older command needs.
func TestOrderWithoutMemory(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Limits.MaxCommandData, cfg.Limits.ConnMemory = 1<<16, 1<<16 })
	c := r.login(func(cfg *ClientConfig) { cfg.Keys = unsolicited })
	data := pattern(1<<16, 3)
	write, _ := c.CommandHeader(0, cdb10(opWrite10, 0, 128), len(data), 0)
	write[offFlags] = flagWrite | byte(scsi.AttrOrdered)
	c.Send(write, nil, nil)
	read, _ := c.CommandHeader(0, cdb10(opRead10, 0, 128), 0, len(data))
	c.Send(read, nil, nil)
	c.SendData(bhs(write[:]).itt(), noTag, data, 0, 1024)
	if res, err := c.Await(bhs(write[:]).itt(), data, 0); err != nil || res.Status != 0 {
		t.Fatal(res, err)
	}
	if res, err := c.Await(bhs(read[:]).itt(), nil, len(data)); err != nil || !slices.Equal(res.Data, data) {
		t.Fatal(err)
	}
}

// A reset affects the commands numbered before it that have not had their turn:
// held behind a gap, and not even sent.
func TestResetBehindGap(t *testing.T) {
	for _, row := range []struct {
		name string
		fn   scsi.TMF
		want string // of a, b, c on LUN 0 and x on LUN 1; e is numbered after it
	}{
		{"LOGICAL UNIT RESET", scsi.LogicalUnitReset, "xe"},
		{"ABORT TASK SET", scsi.AbortTaskSet, "xe"},
		{"CLEAR TASK SET", scsi.ClearTaskSet, "xe"},
		{"TARGET WARM RESET", scsi.TargetWarmReset, "e"},
		{"TARGET COLD RESET", scsi.TargetColdReset, "e"},
		{"CLEAR ACA", scsi.ClearACA, "abxce"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := newOrderly(t, nil, unsolicited)
			first := o.CmdSN
			at := func(sn uint32, name, how string) {
				o.CmdSN = first + sn
				o.send(name, how)
			}
			at(1, "b", "Su") // held, with its data
			o.data("b")
			at(2, "x", "S1")
			o.CmdSN = first + 4
			nop := o.NewHeader(opNopOut, 0) // the last before the reset is no command
			bhs(nop[:]).put32(offITT, noTag)
			o.Send(nop, nil, nil)
			want := scsi.TMFComplete
			if row.fn == scsi.ClearACA {
				want = scsi.TMFNotSupported
			}
			for range 2 { // a second one changes nothing
				if r, err := o.Manage(row.fn, 0, 0, 0); err != nil || r != want {
					t.Fatal(r, err)
				}
			}
			at(5, "e", "S")
			o.arrived("")
			at(3, "c", "S") // held now
			at(0, "a", "S")
			o.CmdSN = first + 6
			o.arrived(row.want)
			o.opens()
			o.send("f", "S")
			o.arrived(row.want + "f")
		})
	}
}

// A reset may end all commands of the window; the data that was asked for them
// still comes (RFC 7143 4.2.3.3).
func TestResetOfFullWindow(t *testing.T) {
	o := newOrderly(t, nil, solicitedOnly)
	names := make([]string, DefaultLimits().Window)
	for i := range names {
		names[i] = string(rune(i + 1))
		o.send(names[i], "Sw")
		o.r2t(names[i])
	}
	if r, err := o.Manage(scsi.LogicalUnitReset, 0, 0, 0); err != nil || r != scsi.TMFComplete {
		t.Fatal(r, err)
	}
	for _, name := range names {
		o.data(name)
	}
	o.send("a", "S")
	o.arrived("a")
}

// The table of tags says the same as a map, also when it is nearly full and when
// tags lie far from their place.
func TestTagTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	for _, n := range []int{3, 8, 160} {
		var table tagTable
		table.init(n)
		model := make(map[uint32]uint32)
		var tags []uint32 // of model
		far := 0
		for range 20000 {
			itt := rng.Uint32N(uint32(4 * n))
			if rng.IntN(2) == 0 { // tags of one place
				for itt = rng.Uint32(); table.home(itt) != 0; {
					itt = rng.Uint32()
				}
			}
			if len(tags) > 0 && rng.IntN(8) == 0 {
				itt = tags[rng.IntN(len(tags))]
			}
			_, there := model[itt]
			if !there && len(model) == len(table.slots) {
				continue
			}
			slot, ok := table.add(itt)
			if ok == there {
				t.Fatalf("%d: add(%#x) is %v, in use %v", n, itt, ok, there)
			}
			if ok {
				model[itt] = slot
				tags = append(tags, itt)
			}
			far = max(far, int(table.strays.Load()))
			for len(tags) > 0 && (len(tags) >= 2*n || rng.IntN(2) == 0) {
				i := rng.IntN(len(tags))
				table.drop(model[tags[i]])
				delete(model, tags[i])
				tags = slices.Delete(tags, i, i+1)
			}
		}
		for _, slot := range model {
			table.drop(slot)
		}
		if table.strays.Load() != 0 {
			t.Errorf("%d: %d strays in an empty table", n, table.strays.Load())
		}
		if far == 0 {
			t.Errorf("%d: no tag was ever far from its place", n)
		}
	}
}
