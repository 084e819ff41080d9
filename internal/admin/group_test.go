package admin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
)

const groupConfig = `
io_groups: 2
cache: {size: 8MiB}
portal: {listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
pools:
  - {name: gold, mdisks: [{name: m0, size: 128MiB}]}
  - {name: silver, mdisks: [{name: m0, size: 128MiB}]}
  - {name: first, io_group: 0, mdisks: [{name: m0, size: 64MiB}]}
volumes:
  - {name: g, pool: gold, size: 16MiB, export: {lun: 0}}
  - {name: s, pool: silver, size: 16MiB, export: {lun: 1}}
`

// TestGroups: an array of two I/O groups shows what it has as one, by a target each, and has it again after a good end and
// after a death.
func TestGroups(t *testing.T) {
	ctx := context.Background()
	cfg := parse(t, groupConfig, t.TempDir())
	r := start(t, cfg)
	where := func() (out string) {
		pools, err := r.Pools(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pools {
			out += fmt.Sprint(p.Name, p.IOGroup, " ")
		}
		return out
	}
	if got, want := where(), "gold0 first0 silver1 "; got != want {
		t.Errorf("pools are in %q, want %q", got, want)
	}
	other := 1
	if p, err := r.CreatePool(ctx, NewPool{Name: "named", IOGroup: &other, Mdisks: []NewMdisk{{Name: "m0", Size: 64 << 20}}}); err != nil || p.IOGroup != 1 {
		t.Errorf("a pool for group 1: %+v, %v", p, err)
	}
	if _, err := r.CreateVolume(ctx, NewVolume{Name: "x", Pool: "named", Size: 4 << 20, Export: &NewExport{LUN: 0}}); err != nil {
		t.Errorf("LUN 0 of the second target: %v", err)
	}
	for what, err := range map[string]error{
		"a volume of a name that another group has": func() error {
			_, err := r.CreateVolume(ctx, NewVolume{Name: "g", Pool: "silver", Size: 4 << 20})
			return err
		}(),
		"a pool of a name that another group has": func() error {
			_, err := r.CreatePool(ctx, NewPool{Name: "gold", IOGroup: &other, Mdisks: []NewMdisk{{Name: "m0", Size: 64 << 20}}})
			return err
		}(),
		"a clone of a name that another group has": func() error {
			_, err := r.CloneVolume(ctx, "g", Clone{Name: "s"})
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "exists already") {
			t.Errorf("%s: %v", what, err)
		}
	}
	data := pattern(t, 1<<20)
	for i, v := range []string{"g", "s", "x"} {
		r.write(v, uint64(i)*8, data)
	}
	same := func() {
		t.Helper()
		for i, v := range []string{"g", "s", "x"} {
			if !bytes.Equal(r.read(v, uint64(i)*8, len(data)), data) {
				t.Errorf("volume %s has other data", v)
			}
		}
	}
	exports := func() (out string) {
		list, err := r.Exports(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out += fmt.Sprint(e.Volume, " ", e.Target, " ", e.LUN, "\n")
		}
		return out
	}
	shown := exports()
	if want := "g iqn.2026-01.io.arraysim:array 0\ns iqn.2026-01.io.arraysim:array.iogroup1 1\nx iqn.2026-01.io.arraysim:array.iogroup1 0\n"; shown != want {
		t.Errorf("exports are\n%swant\n%s", shown, want)
	}
	r.stop()
	cfg.IOGroups = 0 // those that there are
	r = start(t, cfg)
	same()
	if got := exports(); got != shown {
		t.Errorf("after a restart the exports are\n%swant\n%s", got, shown)
	}
	r.write("x", 4000, data[:4096])
	r.die()
	r = start(t, parse(t, "portal: {listen: \"127.0.0.1:0\"}\nmetrics: {listen: \"127.0.0.1:0\"}", r.d.cfg.Data))
	same()
	if rep, err := r.Check(ctx); err != nil || !rep.OK || rep.Volumes != 3 {
		t.Errorf("check: %+v, %v", rep, err)
	}
	path := r.d.cfg.Data
	r.stop()
	if rep, err := Check(ctx, path, CheckOptions{Log: io.Discard}); err != nil || !rep.OK || rep.Volumes != 3 || !rep.Offline {
		t.Errorf("check without a daemon: %+v, %v", rep, err)
	}
	few := parse(t, "io_groups: 1\nportal: {listen: \"127.0.0.1:0\"}", path)
	if err := newDaemon(few, Environment{Out: io.Discard, Log: r.d.log}).run(ctx); err == nil || !strings.Contains(err.Error(), "has pools in I/O group 1") {
		t.Errorf("a start with one group: %v", err)
	}
}

// TestGroupsStandAlone: what holds the executor of one I/O group keeps no command of another from its end; counters are
// those of all groups, and what there is once is there once.
func TestGroupsStandAlone(t *testing.T) {
	r := start(t, parse(t, groupConfig, t.TempDir()))
	login := func(group, port int) *iscsi.Client {
		t.Helper()
		nc, err := net.Dial("tcp", r.d.portalAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(startTimeout))
		c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: "iqn.2026-01.host:a", Target: groupTarget(r.d.cfg.Portal.Target, group),
			ISID: [6]byte{0x80, 0, 0, byte(port)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for range 2 { // the first says that this nexus is new
			_, err = c.Command(uint64(group)<<48, make([]byte, 6), nil, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := login(0, 1)
	write := []byte{0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0}
	r.d.groups[1].exec.Lock()
	time.Sleep(1500 * time.Millisecond) // whoever reads all counters each second has begun to
	if res, err := first.Command(0, write, make([]byte, 4096), 0); err != nil || res.Status != 0 {
		t.Errorf("a WRITE to group 0 while group 1 is held: %+v, %v", res, err)
	}
	r.d.groups[1].exec.Unlock()
	second := login(1, 2)
	if res, err := second.Command(1<<48, write, make([]byte, 4096), 0); err != nil || res.Status != 0 {
		t.Errorf("a WRITE to group 1: %+v, %v", res, err)
	}
	text := r.scrape()
	for _, line := range []string{
		"arraysim_cache_size_bytes 1.6777216e+07\n",
		`arraysim_cache_admitted_bytes_total{mode="fast",origin="host",pool="gold",volume="g"} 4096`,
		`arraysim_cache_admitted_bytes_total{mode="fast",origin="host",pool="silver",volume="s"} 4096`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no %q", line)
		}
	}
	up, now := 0.0, float64(r.d.groups[0].exec.Now())/1e9
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, "arraysim_uptime_seconds "); found {
			_, _ = fmt.Sscan(rest, &up)
		}
	}
	if up <= 0 || up > now {
		t.Errorf("the uptime is %v s, and the first group runs since %v s", up, now)
	}
}

// change rewrites what a folder says of its array.
func changeSummary(t *testing.T, path string, change func(s *summary)) {
	t.Helper()
	f := &folder{path: path}
	s, err := f.readSummary()
	if err != nil {
		t.Fatal(err)
	}
	change(&s)
	if err := f.writeSummary(s); err != nil {
		t.Fatal(err)
	}
}

// TestGroupFolders: a folder of an I/O group that is missing, or is another's, is refused by starts and checks, which
// make nothing in its place.
func TestGroupFolders(t *testing.T) {
	r := start(t, parse(t, groupConfig, t.TempDir()))
	data := r.d.cfg.Data
	r.stop()
	other := start(t, parse(t, groupConfig, t.TempDir()))
	foreign := groupPath(other.d.cfg.Data, 1)
	other.stop()
	second := groupPath(data, 1)
	aside := second + ".aside"
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		what, data, says string
		before, after    func()
	}{
		{"a folder that is missing", data, "I/O group 1 of the array in " + data + " is missing", func() { move(second, aside) }, func() { move(aside, second) }},
		{"another array's folder", data, second + " is not I/O group 1", func() { move(second, aside); move(foreign, second) }, func() { move(second, foreign); move(aside, second) }},
		{"a folder by itself", second, "is I/O group 1 of an array", func() {}, func() {}},
		{"what an older version wrote", data, "does not list " + second, func() { changeSummary(t, data, func(s *summary) { s.ID, s.IOGroups = "", 0 }) }, nil},
		{"a number that cannot be", data, "says that there are 1000000 I/O groups", func() { changeSummary(t, data, func(s *summary) { s.IOGroups = 1e6 }) }, nil},
	} {
		var kept summary
		changeSummary(t, data, func(s *summary) { kept = *s })
		row.before()
		cfg := parse(t, "portal: {listen: \"127.0.0.1:0\"}\nmetrics: {listen: none}", row.data)
		if err := newDaemon(cfg, Environment{Out: io.Discard, Log: r.d.log}).run(t.Context()); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: a start: %v, want %q", row.what, err, row.says)
		}
		if _, err := Check(t.Context(), row.data, CheckOptions{Log: io.Discard}); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: a check: %v, want %q", row.what, err, row.says)
		}
		if row.after == nil {
			changeSummary(t, data, func(s *summary) { *s = kept })
		} else {
			row.after()
		}
	}
	r = start(t, parse(t, groupConfig, data))
	if rep, err := r.Check(t.Context()); err != nil || !rep.OK || rep.Volumes != 2 {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

// TestAddedGroup: an I/O group that comes to an array has its policy and its size of cache, is no obligation until it has a
// pool, and a name that its target cannot have is refused before anything is made.
func TestAddedGroup(t *testing.T) {
	const one = "cache: {size: 8MiB}\nportal: {listen: \"127.0.0.1:0\"}\nmetrics: {listen: none}\n"
	cfg := parse(t, one, t.TempDir())
	r := start(t, cfg)
	through := "through"
	if _, err := r.ChangePolicy(t.Context(), PolicyChange{Admission: &through}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	named := parse(t, "portal: {listen: \"127.0.0.1:0\", target: eui.0123456789abcdef}", cfg.Data)
	named.IOGroups = 2
	if err := newDaemon(named, Environment{Out: io.Discard, Log: r.d.log}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "eui.0123456789abcdef.iogroup1") {
		t.Errorf("a target without names for others: %v", err)
	}
	if _, err := os.Stat(groupPath(cfg.Data, 1)); !os.IsNotExist(err) {
		t.Errorf("it has left a folder: %v", err)
	}
	wide := parse(t, "io_groups: 3\n"+strings.Replace(one, "cache: {size: 8MiB}\n", "", 1), cfg.Data)
	r = start(t, wide)
	for _, g := range r.d.groups {
		if p := g.policy(); p.Admission != through || g.cache != 8<<20 {
			t.Errorf("I/O group %d has admission %s and a cache of %s", g.number, p.Admission, g.cache)
		}
	}
	pool := func(group int) {
		t.Helper()
		if _, err := r.CreatePool(t.Context(), NewPool{Name: fmt.Sprint("p", group), IOGroup: &group, Mdisks: []NewMdisk{{Name: "m", Size: 64 << 20}}}); err != nil {
			t.Fatal(err)
		}
	}
	pool(1)
	r.stop()
	cfg.IOGroups = 1
	if err := newDaemon(cfg, Environment{Out: io.Discard, Log: r.d.log}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "has pools in I/O group 1; write io_groups: 2") {
		t.Errorf("fewer groups than have pools: %v", err)
	}
	cfg.IOGroups = 2
	r = start(t, cfg)
	if got := len(r.d.groups); got != 2 {
		t.Errorf("%d groups serve, want 2", got)
	}
	if _, err := r.CreateVolume(t.Context(), NewVolume{Name: "v", Pool: "p1", Size: 4 << 20}); err != nil {
		t.Error(err)
	}
	r.exportInGroup("v")
}

// exportInGroup exports a volume of group 1: its target is said, and another is refused.
func (r *running) exportInGroup(volume string) {
	t := r.t
	t.Helper()
	want := groupTarget(r.d.cfg.Portal.Target, 1)
	if e, err := r.d.addExport(Export{Volume: volume, LUN: 4}); err != nil || e.Target != want {
		t.Errorf("an export: %+v, %v", e, err)
	}
	if _, err := r.d.addExport(Export{Volume: volume, LUN: 5, Target: r.d.cfg.Portal.Target}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an export by another target: %v", err)
	}
}
