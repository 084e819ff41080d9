package handlers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// testHost is an array in memory, with one pool "gold" and another "silver".
type testHost struct {
	t      testing.TB
	exec   *block.Live
	array  *array.Array
	target *scsi.Target

	mu     sync.Mutex
	claims map[string]bool
}

func newHost(t testing.TB) *testHost {
	h := &testHost{t: t, exec: block.NewLive(), claims: map[string]bool{}}
	h.exec.Lock()
	var err error
	h.array, err = array.Open(array.Options{Exec: h.exec, Store: store.NewMemory(h.exec, store.MemoryOptions{}), CacheBytes: 16 << 20, UUID: 1})
	h.exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	h.target = scsi.NewTarget(scsi.Options{Name: "iqn.2026-01.io.arraysim:array", Vendor: "ARRAYSIM", Product: "array", Revision: "0001", Exec: h.exec,
		Random: func(b []byte) { _, _ = rand.Read(b) }})
	for _, name := range []string{"gold", "silver"} {
		h.await(func(done func(error)) {
			h.array.CreatePool(array.PoolSpec{Name: name, Mdisks: []array.MdiskSpec{{Name: "a", Size: 256 << 20}}}, func(_ *array.Pool, err error) { done(err) })
		})
	}
	t.Cleanup(func() {
		h.await(h.array.Stop)
		h.exec.Stop()
	})
	return h
}

func (h *testHost) try(fn func(done func(error))) error {
	end := make(chan error, 1)
	h.exec.Lock()
	fn(func(err error) { end <- err })
	h.exec.Unlock()
	return <-end
}

func (h *testHost) await(fn func(done func(error))) {
	h.t.Helper()
	if err := h.try(fn); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHost) CheckVolume(s VolumeSpec) error {
	h.exec.Lock()
	defer h.exec.Unlock()
	if h.array.Pool(s.Pool) == nil {
		return fmt.Errorf("pool %q does not exist", s.Pool)
	}
	return nil
}

func (h *testHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	if err := h.CheckVolume(s); err != nil {
		return nil, block.Info{}, nil, err
	}
	h.mu.Lock()
	taken := h.claims[s.Volume]
	h.claims[s.Volume] = true
	h.mu.Unlock()
	if taken {
		return nil, block.Info{}, nil, fmt.Errorf("volume %q has a door already", s.Volume)
	}
	h.exec.Lock()
	v := h.array.Volume(s.Volume)
	h.exec.Unlock()
	if v == nil {
		spec := array.VolumeSpec{Name: s.Volume, Pool: s.Pool, Sectors: s.Size >> 9, BlockSize: s.BlockSize, Thin: !s.Thick}
		if err := h.try(func(done func(error)) {
			h.array.CreateVolume(spec, func(made *array.Volume, err error) { v = made; done(err) })
		}); err != nil {
			return nil, block.Info{}, nil, err
		}
	}
	h.exec.Lock()
	defer h.exec.Unlock()
	u := h.target.AddUnit(v, scsi.UnitOptions{WriteProtect: s.WriteProtect})
	return u, v.Info(), func() {
		h.exec.Lock()
		h.target.RemoveUnit(u)
		h.exec.Unlock()
		h.mu.Lock()
		delete(h.claims, s.Volume)
		h.mu.Unlock()
	}, nil
}

func (h *testHost) ResizeVolume(name string, n uint64) error {
	h.exec.Lock()
	v := h.array.Volume(name)
	h.exec.Unlock()
	return h.try(func(done func(error)) { h.array.Resize(v, n>>9, done) })
}

// lun is a device that is served.
type lun struct {
	*tcmutest.Kernel
	t     testing.TB
	dev   *tcmu.Device
	ended chan error
}

const lunSize = 32 << 20

// open makes a device with a fake kernel side and serves it.
func open(t testing.TB, a *Array, config string, o tcmutest.Options, change func(*tcmu.Info)) (*lun, error) {
	info := tcmu.Info{HBA: "0", Name: "lun", Subtype: "array", Config: config, Size: lunSize, BlockSize: 512}
	if change != nil {
		change(&info)
	}
	k := tcmutest.New(o)
	d, err := tcmu.Attach(k, info)
	if err != nil {
		t.Fatal(err)
	}
	h, err := a.Open(d)
	if err != nil {
		return nil, err
	}
	l := &lun{k, t, d, make(chan error, 1)}
	go func() { l.ended <- d.Serve(h) }()
	return l, nil
}

