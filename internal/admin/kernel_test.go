package admin

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/handlers"
	"github.com/arraysim/arraysim/internal/link"
	"github.com/arraysim/arraysim/internal/scsi"
)

// TestKernelDoor: which volumes the kernel may have, and what that keeps others from.
func TestKernelDoor(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	k := &kernelDoor{d: r.d}
	spec := func(pool, volume string) handlers.VolumeSpec {
		return handlers.VolumeSpec{Pool: pool, Volume: volume, Size: 16 << 20, BlockSize: 512, Owner: "tcm-user/0/lun"}
	}
	with := func(s handlers.VolumeSpec, change func(*handlers.VolumeSpec)) handlers.VolumeSpec {
		change(&s)
		return s
	}

	u, info, release, err := k.OpenVolume(spec("gold", "new"))
	if err != nil || u == nil || info.Sectors != 16<<20/512 || !info.Thin {
		t.Fatalf("a new volume: %+v, %v", info, err)
	}
	for _, row := range []struct {
		name string
		s    handlers.VolumeSpec
		says string
	}{
		{"a volume of this door", spec("gold", "new"), "device tcm-user/0/lun already"},
		{"one that the portal shows", spec("gold", "v"), "arraysim export remove v"},
		{"one of another pool", spec("gold", "s"), "write slow/s"},
		{"a pool that does not exist", spec("iron", "x"), "there are: gold silver slow small"},
		{"must exist", with(spec("gold", "x"), func(s *handlers.VolumeSpec) { s.MustExist = true }), "does not exist"},
		{"had a volume once", with(spec("gold", "x"), func(s *handlers.VolumeSpec) { s.Resumed = true }), "does not exist"},
	} {
		for what, err := range map[string]error{"check": k.CheckVolume(row.s), "open": func() error { _, _, _, err := k.OpenVolume(row.s); return err }()} {
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s, %s: %v, want %q", row.name, what, err, row.says)
			}
		}
	}
	if err := k.CheckVolume(spec("slow", "s")); err != nil {
		t.Errorf("a free volume: %v", err)
	}
	if err := k.CheckVolume(spec("gold", "x")); err != nil || slices.Contains(names(t, r), "x") {
		t.Errorf("a check made the volume, or refused it: %v", err)
	}

	if err := r.AddExport(ctx, Export{Volume: "new", LUN: 5}); err == nil || !strings.Contains(err.Error(), "tcm-user/0/lun") {
		t.Errorf("an export of a volume that the kernel has: %v", err)
	}
	if err := r.DeleteVolume(ctx, "new", false); err == nil || !strings.Contains(err.Error(), "the kernel's device tcm-user/0/lun") {
		t.Errorf("a deletion of a volume that the kernel has: %v", err)
	}
	if v, err := r.Volume(ctx, "new"); err != nil || v.Kernel != "tcm-user/0/lun" {
		t.Errorf("volume: %+v, %v", v, err)
	}
	if err := k.ResizeVolume("new", 8<<20); err == nil {
		t.Error("the kernel made a volume smaller")
	}
	if err := k.ResizeVolume("new", 32<<20); err != nil || r.volumeOf("new").Info().Sectors != 32<<20/512 {
		t.Errorf("larger: %v", err)
	}
	if n := r.d.kernelDevices(); n != 1 {
		t.Errorf("%d devices keep the array here", n)
	}
	release()
	if n := r.d.kernelDevices(); n != 0 {
		t.Errorf("%d devices keep the array here behind their end", n)
	}
	if err := r.AddExport(ctx, Export{Volume: "new", LUN: 5}); err != nil {
		t.Errorf("after its release: %v", err)
	}

	// A device that came now would stay behind.
	if err := r.d.moves.begin(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := k.OpenVolume(spec("gold", "late")); err == nil || !strings.Contains(err.Error(), "about to move") {
		t.Errorf("while the array is about to move: %v", err)
	}
	if err := r.d.moves.begin(); err == nil {
		t.Error("two moves at a time")
	}
	if _, _, _, err := k.OpenVolume(with(spec("gold", "new2"), func(s *handlers.VolumeSpec) { s.Resumed = true })); err == nil || strings.Contains(err.Error(), "about to move") {
		t.Errorf("a device that is resumed while the array may stay: %v", err)
	}
	r.d.moves.leaveTo(&link.Peer{})
	if _, _, _, err := k.OpenVolume(with(spec("gold", "new2"), func(s *handlers.VolumeSpec) { s.Resumed = true })); err == nil || !strings.Contains(err.Error(), "about to move") {
		t.Errorf("a device that is resumed when the array leaves: %v", err)
	}
	r.d.moves.leaveTo(nil)
	r.d.moves.end()

	// Write protection belongs to the device.
	protect := with(spec("gold", "p"), func(s *handlers.VolumeSpec) { s.WriteProtect = true })
	before, _, release, err := k.OpenVolume(protect)
	if err != nil {
		t.Fatal(err)
	}
	release()
	protect.WriteProtect = false
	after, _, release, err := k.OpenVolume(protect)
	if err != nil || after == before {
		t.Errorf("the unit is the protected one: %v", err)
	}
	release()
	thick := with(spec("gold", "p"), func(s *handlers.VolumeSpec) { s.Thick = true })
	if _, _, _, err := k.OpenVolume(thick); err == nil || !strings.Contains(err.Error(), "is thin") {
		t.Errorf("a thin volume as a thick one: %v", err)
	}
}

