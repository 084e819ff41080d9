package profile

import (
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// TestBuiltIn reads every built-in profile: it says its source and what is assumed, it is
// what its file's name says, and beside each number stands a word about it.
func TestBuiltIn(t *testing.T) {
	for _, want := range []string{"none", "purity-5.0", "purity-5.1", "svc", "vnx-raid5", "all-flash"} {
		p, err := Load(want)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if p.Name != want || p.Source == "" || want != "none" && p.Assumed == "" {
			t.Errorf("%s: name %q, source %q, assumed %q", want, p.Name, p.Source, p.Assumed)
		}
		if _, err := p.Array(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestBadProfiles(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"colour: red", "colour"},
		{"copy: {mode: magic}", "copy.mode"},
		{"policy: {admission: lottery}", "policy.admission"},
		{"policy: {ramp: {points: [{at: 500, rate: 1}, {at: 400, rate: 2}]}}", "ramp"},
		{"policy: {budget: {pool: 101}}", "percent"},
		{"link: {command: fast}", "is not a valid time"},
		{"cache: {size: -1}", "is not a valid size"},
		{"mdisks: {x: {low: 5, high: 2}}", "mdisks.x"},
		{"mdisks: {x: {parallel: 1000000000}}", "1000000000 concurrent operations are not possible; give at most 65536"},
	} {
		if _, err := Parse([]byte(row.text)); err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", row.text, err, row.want)
		}
	}
	if _, err := Load("nosuch"); err == nil || !strings.Contains(err.Error(), "purity-5.0") {
		t.Errorf("an unknown name: %v", err)
	}
	p, err := LoadWith("svc", map[string]any{"policy.admission": "fair", "mdisks.hdd.parallel": 7, "cache.size": "1GiB"})
	if err != nil || p.Policy.Admission != "fair" || p.Mdisks["hdd"].Parallel != 7 || p.Mdisks["ssd"].Parallel != 16 || p.Cache.Size != 1<<30 {
		t.Errorf("settings: %v %+v", err, p)
	}
}

func TestSizes(t *testing.T) {
	for _, row := range []struct {
		text string
		want Size
		back string
	}{
		{"64KiB", 65536, "64KiB"}, {"1T", 1 << 40, "1TiB"}, {"1.5GiB", 3 << 29, "1536MiB"}, {"100MB", 1e8, "100000000"}, {"512", 512, "512"}, {"0", 0, "0"},
	} {
		var got Size
		if err := got.UnmarshalText([]byte(row.text)); err != nil || got != row.want || got.String() != row.back {
			t.Errorf("%s: %d %q %v", row.text, got, got.String(), err)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "1.3", "1e3", "9999999P", "one"} {
		var got Size
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, got)
		}
	}
}

