package tcmurunner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/testkit"
)

const testTarget = "iqn.2026-01.io.arraysim:test"

// rig is an array with scsitest's devices behind a portal, which is the default array of the settings.
type rig struct {
	t      *testing.T
	exec   *block.Live
	target *scsi.Target
	portal *iscsi.Portal
	addr   string
	chap   *iscsi.CHAP
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, exec: block.NewLive()}
	t.Cleanup(r.exec.Stop)
	r.target, _ = scsitest.NewTarget(r.exec)
	r.serve(testkit.Loopback() + ":0") // TestRestart listens there again
	t.Cleanup(r.stop)
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "arrays:\n  default: {portal: \"%s\"}\n  other: {portal: \"%[1]s\", target: \"%s\", initiator: \"iqn.2026-01.host:other\"}\n", r.addr, testTarget), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(settingsEnv, file)
	return r
}

func (r *rig) serve(addr string) {
	r.t.Helper()
	var err error
	if r.portal, err = iscsi.New(iscsi.Config{DiscoveryCHAP: r.chap, Targets: []iscsi.TargetConfig{{Name: testTarget, Target: r.target, CHAP: r.chap}}}); err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	p := r.portal
	go p.Serve(l)
}

func (r *rig) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // at once
	_ = r.portal.Shutdown(ctx)
}

func (r *rig) open(config string) *Unit {
	r.t.Helper()
	u, err := Open(config, r.t.Name()+config, scsitest.Sectors, 512)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(u.Close)
	return u
}

func rw(op byte, lba uint64, n uint32) []byte {
	cdb := make([]byte, 16)
	cdb[0] = op
	binary.BigEndian.PutUint64(cdb[2:], lba)
	binary.BigEndian.PutUint32(cdb[10:], n)
	return cdb
}

func TestForward(t *testing.T) {
	r := newRig(t)
	u, other := r.open("arraysim/0"), r.open("arraysim/0/array=other")
	var sense [SenseLen]byte
	do := func(want int, cdb []byte, data ...[]byte) {
		t.Helper()
		if got := u.Do(cdb, data, &sense); got != want {
			t.Fatalf("cdb %x: answer %d, sense %x; want %d", cdb, got, sense[:18], want)
		}
	}
	// Data goes and comes in pieces.
	a, b := bytes.Repeat([]byte{0xA1}, 1000), bytes.Repeat([]byte{0xB2}, 1560)
	do(StatusOK, rw(0x8A, 8, 5), a, b)
	back := bytes.Repeat([]byte{0xEE}, 3000)
	do(StatusOK, rw(0x88, 8, 5), back[:7], back[7:])
	if want := append(append(bytes.Clone(a), b...), make([]byte, 440)...); !bytes.Equal(back, want) {
		t.Error("what was read is not what was written, or what is left of the buffer is not zeroed")
	}
	// A CDB of 32 bytes: WRITE SAME(32).
	cdb := make([]byte, 32)
	cdb[0], cdb[7], cdb[9] = 0x7F, 0x18, 0x0D
	binary.BigEndian.PutUint64(cdb[12:], 9)
	binary.BigEndian.PutUint32(cdb[28:], 2)
	do(StatusOK, cdb, bytes.Repeat([]byte{0xC3}, 512))
	do(StatusOK, rw(0x88, 8, 5), back[:2560])
	if !bytes.Equal(back[512:1536], bytes.Repeat([]byte{0xC3}, 1024)) || back[511] != 0xA1 || back[1536] != 0xB2 {
		t.Error("WRITE SAME(32) did not write what it should")
	}
	// VERIFY sends data with BYTCHK only.
	verify := rw(0x8F, 9, 1)
	do(StatusOK, verify)
	verify[1] = 2
	do(StatusOK, verify, bytes.Repeat([]byte{0xC3}, 512))
	do(StatusSense, verify, make([]byte, 512))
	if sense[2]&0x0F != 0x0E || sense[12] != 0x1D {
		t.Errorf("a miscompare says %x", sense[:18])
	}
	do(StatusSense, []byte{0xC1, 0, 0, 0, 0, 0})
	// A reservation of somebody else.
	reserve := []byte{0x56, 9: 0}
	if got := other.Do(reserve, nil, &sense); got != StatusOK {
		t.Fatalf("RESERVE: %d, %x", got, sense[:18])
	}
	do(StatusSense, rw(0x88, 0, 1), back[:512])
	if sense[2] != 5 || sense[12] != 0x2C || sense[13] != 9 {
		t.Errorf("a reservation conflict says %x", sense[:18])
	}
	reserve[0] = 0x57
	other.Do(reserve, nil, &sense)
	do(StatusOK, rw(0x88, 0, 1), back[:512])
}

// Commands of many threads, as tcmu-runner's are, and an array that goes and comes back.
func TestRestart(t *testing.T) {
	r := newRig(t)
	u := r.open("arraysim/0")
	work := func(step byte) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				var sense [SenseLen]byte
				block, got := bytes.Repeat([]byte{step + byte(i)}, 512), make([]byte, 512)
				for range 20 {
					// Unit attentions of the new session are the initiator's.
					for n := 0; n < 8 && u.Do(rw(0x8A, uint64(i), 1), [][]byte{block}, &sense) == StatusSense && sense[2] == 6; n++ {
					}
					if s := u.Do(rw(0x88, uint64(i), 1), [][]byte{got}, &sense); s != StatusOK || !bytes.Equal(got, block) {
						t.Errorf("block %d: answer %d, sense %x, %x", i, s, sense[:18], got[:4])
						return
					}
				}
			})
		}
		wg.Wait()
	}
	work(1)
	r.stop()
	r.serve(r.addr)
	work(101)
}

