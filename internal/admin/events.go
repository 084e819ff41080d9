package admin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// maxEvents is how many events are kept; the daemon's log has more.
const maxEvents = 500

// events are what happened of late.
type events struct {
	mu   sync.Mutex
	last uint64
	list []Event
	// faults is how many of them were of that kind.
	faults uint64
}

func (e *events) add(v Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	v.Number, v.Time = e.last, time.Now().UTC()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, maxEvents/10)
	}
	e.list = append(e.list, v)
	if v.Kind == EventFault {
		e.faults++
	}
}

// faultCount is how many faults have been made and ended so far.
func (e *events) faultCount() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults
}

// since returns the events behind a number.
func (e *events) since(n uint64) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.list, n, func(v Event, n uint64) int {
		if v.Number <= n {
			return -1
		}
		return 1
	})
	return append([]Event{}, e.list[i:]...)
}

const (
	watchInterval = time.Second
	// quietIntervals without undercover writes end an episode of them.
	quietIntervals = 3
	// A partition is said to be full above the first, and no more below the second, in
	// percent: what lies between would be said again and again.
	fullAbove, fullBelow = 95, 80
)

// watcher turns readings of the counters into events: it says which volume is written
// below the host layer, and who holds a partition that is full.
type watcher struct {
	tell     func(Event)
	found    *findings
	last     Counters
	before   map[string]*VolumeCounters // of last, by name
	episodes map[string]*episode        // by volume
	full     map[string]bool            // by pool
	sessions map[string]bool
	linked   map[int]bool // nodes
}

// episode is a run of undercover writes to one volume.
type episode struct {
	began, seen int64
	quiet       int
	first       VolumeCounters
	peak        Size // dirty
}

func newWatcher(tell func(Event), found *findings) *watcher {
	return &watcher{tell: tell, found: found, episodes: map[string]*episode{}, full: map[string]bool{}, sessions: map[string]bool{}, linked: map[int]bool{}}
}

// step compares a reading with the one before.
func (w *watcher) step(c Counters) {
	now := make(map[string]*VolumeCounters, len(c.Volumes))
	for i := range c.Volumes {
		v := &c.Volumes[i]
		now[v.Volume] = v
		old := w.before[v.Volume]
		if old == nil || old.ID != v.ID { // it was made since then, and all that it counts is new
			old = &VolumeCounters{}
			w.forget(v.Volume)
		}
		if w.before != nil { // the first reading is what was before the daemon's start
			w.volume(c.Time, old, v)
		}
	}
	for name := range w.episodes {
		if now[name] == nil {
			w.forget(name)
		}
	}
	for _, p := range c.Pools {
		w.pool(p, c.Volumes)
	}
	w.last, w.before = c, now
}

// forget ends the episode of a volume that is gone.
func (w *watcher) forget(volume string) {
	if w.episodes[volume] != nil {
		delete(w.episodes, volume)
		w.found.end(volume)
	}
}

func (w *watcher) volume(t int64, old, v *VolumeCounters) {
	e := w.episodes[v.Volume]
	begins := e == nil
	w.found.add(v.Undercover-min(old.Undercover, v.Undercover), v.Written-min(old.Written, v.Written), uint64(grew(total64(old.Offloads), total64(v.Offloads))))
	if v.Undercover > old.Undercover {
		if begins {
			e = &episode{began: w.last.Time, first: *old}
			w.episodes[v.Volume] = e
			w.tell(Event{Kind: EventUndercover, Volume: v.Volume, Pool: v.Pool,
				Text: fmt.Sprintf("volume %s is written by offloads (%s) below the host layer", v.Volume, strings.Join(grown(old.Admitted, v.Admitted), ", "))})
		}
		e.seen, e.quiet = t, 0
	}
	if e == nil {
		return
	}
	w.found.note(v, old, begins, grown(old.Admitted, v.Admitted))
	e.peak = max(e.peak, v.Dirty)
	if v.Undercover == old.Undercover {
		e.quiet++
	}
	if e.quiet < quietIntervals {
		return
	}
	w.forget(v.Volume)
	w.tell(Event{Kind: EventUndercover, Volume: v.Volume, Pool: v.Pool,
		Text: fmt.Sprintf("offloads wrote %s to volume %s in %.0f s, hosts wrote %s; it held up to %s of the write cache",
			(v.Undercover - e.first.Undercover).Human(), v.Volume, float64(e.seen-e.began)/1e9, (v.Written - e.first.Written).Human(), e.peak.Human())})
}