// TestKernelDoorOfReservedVolume: the kernel does not get a volume that a host of the portal has left reserved. Nobody could use it, and
// nobody release it, because the kernel keeps commands of reservations to itself.
func TestKernelDoorOfReservedVolume(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	k := &kernelDoor{d: r.d}
	spec := handlers.VolumeSpec{Pool: "slow", Volume: "s", Size: 16 << 20, BlockSize: 512, Owner: "tcm-user/0/lun"}
	reserve := func(action byte, key, next uint64) {
		list := binary.BigEndian.AppendUint64(nil, key)
		list = append(binary.BigEndian.AppendUint64(list, next), make([]byte, 8)...)
		g := r.d.groups[0]
		g.exec.Lock()
		n := g.target.OpenNexus("iqn.2026-01.host:a", "iqn.2026-01.host:a,i,0x1", 1)
		g.exec.Unlock()
		defer func() {
			g.exec.Lock()
			n.Close(func() {})
			g.exec.Unlock()
		}()
		for range 4 { // the first ones hear of unit attentions
			end := make(chan struct{})
			task := &scsi.Task{LUN: 6 << 48, CDB: []byte{0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0}, DataOut: [][]byte{list}, Bufs: buffers{},
				Done: func(*scsi.Task) { close(end) }}
			g.exec.Lock()
			n.Submit([]*scsi.Task{task})
			g.exec.Unlock()
			if <-end; task.Status == scsi.StatusGood {
				return
			}
		}
		t.Fatalf("service action %d of PERSISTENT RESERVE OUT fails", action)
	}
	exported := func(while func()) {
		t.Helper()
		if err := r.AddExport(ctx, Export{Volume: "s", LUN: 6}); err != nil {
			t.Fatal(err)
		}
		while()
		if err := r.RemoveExport(ctx, "s", -1); err != nil {
			t.Fatal(err)
		}
	}
	exported(func() { reserve(0, 0, 7); reserve(1, 7, 0) })
	for what, err := range map[string]error{"check": k.CheckVolume(spec), "open": func() error { _, _, _, err := k.OpenVolume(spec); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "persistent reservation") {
			t.Errorf("%s of a reserved volume: %v", what, err)
		}
	}
	exported(func() { reserve(3, 7, 0) })
	_, _, release, err := k.OpenVolume(spec)
	if err != nil {
		t.Fatalf("without the reservation: %v", err)
	}
	release()
}

func names(t *testing.T, r *running) []string {
	list, err := r.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range list {
		out = append(out, v.Name)
	}
	return out
}
