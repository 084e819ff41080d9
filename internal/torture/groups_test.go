package torture

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

func stamps(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i/512)*7 + byte(i)
	}
	return b
}

// TestCopiesOverGroups: an EXTENDED COPY from a volume of one I/O group to one of another, whichever unit its
// command comes to, copies data and moves no zeros; tokens of one group serve in the other.
func TestCopiesOverGroups(t *testing.T) {
	const n = 3000 // sectors, of which the second half is not written
	a := where{0, 0}
	for _, c := range []struct {
		name     string
		g, lun   int // where the command goes
		src, dst where
	}{
		{"to the destination", 1, 0, a, where{1, 0}},
		{"to the source", 0, 0, a, where{1, 0}},
		{"to a third unit, beside the source", 0, 1, a, where{1, 0}},
		{"to a third unit, beside the destination", 1, 1, a, where{1, 0}},
		{"within a group, to a unit of another", 1, 1, a, where{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newGroups(t)
			n2 := r.both("iqn.2026-11.org.example:a")
			data := stamps(3, n/2*512)
			r.write(0, 0, 100, data)
			r.write(c.dst.g, c.dst.v, 77, stamps(9, n*512))
			list := r.list(c.src, c.dst, n, 100, 77)
			r.good(n2[c.g], c.lun, scsitest.CopyCDB(list), list, 0)
			want := append(bytes.Clone(data), make([]byte, n/2*512)...)
			if !bytes.Equal(r.read(c.dst.g, c.dst.v, 77, n), want) {
				t.Error("the destination has other data")
			}
			var flows [block.NumOrigins]array.Flow
			r.g[c.dst.g].vols[c.dst.v].Flow(&flows)
			moved := uint64(len(data))
			if c.src.g == c.dst.g {
				moved = 0
			}
			if got := flows[block.OriginXCopy].In(); got != moved {
				t.Errorf("the destination's cache took %d bytes of the copy, want %d", got, moved)
			}
			r.g[c.src.g].vols[c.src.v].Flow(&flows)
			if got := flows[block.OriginXCopy].In(); got != 0 && c.src != c.dst {
				t.Errorf("the source's cache took %d bytes", got)
			}
			r.conserves()
			r.empty()
		})
	}
	t.Run("tokens", func(t *testing.T) {
		r := newGroups(t)
		who := r.both("iqn.2026-11.org.example:a")
		data := stamps(5, 1000*512)
		r.write(0, 0, 0, data)
		token := r.token(who[0], 0, 1000)
		r.write(0, 0, 0, stamps(6, 1000*512)) // the token stands for what was there
		use := func(flags byte) *call {
			l := scsitest.WriteTokenList(flags, 0, token, scsitest.Extent{LBA: 50, Blocks: 1000})
			return r.do(who[1], 1, scsitest.TokenCDB(0x11, 2, l), l, 0)
		}
		if c := use(0); c.Status != scsi.StatusGood || !bytes.Equal(r.read(1, 1, 50, 1000), data) {
			t.Errorf("a token of the other group: %v", c)
		}
		other := r.both("iqn.2026-11.org.example:b")
		if err := r.g[0].tg.Map("iqn.2026-11.org.example:b", 7, r.g[0].units[1]); err != nil { // from now on it sees that one alone
			t.Fatal(err)
		}
		l := scsitest.WriteTokenList(0, 0, token, scsitest.Extent{Blocks: 1000})
		if c := r.do(other[1], 1, scsitest.TokenCDB(0x11, 2, l), l, 0); c.String() != "02 5/23/04" {
			t.Errorf("the token of a unit that is masked: %v", c)
		}
		if c := use(2); c.Status != scsi.StatusGood { // DEL_TKN
			t.Errorf("the token, to be deleted: %v", c)
		}
		r.settle()
		if c := use(0); c.String() != "02 5/23/09" {
			t.Errorf("a token that was deleted: %v", c)
		}
		short := r.token(who[0], 0, 10)
		r.clock.RunUntil(r.clock.Now() + 301e9)
		token = short
		if c := use(0); c.String() != "02 5/23/07" {
			t.Errorf("a token that has expired: %v", c)
		}
		r.conserves()
		r.empty()
	})
}

// token makes a token of the first sectors of a unit.
func (r *groups) token(n *scsi.Nexus, lun, sectors int) []byte {
	r.t.Helper()
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: uint32(sectors)})
	r.good(n, lun, scsitest.TokenCDB(0x10, 1, l), l, 0)
	b := r.good(n, lun, scsitest.ReceiveCDB(0x84, 0x07, 1), nil, 4096)
	at := 32 + int(b[13])
	return b[at+6 : at+6+512]
}

