package hostcache

// lruStack gives the LRU stack distance of every reference: how many blocks a
// cache must hold to still have the one that is referenced (Mattson et al., IBM
// Systems Journal 1970). Positions grow with time; a Fenwick tree counts those in use.
type lruStack struct {
	at    map[Key]int32 // position of a block
	owner []Key         // block at a position
	used  []bool
	tree  []int32
	next  int32
	live  int32
}

func newStack() *lruStack {
	s := &lruStack{at: make(map[Key]int32)}
	s.grow(1024)
	return s
}

// grow lays positions out anew, without gaps, for twice as many as are in use.
func (s *lruStack) grow(size int32) {
	owner := make([]Key, 0, size)
	for p := range s.next {
		if s.used[p] {
			s.at[s.owner[p]] = int32(len(owner))
			owner = append(owner, s.owner[p])
		}
	}
	s.next = int32(len(owner))
	s.owner = owner[:size]
	s.used = make([]bool, size)
	s.tree = make([]int32, size+1)
	for p := range s.next {
		s.used[p] = true
		s.add(p, 1)
	}
}

func (s *lruStack) add(p, n int32) {
	for i := p + 1; int(i) < len(s.tree); i += i & -i {
		s.tree[i] += n
	}
}

// upTo counts the blocks at positions 0 to p.
func (s *lruStack) upTo(p int32) int32 {
	n := int32(0)
	for i := p + 1; i > 0; i &= i - 1 {
		n += s.tree[i]
	}
	return n
}

// touch is a reference: it returns the distance, from 1, or 0 for a block that is new.
func (s *lruStack) touch(k Key) int32 {
	d := int32(0)
	if p, ok := s.at[k]; ok {
		d = s.live - s.upTo(p) + 1
		s.clear(p)
	}
	if int(s.next) == len(s.owner) {
		s.grow(max(2*s.live, 1024))
	}
	s.at[k], s.owner[s.next], s.used[s.next] = s.next, k, true
	s.add(s.next, 1)
	s.next++
	s.live++
	return d
}

func (s *lruStack) clear(p int32) {
	s.used[p] = false
	s.add(p, -1)
	s.live--
}

// drop forgets a block.
func (s *lruStack) drop(k Key) {
	if p, ok := s.at[k]; ok {
		s.clear(p)
		delete(s.at, k)
	}
}
