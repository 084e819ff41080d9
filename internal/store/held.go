package store

// heldPage is the unit, in bytes, in which held transfers are found: two that touch the same one keep
// their order.
const heldPage = 4096

// keepPages is the number of pages whose table is kept when nothing is held any more.
const keepPages = 1024

// heldIndex finds the held transfers of an mdisk that a new one has to follow, in time that grows with
// the pages that it touches and with what it really follows, not with all that is held: the redo of a
// failed sync may hold 100,000. It belongs to the executor.
//
// A write follows the reads behind the last write of its page, and that write where there are none; a
// read follows the last write. What these follow themselves has ended before they have.
type heldIndex struct {
	pages  map[uint64]heldAt
	peak   int    // the most pages that the present table had
	number uint64 // of the transfer that was added last
	looked int    // at pages and transfers, since the beginning: what it costs, for tests
}

// heldAt is what is held of a page.
type heldAt struct {
	write ticket   // the last one; its x is nil when it has begun
	reads []ticket // behind that write: those that are held, and others
	live  int      // those that are held
}

// ticket is a transfer that is held, as long as that has this number.
type ticket struct {
	x      *xfer
	number uint64
}

func (t ticket) held() bool { return t.x != nil && t.x.number == t.number }

// pagesOf returns the first and the last page that a transfer touches.
func pagesOf(s span) (first, last uint64) {
	return s.off / heldPage, (max(s.off+1, s.end) - 1) / heldPage
}

// meets tells whether a new transfer has to follow one that is held.
func (h *heldIndex) meets(s span) bool {
	first, last := pagesOf(s)
	for p := first; p <= last; p++ {
		if e, ok := h.pages[p]; ok && (s.write && e.live > 0 || e.write.held()) {
			return true
		}
	}
	return false
}

// follow has a new transfer follow those that it has to.
func (h *heldIndex) follow(s span) {
	first, last := pagesOf(s)
	for p := first; p <= last; p++ {
		h.looked++
		switch e := h.pages[p]; {
		case s.write && e.live > 0:
			for _, t := range e.reads {
				h.looked++
				if t.held() {
					s.x.follow(t.x)
				}
			}
		case e.write.held():
			s.x.follow(e.write.x)
		}
	}
}

// add takes a transfer in that is held from now on.
func (h *heldIndex) add(s span) {
	if h.pages == nil {
		h.pages = map[uint64]heldAt{}
	}
	h.number++
	s.x.number = h.number
	t := ticket{s.x, h.number}
	first, last := pagesOf(s)
	for p := first; p <= last; p++ {
		h.looked++
		if s.write {
			h.pages[p] = heldAt{write: t}
			continue
		}
		e := h.pages[p]
		if len(e.reads) > 2*e.live+8 {
			kept := e.reads[:0]
			for _, t := range e.reads {
				h.looked++
				if t.held() {
					kept = append(kept, t)
				}
			}
			e.reads = kept
		}
		e.reads = append(e.reads, t)
		e.live++
		h.pages[p] = e
	}
	h.peak = max(h.peak, len(h.pages))
}

// remove takes a transfer out that is not held any more.
func (h *heldIndex) remove(s span) {
	number := s.x.number
	s.x.number = 0
	first, last := pagesOf(s)
	for p := first; p <= last; p++ {
		h.looked++
		e, ok := h.pages[p]
		switch {
		case !ok:
			continue
		case s.write && e.write.number == number:
			e.write.x = nil // its number stays, for those behind it
		case !s.write && number > e.write.number:
			if e.live--; e.live == 0 {
				e.reads = nil
			}
		default: // a later write has taken its place
			continue
		}
		if e.live == 0 && e.write.x == nil {
			delete(h.pages, p)
		} else {
			h.pages[p] = e
		}
	}
	if len(h.pages) == 0 && h.peak > keepPages { // a table never shrinks
		h.pages, h.peak = nil, 0
	}
}