// TestPassword: a portal that asks for CHAP asks in discovery, too.
func TestPassword(t *testing.T) {
	r := newRig(t)
	r.stop()
	dir := t.TempDir()
	for name, text := range map[string]string{"right": "correct horse battery", "wrong": "another horse, another battery"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.chap = &iscsi.CHAP{Initiators: map[string]*iscsi.CHAP{"iqn.2026-01.host:gateway": {User: "gateway", Secret: []byte("correct horse battery")}}}
	r.serve("127.0.0.1:0")
	file := filepath.Join(dir, "settings.yaml")
	var text strings.Builder
	text.WriteString("arrays:\n")
	for _, name := range []string{"right", "wrong"} {
		fmt.Fprintf(&text, "  %s: {portal: \"%s\", initiator: \"iqn.2026-01.host:gateway\", chap: {user: gateway, secret_file: \"%s\"}}\n", name, r.addr, filepath.Join(dir, name))
	}
	fmt.Fprintf(&text, "  none: {portal: \"%s\", initiator: \"iqn.2026-01.host:gateway\"}\n", r.addr)
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(settingsEnv, file)
	if err := os.Chmod(filepath.Join(dir, "right"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("arraysim/0/array=right", "right", scsitest.Sectors, 512); err == nil || !strings.Contains(err.Error(), "run chmod 600") {
		t.Errorf("others may read the password: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "right"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open("arraysim/0/array=right")
	for _, name := range []string{"wrong", "none"} {
		if u, err := Open("arraysim/0/array="+name, name, scsitest.Sectors, 512); err == nil || !strings.Contains(err.Error(), "discovery") {
			t.Errorf("%s password: %v", name, err)
			if err == nil {
				u.Close()
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	newRig(t)
	for _, row := range []struct {
		name, config string
		blocks       uint64
		size         uint32
		says         string
	}{
		{"the size", "arraysim/0", scsitest.Sectors + 8, 512, "create it with size="},
		{"the block size", "arraysim/0", scsitest.Sectors / 8, 4096, "hw_block_size=512"},
		{"no such LUN", "arraysim/99", scsitest.Sectors, 512, "is it exported to this initiator?"},
		{"no such array", "arraysim/0/array=nobody", scsitest.Sectors, 512, `no array "nobody"`},
		{"a string that makes no sense", "arraysim", 1, 512, "not a valid configuration"},
	} {
		u, err := Open(row.config, row.name, row.blocks, row.size)
		if err == nil {
			u.Close()
		}
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got %v, want something about %q", row.name, err, row.says)
		}
	}
}

func TestParse(t *testing.T) {
	for _, row := range []struct {
		config string
		want   spec
		says   string
	}{
		{"arraysim/7", spec{7, "default"}, ""},
		{"arraysim/16383/array=a.b-c", spec{16383, "a.b-c"}, ""},
		{"arraysim/16384", spec{}, "not a valid LUN"},
		{"arraysim/-1", spec{}, "not a valid LUN"},
		{"arraysim/", spec{}, "not a valid configuration"},
		{"array/7", spec{}, "not a valid configuration"},
		{"arraysim/7/array=", spec{}, "not a valid name"},
		{"arraysim/7/array=a/array=b", spec{}, "once"},
		{"arraysim/7/size=1", spec{}, "not a valid option"},
	} {
		got, err := parse(row.config)
		if row.says == "" && (err != nil || got != row.want) || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%q: got %+v, %v; want %+v %q", row.config, got, err, row.want, row.says)
		}
	}
	for _, row := range []struct{ text, says string }{
		{"", ""},
		{"arrays: {lab: {portal: \"10.0.0.1:3260\", chap: {user: u, secret_file: /etc/s}}}", ""},
		{"arrays: {lab: {chap: {user: u}}}", "secret_file"},
		{"arrays: {lab: {address: x}}", "address"},
		{"arrays: {\"a b\": {}}", "a name has"},
		{"arrays: [1]", ""},
	} {
		_, err := parseSettings([]byte(row.text))
		if row.text != "arrays: [1]" && (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q: got %v, want %q", row.text, err, row.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"arraysim/7", "arraysim/0/array=lab", "arraysim//", "arraysim/1/array=a/array=b"} {
		f.Add(s, []byte("arrays: {lab: {portal: \"[::1]:3260\"}}"))
	}
	f.Fuzz(func(t *testing.T, config string, text []byte) {
		if s, err := parse(config); err == nil && (s.lun > 16383 || !nameRE.MatchString(s.array)) {
			t.Errorf("%q gave %+v", config, s)
		}
		all, err := parseSettings(text)
		if _, ok := all[defaultArray]; err == nil && !ok {
			t.Errorf("%q has no default array", text)
		}
	})
}

// FuzzTakesData: no CDB of the kernel makes it look beyond the end.
func FuzzTakesData(f *testing.F) {
	f.Add([]byte{0x8F, 2})
	f.Add([]byte{0x7F, 0, 0, 0, 0, 0, 0, 0x18, 0, 0x0A, 2})
	f.Add([]byte{0x7F, 0, 0})
	f.Fuzz(func(t *testing.T, cdb []byte) {
		if len(cdb) > 0 {
			takesData(cdb)
		}
	})
}
