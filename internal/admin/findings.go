package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	findingsName = "findings.json" // in the data folder
	// maxFindings bounds those that nobody has dismissed; the oldest go.
	maxFindings = 200
	// maxVictims is how many a finding names: the slowest.
	maxVictims = 16
)

// Finding is an alarm that stays until somebody dismisses it, also over a restart: offloads wrote a
// volume below the host layer.
type Finding struct {
	ID       uint64   `json:"id"`
	Kind     string   `json:"kind" enum:"undercover"`
	Volume   string   `json:"volume"`
	VolumeID uint32   `json:"volume_id"`
	Pool     string   `json:"pool"`
	Origins  []string `json:"origins" nullable:"false" doc:"What wrote: xcopy, write_same, odx and so on."`
	// Began and Last are when offloads wrote first and last.
	Began    time.Time `json:"began"`
	Last     time.Time `json:"last"`
	Active   bool      `json:"active" doc:"Offloads wrote within the last seconds."`
	Episodes int       `json:"episodes" doc:"How many times it began since it was dismissed last."`
	// What was written since Began while the finding was active.
	Undercover  Size `json:"undercover_bytes"`
	HostWritten Size `json:"host_written_bytes"`
	PeakDirty   Size `json:"peak_cache_dirty_bytes"`
	// Who waited, as far as it can be known: see waits.go.
	Victims  []Victim `json:"victims" nullable:"false" doc:"Other volumes of the pool whose reads and writes took longer meanwhile than before, for the same demand. Each has its slowest period while offloads wrote."`
	Compared int      `json:"compared_volumes" doc:"How many other volumes of the pool could be compared when offloads wrote last, including the victims."`
	Unknown  int      `json:"unknown_volumes" doc:"How many more read or wrote then, but may or may not have waited: too few reads and writes before or meanwhile, or another possible cause."`
}

// Totals are what was written in some time.
type Totals struct {
	Undercover  Size   `json:"undercover_bytes"`
	HostWritten Size   `json:"host_written_bytes"`
	Offloads    uint64 `json:"offloads"`
	Seconds     int64  `json:"seconds" doc:"How much of that time the daemon was watching."`
}

// Findings are all that nobody has dismissed, newest first, and totals.
type Findings struct {
	Findings   []Finding `json:"findings" nullable:"false"`
	SinceStart Totals    `json:"since_start" doc:"Since the daemon started."`
	LastHour   Totals    `json:"last_hour" doc:"Of the last hour, earlier runs of the daemon included."`
}

// findings keeps them. It is safe for concurrent use.
type findings struct {
	path   string
	notice func(string)
	saving sync.Mutex // held, before mu, over a save

	mu      sync.Mutex
	kept    keptFindings
	changed bool   // since the last save
	total   Totals // since the start
	began   time.Time
	failing bool
}

// keptFindings is what the file has.
type keptFindings struct {
	Last uint64    `json:"last_id"`
	List []Finding `json:"findings"` // oldest first
}

