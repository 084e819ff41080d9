package admin

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What a daemon was told and counted is there after it was stopped.
func TestRestart(t *testing.T) {
	c := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	r := start(t, c)
	ctx := t.Context()
	data := pattern(t, 1<<20)
	r.write("v", 100, data)
	r.testUnitReady("iqn.2026-01.host:a", 0)
	if err := r.AddExport(ctx, Export{Volume: "s", LUN: 9, Initiators: []string{"iqn.2026-01.host:a"}}); err != nil {
		t.Fatal(err)
	}
	before, err := r.Volumes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	line := `arraysim_host_commands_total{host="iqn.2026-01.host:a",op="other",pool="gold",status="check",volume="v"} 1`
	if text := r.scrape(); !strings.Contains(text, line) {
		t.Errorf("no line %s in\n%s", line, text)
	}
	r.stop()
	if _, err := r.Status(ctx); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("after the stop: %v", err)
	}

	r = start(t, parse(t, testConfig, c.Data))
	after, err := r.Volumes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		before[i].Dirty, after[i].Dirty = 0, 0
		if got, want := fmt.Sprint(after[i]), fmt.Sprint(before[i]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := r.read("v", 100, len(data)); !bytes.Equal(got, data) {
		t.Error("the data is not the same")
	}
	text := r.scrape()
	for _, line := range []string{line,
		`arraysim_cache_admitted_bytes_total{mode="fast",origin="host",pool="gold",volume="v"} 1.048576e+06`,
		`arraysim_cache_destaged_bytes_total{origin="host",pool="gold",volume="v"} 1.048576e+06`} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
}

// A second signal ends a stop that takes long; what was dirty is found again, and
// a check that opens the folder finds nothing wrong.
func TestHurry(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	c := parse(t, testConfig, t.TempDir())
	r := startWith(t, c, func(d *daemon) { d.ending.destage = 10 * time.Second }) // in which the second signal comes
	data := pattern(t, 1<<20)
	few := Size(1 << 10) // of them a second: nothing that a busy machine does lets the destager come to its end
	if _, err := r.ChangeMdisk(t.Context(), "slow", "m0", MdiskChange{Bandwidth: &few}); err != nil {
		t.Fatal(err)
	}
	r.write("s", 0, data)
	r.cancel()
	for end := time.Now().Add(time.Minute); !strings.Contains(r.out.String(), "destaging"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no progress is shown:\n%s", r.out)
		}
	}
	close(r.hurry)
	select {
	case err := <-r.end:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute): // to destage all would take a quarter of an hour
		t.Fatalf("it does not stop at once:\n%s", r.out)
	}
	r.end = nil
	if !regexp.MustCompile(`stopped at once.* dirty="?([1-9]|unknown)`).MatchString(r.out.String()) { // nobody waits for long to know it
		t.Errorf("it stopped in good order:\n%s", r.out)
	}
	// The process would end here, and release what it holds.
	r.abandon()

	r = start(t, parse(t, testConfig, c.Data))
	rep, err := r.Check(t.Context())
	if err != nil || !rep.OK || rep.Offline { // how much is destaged by now depends on the machine
		t.Errorf("check: %+v, %v", rep, err)
	}
	if got := r.read("s", 0, len(data)); !bytes.Equal(got, data) {
		t.Error("the data is not the same")
	}
	r.die()
}