// TestSenseOverGroups: what keeps an initiator from a unit ends a copy over groups as one within a group, to the byte of the
// sense data; who does not see a unit there, or is not there, cannot name it.
func TestSenseOverGroups(t *testing.T) {
	const a, b = "iqn.2026-11.org.example:a", "iqn.2026-11.org.example:b"
	reserve := func(r *groups, w where) {
		n := r.login(w.g, b)
		r.good(n, w.v, []byte{0x16, 0, 0, 0, 0, 0}, nil, 0)
	}
	persist := func(kind byte) func(r *groups, w where) {
		return func(r *groups, w where) {
			n := r.login(w.g, b)
			key := make([]byte, 24)
			key[15] = 1
			r.good(n, w.v, []byte{0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0}, key, 0)
			key[7], key[15] = 1, 0
			r.good(n, w.v, []byte{0x5F, 1, kind, 0, 0, 0, 0, 0, 24, 0}, key, 0)
		}
	}
	// The source is v0 of group 0, the destination v1 of group 0 or of group 1.
	for _, c := range []struct {
		name    string
		src     func(r *groups, w where) // what is done to the source
		dst     func(r *groups, w where) // and to the destination
		from, n uint64
		to      uint64
		want    string
	}{
		{"nothing", nil, nil, 0, 100, 0, "00"},
		{"the source is reserved (SPC-2)", reserve, nil, 0, 100, 0, "02 a/0d/01"},
		{"the destination is reserved (SPC-2)", nil, reserve, 0, 100, 0, "02 a/0d/01"},
		{"the source is reserved, exclusive access", persist(3), nil, 0, 100, 0, "02 a/0d/01"},
		{"the source is reserved, write exclusive", persist(1), nil, 0, 100, 0, "00"},
		{"the destination is reserved, write exclusive", nil, persist(1), 0, 100, 0, "02 a/0d/01"},
		{"behind the end of the source", nil, nil, groupSectors - 1, 2, 0, "02 a/00/00"},
		{"behind the end of the destination", nil, nil, 0, 2, groupSectors - 1, "02 a/00/00"},
	} {
		for _, at := range []where{{0, 1}, {1, 1}} { // the command goes to the destination, to the source
			t.Run(fmt.Sprint(c.name, at), func(t *testing.T) {
				var sense [2][]byte
				for far, dst := range []where{{0, 1}, {1, 1}} {
					r := newGroups(t)
					who := r.both(a)
					src := where{0, 0}
					if c.src != nil {
						c.src(r, src)
					}
					if c.dst != nil {
						c.dst(r, dst)
					}
					list := r.list(src, dst, int(c.n), c.from, c.to)
					lun, to := dst, dst
					if at.g == 0 {
						lun, to = src, src
					}
					if c.src != nil && to == src || c.dst != nil && to == dst {
						lun = where{to.g, 1 - to.v} // the command itself must get through
					}
					got := r.do(who[lun.g], lun.v, scsitest.CopyCDB(list), list, 0)
					if got.String() != c.want {
						t.Errorf("far %d: %v, want %s", far, got, c.want)
					}
					sense[far] = bytes.Clone(got.Sense)
					r.settle()
					r.empty()
				}
				if !bytes.Equal(sense[0], sense[1]) {
					t.Errorf("within a group the sense data are\n%x, over groups\n%x", sense[0], sense[1])
				}
			})
		}
	}
	t.Run("masked", func(t *testing.T) {
		r := newGroups(t)
		if err := r.g[0].tg.Map(a, 5, r.g[0].units[1]); err != nil { // a sees no other unit there
			t.Fatal(err)
		}
		who := [2]*scsi.Nexus{r.g[0].tg.OpenNexus(a, a+",i,0x1", 1), r.login(1, a)}
		for _, w := range []where{{0, 0}, {0, 1}} {
			list := r.list(w, where{1, 0}, 8, 0, 0)
			want := []string{"02 a/0d/02", "00"}[w.v]
			if got := r.do(who[1], 0, scsitest.CopyCDB(list), list, 0); got.String() != want {
				t.Errorf("from volume %d: %v, want %s", w.v, got, want)
			}
		}
	})
	t.Run("without a session there", func(t *testing.T) {
		r := newGroups(t)
		n := r.login(1, a)
		r.login(0, b)
		list := r.list(where{0, 0}, where{1, 0}, 8, 0, 0)
		if got := r.do(n, 0, scsitest.CopyCDB(list), list, 0); got.String() != "02 a/0d/02" {
			t.Errorf("%v", got)
		}
	})
}