// openFindings reads what is kept in the data folder. A file that makes no sense is no error: its findings are lost.
func openFindings(data string, notice func(string)) *findings {
	f := &findings{path: filepath.Join(data, findingsName), notice: notice, began: time.Now()}
	b, err := os.ReadFile(f.path)
	if err == nil {
		err = json.Unmarshal(b, &f.kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		notice(fmt.Sprintf("the findings of earlier runs are lost: %v", err))
		f.kept = keptFindings{}
	}
	for i := range f.kept.List {
		f.kept.List[i].Active = false
		f.kept.Last = max(f.kept.Last, f.kept.List[i].ID)
	}
	return f
}

// note adds what a volume's offloads and hosts wrote within one second. begins tells that offloads did not write it before.
func (f *findings) note(v, old *VolumeCounters, begins bool, origins []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UTC()
	i := slices.IndexFunc(f.kept.List, func(x Finding) bool { return x.Volume == v.Volume && x.VolumeID == v.ID })
	if begins {
		if i < 0 {
			f.kept.Last++
			if len(f.kept.List) == maxFindings {
				f.kept.List = slices.Delete(f.kept.List, 0, 1)
			}
			i = len(f.kept.List)
			f.kept.List = append(f.kept.List, Finding{ID: f.kept.Last, Kind: string(EventUndercover), Volume: v.Volume, VolumeID: v.ID, Pool: v.Pool, Began: now})
		}
		f.kept.List[i].Active = true
		f.kept.List[i].Episodes++
	}
	if i < 0 { // dismissed while it goes on
		return
	}
	x := &f.kept.List[i]
	if v.Undercover > old.Undercover {
		x.Last = now
	}
	x.Undercover += v.Undercover - min(old.Undercover, v.Undercover)
	x.HostWritten += v.Written - min(old.Written, v.Written)
	x.PeakDirty = max(x.PeakDirty, v.Dirty)
	for _, o := range origins {
		if !slices.Contains(x.Origins, o) {
			x.Origins = append(x.Origins, o)
		}
	}
	f.changed = true
}

// waited says who waited while offloads wrote a volume, if it has a finding. What a volume waited at most stays.
func (f *findings) waited(v *VolumeCounters, victims []Victim, compared, unknown int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.kept.List, func(x Finding) bool { return x.Volume == v.Volume && x.VolumeID == v.ID })
	if i < 0 {
		return
	}
	x := &f.kept.List[i]
	x.Compared, x.Unknown = compared, unknown
	for _, n := range victims {
		at := slices.IndexFunc(x.Victims, func(o Victim) bool { return o.VolumeID == n.VolumeID })
		switch {
		case at >= 0 && n.Mean > x.Victims[at].Mean:
			x.Victims[at] = n
		case at < 0:
			x.Victims = append(x.Victims, n)
		}
	}
	slices.SortStableFunc(x.Victims, func(a, b Victim) int { return cmp.Compare(b.Mean, a.Mean) })
	x.Victims = x.Victims[:min(len(x.Victims), maxVictims)]
	f.changed = true
}

// end says that offloads no longer write a volume.
func (f *findings) end(volume string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.kept.List {
		if x := &f.kept.List[i]; x.Volume == volume && x.Active {
			x.Active, f.changed = false, true
		}
	}
}

// add adds to the totals since the start.
func (f *findings) add(undercover, written Size, offloads uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total.Undercover += undercover
	f.total.HostWritten += written
	f.total.Offloads += offloads
}

// dismiss forgets a finding. What its volume's offloads go on writing makes none until they have paused.
func (f *findings) dismiss(id uint64) (Finding, error) {
	f.mu.Lock()
	i := slices.IndexFunc(f.kept.List, func(x Finding) bool { return x.ID == id })
	if i < 0 {
		f.mu.Unlock()
		return Finding{}, &refusal{err: fmt.Errorf("there is no finding %d; somebody may have dismissed it already", id), status: http.StatusNotFound}
	}
	x := f.kept.List[i]
	f.kept.List = slices.Delete(f.kept.List, i, i+1)
	f.changed = true
	f.mu.Unlock()
	return x, f.save()
}

// list returns all, newest first.
func (f *findings) list() Findings {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Findings{Findings: []Finding{}, SinceStart: f.total}
	out.SinceStart.Seconds = int64(time.Since(f.began).Seconds())
	for _, x := range slices.Backward(f.kept.List) {
		x.Origins = append([]string{}, x.Origins...)
		x.Victims = append([]Victim{}, x.Victims...)
		out.Findings = append(out.Findings, x)
	}
	return out
}

// save writes the file anew if anything changed; a loss of power leaves the old one or the new one.
func (f *findings) save() error {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	if !f.changed {
		f.mu.Unlock()
		return nil
	}
	b, _ := json.Marshal(f.kept) // strings, numbers and times
	f.changed = false
	f.mu.Unlock()
	err := replaceFile(f.path, append(b, '\n'))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.failing = false
		return nil
	}
	f.changed = true
	if !f.failing {
		f.failing = true
		f.notice(fmt.Sprintf("the findings cannot be saved: %v", err))
	}
	return fmt.Errorf("the findings cannot be saved: %w", err)
}

func (d *daemon) listFindings() Findings {
	out := d.findings.list()
	now := time.Now()
	sum := func(field string) float64 {
		v, covered := d.history.Sum(kindTotal, "", field, now.Add(-time.Hour), now)
		out.LastHour.Seconds = int64(covered.Seconds())
		return v
	}
	out.LastHour.Undercover, out.LastHour.HostWritten = Size(math.Round(sum("undercover_bytes"))), Size(math.Round(sum("host_written_bytes")))
	out.LastHour.Offloads = uint64(math.Round(sum("offloads")))
	return out
}
