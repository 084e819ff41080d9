package handlers

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// recordersHost puts a recorder before each volume that it opens; those of the pool "silver" are at
// another target.
type recordersHost struct {
	*testHost
	silver *scsi.Target
	devs   map[string]*recorder
}

func (h *recordersHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	_, info, release, err := h.testHost.OpenVolume(s)
	if err != nil {
		return nil, info, release, err
	}
	h.exec.Lock()
	defer h.exec.Unlock()
	at := h.target
	if s.Pool == "silver" {
		at = h.silver
	}
	d := &recorder{Device: h.array.Volume(s.Volume)}
	h.devs[s.Volume] = d
	u := at.AddUnit(d, scsi.UnitOptions{})
	return u, info, func() {
		h.exec.Lock()
		at.RemoveUnit(u)
		h.exec.Unlock()
		release()
	}, nil
}

// TestWriteThroughCopies: a copy to a unit whose write cache is off ends when the medium has it, whichever
// unit gets the command, in whichever I/O group, and in the background, too.
func TestWriteThroughCopies(t *testing.T) {
	h := &recordersHost{testHost: newHost(t), devs: map[string]*recorder{}}
	h.silver = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array.2", Vendor: "ARRAYSIM", Product: "array", Exec: h.exec})
	scsi.JoinCopies(h.target, h.silver)
	a := NewArray(h, nil)
	x := mustOpen(t, a, "gold/x/domain=all", tcmutest.Options{})
	through := func(config string) *lun {
		l, err := open(t, a, config, tcmutest.Options{}, func(i *tcmu.Info) { i.Resumed = true }) // and !WriteCache
		if err != nil {
			t.Fatal(err)
		}
		l.send(testUnitReady, nil, 0).Wait() // power on
		return l
	}
	y, z := through("gold/y/domain=all"), through("silver/z/domain=all")
	xn, yn, zn := x.naa(), y.naa(), z.naa()

	list := scsitest.PopulateList(0, 0, 0, scsitest.Extent{LBA: 8, Blocks: 8})
	x.do(scsitest.TokenCDB(0x10, 5, list), list, 0)
	token := slices.Clone(x.do(scsitest.ReceiveCDB(0x84, 7, 5), nil, 1024)[38 : 38+512])
	const immed = 1
	_, lid1 := copyList(xn, yn, 0, 8, 8)
	background := scsitest.CopyList4(9, 0, 1, [][]byte{lid1[16:48], lid1[48:80]}, [][]byte{lid1[80:]})
	byToken := scsitest.WriteTokenList(immed, 0, token, scsitest.Extent{LBA: 200, Blocks: 8})
	zeros := slices.Clone(token)
	binary.BigEndian.PutUint32(zeros, 0xFFFF0001)
	ofZeros := scsitest.WriteTokenList(0, 0, zeros, scsitest.Extent{LBA: 300, Blocks: 8})

	toY, listY := copyList(xn, yn, 0, 8, 8)
	toZ, listZ := copyList(xn, zn, 0, 8, 8)
	toX, listX := copyList(yn, xn, 0, 8, 8)
	for _, row := range []struct {
		name      string
		by        *lun
		cdb, list []byte
		to        string
		want      []string
	}{
		{"the source gets it", x, toY, listY, "y", []string{"place fua=false", "flush fua=false"}},
		{"the destination gets it", y, toY, listY, "y", []string{"place fua=false", "flush fua=false"}},
		{"of another I/O group", x, toZ, listZ, "z", []string{"place fua=false", "flush fua=false"}},
		{"to a unit with a write cache", y, toX, listX, "x", []string{"place fua=false"}},
		{"in the background", x, scsitest.CopyCDB4(background), background, "y", []string{"place fua=false", "flush fua=false"}},
		{"token in the background", y, scsitest.TokenCDB(0x11, 6, byToken), byToken, "y", []string{"place fua=false", "flush fua=false"}},
		{"token of zeros", y, scsitest.TokenCDB(0x11, 7, ofZeros), ofZeros, "y", []string{"write_same fua=false", "flush fua=false"}},
	} {
		for _, d := range h.devs {
			d.take()
		}
		row.by.do(row.cdb, row.list, 0)
		var got []string
		for end := time.Now().Add(time.Minute); len(got) < len(row.want) && time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, s := range h.devs[row.to].take() {
				if s != "hold fua=false" {
					got = append(got, s)
				}
			}
		}
		for name, d := range h.devs {
			for _, s := range d.take() {
				if s == "flush fua=false" {
					got = append(got, "flush of "+name)
				}
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	data := bytes.Repeat([]byte{5}, 4096)
	x.write(0, data)
	x.do(toZ, listZ, 0)
	z.holds(8, data)
	x.close()
	y.close()
	z.close()
}

// lastingHost keeps the unit of a volume when its device goes, as a daemon does, which may export it by another front end then.
type lastingHost struct {
	*testHost
	units map[string]*scsi.Unit
}

func (h *lastingHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	u, info, release, err := h.testHost.OpenVolume(s)
	if err != nil {
		return nil, info, release, err
	}
	h.units[s.Volume] = u
	return u, info, func() {}, nil
}

// TestWriteThroughEnds: what the kernel says of a device's write cache holds for that device alone.
func TestWriteThroughEnds(t *testing.T) {
	h := &lastingHost{newHost(t), map[string]*scsi.Unit{}}
	a := NewArray(h, nil)
	l := mustOpen(t, a, "gold/x", tcmutest.Options{})
	off := false
	if err := a.domainsOf("gold")[0].units[0].Reconfigure(tcmu.Change{WriteCache: &off}); err != nil {
		t.Fatal(err)
	}
	through := func() bool {
		h.exec.Lock()
		defer h.exec.Unlock()
		return h.units["x"].Medium().WriteThrough
	}
	if !through() {
		t.Error("copies to a device without a write cache are not flushed")
	}
	l.close()
	if through() {
		t.Error("copies to the volume are flushed when its device is gone")
	}
}