// TestHeldGroups: a group that takes no messages ends copies that need it, in time, and holds up nothing of another one;
// a copy that ends early, however, leaves nothing held in either.
func TestHeldGroups(t *testing.T) {
	const a = "iqn.2026-11.org.example:a"
	const n = 7 << 11
	for _, c := range []struct {
		name  string
		after int // steps after which the source's group is held
		act   func(r *groups, who [2]*scsi.Nexus, c *call)
		want  string
		limit int64
	}{
		{"before it begins", 0, nil, "02 a/0d/02", 11},
		{"meanwhile", -1, nil, "02 a/0d/01", 25},
		{"meanwhile, and the command is aborted", -1, func(r *groups, who [2]*scsi.Nexus, c *call) {
			who[1].Manage(scsi.AbortTask, 0, c.Tag, func(scsi.TMFResponse) {})
		}, "", 1},
		{"meanwhile, and the destination is reset", -1, func(r *groups, who [2]*scsi.Nexus, _ *call) {
			who[1].Manage(scsi.LogicalUnitReset, 0, 0, func(scsi.TMFResponse) {})
		}, "", 1},
		{"meanwhile, and the session ends", -1, func(r *groups, who [2]*scsi.Nexus, _ *call) { who[1].Close(func() {}) }, "", 1},
		{"before it begins, and the command is aborted", 0, func(r *groups, who [2]*scsi.Nexus, c *call) {
			who[1].Manage(scsi.AbortTask, 0, c.Tag, func(scsi.TMFResponse) {})
		}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newGroups(t)
			who := r.both(a)
			r.write(0, 0, 0, stamps(1, 7<<20))
			list := r.list(where{0, 0}, where{1, 0}, n, 0, 0)
			src := r.g[0]
			src.shut = c.after == 0
			cmd := r.start(who[1], 0, scsitest.CopyCDB(list), list, 0)
			if c.after < 0 { // when some of it has come
				var f [block.NumOrigins]array.Flow
				for f[block.OriginXCopy].In() < 1<<20 && !cmd.ended {
					r.clock.Step()
					r.g[1].vols[0].Flow(&f)
				}
				if cmd.ended {
					t.Fatalf("the copy has ended: %v", cmd)
				}
				src.shut = true
			}
			if c.act != nil {
				r.clock.RunUntil(r.clock.Now() + 1e8)
				c.act(r, who, cmd)
			}
			began := r.clock.Now()
			if !r.within(cmd, c.limit) {
				t.Fatalf("the copy lasts longer than %d s", c.limit)
			}
			if c.want != "" && cmd.String() != c.want {
				t.Errorf("it ends with %v, want %s, after %d s", cmd, c.want, (r.clock.Now()-began)/1e9)
			}
			if c.want == "" && !cmd.Aborted {
				t.Errorf("it ends with %v, and not as aborted", cmd)
			}
			r.clock.RunUntil(r.clock.Now() + 30e9)
			src.open()
			r.settle()
			r.conserves()
			r.empty()
		})
	}
}

// unmaps takes the LUN of a unit away from all, and tells when nothing uses it by that any more.
func unmaps(r *groups, w where, done func()) {
	tg := r.g[w.g].tg
	tg.Remap(func() { tg.Unmap("", uint16(w.v)) }, done)
}

// TestFencesOverGroups: what fences or removes a unit ends the copies of other groups that use it, before it
// is answered; nothing lands there later.
func TestFencesOverGroups(t *testing.T) {
	const a = "iqn.2026-11.org.example:a"
	for _, c := range []struct {
		name string
		at   where // the unit that is fenced; the copy goes from {0, 0} to {1, 0}
		by   where // where the command goes
		act  func(r *groups, w where, done func())
		want string
	}{
		{"a reset of the source", where{0, 0}, where{1, 0}, resets, "02 a/0d/01"},
		{"a reset of the destination, from the source's group", where{1, 0}, where{0, 0}, resets, "02 a/0d/01"},
		{"the source's unit goes", where{0, 0}, where{1, 0}, func(r *groups, w where, done func()) { r.g[w.g].tg.RemoveUnit(r.g[w.g].units[w.v]); done() }, "02 a/0d/01"},
		{"the destination's unit goes, from the source's group", where{1, 0}, where{0, 0}, func(r *groups, w where, done func()) { r.g[w.g].tg.RemoveUnit(r.g[w.g].units[w.v]); done() }, "02 a/0d/01"},
		{"the source's LUN goes", where{0, 0}, where{1, 0}, unmaps, "02 a/0d/02"},
		{"the destination's LUN goes, from the source's group", where{1, 0}, where{0, 0}, unmaps, "02 a/0d/02"},
		{"the source is deleted", where{0, 0}, where{1, 0}, func(r *groups, w where, done func()) {
			g := r.g[w.g]
			g.tg.RemoveUnit(g.units[w.v])
			g.arr.DeleteVolume(g.vols[w.v], func(err error) {
				if err != nil {
					r.t.Error(err)
				}
				g.vols = g.vols[1:]
				done()
			})
		}, "02 a/0d/01"},
		{"the source becomes smaller", where{0, 0}, where{1, 0}, func(r *groups, w where, done func()) {
			r.g[w.g].arr.Resize(r.g[w.g].vols[w.v], 1<<11, func(err error) {
				if err != nil {
					r.t.Error(err)
				}
				done()
			})
		}, "00"}, // it is held as it was
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newGroups(t)
			who := r.both(a)
			data := stamps(1, 6<<20)
			r.write(0, 0, 0, data)
			list := r.list(where{0, 0}, where{1, 0}, 12<<10, 0, 0)
			cmd := r.start(who[c.by.g], c.by.v, scsitest.CopyCDB(list), list, 0)
			var f [block.NumOrigins]array.Flow
			for f[block.OriginXCopy].In() < 1<<20 && !cmd.ended {
				r.clock.Step()
				r.g[1].vols[0].Flow(&f)
			}
			answered := false
			c.act(r, c.at, func() { answered = true })
			for !answered && r.clock.Step() {
			}
			r.g[1].vols[0].Flow(&f)
			in := f[block.OriginXCopy].In()
			if !r.within(cmd, 60) || cmd.String() != c.want {
				t.Errorf("the copy ends with %v, want %s", cmd, c.want)
			}
			r.settle()
			r.g[1].vols[0].Flow(&f)
			if c.at.g == 1 && f[block.OriginXCopy].In() != in {
				t.Errorf("%d bytes landed after the fence was answered", f[block.OriginXCopy].In()-in)
			}
			if c.want == "00" && !bytes.Equal(r.read(1, 0, 0, 12<<10), data) {
				t.Error("the destination has other data")
			}
			r.conserves()
			if len(r.g[0].vols) == 2 && c.want != "00" {
				r.empty()
			}
			r.check()
		})
	}
}

