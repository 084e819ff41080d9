package handlers

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// recorder notes the requests that change a device or flush it.
type recorder struct {
	block.Device
	before func(*block.Request) // is called with the executor held, if it is there
	refuse func(*block.Request) // the same, in the place of a flush
	mu     sync.Mutex
	seen   []string // guarded by mu
}

func (d *recorder) Submit(list []*block.Request) {
	d.mu.Lock()
	for _, r := range list {
		if d.before != nil {
			d.before(r)
		}
		if r.Op != block.OpRead && r.Op != block.OpStatus {
			d.seen = append(d.seen, fmt.Sprintf("%v fua=%t", r.Op, r.Flags&block.FUA != 0))
		}
	}
	d.mu.Unlock()
	if d.refuse != nil && list[0].Op == block.OpFlush {
		d.refuse(list[0])
		return
	}
	d.Device.Submit(list)
}

func (d *recorder) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.seen
	d.seen = nil
	return list
}

// recorderHost puts a recorder before the volume that it opens.
type recorderHost struct {
	*testHost
	dev  *recorder
	unit *scsi.Unit
}

func (h *recorderHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	_, info, release, err := h.testHost.OpenVolume(s)
	if err != nil {
		return nil, info, release, err
	}
	h.exec.Lock()
	defer h.exec.Unlock()
	h.dev = &recorder{Device: h.array.Volume(s.Volume)}
	u := h.target.AddUnit(h.dev, scsi.UnitOptions{})
	h.unit = u
	return u, info, func() {
		h.exec.Lock()
		h.target.RemoveUnit(u)
		h.exec.Unlock()
		release()
	}, nil
}

// wce reads the WCE bit from MODE SENSE(6) and (10), of the caching page and of all pages.
func (l *lun) wce(control byte) (on bool) {
	l.t.Helper()
	var seen []bool
	for _, cdb := range [][]byte{
		{0x1A, 0, control | 0x08, 0, 255, 0}, {0x1A, 8, control | 0x3F, 0, 255, 0},
		{0x5A, 0, control | 0x08, 0, 0, 0, 0, 0, 255, 0}, {0x5A, 0, control | 0x3F, 0, 0, 0, 0, 0, 255, 0},
	} {
		b := l.do(cdb, nil, 255)
		head := 4 + int(b[3])
		if cdb[0] == 0x5A {
			head = 8 + int(b[7])
		}
		for page := b[head:]; len(page) > 2; page = page[2+int(page[1]):] {
			if page[0] == 0x08 {
				seen = append(seen, page[2]&bitWCE != 0)
			}
		}
	}
	if len(seen) != 4 || slices.Contains(seen, !seen[0]) {
		l.t.Fatalf("caching pages say %t", seen)
	}
	return seen[0]
}

