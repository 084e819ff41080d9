//go:build rados && linux

package librados

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// slot is an operation under way, and what librados writes of it while it is: it is kept, and so stays
// where it is.
type slot struct {
	number     uintptr
	op         *rados.Op
	handle     uintptr // of the operation in C
	completion uintptr
	writes     bool
	cells      []cell // for each step
	data       []byte // what is in several pieces, as one
	result     int
	deliver    func()
}

// cell is what librados writes of a step.
type cell struct {
	read     uint64 // bytes
	iterator uintptr
	result   int32
	more     uint8
}

// takeSlot returns a slot for an operation.
func (c *client) takeSlot(op *rados.Op) *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s *slot
	if n := len(c.free); n > 0 {
		s = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		s = &slot{number: uintptr(len(c.slots))}
		s.deliver = func() { c.finish(s) }
		c.slots = append(c.slots, s)
	}
	c.flying++
	s.op = op
	if cap(s.cells) < len(op.Steps) {
		s.cells = make([]cell, len(op.Steps))
	}
	s.cells = s.cells[:len(op.Steps)]
	clear(s.cells)
	return s
}

// Submit starts an operation.
func (c *client) Submit(op *rados.Op) {
	l := &library
	s := c.takeSlot(op)
	s.writes = !op.Reads()
	if s.writes {
		s.handle, _, _ = purego.SyscallN(l.create_write_op)
	} else {
		s.handle, _, _ = purego.SyscallN(l.create_read_op)
	}
	for i := range op.Steps {
		if s.writes {
			s.write(&op.Steps[i])
		} else {
			s.read(i, &op.Steps[i])
		}
	}
	s.completion = 0
	call(l.aio_create_completion2, c.number<<slotBits|s.number, l.completed, uintptr(unsafe.Pointer(&s.completion)))
	name := text(op.Object)
	r := 0
	if s.writes {
		r = call(l.aio_write_op_operate, s.handle, c.io, s.completion, uintptr(unsafe.Pointer(name)), 0, fullTry)
	} else {
		r = call(l.aio_read_op_operate, s.handle, c.io, s.completion, uintptr(unsafe.Pointer(name)), 0)
	}
	if r < 0 { // it has not begun, and nobody calls back
		s.result = r
		c.queue(s.deliver)
	}
}

// write adds a step to an operation that writes. librados copies all that it is given.
func (s *slot) write(st *rados.Step) {
	l := &library
	name, value := unsafe.Pointer(text(st.Name)), []byte(st.Value)
	switch st.Kind {
	case rados.Guard, rados.GuardAtMost:
		call(l.write_op_cmpxattr, s.handle, uintptr(name), compare(st.Kind), uintptr(unsafe.Pointer(first(value))), uintptr(len(value)))
	case rados.Exists:
		call(l.write_op_assert_exists, s.handle)
	case rados.Create:
		exclusive := uintptr(0)
		if st.Exclusive {
			exclusive = 1
		}
		call(l.write_op_create, s.handle, exclusive, 0)
	case rados.SetAttr:
		call(l.write_op_setxattr, s.handle, uintptr(name), uintptr(unsafe.Pointer(first(value))), uintptr(len(value)))
	case rados.Write:
		b := s.joined(st.Data)
		call(l.write_op_write, s.handle, uintptr(unsafe.Pointer(first(b))), uintptr(len(b)), uintptr(st.Off))
	case rados.Replace:
		b := s.joined(st.Data)
		call(l.write_op_write_full, s.handle, uintptr(unsafe.Pointer(first(b))), uintptr(len(b)))
	case rados.Zero:
		call(l.write_op_zero, s.handle, uintptr(st.Off), uintptr(st.N))
	case rados.Remove:
		call(l.write_op_remove, s.handle)
	case rados.OmapSet:
		p := newPairs(st.Pairs, true)
		call(l.write_op_omap_set2, s.handle, uintptr(unsafe.Pointer(&p.keys[0])), uintptr(unsafe.Pointer(&p.values[0])),
			uintptr(unsafe.Pointer(&p.keyLens[0])), uintptr(unsafe.Pointer(&p.valueLens[0])), uintptr(len(st.Pairs)))
	case rados.OmapRemove:
		p := newPairs(st.Pairs, false)
		call(l.write_op_omap_rm_keys2, s.handle, uintptr(unsafe.Pointer(&p.keys[0])), uintptr(unsafe.Pointer(&p.keyLens[0])), uintptr(len(st.Pairs)))
	default:
		panic(fmt.Sprintf("librados: internal error: a step of kind %d in an operation that writes", st.Kind))
	}
}