// TestFrontEnd sends commands through a target whose front end takes its time.
func TestFrontEnd(t *testing.T) {
	p, err := Parse([]byte(`
front_end:
  command: 10us
  write_same: {lanes: 2, command: 100us, unit: 1MiB, time: 1ms}
  unmap: {lanes: 1, time: 500us}
cache: {write: 200us, read: 50us}
`))
	if err != nil {
		t.Fatal(err)
	}
	exec := &block.Virtual{}
	e := p.NewEngine(exec)
	tg := scsi.NewTarget(scsi.Options{Name: "iqn.2026-11.org.example:array", Exec: exec, Delay: e.Delay})
	if err := tg.Map("", 0, tg.AddUnit(scsitest.NewDevice(exec, scsitest.Ready(1, 1<<20, 512, true)), scsi.UnitOptions{})); err != nil {
		t.Fatal(err)
	}
	n := tg.OpenNexus("iqn.2026-11.org.example:host", "iqn.2026-11.org.example:host,i,0x1", 1)
	send := func(cdbs ...[]byte) (took []int64) {
		start := exec.Now()
		var tasks []*scsi.Task
		for _, cdb := range cdbs {
			k := &scsi.Task{CDB: cdb, MaxIn: 1 << 20, Bufs: memory{}, Done: func(k *scsi.Task) { took = append(took, (exec.Now()-start)/1000) }}
			switch cdb[0] {
			case 0x8A, 0x93:
				k.DataOut = [][]byte{make([]byte, 512)}
			case 0x42:
				list := make([]byte, 8+32)
				list[1], list[3], list[8+11], list[24+11] = 38, 32, 8, 8
				k.DataOut = [][]byte{list}
			}
			tasks = append(tasks, k)
		}
		n.Submit(tasks)
		exec.Run()
		return took
	}
	for range 3 { // unit attentions
		send(make([]byte, 6))
	}
	unmap := make([]byte, 10)
	unmap[0], unmap[8] = 0x42, 40
	same := scsitest.CDB(0x93, 0, 2048)
	for _, row := range []struct {
		name string
		cdbs [][]byte
		want []int64
	}{
		{"any command", [][]byte{make([]byte, 6)}, []int64{10}},
		{"write", [][]byte{scsitest.CDB(0x8A, 0, 1)}, []int64{210}},
		{"reads overlap", [][]byte{scsitest.CDB(0x88, 0, 1), scsitest.CDB(0x88, 8, 1)}, []int64{60, 60}},
		{"write same on two lanes", [][]byte{same, same, same}, []int64{1110, 1110, 2210}},
		{"write same of one block more is another unit", [][]byte{scsitest.CDB(0x93, 0, 2049)}, []int64{2110}},
		{"unmap by descriptor, one lane", [][]byte{unmap, unmap}, []int64{1010, 2010}},
	} {
		got := send(row.cdbs...)
		if len(got) != len(row.want) {
			t.Fatalf("%s: %v", row.name, got)
		}
		for i := range got {
			if got[i] != row.want[i] {
				t.Errorf("%s: %v us, not %v", row.name, got, row.want)
				break
			}
		}
	}
	if none, _ := Load("none"); none.NewEngine(exec) != nil {
		t.Error("the profile none has a front end")
	}
}

type memory struct{}

func (memory) Get(n int) []byte { return make([]byte, n) }

// TestSettingsWithoutCaps: changing one setting of a profile that says no caps leaves them the firmware's own.
func TestSettingsWithoutCaps(t *testing.T) {
	p, err := LoadWith("purity-5.0", map[string]any{"front_end.write_same.lanes": 0})
	if err != nil {
		t.Fatal(err)
	}
	if p.Policy.Caps != nil || p.Front.WriteSame.Lanes != 0 {
		t.Errorf("caps are %#v, lanes %d", p.Policy.Caps, p.Front.WriteSame.Lanes)
	}
}

// TestHasPath finds what SetPath would change, and nothing else.
func TestHasPath(t *testing.T) {
	tree := map[string]any{"jobs": []any{map[string]any{"name": "load", "steps": []any{1, 2}}}}
	for key, want := range map[string]bool{"jobs": true, "jobs.load.steps.1": true, "jobs.0.name": true, "jobs.load.steps.2": false,
		"jobs.other": false, "jobs.load.name.x": false, "hosts": false} {
		if got := HasPath(tree, key); got != want {
			t.Errorf("%s is there: %v, want %v", key, got, want)
		}
	}
}

// TestSetPathByVolume: a cache without a name has that of its volume, in settings as in figures.
func TestSetPathByVolume(t *testing.T) {
	list := []any{
		map[string]any{"volume": "db"},
		map[string]any{"name": "log", "volume": "db2"},
		map[string]any{"name": "db2", "volume": "x"},
	}
	tree := map[string]any{"cache": list}
	for key, want := range map[string]int{"cache.db.size": 0, "cache.log.size": 1, "cache.db2.size": 2, "cache.1.size": 1} {
		if err := SetPath(tree, key, key); err != nil || list[want].(map[string]any)["size"] != key || !HasPath(tree, key) {
			t.Errorf("%s: %v, %v", key, err, list)
		}
	}
	if err := SetPath(tree, "cache.x.size", 1); err == nil || !strings.Contains(err.Error(), `there is no "x" in the list`) {
		t.Errorf("the volume of a cache that has a name: %v", err)
	}
}
