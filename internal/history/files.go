package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A tier's folder has segments, named by rising numbers. A segment is a header and records, each with its
// length and checksum, and can be read without any other. What follows a damaged record is dropped.
const (
	maxSegment  = 4 << 20
	maxSegments = 8 // with maxSegment, the bound of a tier on disk
	maxRecord   = 1 << 20
	segmentName = ".log"
	// maxPending bounds what waits for a disk that takes nothing.
	maxPending  = 4 << 20
	fileVersion = 1
)

// Records, by their first byte. Numbers are varints, values float32, little endian.
const (
	recHeader = 'H' // JSON of header
	recObject = 'O' // number, kind, name: what the number means in this segment
	recBorn   = 'B' // number, ms
	recDied   = 'D' // number, ms
	recID     = 'I' // number, the user's number: earlier versions skip it
	recTick   = 'T' // end, span, omitted, number of rows; each a number and its values
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header says what the values of a segment's rows are.
type header struct {
	Version int                 `json:"version"`
	Fields  map[string][]string `json:"fields"` // by kind
}

// chunk is what goes into one segment.
type chunk struct {
	begins bool  // a new one
	last   int64 // end of the newest tick in it, ms
	b      []byte
}

// files are the segments of a tier. The first group is guarded by History.mu, the second by History.io.
type files struct {
	age, span time.Duration // of what is kept, and of one segment
	pending   []chunk
	waiting   int               // bytes in pending
	local     map[uint32]uint64 // what the newest segment calls objects
	named     uint64            // how many names it has given
	fresh     bool              // the next tick begins a segment
	begun     int64             // first tick of the newest segment, ms
	size      int               // of the newest segment, with what is pending

	dir     string
	file    *os.File
	newest  int           // number of the newest segment
	ends    map[int]int64 // end of the last tick of each segment, ms
	failing bool
}

func openFiles(dir string, age, span time.Duration) *files {
	return &files{age: age, span: span, dir: dir, local: map[uint32]uint64{}, fresh: true, ends: map[int]int64{}}
}

// record appends to the newest segment.
func (f *files) record(b []byte) {
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(b)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(b, castagnoli))
	c := &f.pending[len(f.pending)-1]
	c.b = append(append(c.b, head[:]...), b...)
	f.size += len(b) + len(head)
	f.waiting += len(b) + len(head)
}

// begin starts a segment that names what is alive.
func (f *files) begin(h *History, at int64) {
	f.pending = append(f.pending, chunk{begins: true, last: at})
	f.fresh, f.begun, f.size, f.named = false, at, 0, 0
	clear(f.local)
	head := header{Version: fileVersion, Fields: map[string][]string{}}
	for _, k := range h.kinds {
		for _, field := range k.Fields {
			head.Fields[k.Name] = append(head.Fields[k.Name], field.Name)
		}
	}
	b, _ := json.Marshal(head) // strings only
	f.record(append([]byte{recHeader}, b...))
	for n, o := range h.objects {
		if o != nil && len(o.lives) > 0 && o.lives[len(o.lives)-1].died == alive {
			f.life(recBorn, f.name(h, uint32(n)), o.lives[len(o.lives)-1].born)
		}
	}
}

// name returns what the newest segment calls an object, and says so there first.
func (f *files) name(h *History, n uint32) uint64 {
	if l, ok := f.local[n]; ok {
		return l
	}
	l := f.named
	f.local[n], f.named = l, l+1
	o := h.objects[n]
	k := o.key
	b := binary.AppendUvarint([]byte{recObject}, l)
	b = binary.AppendUvarint(b, uint64(len(h.kinds[k.kind].Name)))
	b = append(b, h.kinds[k.kind].Name...)
	f.record(append(b, k.name...))
	if o.named {
		f.identity(l, o.id)
	}
	// Who lives says so where he is born, and at the beginning of a segment. One that has died may still have a
	// step: without its life nobody would know when it was.
	if last := len(o.lives) - 1; last >= 0 && o.lives[last].died != alive {
		f.life(recBorn, l, o.lives[last].born)
		f.life(recDied, l, o.lives[last].died)
	}
	return l
}

func (f *files) life(kind byte, local uint64, at int64) {
	f.record(binary.AppendVarint(binary.AppendUvarint([]byte{kind}, local), at))
}

