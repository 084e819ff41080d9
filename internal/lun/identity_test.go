package lun

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// scripted is a transport whose unit says what the test wants.
type scripted struct {
	news   []uint16 // unit attentions, one a command that reports them
	page   []byte   // VPD page 83h
	blocks uint64
	asked  int // how often for the capacity
	// untimed are operation codes of commands that a silent unit could keep for good.
	untimed []byte
}

func (s *scripted) Cancel(*Command) {}
func (s *scripted) Close()          {}

func (s *scripted) Start(c *Command) {
	s.serve(c)
	go c.Done(c)
}

func (s *scripted) serve(c *Command) {
	c.Status, c.Sense, c.InLen = statusGood, nil, 0
	if !c.Timed {
		s.untimed = append(s.untimed, c.CDB[0])
	}
	give := func(b []byte) { c.InLen = copy(c.In[0], b) }
	switch op := c.CDB[0]; {
	case op == 0x12 && c.CDB[1] == 0:
		give([]byte("\x00\x00\x06\x02\x1f\x00\x00\x00VENDOR  PRODUCT         1   "))
	case op == 0x12 && c.CDB[2] == 0x83:
		give(s.page)
	case op == 0x12:
		c.Status, c.Sense = statusCheck, []byte{0x72, senseIllegal, 0x24, 0}
	case len(s.news) > 0: // INQUIRY reports none (SPC-5 6.7)
		c.Status, c.Sense = statusCheck, attentionSense(s.news[0])
		s.news = s.news[1:]
	case op == opServiceIn16:
		s.asked++
		give(capacityData(s.blocks, 512))
	}
}