// TestStoppedGroup: an array that stops ends the copies that read from it.
func TestStoppedGroup(t *testing.T) {
	r := newGroups(t)
	who := r.both("iqn.2026-11.org.example:a")
	r.write(0, 0, 0, stamps(1, 6<<20))
	list := r.list(where{0, 0}, where{1, 0}, 12<<10, 0, 0)
	cmd := r.start(who[1], 0, scsitest.CopyCDB(list), list, 0)
	var f [block.NumOrigins]array.Flow
	for f[block.OriginXCopy].In() < 1<<20 && !cmd.ended {
		r.clock.Step()
		r.g[1].vols[0].Flow(&f)
	}
	stopped := false
	r.g[0].arr.Stop(func(err error) {
		if stopped = true; err != nil {
			t.Error(err)
		}
	})
	if !r.within(cmd, 1) || cmd.String() != "02 a/0d/01" {
		t.Errorf("the copy ends with %v", cmd)
	}
	if r.clock.RunUntil(r.clock.Now() + 10e9); !stopped {
		t.Error("the array does not stop")
	}
	r.conserves()
	for _, p := range r.g[1].arr.Check(true).Problems {
		t.Error(p)
	}
}

func resets(r *groups, w where, done func()) {
	n := r.g[w.g].tg.OpenNexus("iqn.2026-11.org.example:b", "iqn.2026-11.org.example:b,i,0x1", 1)
	n.Manage(scsi.LogicalUnitReset, uint64(w.v)<<48, 0, func(scsi.TMFResponse) { done() })
}

// TestCopyDomainOverGroups: units that a front end of fabrics puts into copy domains of one name copy to each other over
// groups; those of another domain, and an initiator that calls itself as a domain is called, do not see them.
func TestCopyDomainOverGroups(t *testing.T) {
	r := newGroups(t)
	domain := func(g int, name string) *scsi.Nexus {
		n := r.g[g].tg.OpenFabricNexus(name)
		for lun := range r.g[g].units {
			r.do(n, lun, []byte{0x03, 0, 0, 0, 252, 0}, nil, 252) // takes the unit attentions
			r.do(n, lun, []byte{0x03, 0, 0, 0, 252, 0}, nil, 252)
		}
		return n
	}
	mine := [2]*scsi.Nexus{domain(0, "fabric/one"), domain(1, "fabric/one")}
	data := stamps(3, 100*512)
	r.write(0, 0, 0, data)
	list := r.list(where{0, 0}, where{1, 0}, 100, 0, 0)
	for g, n := range mine {
		r.write(1, 0, 0, make([]byte, 100*512))
		r.good(n, g, scsitest.CopyCDB(list), list, 0)
		if !bytes.Equal(r.read(1, 0, 0, 100), data) {
			t.Errorf("by the unit of group %d: the destination has other data", g)
		}
	}
	for name, n := range map[string]*scsi.Nexus{"another domain": domain(0, "fabric/two"), "an initiator": r.login(0, "fabric/one")} {
		if c := r.do(n, 0, scsitest.CopyCDB(list), list, 0); c.String() != "02 a/0d/02" {
			t.Errorf("%s: %v", name, c)
		}
	}
	r.conserves()
	r.empty()
}
