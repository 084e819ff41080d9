package simulated

const chunkBytes = 4096

// object is sparse: what has no chunk is zeros.
type object struct {
	size   uint64
	chunks map[uint64]*[chunkBytes]byte
	attrs  map[string]string
	omap   map[string][]byte
}

// bytes is what the object takes of the pool.
func (o *object) bytes() int {
	if o == nil {
		return 0
	}
	n := len(o.chunks) * chunkBytes
	for k, v := range o.omap {
		n += len(k) + len(v)
	}
	return n
}

// entry returns an entry of the ordered map.
func (o *object) entry(key string) (value []byte, ok bool) {
	if o != nil {
		value, ok = o.omap[key]
	}
	return value, ok
}

// lacks returns how many bytes of chunks a write adds.
func (o *object) lacks(off, n uint64) (bytes int) {
	for i := off / chunkBytes; n > 0 && i <= (off+n-1)/chunkBytes; i++ {
		if o == nil || o.chunks[i] == nil {
			bytes += chunkBytes
		}
	}
	return bytes
}

func (o *object) write(off uint64, data [][]byte) {
	for _, b := range data {
		for len(b) > 0 {
			c := o.chunks[off/chunkBytes]
			if c == nil {
				c = new([chunkBytes]byte)
				o.chunks[off/chunkBytes] = c
			}
			n := copy(c[off%chunkBytes:], b)
			b, off = b[n:], off+uint64(n)
		}
	}
	o.size = max(o.size, off)
}

// read fills b and returns how many bytes there are.
func (o *object) read(off uint64, b []byte) uint64 {
	if off >= o.size {
		return 0
	}
	b = b[:min(uint64(len(b)), o.size-off)]
	total := uint64(len(b))
	for len(b) > 0 {
		n := min(len(b), int(chunkBytes-off%chunkBytes))
		if c := o.chunks[off/chunkBytes]; c != nil {
			copy(b[:n], c[off%chunkBytes:])
		} else {
			clear(b[:n])
		}
		b, off = b[n:], off+uint64(n)
	}
	return total
}

// zero zeroes. An OSD makes it a truncation where it goes up to the end.
func (o *object) zero(off, n uint64) {
	if o == nil || off >= o.size || n == 0 {
		return
	}
	if n >= o.size-off {
		n, o.size = o.size-off, off
	}
	for n > 0 {
		in := off % chunkBytes
		k := min(n, chunkBytes-in)
		if c := o.chunks[off/chunkBytes]; k == chunkBytes {
			delete(o.chunks, off/chunkBytes)
		} else if c != nil {
			clear(c[in : in+k])
		}
		off, n = off+k, n-k
	}
}
