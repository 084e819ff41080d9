// Package history keeps what an array did over time: every sample of the last hour, and
// steps of five minutes of the last week, in memory and in a folder. Memory and disk are
// bounded by the number of samples times the objects that one sample may hold.
//
// A sample has a row of figures for each object, such as a volume. Rows that are all zero are
// not stored: an object that was alive and has no row was idle. What nobody measured stays
// unknown: the daemon was down, the object did not exist, or a sample had more active objects
// than it may hold.
//
// The package knows no array: its user names the kinds of objects and their figures.
package history

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Rule says how a figure of several samples becomes one.
type Rule uint8

// Rules. An object that was idle has 0 by the first two and nothing by the others.
const (
	Mean     Rule = iota // a rate: the mean over the time that is known
	Max                  // a level: the highest
	Weighted             // the mean, weighted by Field.Weight
	Worst                // the highest, unknown where the object was idle
)

// Field describes one figure of a kind of objects.
type Field struct {
	Name   string
	Rule   Rule
	Weight int  // with Weighted: the index of the field that weighs
	Rank   bool // counts towards the rank by which a sample that is too large chooses its objects
	Keep   bool // a sample that is too large keeps MaxKept objects by this figure, whatever their rank
}

// Kind describes objects of one kind.
type Kind struct {
	Name   string
	Fields []Field
	Always bool // a sample holds all of them, however many objects are active
}

// Row is what one object did during a sample. NaN is an unknown value.
type Row struct {
	Kind, Name string
	Values     []float32 // in the order of Kind.Fields
	// ID is the object's number with the user: another object of the same name has another one.
	ID uint32
}

// Bounds. A row of eleven fields takes 50 bytes, so an hour of full samples takes 12 MiB and a week 7.
const (
	FineAge    = time.Hour
	CoarseAge  = 7 * 24 * time.Hour
	CoarseStep = 5 * time.Minute
	// MaxRows is how many objects of kinds that are not Always one sample holds.
	MaxRows = 64
	// MaxKept is how many of them each field with Keep has in a sample that is too large.
	MaxKept = 16
	// maxObjects bounds the objects that are known by name; others stay unknown.
	maxObjects = 8192
	maxFine    = 4000 // samples, whatever their distance
	maxCoarse  = int(CoarseAge/CoarseStep) + 1
	maxLives   = 32 // of one object
)

// History is the store. It is safe for concurrent use; Flush and Close wait for the disk,
// nothing else does.
type History struct {
	kinds  []Kind
	kindOf map[string]int
	notice func(string)

	mu      sync.Mutex
	objects []*object // by number; nil is free
	numbers map[key]uint32
	fine    tier
	coarse  tier
	bucket  int64 // end of the coarse step that is being folded, ms; 0: none
	folding *fold
	scratch map[uint32]bool // of one Append

	io sync.Mutex // held while files are written, before mu
}

type key struct {
	kind int
	name string
}

// object is one that is or was. Its lives are ordered; the last may be open.
type object struct {
	key   key
	lives []life
	id    uint32 // the user's number for the newest object of this name
	named bool   // id is known: files of earlier versions have none
}

// life is when an object existed, in ms since 1970.
type life struct{ born, died int64 }

const alive = math.MaxInt64

// tick is a sample as it is kept.
type tick struct {
	end     int64 // ms since 1970
	span    int64 // ms that it covers
	omitted int   // active objects without a row
	rows    []row
}

type row struct {
	object uint32
	values []float32
}

// tier is one resolution: ticks of rising time, and the files that have them.
type tier struct {
	age   time.Duration
	max   int
	ticks []tick
	files *files
}