// TestWriteThrough: with the kernel's write cache attribute at 0 nothing is acknowledged
// that a flush would still have to bring to the medium.
func TestWriteThrough(t *testing.T) {
	h := &recorderHost{testHost: newHost(t)}
	a := NewArray(h, nil)
	k := tcmutest.New(tcmutest.Options{})
	d, err := tcmu.Attach(k, tcmu.Info{HBA: "0", Name: "lun", Config: "gold/x", Size: lunSize, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	u, err := a.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	l := &lun{k, t, d, make(chan error, 1)}
	go func() { l.ended <- d.Serve(u) }()
	defer l.close()

	sector := bytes.Repeat([]byte{0xA5}, 512)
	unmap := append([]byte{0, 22, 0, 16, 4: 0}, make([]byte, 19)...)
	unmap[19] = 1 // one block at LBA 0
	commands := []struct {
		name     string
		cdb, out []byte
		through  []string // with the write cache off
		always   bool     // and with it on
	}{
		{"WRITE(6)", []byte{0x0A, 0, 0, 0, 1, 0}, sector, []string{"write fua=false", "flush fua=false"}, false},
		{"WRITE(10)", cdb10(0x2A, 0, 1), sector, []string{"write fua=true"}, false},
		{"WRITE(12)", []byte{0: 0xAA, 9: 1, 11: 0}, sector, []string{"write fua=true"}, false},
		{"WRITE(16)", []byte{0: 0x8A, 13: 1, 15: 0}, sector, []string{"write fua=true"}, false},
		{"WRITE ATOMIC(16)", []byte{0: 0x9C, 13: 1, 15: 0}, sector, []string{"write fua=true"}, false},
		{"ORWRITE(16)", []byte{0: 0x8B, 13: 1, 15: 0}, sector, []string{"or_write fua=true"}, false},
		{"COMPARE AND WRITE", []byte{0: 0x89, 13: 1, 15: 0}, append(bytes.Clone(sector), sector...), []string{"compare_write fua=true"}, false},
		{"WRITE AND VERIFY(10)", cdb10(0x2E, 0, 1), sector, []string{"write fua=true"}, true},
		{"WRITE SAME(10)", cdb10(0x41, 0, 4), sector, []string{"write_same fua=false", "flush fua=false"}, false},
		{"UNMAP", []byte{0: 0x42, 8: 24, 9: 0}, unmap[:24], []string{"unmap fua=false", "flush fua=false"}, false},
	}
	for _, on := range []bool{true, false, true} {
		if err := u.(tcmu.Reconfigurer).Reconfigure(tcmu.Change{WriteCache: &on}); err != nil {
			t.Fatal(err)
		}
		if got := l.wce(0); got != on {
			t.Errorf("write cache %t: WCE is %t", on, got)
		}
		if !l.wce(0x80) {
			t.Errorf("write cache %t: the default of WCE is 0", on)
		}
		for _, c := range commands {
			h.dev.take()
			l.do(c.cdb, c.out, 0)
			want := []string{c.through[0]}
			if !on {
				want = c.through
			} else if len(c.through) == 1 && !c.always {
				want = []string{strings.Replace(want[0], "fua=true", "fua=false", 1)}
			}
			if got := h.dev.take(); !slices.Equal(got, want) {
				t.Errorf("write cache %t, %s: %q, want %q", on, c.name, got, want)
			}
		}
	}
}

// TestModeSelectOfCache: MODE SELECT takes the caching page as MODE SENSE reports it, and refuses the other WCE.
func TestModeSelectOfCache(t *testing.T) {
	a := NewArray(newHost(t), nil)
	for _, scatter := range []bool{false, true} {
		l := mustOpen(t, a, "gold/x", tcmutest.Options{Scatter: scatter, Seed: 1})
		u := a.domainsOf("gold")[0].units[0]
		for _, on := range []bool{true, false, true} {
			if err := u.Reconfigure(tcmu.Change{WriteCache: &on}); err != nil {
				t.Fatal(err)
			}
			for _, short := range []bool{true, false} {
				for _, pages := range []byte{0x08, 0x3F} {
					sense, head := []byte{0x1A, 8, pages, 0, 255, 0}, 4
					if !short {
						sense, head = []byte{0x5A, 8, pages, 0, 0, 0, 0, 0, 255, 0}, 8
					}
					b := l.do(sense, nil, 255)
					n := int(b[0]) + 1
					if !short {
						n = int(b[1]) + 2
					}
					b = b[:n]
					clear(b[:head])
					at := head
					for b[at]&0x3F != 0x08 {
						at += 2 + int(b[at+1])
					}
					send := []byte{0x15, 0x10, 0, 0, byte(n), 0}
					if !short {
						send = []byte{0x55, 0x10, 0, 0, 0, 0, 0, 0, byte(n), 0}
					}
					if got := l.send(send, bytes.Clone(b), 0).Wait(); got.Status != scsi.StatusGood {
						t.Errorf("write cache %t, %x: what MODE SENSE reports ends with %#x, sense %x", on, send, got.Status, got.Sense)
					}
					b[at+2] ^= bitWCE
					l.fails(5, 0x2600, send, b, 0)
				}
			}
		}
		l.close()
	}
}

// TestFlushReportsNoAttention: a command that has been carried out does not end with a unit attention condition that came up
// meanwhile, which the next one reports. A flush that fails is its end.
func TestFlushReportsNoAttention(t *testing.T) {
	h := &recorderHost{testHost: newHost(t)}
	l, err := open(t, NewArray(h, nil), "gold/x", tcmutest.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.close()
	// One that has no write cache from the beginning.
	if l, err = open(t, NewArray(h, nil), "gold/x", tcmutest.Options{}, func(i *tcmu.Info) { i.Resumed = true }); err != nil {
		t.Fatal(err)
	}
	l.send(testUnitReady, nil, 0).Wait() // power on
	h.exec.Lock()
	h.dev.before = func(r *block.Request) {
		if r.Op == block.OpWrite {
			h.unit.Establish(scsi.AttentionCapacity, nil)
		}
	}
	h.exec.Unlock()
	write6 := []byte{0x0A, 0, 0, 0, 1, 0}
	h.dev.take()
	l.do(write6, make([]byte, 512), 0)
	if got := h.dev.take(); !slices.Equal(got, []string{"write fua=false", "flush fua=false"}) {
		t.Errorf("requests %q", got)
	}
	l.fails(6, 0x2A09, testUnitReady, nil, 0)
	l.do(testUnitReady, nil, 0)
	h.exec.Lock()
	h.dev.before = nil
	h.dev.refuse = func(r *block.Request) {
		h.exec.Post(func() { r.Status = block.MediumWrite; r.Done(r) })
	}
	h.exec.Unlock()
	l.fails(3, 0x0C00, write6, make([]byte, 512), 0)
	h.exec.Lock()
	h.dev.refuse = nil
	h.exec.Unlock()
	l.do(write6, make([]byte, 512), 0)
	l.close()
}

// TestClearWCE: a reply that is cut off anywhere is not read past its end.
func TestClearWCE(t *testing.T) {
	for _, op := range []byte{0x1A, 0x5A} {
		head := 4
		if op == 0x5A {
			head = 8
		}
		full := append(make([]byte, head), 0x41, 1, 0, 2, 0, 0, 0x08, 18, 0x04)
		full = append(full, make([]byte, 17)...)
		for n := range len(full) + 1 {
			for cut := range n + 1 {
				b := bytes.Clone(full[:n])
				clearWCE(op, [][]byte{b[:cut], b[cut:]})
				if at := head + 8; n > at && b[at] != 0 {
					t.Fatalf("operation %#x, %d of %d bytes: WCE is there", op, n, len(full))
				}
			}
		}
	}
}