func mustOpen(t testing.TB, a *Array, config string, o tcmutest.Options) *lun {
	t.Helper()
	l, err := open(t, a, config, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lun) close() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.dev.Close(ctx); err != nil {
		l.t.Error(err)
	}
	if err := <-l.ended; !errors.Is(err, tcmu.ErrStopped) {
		l.t.Errorf("Serve ended with %v", err)
	}
	if err := l.Err(); err != nil {
		l.t.Error(err)
	}
}

func (l *lun) send(cdb, out []byte, in int) *tcmutest.Call {
	l.t.Helper()
	c, err := l.Send(cdb, out, in)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// do sends a command and wants it to end well.
func (l *lun) do(cdb, out []byte, in int) []byte {
	l.t.Helper()
	r := l.send(cdb, out, in).Wait()
	if r.Status != 0 {
		l.t.Fatalf("CDB % x: status %#x, sense % x", cdb, r.Status, r.Sense[:18])
	}
	return r.Data
}

// fails sends a command and wants it to end with this sense key and code.
func (l *lun) fails(key byte, code uint16, cdb, out []byte, in int) {
	l.t.Helper()
	r := l.send(cdb, out, in).Wait()
	if r.Status != 2 || r.Sense[2]&0x0F != key || uint16(r.Sense[12])<<8|uint16(r.Sense[13]) != code {
		l.t.Errorf("CDB % x: status %#x, sense % x; want %X/%04X", cdb, r.Status, r.Sense[:18], key, code)
	}
}

func cdb10(op byte, lba uint32, blocks uint16) []byte {
	return []byte{op, 0, byte(lba >> 24), byte(lba >> 16), byte(lba >> 8), byte(lba), 0, byte(blocks >> 8), byte(blocks), 0}
}

func (l *lun) write(lba uint32, data []byte) {
	l.t.Helper()
	l.do(cdb10(0x2A, lba, uint16(len(data)/512)), data, 0)
}

func (l *lun) holds(lba uint32, want []byte) {
	l.t.Helper()
	if got := l.do(cdb10(0x28, lba, uint16(len(want)/512)), nil, len(want)); !bytes.Equal(got, want) {
		l.t.Errorf("LBA %d: %d bytes are not what was written", lba, len(want))
	}
}

var (
	testUnitReady = make([]byte, 6)
	page83        = []byte{0x12, 1, 0x83, 1, 0, 0}
)

// designators takes the names of a logical unit from a Device Identification page.
func designators(page []byte) []name {
	var list []name
	if len(page) < 4 {
		return nil
	}
	page = page[4:min(len(page), 4+int(binary.BigEndian.Uint16(page[2:])))]
	for len(page) >= 4 && len(page) >= 4+int(page[3]) {
		n := 4 + int(page[3])
		if page[1]&0x30 == 0 { // of the logical unit
			list = append(list, name{page[0] & 0x0F, page[1] & 0x0F, page[4:n]})
		}
		page = page[n:]
	}
	return list
}

// naa returns the unit's NAA-6 designator.
func (l *lun) naa() []byte {
	for _, n := range designators(l.do(page83, nil, 256)) {
		if n.kind == 3 && len(n.id) == 16 {
			return n.id
		}
	}
	l.t.Fatal("no NAA designator")
	return nil
}

// stuckHost opens volumes whose reads and writes do not end.
type stuckHost struct {
	*testHost
	opened []*stuck
}

// await waits until so many requests have reached the volumes.
func (h *stuckHost) await(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		held := 0
		h.exec.Lock()
		for _, s := range h.opened {
			held += len(s.held)
		}
		h.exec.Unlock()
		if held >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests have reached the volumes", held, n)
		}
	}
}

func (h *stuckHost) OpenVolume(s VolumeSpec) (*scsi.Unit, block.Info, func(), error) {
	_, info, release, err := h.testHost.OpenVolume(s)
	if err != nil {
		return nil, info, release, err
	}
	h.exec.Lock()
	defer h.exec.Unlock()
	dev := &stuck{Device: h.array.Volume(s.Volume)}
	h.opened = append(h.opened, dev)
	u := h.target.AddUnit(dev, scsi.UnitOptions{})
	return u, info, func() {
		h.exec.Lock()
		h.target.RemoveUnit(u)
		h.exec.Unlock()
		release()
	}, nil
}
