package demand

// Pins are leaves that do not leave: those that somebody waits for, or needs when he has what he waits for.
// The zero value has none. They belong to one table at a time.
type Pins struct {
	table *Table
	at    int // place in the table's list
	list  []span
}

// span is leaves of a volume, the last one included.
type span struct {
	volume      uint32
	first, last uint64
}

// Keep adds leaves of a volume, the last one included.
func (t *Table) Keep(p *Pins, volume uint32, first, last uint64) {
	if len(p.list) == 0 {
		p.table, p.at = t, len(t.pins)
		t.pins = append(t.pins, p)
	}
	p.list = append(p.list, span{volume, first, last})
}

// Release lets all of them leave.
func (p *Pins) Release() {
	if len(p.list) == 0 {
		return
	}
	t, last := p.table, len(p.table.pins)-1
	t.pins[p.at] = t.pins[last]
	t.pins[p.at].at = p.at
	t.pins[last] = nil
	t.pins = t.pins[:last]
	p.list = p.list[:0]
}

// Empty reports whether no leaf is kept.
func (p *Pins) Empty() bool { return len(p.list) == 0 }

// Kept returns how many have leaves kept for them.
func (t *Table) Kept() int { return len(t.pins) }