// read adds a step to an operation that reads. Where its results go is the slot's, or the caller's until
// the operation has ended.
func (s *slot) read(i int, st *rados.Step) {
	l, cell := &library, &s.cells[i]
	switch st.Kind {
	case rados.Guard, rados.GuardAtMost:
		value := []byte(st.Value)
		call(l.read_op_cmpxattr, s.handle, uintptr(unsafe.Pointer(text(st.Name))), compare(st.Kind), uintptr(unsafe.Pointer(first(value))), uintptr(len(value)))
	case rados.Read:
		call(l.read_op_read, s.handle, uintptr(st.Off), uintptr(len(st.Buf)), uintptr(unsafe.Pointer(first(st.Buf))),
			uintptr(unsafe.Pointer(&cell.read)), uintptr(unsafe.Pointer(&cell.result)))
	case rados.OmapGet:
		p := newPairs(st.Pairs, false)
		call(l.read_op_omap_get_vals_by_keys2, s.handle, uintptr(unsafe.Pointer(&p.keys[0])), uintptr(len(st.Pairs)), uintptr(unsafe.Pointer(&p.keyLens[0])),
			uintptr(unsafe.Pointer(&cell.iterator)), uintptr(unsafe.Pointer(&cell.result)))
	case rados.OmapList:
		call(l.read_op_omap_get_vals2, s.handle, uintptr(unsafe.Pointer(text(st.After))), uintptr(unsafe.Pointer(text(st.Prefix))), uintptr(st.Max),
			uintptr(unsafe.Pointer(&cell.iterator)), uintptr(unsafe.Pointer(&cell.more)), uintptr(unsafe.Pointer(&cell.result)))
	default:
		panic(fmt.Sprintf("librados: internal error: a step of kind %d in an operation that reads", st.Kind))
	}
}

func compare(k rados.Kind) uintptr {
	if k == rados.Guard {
		return cmpEqual
	}
	return cmpGreaterOrEqual
}

// joined returns pieces as one.
func (s *slot) joined(data [][]byte) []byte {
	if len(data) == 1 {
		return data[0]
	}
	s.data = s.data[:0]
	for _, b := range data {
		s.data = append(s.data, b...)
	}
	return s.data
}

// pairs are entries as C wants them: addresses and lengths.
type pairs struct {
	keys, values       []*byte
	keyLens, valueLens []uint64
}

func newPairs(list []rados.Pair, values bool) *pairs {
	p := &pairs{keys: make([]*byte, len(list)), keyLens: make([]uint64, len(list))}
	if values {
		p.values, p.valueLens = make([]*byte, len(list)), make([]uint64, len(list))
	}
	for i := range list {
		p.keys[i], p.keyLens[i] = text(list[i].Key), uint64(len(list[i].Key))
		if values {
			p.values[i], p.valueLens[i] = first(list[i].Value), uint64(len(list[i].Value))
		}
	}
	return p
}

// completed is called by librados when an operation has ended.
func completed(_, arg uintptr) uintptr {
	c, number := of(arg)
	if c == nil {
		return 0
	}
	c.mu.Lock()
	s := c.slots[number]
	c.ended = append(c.ended, s.deliver)
	c.cond.Broadcast()
	c.mu.Unlock()
	return 0
}

// finish brings the results of an operation to who asked for it.
func (c *client) finish(s *slot) {
	l, op := &library, s.op
	if s.result == 0 {
		s.result = call(l.aio_get_return_value, s.completion)
	}
	op.Err = errorOf(s.result)
	for i := range op.Steps {
		s.collect(&op.Steps[i], &s.cells[i], op)
	}
	if s.writes {
		call(l.release_write_op, s.handle)
	} else {
		call(l.release_read_op, s.handle)
	}
	call(l.aio_release, s.completion)
	s.op, s.handle, s.completion, s.result = nil, 0, 0, 0
	if cap(s.data) > 1<<20 {
		s.data = nil
	}
	c.mu.Lock()
	c.free = append(c.free, s)
	c.flying--
	c.mu.Unlock()
	op.Done(op)
}

// collect takes what a step has read.
func (s *slot) collect(st *rados.Step, cell *cell, op *rados.Op) {
	if op.Err == nil && cell.result < 0 {
		op.Err = errorOf(int(cell.result))
	}
	switch {
	case st.Kind == rados.Read:
		st.N = cell.read
	case cell.iterator == 0 || op.Err != nil:
	case st.Kind == rados.OmapList:
		st.Pairs, st.More = nil, cell.more != 0
		entries(cell.iterator, func(key string, value []byte) { st.Pairs = append(st.Pairs, rados.Pair{Key: key, Value: value}) })
	case st.Kind == rados.OmapGet:
		for i := range st.Pairs {
			st.Pairs[i].Value = nil
		}
		entries(cell.iterator, func(key string, value []byte) {
			for i := range st.Pairs {
				if st.Pairs[i].Key == key {
					st.Pairs[i].Value = value
				}
			}
		})
	}
	if cell.iterator != 0 {
		call(library.omap_get_end, cell.iterator)
		cell.iterator = 0
	}
}

// entries walks through what an iterator has.
func entries(iterator uintptr, fn func(key string, value []byte)) {
	var key, value *byte
	var keyLen, valueLen uint64
	for {
		r := call(library.omap_get_next2, iterator, uintptr(unsafe.Pointer(&key)), uintptr(unsafe.Pointer(&value)),
			uintptr(unsafe.Pointer(&keyLen)), uintptr(unsafe.Pointer(&valueLen)))
		if r < 0 || key == nil {
			return
		}
		fn(string(unsafe.Slice(key, keyLen)), append([]byte{}, unsafe.Slice(value, valueLen)...))
	}
}
