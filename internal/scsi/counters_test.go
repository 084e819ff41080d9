package scsi_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// samples is what Emit gave, as text.
type samples []string

func emitted(tg *scsi.Target) samples {
	var out samples
	var s metrics.Snapshot
	s.Take(0, &sync.Mutex{}, tg)
	s.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		if h != nil {
			v = float64(h.Count)
		}
		out = append(out, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(f.Name, "arraysim_"), strings.Join(labels, ","), v))
	})
	return out
}

func TestCounters(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec, Random: func(b []byte) { clear(b) }})}
	for i := range 2 {
		d := scsitest.NewDevice(exec, scsitest.Ready(uint32(i), 4096, 512, true))
		r.devs = append(r.devs, d)
		if err := r.tg.Map("", uint16(2*i), r.tg.AddUnit(d, scsi.UnitOptions{MaxTasks: 8})); err != nil {
			t.Fatal(err)
		}
	}
	r.a = r.tg.OpenNexus("alice", "alice", 1)
	for _, lun := range []uint64{0, 2} {
		r.submit(r.a, r.task("tur", lun, make([]byte, 6)))
	}
	exec.Run()
	zeros := r.task("ws", 0, scsitest.CDB(0x93, 0, 1000))
	zeros.DataOut = [][]byte{make([]byte, 512)}
	r.submit(r.a, r.task("r", 0, scsitest.CDB(0x28, 0, 2)), r.task("w", 0, write1), r.task("bad", 0, scsitest.CDB(0x28, 5000, 2)), zeros, r.copyTask("copy", 1, 2))
	exec.Run()
	none := make([]byte, 512) // a token of zeros
	copy(none, []byte{0xFF, 0xFF, 0, 1, 0, 0, 0x01, 0xF8})
	populate, write := scsitest.PopulateList(1, 0, 0, scsitest.Extent{Blocks: 8}), scsitest.WriteTokenList(1, 0, none, scsitest.Extent{Blocks: 8})
	nowhere := scsitest.CopyList4(9, 0, scsitest.Immed4, nil, [][]byte{scsitest.Segment02(5, 5, 1, 0, 9, false)})
	for _, c := range []struct { // in the background
		lun       uint64
		cdb, list []byte
	}{{0, scsitest.TokenCDB(0x10, 1, populate), populate}, {2, scsitest.TokenCDB(0x11, 2, write), write}, {0, scsitest.CopyCDB4(nowhere), nowhere}} {
		k := r.task("background", c.lun, c.cdb)
		k.DataOut = [][]byte{c.list}
		r.submit(r.a, k)
		exec.Run()
	}
	got := emitted(r.tg)
	for _, want := range []string{
		"host_commands_total{vol0,pool0,alice,read,good} 1",
		"host_commands_total{vol0,pool0,alice,read,check} 1",
		"host_commands_total{vol0,pool0,alice,write,good} 1",
		"host_commands_total{vol0,pool0,alice,write_same,good} 1",
		"host_commands_total{vol0,pool0,alice,xcopy_src,good} 1",
		"host_commands_total{vol1,pool0,alice,xcopy_dst,good} 1",
		"host_commands_total{vol0,pool0,alice,other,good} 1",  // one INQUIRY; a copy counts once
		"host_commands_total{vol0,pool0,alice,other,check} 2", // a unit attention, and a copy whose first segment fails
		"host_commands_total{vol0,pool0,alice,odx_src,good} 1",
		"host_commands_total{vol1,pool0,alice,odx_dst,good} 1",
		"host_transferred_bytes_total{vol0,pool0,read} 1024",  // and not what INQUIRY tells
		"host_transferred_bytes_total{vol0,pool0,write} 1024", // two blocks, and no parameter list
		"host_described_bytes_total{vol0,pool0,write_same} 512000",
		"host_described_bytes_total{vol0,pool0,xcopy_src} 4096",
		"host_described_bytes_total{vol1,pool0,xcopy_dst} 4096",
		"host_command_duration_seconds{vol0,write} 1",
		"host_command_duration_seconds{vol0,odx_src} 1",
		"host_command_duration_seconds{vol1,odx_dst} 1",
		"host_queue_depth{vol0} 0",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}

	saved := r.tg.SaveCounters()
	other := scsi.NewTarget(scsi.Options{Exec: exec})
	if err := other.LoadCounters(saved); err != nil {
		t.Fatal(err)
	}
	// A queue depth is of a unit, and there is none.
	want := slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "host_queue_depth") })
	if again := emitted(other); !slices.Equal(again, want) {
		t.Errorf("after a restart\n%s\nwant\n%s", strings.Join(again, "\n"), strings.Join(want, "\n"))
	}
	if !bytes.Equal(other.SaveCounters(), saved) {
		t.Error("saving again gives something else")
	}
	r.tg.Forget("vol0") // it still has a unit
	other.Forget("vol0")
	if got := emitted(r.tg); len(got) <= len(emitted(other)) || strings.Contains(strings.Join(emitted(other), ""), "vol0") {
		t.Error("Forget drops the counters of volumes without a unit, and no others")
	}
	if err := other.LoadCounters([]byte("[{")); err == nil {
		t.Error("broken counters were loaded")
	}
}

// TestManyHosts: names are counted up to a limit, the rest together.
func TestManyHosts(t *testing.T) {
	exec := &block.Virtual{}
	r := &rig{TB: t, exec: exec, tg: scsi.NewTarget(scsi.Options{Exec: exec})}
	d := scsitest.NewDevice(exec, scsitest.Ready(1, 64, 512, true))
	if err := r.tg.Map("", 0, r.tg.AddUnit(d, scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		n := r.tg.OpenNexus(fmt.Sprint("host", i), "port", 1)
		r.submit(n, r.task("tur", 0, make([]byte, 6)))
		n.Close(func() {})
		exec.Run()
	}
	hosts := 0
	for _, s := range emitted(r.tg) {
		if strings.HasPrefix(s, "host_commands_total{") {
			hosts++
		}
	}
	if hosts != 1025 || !slices.Contains(emitted(r.tg), "host_commands_total{vol1,pool0,(others),other,check} 176") {
		t.Errorf("%d hosts are counted by name", hosts)
	}
}