// Open reads what the folder dir has and goes on there; "" keeps all in memory. A folder that cannot
// be read or written and files that are damaged are no error: notice hears of them.
func Open(dir string, kinds []Kind, notice func(string)) *History {
	h := &History{kinds: kinds, kindOf: map[string]int{}, notice: notice, numbers: map[key]uint32{}, folding: newFold(),
		scratch: map[uint32]bool{}, fine: tier{age: FineAge, max: maxFine}, coarse: tier{age: CoarseAge, max: maxCoarse}}
	for i, k := range kinds {
		h.kindOf[k.Name] = i
	}
	if dir == "" {
		return h
	}
	h.coarse.files = openFiles(filepath.Join(dir, "week"), CoarseAge, CoarseAge/4)
	h.fine.files = openFiles(filepath.Join(dir, "hour"), FineAge, FineAge/4)
	h.load(&h.coarse)
	h.load(&h.fine)
	h.endLives()
	// What the last process had not folded to the end.
	done := h.coarse.last()
	for _, t := range h.fine.ticks {
		if t.end > done {
			h.fold(t)
		}
	}
	return h
}

// Append takes a sample of the time that ends at end. rows has all objects that exist, idle ones too.
// Times must rise: a clock that was set back makes the history behind it go.
func (h *History) Append(end time.Time, span time.Duration, rows []Row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := tick{end: end.UnixMilli(), span: span.Milliseconds()}
	if t.span <= 0 {
		return
	}
	h.rewind(t.end)
	h.census(rows, t.end-t.span)
	for _, r := range rows {
		n, known := h.numbers[key{h.kindOf[r.Kind], r.Name}]
		if known && !idle(r.Values) {
			t.rows = append(t.rows, row{n, slices.Clone(r.Values)})
		}
	}
	h.limit(&t)
	h.push(&h.fine, t)
	h.fold(t)
}

// Last returns the end of the newest sample, zero when there is none.
func (h *History) Last() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.fine.ticks) == 0 {
		return time.Time{}
	}
	return time.UnixMilli(h.fine.last())
}

// census compares the objects of a sample with those that were alive.
func (h *History) census(rows []Row, at int64) {
	clear(h.scratch)
	for _, r := range rows {
		i, ok := h.kindOf[r.Kind]
		if !ok || len(r.Values) != len(h.kinds[i].Fields) {
			panic(fmt.Sprintf("history: a row of kind %q with %d values", r.Kind, len(r.Values)))
		}
		if n, ok := h.object(key{i, r.Name}, at); ok {
			h.scratch[n] = true
			h.identify(n, r.ID)
		}
	}
	// An object's number is free for another one when no tick has it any more. Ticks go later than they are old.
	oldest := at - CoarseAge.Milliseconds()
	for _, t := range []*tier{&h.fine, &h.coarse} {
		if len(t.ticks) > 0 {
			oldest = min(oldest, t.ticks[0].end-t.ticks[0].span)
		}
	}
	for n, o := range h.objects {
		if o == nil || h.scratch[uint32(n)] {
			continue
		}
		if len(o.lives) == 0 { // a file that was damaged, or is of a version that forgot them
			o.lives = append(o.lives, life{at, at})
		}
		if l := &o.lives[len(o.lives)-1]; l.died == alive {
			l.died = at
			h.each(func(f *files) { f.died(uint32(n), at) })
		}
		if o.lives[len(o.lives)-1].died < oldest-CoarseStep.Milliseconds() {
			delete(h.numbers, o.key)
			h.objects[n] = nil
			h.each(func(f *files) { f.forget(uint32(n)) })
		}
	}
}

// object returns the number of an object that is alive since at or longer.
func (h *History) object(k key, at int64) (n uint32, ok bool) {
	n, ok = h.numbers[k]
	if !ok {
		if n, ok = h.add(k); !ok {
			return 0, false
		}
	}
	o := h.objects[n]
	if len(o.lives) > 0 && o.lives[len(o.lives)-1].died == alive {
		return n, true
	}
	o.begin(at)
	h.each(func(f *files) { f.born(h, n, at) })
	return n, true
}

// identify says which of its user's objects has the name now.
func (h *History) identify(n, id uint32) {
	o := h.objects[n]
	if o.named && o.id == id {
		return
	}
	o.id, o.named = id, true
	h.each(func(f *files) { f.identified(n, id) })
}

// add gives an object a number.
func (h *History) add(k key) (n uint32, ok bool) {
	if len(h.numbers) >= maxObjects {
		return 0, false
	}
	i := slices.Index(h.objects, nil)
	if i < 0 {
		i = len(h.objects)
		h.objects = append(h.objects, nil)
	}
	h.objects[i] = &object{key: k}
	h.numbers[k] = uint32(i)
	return uint32(i), true
}

