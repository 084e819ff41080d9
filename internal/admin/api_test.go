package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// ask sends a request over TCP and returns the status and the body.
func (r *running) ask(method, path, token, body string, change func(*http.Request)) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.d.metricsAddr.String()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestTokenAndAudit(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	token, err := ReadToken(c.Data)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"name": "made", "pool": "gold", "size": 1048576}`
	evil := func(q *http.Request) { q.Host = "evil.example" }
	for _, row := range []struct {
		name, method, path, token, body string
		change                          func(*http.Request)
		status                          int
	}{
		{"reading is open on loopback", "GET", "/api/v1/status", "", "", nil, 200},
		{"the description is served", "GET", "/api/v1/openapi.json", "", "", nil, 200},
		{"the page is served", "GET", "/", "", "", nil, 200},
		{"a name that DNS was made to give us", "GET", "/api/v1/status", "", "", evil, 403},
		{"the metrics by a name that DNS was made to give us", "GET", "/metrics", "", "", evil, 403},
		{"the page by such a name", "GET", "/", "", "", evil, 403},
		{"the metrics by the address", "GET", "/metrics", "", "", nil, 200},
		{"the token, looked at", "POST", "/api/v1/token", token, "", nil, 200},
		{"a wrong token, looked at", "POST", "/api/v1/token", "guess", "", nil, 401},
		{"no token, looked at", "POST", "/api/v1/token", "", "", nil, 401},
		{"a change without the token", "POST", "/api/v1/volumes", "", body, nil, 401},
		{"a change with a wrong token", "POST", "/api/v1/volumes", token + "x", body, nil, 401},
		{"a check without the token", "POST", "/api/v1/check", "", "", nil, 401},
		{"a change with the token", "POST", "/api/v1/volumes", token, body, nil, 200},
		{"another version", "GET", "/api/v2/status", "", "", nil, 404},
		{"an empty name", "POST", "/api/v1/volumes", token, `{"name": "x", "pool": "gold"}`, nil, 400},
	} {
		status, head, text := r.ask(row.method, row.path, row.token, row.body, row.change)
		if status != row.status {
			t.Errorf("%s: status %d, want %d: %s", row.name, status, row.status, text)
		}
		if status >= 400 {
			var p Problem
			if head.Get("Content-Type") != problemType || json.Unmarshal([]byte(text), &p) != nil || p.Status != status || p.Detail == "" || strings.Contains(p.Detail, "\n") {
				t.Errorf("%s: no problem details: %s %s", row.name, head.Get("Content-Type"), text)
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(c.Data, auditName))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), token) {
		t.Error("the audit log has the token in it")
	}
	var got []string
	for line := range bytes.Lines(log) {
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		got = append(got, fmt.Sprintf("%s %s %d %s", rec.Method, rec.Path, rec.Status, rec.Body))
	}
	want := []string{"POST /api/v1/token 200 ", "POST /api/v1/token 401 ", "POST /api/v1/volumes 401 ", `POST /api/v1/volumes 200 {"name":"made","pool":"gold","size":1048576}`,
		`POST /api/v1/volumes 400 {"name":"x","pool":"gold"}`}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
	if st, err := os.Stat(filepath.Join(c.Data, tokenName)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", st.Mode(), err)
	}
	r.stop()
	start(t, parse(t, testConfig, c.Data))
	if again, err := ReadToken(c.Data); err != nil || again != token {
		t.Errorf("the token is another after a restart: %v", err)
	}
}

// A listener that is not on the loopback interface asks readers for the token too.
func TestTokenForReaders(t *testing.T) {
	r := start(t, parse(t, strings.Replace(testConfig, `metrics: {listen: "127.0.0.1:0"}`, `metrics: {listen: "0.0.0.0:0"}`, 1), t.TempDir()))
	token, err := ReadToken(r.d.cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]int{"": 401, token: 200} {
		if got, _, _ := r.ask("GET", "/api/v1/status", given, "", nil); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	if got, _, _ := r.ask("GET", "/metrics", "", "", nil); got != 200 {
		t.Errorf("metrics: status %d", got)
	}
}

// A number that is no LUN removes nothing; left out, it stands for all.
func TestRemovalOfNoLUN(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	token, err := ReadToken(r.d.cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	before := len(r.d.listExports())
	volume := r.d.listExports()[0].Volume
	for _, q := range []string{"?lun=-7", "?lun=-2", "?lun=1e309"} {
		if status, _, text := r.ask("DELETE", "/api/v1/exports/"+volume+q, token, "", nil); status != 400 {
			t.Errorf("%s: status %d: %s", q, status, text)
		}
		if len(r.d.listExports()) != before {
			t.Fatalf("%s removed an export", q)
		}
	}
}

func TestRateLimit(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	limited, wrong := 0, 0
	for range 400 {
		if s, h, _ := r.ask("DELETE", "/api/v1/volumes/none", "wrong", "", nil); s == 429 {
			limited++
			if h.Get("Retry-After") == "" {
				t.Fatal("no Retry-After")
			}
		} else {
			wrong++
		}
	}
	// Ten at once, and one a second: this is far quicker than guessing would need to be.
	if limited < 300 || wrong < 10 {
		t.Errorf("%d refused for the rate, %d for the token", limited, wrong)
	}
	// Scrapers and the command line are not limited by what a guesser does.
	if s, _, _ := r.ask("GET", "/metrics", "", "", nil); s != 200 {
		t.Errorf("metrics: status %d", s)
	}
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// The description that is checked in is the one that is served.
func TestOpenAPIDocument(t *testing.T) {
	want, err := OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	const path = "../../docs/openapi.json"
	if os.Getenv("ARRAYSIM_UPDATE") != "" {
		if err := os.WriteFile(path, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(got), want) {
		t.Errorf("%s is out of date; run: ARRAYSIM_UPDATE=1 go test -run OpenAPIDocument ./internal/admin", path)
	}
}

func TestPolicyIsKept(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	ctx := t.Context()
	before, err := r.Policy(ctx)
	if err != nil {
		t.Fatal(err)
	}
	percent, order, pressure := 40, "lru", true
	if _, err := r.ChangePolicy(ctx, PolicyChange{BudgetPercent: &percent}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ChangePolicy(ctx, PolicyChange{Order: &order, BudgetPressure: &pressure}); err != nil {
		t.Fatal(err)
	}
	want := before
	want.BudgetPercent, want.Order, want.BudgetPressure = percent, order, pressure
	bad := "newest"
	if _, err := r.ChangePolicy(ctx, PolicyChange{Order: &bad}); err == nil {
		t.Error("an order that is none was taken")
	}
	r.stop()
	r = start(t, parse(t, testConfig, c.Data))
	if got, err := r.Policy(ctx); err != nil || got != want {
		t.Errorf("got %+v, want %+v: %v", got, want, err)
	}
}

func TestFaults(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	r.write("v", 0, make([]byte, 4096))
	yes, no, bandwidth := true, false, Size(1<<20)
	p, err := r.ChangeMdisk(ctx, "gold", "m0", MdiskChange{Offline: &yes, Bandwidth: &bandwidth})
	if err != nil || !p.Mdisks[0].Offline || p.Mdisks[0].Bandwidth != bandwidth {
		t.Fatalf("%+v, %v", p, err)
	}
	q := &block.Request{Op: block.OpWrite, Range: block.Range{Start: 0, Count: 8}, Data: [][]byte{make([]byte, 4096)}}
	if s := r.d.groups[0].request(r.volumeOf("v"), q); s != block.Offline {
		t.Errorf("a write to an mdisk that is offline: %s", s)
	}
	if p, err = r.ChangeMdisk(ctx, "gold", "m0", MdiskChange{Offline: &no}); err != nil || p.Mdisks[0].Offline || p.Mdisks[0].Bandwidth != bandwidth {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.ChangeMdisk(ctx, "gold", "m7", MdiskChange{Offline: &yes}); err == nil || !strings.Contains(err.Error(), "m7") {
		t.Errorf("an mdisk that is none: %v", err)
	}
	if err := r.SetMirror(ctx, false); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Status(ctx); err != nil || s.Mirrored {
		t.Errorf("%+v, %v", s, err)
	}
	if err := r.SetMirror(ctx, true); err != nil {
		t.Fatal(err)
	}
	if p, err := r.ChangePool(ctx, "gold", PoolChange{WriteMode: "flush_through"}); err != nil || p.WriteMode != "flush_through" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := r.DeletePool(ctx, "gold"); err == nil {
		t.Error("a pool with volumes was deleted")
	}
	if _, err := r.CreatePool(ctx, NewPool{Name: "new", Mdisks: []NewMdisk{{Name: "m", Size: 64 << 20}}}); err != nil {
		t.Fatal(err)
	}
	if err := r.DeletePool(ctx, "new"); err != nil {
		t.Error(err)
	}
}

func TestZeroVolume(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	r.write("v", 8, pattern(t, 1<<20))
	v, err := r.ZeroVolume(t.Context(), "v")
	if err != nil || v.Zero != v.Size || v.Mapped != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if got := r.read("v", 0, 2<<20); !bytes.Equal(got, make([]byte, 2<<20)) {
		t.Error("the volume is not zero")
	}
}

func TestEvents(t *testing.T) {
	var e events
	for range maxEvents + 20 {
		e.add(Event{Kind: EventChange})
	}
	all := e.since(0)
	if len(all) > maxEvents || all[len(all)-1].Number != maxEvents+20 {
		t.Errorf("%d events up to %d", len(all), all[len(all)-1].Number)
	}
	if got := e.since(maxEvents + 18); len(got) != 2 || got[0].Number != maxEvents+19 {
		t.Errorf("since: %v", got)
	}
}

// A volume that is made between two readings counts from 0 at once, and so does one that has the name of another.
func TestWatcherOfNewVolumes(t *testing.T) {
	var got []string
	w := newWatcher(func(e Event) { got = append(got, e.Text) }, openFindings(t.TempDir(), func(line string) { t.Error(line) }))
	reading := func(i int, vols ...VolumeCounters) {
		for j := range vols {
			vols[j].Admitted = map[string]Size{"xcopy": vols[j].Undercover}
		}
		w.step(Counters{Time: int64(i) * 1e9, Volumes: vols})
	}
	old := VolumeCounters{Volume: "old", ID: 1, Undercover: 1 << 40, Written: 1 << 40} // from before the daemon's start
	reading(0, old)
	reading(1, old, VolumeCounters{Volume: "clone", ID: 2, Undercover: 130 << 20, Written: 4 << 20})
	for i := 2; i < 6; i++ {
		reading(i, old, VolumeCounters{Volume: "clone", ID: 2, Undercover: 256 << 20, Written: 4 << 20})
	}
	reading(6, old, VolumeCounters{Volume: "clone", ID: 3, Undercover: 512 << 20}) // deleted and made again
	for i := 7; i < 10; i++ {
		reading(i, old, VolumeCounters{Volume: "clone", ID: 3, Undercover: 512 << 20})
	}
	want := []string{
		"volume clone is written by offloads (xcopy) below the host layer",
		"offloads wrote 256 MiB to volume clone in 2 s, hosts wrote 4 MiB; it held up to 0 B of the write cache",
		"volume clone is written by offloads (xcopy) below the host layer",
		"offloads wrote 512 MiB to volume clone in 1 s, hosts wrote 0 B; it held up to 0 B of the write cache",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWatcher(t *testing.T) {
	var got []string
	w := newWatcher(func(e Event) { got = append(got, string(e.Kind)+": "+e.Text) }, openFindings(t.TempDir(), func(line string) { t.Error(line) }))
	undercover, dirty := Size(0), Size(0)
	for i := range 12 {
		written := Size(0)
		if i >= 2 && i < 5 {
			undercover += 100 << 20
			dirty = Size(i) * 10 << 20
		} else if i >= 5 {
			dirty = 0
		}
		w.step(Counters{Time: int64(i) * 1e9, Pools: []PoolCounters{{Pool: "p", CacheUsed: dirty, CacheLimit: 40 << 20}},
			Volumes: []VolumeCounters{{Volume: "other", Pool: "p", Written: written},
				{Volume: "clone", Pool: "p", Undercover: undercover, Dirty: dirty, Admitted: map[string]Size{"host": 1, "xcopy": undercover}}}})
	}
	w.people([]Session{{Initiator: "iqn.a"}, {Initiator: "iqn.a"}, {Initiator: "iqn.b"}})
	w.people([]Session{{Initiator: "iqn.b"}})
	want := []string{
		"undercover: volume clone is written by offloads (xcopy) below the host layer",
		"full: the write cache of pool p is full: 40 MiB of 40 MiB; volume clone holds 40 MiB of it",
		"full: the write cache of pool p has room again",
		"undercover: offloads wrote 300 MiB to volume clone in 3 s, hosts wrote 0 B; it held up to 40 MiB of the write cache",
		"session: initiator iqn.a logged in", "session: initiator iqn.b logged in", "session: initiator iqn.a disconnected",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
