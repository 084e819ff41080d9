package admin

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// watched is a watcher of findings, fed by one volume second by second.
type watched struct {
	*watcher
	found   *findings
	seconds int64
}

func watchFindings(t *testing.T, data string) *watched {
	f := openFindings(data, func(line string) { t.Error(line) })
	w := &watched{watcher: newWatcher(func(Event) {}, f), found: f}
	w.reading(0, 0)
	return w
}

// reading is one second in which offloads and hosts have written so much in all.
func (w *watched) reading(undercover, written Size) {
	w.step(Counters{Time: w.seconds * 1e9, Volumes: []VolumeCounters{{Volume: "clone", ID: 7, Pool: "p", Undercover: undercover, Written: written,
		Dirty: undercover / 2, Admitted: map[string]Size{"xcopy": undercover}, Offloads: map[string]uint64{"xcopy": uint64(undercover)}}}})
	w.seconds++
}

func (w *watched) rest(undercover Size) {
	for range quietIntervals + 1 {
		w.reading(undercover, 0)
	}
}

// A finding stays when the offload has ended and over a restart, takes further episodes, and goes when it is dismissed.
func TestFindings(t *testing.T) {
	data := t.TempDir()
	w := watchFindings(t, data)
	w.reading(100, 10)
	w.reading(300, 30)
	f := w.found.list().Findings
	if len(f) != 1 || !f[0].Active || f[0].Undercover != 300 || f[0].HostWritten != 30 || f[0].PeakDirty != 150 || f[0].Episodes != 1 {
		t.Fatalf("an offload under way is %+v", f)
	}
	w.rest(300)
	if f = w.found.list().Findings; len(f) != 1 || f[0].Active || strings.Join(f[0].Origins, " ") != "xcopy" {
		t.Fatalf("an offload that ended is %+v", f)
	}
	if got := w.found.list().SinceStart; got.Undercover != 300 || got.HostWritten != 30 || got.Offloads != 300 {
		t.Errorf("since the start: %+v", got)
	}
	if err := w.found.save(); err != nil {
		t.Fatal(err)
	}

	w = watchFindings(t, data)
	if got := w.found.list(); len(got.Findings) != 1 || got.Findings[0].Undercover != 300 || got.SinceStart.Undercover != 0 {
		t.Fatalf("after a restart: %+v", got)
	}
	w.reading(50, 0)
	f = w.found.list().Findings
	if len(f) != 1 || !f[0].Active || f[0].Undercover != 350 || f[0].Episodes != 2 {
		t.Fatalf("a second episode is %+v", f)
	}
	// Dismissed while it goes on: silent until the offload has paused.
	id := f[0].ID
	if _, err := w.found.dismiss(id); err != nil {
		t.Fatal(err)
	}
	w.reading(90, 0)
	if f = w.found.list().Findings; len(f) != 0 {
		t.Fatalf("it came back at once: %+v", f)
	}
	if _, err := w.found.dismiss(id); err == nil {
		t.Error("a finding is dismissed twice")
	}
	w.rest(90)
	w.reading(95, 0)
	if f = w.found.list().Findings; len(f) != 1 || f[0].ID == id || f[0].Undercover != 5 {
		t.Fatalf("the next offload is %+v", f)
	}
}

// A volume that is deleted ends its offload, and a file that makes no sense loses the findings and nothing else.
func TestFindingsOfWhatIsGone(t *testing.T) {
	data := t.TempDir()
	w := watchFindings(t, data)
	w.reading(100, 0)
	w.step(Counters{Time: w.seconds * 1e9})
	if f := w.found.list().Findings; len(f) != 1 || f[0].Active {
		t.Errorf("the finding of a volume that is gone: %+v", f)
	}
	if err := os.WriteFile(filepath.Join(data, findingsName), []byte(`{"findings":[{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	said := 0
	f := openFindings(data, func(string) { said++ })
	if said != 1 || len(f.list().Findings) != 0 {
		t.Errorf("a torn file: %d notices, %+v", said, f.list())
	}
}

func TestFindingsAreBounded(t *testing.T) {
	f := openFindings(t.TempDir(), func(line string) { t.Error(line) })
	for i := range maxFindings + 5 {
		f.note(&VolumeCounters{Volume: "v", ID: uint32(i), Undercover: 1}, &VolumeCounters{}, true, nil)
	}
	if list := f.list().Findings; len(list) != maxFindings || list[0].ID != maxFindings+5 {
		t.Errorf("%d findings, the newest is %d", len(list), list[0].ID)
	}
}

// Dismissing takes the token, and is an event.
func TestDismissing(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	token, err := ReadToken(c.Data)
	if err != nil {
		t.Fatal(err)
	}
	r.d.findings.note(&VolumeCounters{Volume: "v", Undercover: 5 << 20}, &VolumeCounters{}, true, []string{"xcopy"})
	list, err := r.Findings(t.Context())
	if err != nil || len(list.Findings) != 1 {
		t.Fatalf("%+v (%v)", list, err)
	}
	path := "/api/v1/findings/" + strconv.FormatUint(list.Findings[0].ID, 10)
	for token, want := range map[string]int{"": http.StatusUnauthorized, token + "x": http.StatusUnauthorized} {
		if s, _, _ := r.ask("DELETE", path, token, "", nil); s != want {
			t.Errorf("dismissing by token %q: status %d", token, s)
		}
	}
	if s, _, b := r.ask("DELETE", path, token, "", nil); s != http.StatusOK {
		t.Errorf("dismissing: status %d, %s", s, b)
	}
	if s, _, _ := r.ask("DELETE", path, token, "", nil); s != http.StatusNotFound {
		t.Errorf("dismissing twice: status %d", s)
	}
	events, err := r.Events(context.Background(), 0)
	if err != nil || len(events) == 0 || !strings.Contains(events[len(events)-1].Text, "finding 1 dismissed") {
		t.Errorf("events: %+v (%v)", events, err)
	}
	if b, err := os.ReadFile(filepath.Join(c.Data, findingsName)); err != nil || strings.Contains(string(b), "xcopy") {
		t.Errorf("the file has %s (%v)", b, err)
	}
	r.stop()
}