// grown lists the origins, hosts apart, by which more was admitted.
func grown(old, now map[string]Size) []string {
	var out []string
	for _, o := range sorted(now) {
		if o != "host" && now[o] > old[o] {
			out = append(out, o)
		}
	}
	return out
}

func (w *watcher) pool(p PoolCounters, vols []VolumeCounters) {
	was, percent := w.full[p.Pool], uint64(0)
	if p.CacheLimit > 0 {
		percent = uint64(p.CacheUsed) * 100 / uint64(p.CacheLimit)
	}
	if !was && percent >= fullAbove {
		text := fmt.Sprintf("the write cache of pool %s is full: %s of %s", p.Pool, p.CacheUsed.Human(), p.CacheLimit.Human())
		var most VolumeCounters
		for _, v := range vols {
			if v.Pool == p.Pool && v.Dirty > most.Dirty {
				most = v
			}
		}
		if most.Dirty > 0 {
			text += fmt.Sprintf("; volume %s holds %s of it", most.Volume, most.Dirty.Human())
		}
		w.full[p.Pool] = true
		w.tell(Event{Kind: EventFull, Pool: p.Pool, Volume: most.Volume, Text: text})
	}
	if was && percent < fullBelow {
		delete(w.full, p.Pool)
		w.tell(Event{Kind: EventFull, Pool: p.Pool, Text: fmt.Sprintf("the write cache of pool %s has room again", p.Pool)})
	}
}

// people tells which initiators came and went.
func (w *watcher) people(list []Session) {
	now := map[string]bool{}
	for _, s := range list {
		now[s.Initiator] = true
	}
	for _, name := range sorted(now) {
		if !w.sessions[name] {
			w.tell(Event{Kind: EventSession, Text: "initiator " + name + " logged in"})
		}
	}
	for _, name := range sorted(w.sessions) {
		if !now[name] {
			w.tell(Event{Kind: EventSession, Text: "initiator " + name + " disconnected"})
		}
	}
	w.sessions = now
}

// links tells which nodes were linked, and are not any more.
func (w *watcher) links(list []NodeStatus) {
	for _, n := range list {
		now := n.State == NodeForwarding
		switch was := w.linked[n.ID]; {
		case now && !was:
			w.tell(Event{Kind: EventNode, Text: fmt.Sprintf("node %d %s is linked", n.ID, n.Name)})
		case was && !now:
			w.tell(Event{Kind: EventNode, Text: fmt.Sprintf("node %d %s is no longer linked", n.ID, n.Name)})
		}
		w.linked[n.ID] = now
	}
}

// tellOwner tells that this node has the array, where there are others, and who had it before.
func (d *daemon) tellOwner() {
	if d.links == nil {
		return
	}
	text := fmt.Sprintf("node %d %s has the array", d.cfg.Node.ID, d.cfg.Node.Name)
	fenced := 0
	if s, ok := d.data.store.(interface{ Ownership() rados.Ownership }); ok {
		own := s.Ownership()
		text += fmt.Sprintf(", in epoch %d", own.Epoch)
		fenced = own.Fenced
	}
	before := "its owner before"
	if d.forward != nil {
		if owner, _ := d.forward.client.Owner(); owner.ID != 0 {
			before = fmt.Sprintf("node %d %s", owner.ID, owner.Name)
			if fenced == 0 {
				text += "; " + before + " had it before, and gave it back"
			}
		}
	}
	if fenced > 0 {
		text += "; " + before + " did not give it back, and was fenced"
	}
	d.events.add(Event{Kind: EventNode, Text: text})
	d.log.Info(text)
}

// watch reads the counters once a second, keeps the history and tells what they say.
func (d *daemon) watch() {
	w := newWatcher(func(e Event) {
		d.events.add(e)
		if e.Kind != EventSession && e.Kind != EventNode { // portal and link log those
			d.log.Info(e.Text)
		}
	}, d.findings)
	var s metrics.Snapshot
	var m meter
	slow := newWaits(d.findings)
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	defer d.history.Close()
	defer func() { _ = d.findings.save() }() // it has said so
	for flushed := time.Now(); ; {
		last := m.last.Time
		c := d.read(&s)
		rows := m.step(c, &s)
		if len(rows) > 0 {
			d.history.Append(time.Now(), time.Duration(c.Time-last), rows)
		}
		w.step(c)
		slow.step(c, rows, d.events.faultCount())
		w.people(d.sessions())
		w.links(d.nodes())
		if time.Since(flushed) >= historyFlush {
			flushed = time.Now()
			d.history.Flush()
			_ = d.findings.save() // it has said so
		}
		select {
		case <-d.closing:
			return
		case <-t.C:
		}
	}
}