func TestDeleteVolume(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	for _, row := range []struct {
		name string
		make func(name string)
		want string // of the refusal; none is taken at once
	}{
		{"plain", func(string) {}, ""},
		{"exported", func(name string) {
			if err := r.AddExport(ctx, Export{Volume: name, LUN: 77}); err != nil {
				t.Fatal(err)
			}
		}, "is exported as LUN 77"},
		{"dirty", func(name string) {
			bandwidth := Size(1 << 10) // a busy machine may look at the volume late
			if _, err := r.ChangeMdisk(ctx, "slow", "m0", MdiskChange{Bandwidth: &bandwidth}); err != nil {
				t.Fatal(err)
			}
			r.write(name, 0, make([]byte, 4096))
		}, "has 4 KiB of dirty data"},
	} {
		if _, err := r.CreateVolume(ctx, NewVolume{Name: row.name, Pool: "slow", Size: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		row.make(row.name)
		err := r.DeleteVolume(ctx, row.name, false)
		if row.want == "" {
			if err != nil {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		if !errors.Is(err, ErrForce) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want a refusal with %q", row.name, err, row.want)
		}
		if err := r.DeleteVolume(ctx, row.name, true); err != nil {
			t.Errorf("%s with force: %v", row.name, err)
		}
	}
	if _, err := r.Volume(ctx, "dirty"); err == nil || errors.Is(err, ErrForce) {
		t.Errorf("a volume that was deleted is described: %v", err)
	}
	// The LUN is free again, and the name.
	if _, err := r.CreateVolume(ctx, NewVolume{Name: "exported", Pool: "slow", Size: 1 << 20}); err != nil {
		t.Error(err)
	}
	if err := r.AddExport(ctx, Export{Volume: "exported", LUN: 77}); err != nil {
		t.Error(err)
	}
}

// A clone is what the source was, whatever is written to either side later.
func TestClone(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	data := pattern(t, 3<<20)
	r.write("v", 0, data[:1<<20])
	r.write("v", 16384, data[1<<20:])
	whole := r.read("v", 0, 16<<20)
	for _, row := range []struct {
		pool     string
		admitted bool // data moved below the host layer
	}{{"", false}, {"silver", true}} {
		name := "clone" + row.pool
		v, err := r.CloneVolume(ctx, "v", Clone{Name: name, Pool: row.pool})
		if err != nil {
			t.Fatal(err)
		}
		r.write("v", 8, pattern(t, 4096))
		if got := r.read(name, 0, 16<<20); !bytes.Equal(got, whole) {
			t.Errorf("%s is not what the source was", name)
		}
		r.write("v", 8, whole[8*512:8*512+4096])
		v, err = r.Volume(ctx, v.Name)
		if err != nil {
			t.Fatal(err)
		}
		if moved := v.Detail.Admitted["migrate"]; (moved == 3<<20) != row.admitted || !row.admitted && moved != 0 {
			t.Errorf("%s: %s were moved", name, moved)
		}
		if v.Mapped+v.Zero+v.Anchored+v.Unmapped != v.Size || v.Mapped != 3<<20 {
			t.Errorf("%s: its states do not add up: %+v", name, v)
		}
	}
	// One that does not fit leaves nothing behind.
	if _, err := r.CloneVolume(ctx, "v", Clone{Name: "x", Pool: "none"}); err == nil {
		t.Error("a clone into no pool was made")
	}
	r.write("v", 0, pattern(t, 16<<20))
	if _, err := r.CreateVolume(ctx, NewVolume{Name: "filler", Pool: "small", Size: 60 << 20, Thick: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CloneVolume(ctx, "v", Clone{Name: "x", Pool: "small"}); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a clone into a full pool: %v", err)
	}
	if _, err := r.Volume(ctx, "x"); err == nil {
		t.Error("it left a volume behind")
	}
}

// TestCheckEndsWithTheDaemon: a check of a daemon that stops ends, and none begins: what it reads is about to go.
func TestCheckEndsWithTheDaemon(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx, cancel := until(t.Context(), r.d.closing)
	defer cancel()
	if rep, err := r.d.check(ctx); err != nil || !rep.OK {
		t.Errorf("a check before: %+v, %v", rep, err)
	}
	r.d.beginStop()
	<-ctx.Done()
	if _, err := r.d.check(ctx); !errors.Is(err, errStopping) {
		t.Errorf("a check that is under way ends with %v", err)
	}
	if _, err := r.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("a check that comes late: %v", err)
	}
}

// The check says what is wrong, on line and off line.
func TestCheckFindsDamage(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	data := pattern(t, 1<<20)
	r.write("s", 0, data)
	r.die()
	nvram := filepath.Join(c.Data, "nvram")
	b, err := os.ReadFile(nvram)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, data[len(data)-4096:])
	if at < 0 {
		t.Fatal("the dirty data is not in NVRAM")
	}
	b[at+100] ^= 1
	if err := os.WriteFile(nvram, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	rep, err := Check(t.Context(), c.Data, CheckOptions{Log: &progress})
	if err != nil || rep.OK || !rep.Offline || rep.BadSectors != 1 || len(rep.Problems) == 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
	if n := strings.Count(progress.String(), "\n"); n != 3 {
		t.Errorf("progress has %d lines:\n%s", n, &progress)
	}
}

// A socket's name has at most 107 bytes; a folder's has more.
func TestLongFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30), strings.Repeat("name", 30))
	r := start(t, parse(t, testConfig, dir))
	s, err := r.Status(t.Context())
	if err != nil || s.PID != os.Getpid() {
		t.Errorf("got %+v, %v", s, err)
	}
	st, err := os.Stat(filepath.Join(dir, socketName))
	if err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket: %v, %v", st, err)
	}
}

func TestBadRequests(t *testing.T) {
	r := start(t, parse(t, strings.Replace(testConfig, "\ncache", "\nstore: memory\ncache", 1), t.TempDir()))
	for _, row := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"no JSON", "POST", "/api/v1/volumes", "{", 400},
		{"an unknown field", "POST", "/api/v1/volumes", `{"nam": "x"}`, 400},
		{"a body too long", "POST", "/api/v1/volumes", `{"name": "` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"no such volume", "GET", "/api/v1/volumes/x", "", 404},
		{"no such path", "GET", "/v2/volumes", "", 404},
		{"no such method", "PUT", "/api/v1/volumes", "", 404},
		{"a volume that is there", "POST", "/api/v1/volumes", `{"name": "v", "pool": "gold", "size": 512}`, 409},
		{"a LUN that is not a number", "DELETE", "/api/v1/exports/v?lun=a", "", 400},
		{"an export that is not there", "DELETE", "/api/v1/exports/v?lun=1", "", 404},
		{"a pool without mdisks", "POST", "/api/v1/pools", `{"name": "p"}`, 400},
	} {
		req, err := http.NewRequest(row.method, "http://x"+row.path, strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.http.Do(req)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != row.status {
			t.Errorf("%s: status %d, want %d", row.name, resp.StatusCode, row.status)
		}
	}
}
