package history

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
)

// load reads the segments of a tier, and goes on in the newest one where that is whole.
func (h *History) load(t *tier) {
	f := t.files
	list := f.segments()
	for _, n := range list {
		f.newest = n
		if len(list) > maxSegments && n <= list[len(list)-1]-2*maxSegments {
			os.Remove(f.path(n)) // of a tier that was larger
			continue
		}
		b, err := readSegment(f.path(n))
		if err != nil {
			h.notice(fmt.Sprintf("a part of the history of counters cannot be read: %v", err))
			continue
		}
		r := reader{h: h, t: t, local: map[uint64]uint32{}}
		good := r.all(b)
		if good < len(b) {
			h.notice(fmt.Sprintf("the history of counters in %s is damaged at byte %d of %d; what follows is dropped", f.path(n), good, len(b)))
		}
		f.ends[n] = r.last
		if n == list[len(list)-1] {
			f.resume(h, &r, good)
		}
	}
	for len(t.ticks) > 0 && t.ticks[0].end <= t.last()-t.age.Milliseconds() {
		t.ticks = t.ticks[1:]
	}
}

// readSegment reads a file that is no larger than a segment gets.
func readSegment(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > 2*maxSegment {
		return nil, fmt.Errorf("%s has %d bytes, which is too much for such a file", path, st.Size())
	}
	return os.ReadFile(path)
}

// resume goes on in a segment behind its last good record.
func (f *files) resume(h *History, r *reader, good int) {
	if !r.same {
		return // the next tick begins one with the fields of today
	}
	file, err := os.OpenFile(f.path(f.newest), os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		if err = file.Truncate(int64(good)); err != nil {
			file.Close()
		}
	}
	if err != nil {
		h.notice(fmt.Sprintf("a part of the history of counters cannot be continued: %v", err))
		return
	}
	f.file, f.fresh, f.size, f.begun, f.named = file, false, good, r.first, r.named
	for l, n := range r.local {
		f.local[n] = max(f.local[n], l)
	}
}

// reader takes the records of one segment into a tier.
type reader struct {
	h           *History
	t           *tier
	same        bool          // the segment has the fields of today
	head        header        // of the segment
	from        map[int][]int // by kind: for each field of today, its place in the segment's rows; -1: none
	width       map[int]int   // by kind: values of a row in the segment
	local       map[uint64]uint32
	named       uint64
	first, last int64 // ticks, ms
}

// all returns how many bytes of b are good.
func (r *reader) all(b []byte) int {
	at := 0
	for len(b)-at >= 8 {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if n == 0 || n > maxRecord || n > len(b)-at-8 {
			break
		}
		rec := b[at+8 : at+8+n]
		if crc32.Checksum(rec, castagnoli) != binary.LittleEndian.Uint32(b[at+4:]) || !r.record(rec) {
			break
		}
		at += 8 + n
	}
	return at
}

// record takes one record and reports whether it makes sense.
func (r *reader) record(b []byte) bool {
	c := cursor{b: b[1:], ok: true}
	if b[0] == recHeader {
		return r.from == nil && json.Unmarshal(c.b, &r.head) == nil && r.header()
	}
	if r.from == nil {
		return false
	}
	switch b[0] {
	case recObject:
		n := c.uint()
		i, known := r.h.kindOf[string(c.bytes(int(min(c.uint(), 64))))]
		if !c.ok || len(c.b) > 1024 {
			return false
		}
		r.named = max(r.named, n+1)
		if known {
			k := key{i, string(c.b)}
			now, ok := r.h.numbers[k]
			if !ok {
				now, ok = r.h.add(k)
			}
			if ok {
				r.local[n] = now
			}
		}
		return true
	case recBorn, recDied:
		n, at := c.uint(), c.int()
		if now, ok := r.local[n]; ok && c.ok {
			r.h.objects[now].note(b[0] == recBorn, at, r.last)
		}
		return c.ok
	case recID:
		n, id := c.uint(), c.uint()
		if now, ok := r.local[n]; ok && c.ok && id <= math.MaxUint32 {
			r.h.objects[now].id, r.h.objects[now].named = uint32(id), true
		}
		return c.ok
	case recTick:
		return r.tick(&c)
	}
	return true // of a later version
}

// note takes what a segment says of an object's life. A segment begins with those that last.
func (o *object) note(born bool, at, last int64) {
	var l *life
	if n := len(o.lives); n > 0 {
		l = &o.lives[n-1]
	}
	switch {
	case !born:
		if l != nil && l.died == alive && at >= l.born {
			l.died = at
		}
	case l == nil || l.died <= at:
		o.begin(at)
	case l.died == alive && l.born < at: // its end was not written: the process died
		l.died = min(max(last, l.born), at)
		o.begin(at)
	}
}

// header maps the fields of the segment to those of today.
func (r *reader) header() bool {
	if r.head.Version != fileVersion {
		return false
	}
	r.from, r.width, r.same = map[int][]int{}, map[int]int{}, len(r.head.Fields) == len(r.h.kinds)
	for i, k := range r.h.kinds {
		there := r.head.Fields[k.Name]
		r.width[i] = len(there)
		r.same = r.same && len(there) == len(k.Fields)
		for j, f := range k.Fields {
			at := slices.Index(there, f.Name)
			r.from[i] = append(r.from[i], at)
			r.same = r.same && at == j
		}
	}
	return true
}

func (r *reader) tick(c *cursor) bool {
	t := tick{end: int64(c.uint()), span: int64(c.uint()), omitted: int(c.uint())}
	rows := c.uint()
	if !c.ok || t.span <= 0 || t.end < t.span || rows > maxRecord {
		return false
	}
	for range rows {
		n, ok := r.local[c.uint()]
		if !ok {
			return false // its kind is not known today, or there are too many: the width is not known either
		}
		kind := r.h.objects[n].key.kind
		raw := c.bytes(4 * r.width[kind])
		if !c.ok {
			return false
		}
		v := make([]float32, len(r.from[kind]))
		for i, at := range r.from[kind] {
			v[i] = float32(math.NaN())
			if at >= 0 {
				v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:]))
			}
		}
		t.rows = append(t.rows, row{n, v})
	}
	for n := len(r.t.ticks); n > 0 && r.t.ticks[n-1].end >= t.end; n-- {
		r.t.ticks = r.t.ticks[:n-1] // the clock was set back
	}
	if len(r.t.ticks) >= 2*r.t.max {
		r.t.ticks = slices.Delete(r.t.ticks, 0, r.t.max)
	}
	r.t.ticks = append(r.t.ticks, t)
	if r.first == 0 {
		r.first = t.end
	}
	r.last = t.end
	return true
}

// cursor reads a record; ok is false behind its end.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b)
	return c.varint(v, n)
}

func (c *cursor) varint(v uint64, n int) uint64 {
	if n <= 0 {
		c.b, c.ok = nil, false
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) int() int64 {
	v, n := binary.Varint(c.b)
	return int64(c.varint(uint64(v), n))
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.ok = nil, false
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}
