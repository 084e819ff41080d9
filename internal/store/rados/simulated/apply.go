package simulated

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

var errFenced = fmt.Errorf("the client is blocklisted: %w", block.ErrFenced)

// apply carries out an operation as a whole: on an error nothing has changed.
func (c *Cluster) apply(name string, op *rados.Op) error {
	o := c.objects[name]
	if op.Reads() {
		return read(o, op)
	}
	grows, err := check(o, op)
	if err != nil {
		return err
	}
	if grows > 0 && c.opt.Capacity > 0 && c.used+grows > c.opt.Capacity {
		return fmt.Errorf("the pool is full: %w", block.ErrFull)
	}
	before := o.bytes()
	for i := range op.Steps {
		o = write(o, &op.Steps[i])
	}
	if c.used += o.bytes() - before; o == nil {
		delete(c.objects, name)
	} else {
		c.objects[name] = o
	}
	return nil
}

// check returns the error that an operation ends with before it changes anything, and about how much the
// object grows by it.
func check(o *object, op *rados.Op) (grows int, err error) {
	there := o != nil
	for i := range op.Steps {
		s := &op.Steps[i]
		switch s.Kind {
		case rados.Guard, rados.GuardAtMost:
			if err := guard(o, s); err != nil {
				return 0, err
			}
		case rados.Exists:
			if !there {
				return 0, rados.ErrNotFound
			}
		case rados.Create:
			if s.Exclusive && there {
				return 0, rados.ErrExists
			}
			there = true
		case rados.SetAttr:
			there = true
		case rados.Replace, rados.Write:
			there = true
			off := s.Off
			for _, b := range s.Data {
				grows += o.lacks(off, uint64(len(b)))
				off += uint64(len(b))
			}
		case rados.Zero:
		case rados.Remove:
			if i+1 < len(op.Steps) {
				panic("simulated: what RADOS makes of steps behind a removal is not known")
			}
			if !there {
				return 0, rados.ErrNotFound
			}
		case rados.OmapSet, rados.OmapRemove:
			if !there && s.Kind == rados.OmapRemove {
				return 0, rados.ErrNotFound
			}
			there = true
			for _, p := range s.Pairs {
				if strings.IndexByte(p.Key, 0) >= 0 {
					panic("simulated: a key with a 0 byte, which librados cuts off")
				}
				if s.Kind == rados.OmapSet {
					grows += len(p.Key) + len(p.Value)
					if old, ok := o.entry(p.Key); ok {
						grows -= len(p.Key) + len(old)
					}
				}
			}
		default:
			panic(fmt.Sprintf("simulated: a step of kind %d in an operation that writes", s.Kind))
		}
	}
	return grows, nil
}

// guard checks an attribute.
func guard(o *object, s *rados.Step) error {
	switch {
	case o == nil:
		return rados.ErrNotFound
	case s.Kind == rados.Guard && o.attrs[s.Name] != s.Value, s.Kind == rados.GuardAtMost && o.attrs[s.Name] > s.Value:
		return rados.ErrGuard
	}
	return nil
}

// write does a step and returns what the object is then, nil if it is not there.
func write(o *object, s *rados.Step) *object {
	switch s.Kind {
	case rados.Guard, rados.GuardAtMost, rados.Exists:
		return o
	case rados.Remove:
		return nil
	case rados.Zero:
		o.zero(s.Off, s.N)
		return o
	}
	if o == nil {
		o = &object{attrs: map[string]string{}, omap: map[string][]byte{}, chunks: map[uint64]*[chunkBytes]byte{}}
	}
	switch s.Kind {
	case rados.SetAttr:
		o.attrs[s.Name] = s.Value
	case rados.Replace:
		o.size, o.chunks = 0, map[uint64]*[chunkBytes]byte{}
		o.write(0, s.Data)
	case rados.Write:
		o.write(s.Off, s.Data)
	case rados.OmapSet, rados.OmapRemove:
		for _, p := range s.Pairs {
			if delete(o.omap, p.Key); s.Kind == rados.OmapSet {
				o.omap[p.Key] = bytes.Clone(p.Value)
			}
		}
	}
	return o
}

// read carries out an operation that reads.
func read(o *object, op *rados.Op) error {
	if o == nil {
		return rados.ErrNotFound
	}
	for i := range op.Steps {
		s := &op.Steps[i]
		switch s.Kind {
		case rados.Guard, rados.GuardAtMost:
			if err := guard(o, s); err != nil {
				return err
			}
		case rados.Read:
			s.N = o.read(s.Off, s.Buf)
		case rados.OmapGet:
			for k := range s.Pairs {
				v, ok := o.omap[s.Pairs[k].Key]
				if s.Pairs[k].Value = nil; ok {
					s.Pairs[k].Value = append([]byte{}, v...)
				}
			}
		case rados.OmapList:
			s.Pairs, s.More = nil, false
			for _, k := range slices.Sorted(maps.Keys(o.omap)) {
				if k <= s.After || !strings.HasPrefix(k, s.Prefix) {
					continue
				}
				if len(s.Pairs) == s.Max {
					s.More = true
					break
				}
				s.Pairs = append(s.Pairs, rados.Pair{Key: k, Value: append([]byte{}, o.omap[k]...)})
			}
		default:
			panic(fmt.Sprintf("simulated: a step of kind %d in an operation that reads", s.Kind))
		}
	}
	return nil
}