func (f *files) identity(local uint64, id uint32) {
	f.record(binary.AppendUvarint(binary.AppendUvarint([]byte{recID}, local), uint64(id)))
}

// identified says in the newest segment which object has a name now, if the segment has the name.
func (f *files) identified(n, id uint32) {
	if l, ok := f.local[n]; ok && f.open() {
		f.identity(l, id)
	}
}

// born and died say so in the newest segment; one that is to begin says it by itself.
func (f *files) born(h *History, n uint32, at int64) {
	if f.open() {
		f.life(recBorn, f.name(h, n), at)
	}
}

func (f *files) died(n uint32, at int64) {
	if l, ok := f.local[n]; ok && f.open() {
		f.life(recDied, l, at)
	}
}

// forget ends what a number means: another object may get it.
func (f *files) forget(n uint32) { delete(f.local, n) }

// open makes room for records of the newest segment, if there is one.
func (f *files) open() bool {
	if f.fresh {
		return false
	}
	if len(f.pending) == 0 {
		f.pending = append(f.pending, chunk{})
	}
	return true
}

// tick appends a tick, to a new segment where the newest is large or old.
func (f *files) tick(h *History, t tick) {
	if f.waiting > maxPending { // nobody takes it
		f.pending, f.waiting, f.fresh = nil, 0, true
	}
	if f.fresh || f.size > maxSegment || t.end-f.begun > f.span.Milliseconds() || t.end < f.begun {
		f.begin(h, t.end)
	}
	f.open()
	for _, r := range t.rows {
		f.name(h, r.object)
	}
	b := []byte{recTick}
	for _, v := range []int64{t.end, t.span, int64(t.omitted), int64(len(t.rows))} {
		b = binary.AppendUvarint(b, uint64(v))
	}
	for _, r := range t.rows {
		b = binary.AppendUvarint(b, f.local[r.object])
		for _, v := range r.values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	f.record(b)
	f.pending[len(f.pending)-1].last = t.end
}

// take hands over what is to be written.
func (f *files) take() []chunk {
	out := f.pending
	f.pending, f.waiting = nil, 0
	return out
}

// write appends chunks to segments and removes those that are too old. The line says what went wrong, once.
func (f *files) write(list []chunk, closing bool) (line string, failed bool) {
	err := f.append(list, closing)
	if err == nil && f.file == nil && !closing && len(list) > 0 {
		return "", true
	}
	if err == nil {
		f.failing = false
		return "", false
	}
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	// A segment that has nothing whole is none: a disk that is full for a while must not count as many of them.
	if _, some := f.ends[f.newest]; !some && f.newest > 0 {
		os.Remove(f.path(f.newest))
		f.newest--
	}
	if !f.failing {
		line = fmt.Sprintf("the history of counters cannot be written, and is kept only in memory: %v", err)
	}
	f.failing = true
	return line, true
}

func (f *files) append(list []chunk, closing bool) error {
	for _, c := range list {
		if c.begins {
			if err := f.next(); err != nil {
				return err
			}
		}
		if f.file == nil {
			continue // the rest of a segment that could not be written
		}
		if _, err := f.file.Write(c.b); err != nil {
			return err
		}
		f.ends[f.newest] = max(f.ends[f.newest], c.last)
		f.expire()
	}
	if !closing || f.file == nil {
		return nil
	}
	err := errors.Join(f.file.Sync(), f.file.Close())
	f.file = nil
	return err
}

// next begins a segment.
func (f *files) next() error {
	if f.file != nil {
		if err := f.file.Close(); err != nil {
			return err
		}
		f.file = nil
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	f.newest++
	var err error
	f.file, err = os.OpenFile(f.path(f.newest), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

func (f *files) path(n int) string {
	return filepath.Join(f.dir, fmt.Sprintf("%08d%s", n, segmentName))
}

// expire removes segments that nobody asks for any more.
func (f *files) expire() {
	now := f.ends[f.newest]
	for n, end := range f.ends {
		if n != f.newest && (end < now-f.age.Milliseconds() || n <= f.newest-maxSegments) {
			os.Remove(f.path(n)) // what stays is removed by the next start
			delete(f.ends, n)
		}
	}
}

// segments lists the numbers of those that are there, oldest first.
func (f *files) segments() []int {
	list, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var out []int
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), segmentName); ok {
			if n, err := strconv.Atoi(name); err == nil && n > 0 && n < math.MaxInt32 {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}