// begin opens a life. Where there were too many, the first is forgotten and so unknown.
func (o *object) begin(at int64) {
	if len(o.lives) == maxLives {
		o.lives = slices.Delete(o.lives, 0, 1)
	}
	o.lives = append(o.lives, life{at, alive})
}

// endLives ends those of a process that is gone, with its last sample.
func (h *History) endLives() {
	at := max(h.fine.last(), h.coarse.last())
	for n, o := range h.objects {
		if o == nil || len(o.lives) == 0 {
			continue
		}
		if l := &o.lives[len(o.lives)-1]; l.died == alive {
			l.died = max(at, l.born)
			h.each(func(f *files) { f.died(uint32(n), l.died) })
		}
	}
}

// lived returns how many ms of (from, to] an object existed.
func (o *object) lived(from, to int64) (ms int64) {
	for _, l := range o.lives {
		ms += max(0, min(to, l.died)-max(from, l.born))
	}
	return ms
}

// push adds a tick to a tier and lets go what is too old.
func (h *History) push(t *tier, k tick) {
	t.ticks = append(t.ticks, k)
	oldest := k.end - t.age.Milliseconds()
	drop := max(0, len(t.ticks)-t.max)
	for drop < len(t.ticks) && t.ticks[drop].end <= oldest {
		drop++
	}
	// Cut in portions, so that not every sample moves all others.
	if drop > 0 && (drop >= 256 || len(t.ticks)-drop < t.max/2 || len(t.ticks) > t.max) {
		t.ticks = slices.Delete(t.ticks, 0, drop)
	}
	if t.files != nil {
		t.files.tick(h, k)
	}
}

// rewind lets go what is not before now: the clock was set back. What is left of the step of now is folded anew.
func (h *History) rewind(now int64) {
	back := false
	for _, t := range []*tier{&h.fine, &h.coarse} {
		for n := len(t.ticks); n > 0 && t.ticks[n-1].end >= now; n-- {
			t.ticks, back = t.ticks[:n-1], true
		}
	}
	if !back {
		return
	}
	h.bucket, h.folding = 0, newFold()
	end := stepEnd(now)
	for _, t := range h.fine.ticks {
		if stepEnd(t.end) == end {
			h.fold(t)
		}
	}
}

// stepEnd returns the end of the coarse step that has a time, which is its last one at the latest.
func stepEnd(at int64) int64 {
	step := CoarseStep.Milliseconds()
	return (at + step - 1) / step * step
}

// fold adds a fine tick to the coarse step of its time, and closes the one before.
func (h *History) fold(t tick) {
	end := stepEnd(t.end)
	if h.bucket != 0 && end != h.bucket {
		if k := h.folding.tick(h.view(), h.bucket, CoarseStep.Milliseconds()); k.span > 0 {
			h.limit(&k)
			h.push(&h.coarse, k)
		}
		h.folding = newFold()
	}
	h.bucket = end
	h.folding.add(h.view(), t)
}

func (t *tier) last() int64 {
	if len(t.ticks) == 0 {
		return 0
	}
	return t.ticks[len(t.ticks)-1].end
}

// each calls fn for the files of both tiers.
func (h *History) each(fn func(*files)) {
	for _, t := range []*tier{&h.fine, &h.coarse} {
		if t.files != nil {
			fn(t.files)
		}
	}
}

// Flush writes what is not in the folder yet; it does not wait for stable storage.
func (h *History) Flush() { h.flush(false) }

// Close writes all that is kept and waits until it is on stable storage.
func (h *History) Close() { h.flush(true) }

func (h *History) flush(closing bool) {
	h.io.Lock()
	defer h.io.Unlock()
	h.each(func(f *files) {
		h.mu.Lock()
		pending := f.take()
		h.mu.Unlock()
		line, failed := f.write(pending, closing)
		if line != "" {
			h.notice(line)
		}
		if failed {
			h.mu.Lock()
			f.fresh = true
			h.mu.Unlock()
		}
	})
}
