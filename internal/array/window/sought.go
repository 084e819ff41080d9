package window

import "github.com/arraysim/arraysim/internal/array/layout"

// Sought are physical sectors that somebody looks for in layers of windows.
type Sought struct {
	Places []Place
	Left   int // of these that were not found yet
}

// Place is where a volume has a physical sector.
type Place struct {
	Phys   uint64
	Found  bool
	Volume uint32 // the first that has it
	LBA    uint64 // the first sector of that volume which it is
}

// NewSought returns sectors in their order, none of which was found yet.
func NewSought(phys []uint64) Sought {
	s := Sought{Places: make([]Place, len(phys)), Left: len(phys)}
	for i, p := range phys {
		s.Places[i].Phys = p
	}
	return s
}

// Layer looks for them in a layer of the window of a volume that begins at sector start.
func (s *Sought) Layer(vol uint32, start, base uint64, mask layout.Mask) {
	for i := range s.Places {
		p := &s.Places[i]
		in := p.Phys - base
		if in >= layout.WindowSectors || !mask.Has(in) {
			continue
		}
		switch lba := start + in; {
		case !p.Found:
			p.Found, p.Volume, p.LBA = true, vol, lba
			s.Left--
		case p.Volume == vol:
			p.LBA = min(p.LBA, lba) // another layer of the same window
		}
	}
}