// openScripted opens a unit as a client does.
func openScripted(t *testing.T, s *scripted) *Device {
	t.Helper()
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	d, err := Open(exec, s, "lun")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// soon reports whether something comes true.
func soon(ok func() bool) bool {
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// names is VPD page 83h with designators.
func names(list ...designator) []byte {
	b := []byte{0, 0x83, 0, 0}
	for _, n := range list {
		b = append(append(b, n.codeSet, n.kind, 0, byte(len(n.id))), n.id...)
	}
	be.PutUint16(b[2:], uint16(len(b)-4))
	return b
}

// TestNewsOfTheTimeBeforeAListener: what the commands of Open, and those of a fence, are told is
// not theirs alone.
func TestNewsOfTheTimeBeforeAListener(t *testing.T) {
	locked := func(d *Device, fn func()) {
		d.exec.Lock()
		defer d.exec.Unlock()
		fn()
	}
	heard := func(d *Device, want ...block.EventKind) (kinds []block.EventKind) {
		locked(d, func() {}) // what was posted runs
		locked(d, func() { d.Notify(func(e block.Event) { kinds = append(kinds, e.Kind) }) })
		soon(func() (all bool) {
			locked(d, func() { all = len(kinds) >= len(want) })
			return all
		})
		locked(d, func() { kinds = slices.Clone(kinds) })
		return kinds
	}
	power := []block.EventKind{block.EventPowerLoss}
	for name, row := range map[string]struct {
		news []uint16
		want []block.EventKind
	}{
		"power on":       {[]uint16{0x2900}, power},
		"twice":          {[]uint16{0x2900, 0x2901}, power},
		"and others":     {[]uint16{0x3f0e, 0x2901, 0x2a09}, []block.EventKind{block.EventPowerLoss, block.EventGeneration}}, // behind a question
		"internal reset": {[]uint16{0x2904}, nil},
		"nexus loss":     {[]uint16{0x2907}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := openScripted(t, &scripted{news: row.news, blocks: 100})
			locked(d, func() {})
			if got := d.HeardPowerLoss(); got != slices.Contains(row.want, block.EventPowerLoss) {
				t.Errorf("it has heard of a loss of power: %v", got)
			}
			if got := heard(d, row.want...); !slices.Equal(got, row.want) {
				t.Errorf("the first listener hears %v, want %v", got, row.want)
			}
			if got := heard(d); len(got) > 0 {
				t.Errorf("the second hears %v", got)
			}
			if got := d.HeardPowerLoss(); got != slices.Contains(row.want, block.EventPowerLoss) {
				t.Errorf("the listener may fail to keep it, and the unit says: %v", got)
			}
		})
	}
	t.Run("an earlier process", func(t *testing.T) {
		d := openScripted(t, &scripted{blocks: 100})
		d.exec.Lock()
		d.AssumePowerLoss()
		d.exec.Unlock()
		if got := heard(d); !slices.Equal(got, power) {
			t.Errorf("the first listener hears %v", got)
		}
	})
	t.Run("after Open", func(t *testing.T) {
		s := &scripted{blocks: 100}
		d := openScripted(t, s)
		s.news = []uint16{0x2900}
		if _, err := d.keys(); err == nil {
			t.Fatal("the unit has no reservations") // it gives no answer to PERSISTENT RESERVE IN
		}
		if got := heard(d); !slices.Equal(got, power) {
			t.Errorf("the first listener hears %v", got)
		}
	})
}

// TestNewsBesideOpen: what the unit tells is heard on the executor, while Open writes what the unit is.
func TestNewsBesideOpen(t *testing.T) {
	exec := block.NewLive()
	t.Cleanup(exec.Stop)
	exec.Lock()
	opened := make(chan *Device, 1)
	go func() {
		d, err := Open(exec, &scripted{news: []uint16{0x2900, 0x2800}, blocks: 100}, "lun")
		if err != nil {
			t.Error(err)
		}
		opened <- d
	}()
	time.Sleep(50 * time.Millisecond) // Whoever waited for Open would be in order with it, and hide a race.
	exec.Unlock()                     // the news is told
	d := <-opened
	if t.Failed() {
		return
	}
	var kinds []block.EventKind
	exec.Lock()
	d.Notify(func(e block.Event) { kinds = append(kinds, e.Kind) })
	exec.Unlock()
	if want := []block.EventKind{block.EventPowerLoss, block.EventGeneration}; !slices.Equal(kinds, want) {
		t.Errorf("the first listener hears %v, want %v", kinds, want)
	}
}

// TestQuestionsHaveAnEnd: what Open, a fence and a witness wait for does not wait for good.
func TestQuestionsHaveAnEnd(t *testing.T) {
	s := &scripted{blocks: 100}
	d := openScripted(t, s)
	d.keys()
	if err := d.reserveOut(prRegisterIgnore, 0, 1); err != nil {
		t.Fatal(err)
	}
	if len(s.untimed) > 0 {
		t.Errorf("commands % x have no time", s.untimed)
	}
}

// TestCapacityThatChangesBeforeAListener: the size that Open has read may be an old one when it
// ends.
func TestCapacityThatChangesBeforeAListener(t *testing.T) {
	s := &scripted{blocks: 100}
	d := openScripted(t, s)
	s.news, s.blocks = []uint16{0x2a09}, 300
	d.keys() // hears of it
	sectors := func() uint64 {
		d.exec.Lock()
		defer d.exec.Unlock()
		return d.Info().Sectors
	}
	if !soon(func() bool { return sectors() == 300 }) {
		t.Errorf("the unit has %d sectors", sectors())
	}
}

// TestUnitsAreToldApart: by the designator that is the most likely to be the unit's own, in
// whatever order the page has them.
func TestUnitsAreToldApart(t *testing.T) {
	hex := func(first byte, n int) []byte {
		b := bytes.Repeat([]byte{0x11}, n)
		b[0] = first
		return b
	}
	naa6, naa5, naa3 := designator{1, designNAA, hex(0x60, 16)}, designator{1, designNAA, hex(0x50, 8)}, designator{1, designNAA, hex(0x30, 8)}
	eui, uuid := designator{1, designEUI64, hex(0x22, 8)}, designator{1, designUUID, append([]byte{0x10, 0}, hex(0x33, 16)...)}
	name := designator{3, designName, []byte("naa.500123\x00\x00")}
	t10 := designator{2, designT10, []byte("VENDOR  serial 1")}
	model := designator{2, designT10, []byte("VENDOR  PRODUCT ")}
	port := designator{1, 0x10 | designNAA, hex(0x50, 8)}
	zero := designator{1, designNAA, make([]byte, 16)}
	for label, row := range map[string]struct {
		page []designator
		want designator
	}{
		"NAA 6 above all":              {[]designator{t10, naa5, eui, naa6, naa3}, naa6},
		"NAA of 8 bytes":               {[]designator{t10, eui, naa3, naa5}, naa5},
		"EUI-64":                       {[]designator{t10, naa3, eui, uuid}, eui},
		"UUID":                         {[]designator{name, uuid, t10}, uuid},
		"a name":                       {[]designator{naa3, name, t10}, name},
		"a local NAA":                  {[]designator{t10, naa3}, naa3},
		"T10":                          {[]designator{t10}, t10},
		"T10 that names the model":     {[]designator{model}, designator{}},
		"a port's":                     {[]designator{port, t10}, t10},
		"zeros":                        {[]designator{zero, t10}, t10},
		"nothing":                      {nil, designator{}},
		"a number of the whole target": {[]designator{{1, 0x20 | designEUI64, hex(0x22, 8)}}, designator{}},
	} {
		t.Run(label, func(t *testing.T) {
			for range 2 {
				d := openScripted(t, &scripted{blocks: 100, page: names(row.page...)})
				if !bytes.Equal(d.name.id, row.want.id) || d.Info().NAA != row.want.identity() {
					t.Errorf("the unit is % x, want % x", d.name.id, row.want.id)
				}
				if (d.Info().NAA == [16]byte{}) != (len(row.want.id) == 0) {
					t.Errorf("its identity is % x", d.Info().NAA)
				}
				slices.Reverse(row.page)
			}
		})
	}
	seen := map[[16]byte]string{}
	for _, n := range []designator{naa6, naa5, naa3, eui, uuid, name, t10, {2, designT10, []byte("VENDOR  serial 2")}, {1, designEUI64, hex(0x23, 8)}, {1, designNAA, naa5.id[:]}} {
		id := n.identity()
		if was, ok := seen[id]; ok && was != string(n.id) {
			t.Errorf("% x and % x have one identity", was, n.id)
		}
		seen[id] = string(n.id)
		if id[0]>>4 != 6 {
			t.Errorf("% x becomes % x, which is no NAA designator of 16 bytes", n.id, id)
		}
	}
}

// FuzzDesignators: whatever a target sends as its page is read without a panic.
func FuzzDesignators(f *testing.F) {
	f.Add(names(designator{1, designNAA, bytes.Repeat([]byte{0x60}, 16)}, designator{2, designT10, []byte("VENDOR  x")}), "x")
	f.Add([]byte{0, 0x83, 0xff, 0xff, 1, 3, 0, 200, 1}, "")
	f.Fuzz(func(t *testing.T, page []byte, product string) {
		n := unitName(page, product)
		if id := n.identity(); (id == [16]byte{}) != (len(n.id) == 0) {
			t.Errorf("designator % x has the identity % x", n.id, id)
		}
	})
}

// TestCopiesNameUnitsByWhatTheyHave: an EXTENDED COPY carries the designator that the unit has
// shown.
func TestCopiesNameUnitsByWhatTheyHave(t *testing.T) {
	eui := designator{1, designEUI64, []byte{1, 2, 3, 4, 5, 6, 7, 8}}
	long := designator{2, designT10, []byte("VENDOR  " + strings.Repeat("x", 20))}
	for label, row := range map[string]struct {
		from, to designator
		want     block.Status
	}{
		"EUI-64":                     {eui, eui, block.OK},
		"one of them has none":       {eui, designator{}, block.Unsupported},
		"too long for a descriptor":  {long, eui, block.Unsupported},
		"too long at the other side": {eui, long, block.Unsupported},
	} {
		dev := func(n designator) *Device {
			return &Device{exec: &block.Virtual{}, t: &keeper{}, name: n, info: block.Info{BlockSize: 512, Sectors: 1 << 20, NAA: n.identity()}}
		}
		c, src := &Command{}, dev(row.from)
		r := &block.Request{Op: block.OpPlace, Range: block.Range{Count: 8}, Ref: src.hold(&block.Request{Ranges: []block.Range{{Count: 8}}})}
		if s := dev(row.to).encode(c, r); s != row.want {
			t.Errorf("%s: %v, want %v", label, s, row.want)
			continue
		}
		if row.want == block.OK && !bytes.Equal(c.list[copyHead+4:][:12], []byte{1, designEUI64, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%s: the descriptor is % x", label, c.list[copyHead:][:copyTarget])
		}
	}
}
