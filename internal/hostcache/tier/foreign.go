package tier

import "fmt"

// What lies on a flash that is given to a cache as a peer's, and may be somebody else's.

// whose says what a flash is by its label.
func (l *label) whose() string {
	what, has := "the flash", "perhaps with dirty data"
	switch {
	case l.role == roleCopy:
		what = "a peer's copy"
	case l.state == labelClosed || l.flushed:
		has = "with nothing dirty"
	}
	return fmt.Sprintf("%s of cache %x of LUN %x, %s", what, l.cache, l.naa, has)
}

// had says what is on a flash that is about to be given up, "" if it is nothing.
func (m *member) had() string {
	switch {
	case m.found == labelOurs && m.label.state != labelVoid:
		return m.label.whose()
	case m.found == labelOld:
		return "a cache of a newer or older format"
	case m.found == labelDamaged:
		return "a cache with both copies of its label damaged"
	}
	return ""
}

// clearIt is how to mend it where a start cannot.
const clearIt = "give another one, or clear its first 8 KiB if nobody needs that"

// foreign says what of another cache is on a peer's flash, and how to mend it; "" if joining destroys nothing that somebody
// may look for. A cache that was stopped with nothing dirty is looked for, too: it is warm, and somebody has it configured.
func (d *Disk) foreign(m *member) string {
	l := &m.label
	mend := clearIt
	switch {
	case m.found == labelOld || m.found == labelDamaged:
	case m.found != labelOurs || l.state == labelVoid || l.cache == d.cache:
		return ""
	case l.role == roleOwn && l.state == labelClosed:
		mend = "give another one, or start with --format to give that up"
	case l.role == roleOwn:
		mend = "give another one, or start that cache and stop it, and then this one with --format"
	case l.naa == d.info.NAA:
		return ""
	}
	return fmt.Sprintf("it has %s; %s", m.had(), mend)
}

// judgeFormat refuses to begin anew where a copy would be left that could be taken for the newest, and where somebody else's
// dirty data would be given up.
func (d *Disk) judgeFormat() error {
	for _, p := range d.members[1:] {
		l := &p.label
		switch {
		case p.found == labelUnread:
			return fmt.Errorf("peer %s does not answer, and may have a copy of the data that a format gives up; start it, or leave it out", p.peer.Name)
		case p.found == labelOld || p.found == labelDamaged: // whose, and how much of it is dirty, nobody can tell
			return fmt.Errorf("peer %s has %s; %s", p.peer.Name, p.had(), clearIt)
		case p.found != labelOurs || l.state != labelMember:
		case l.role == roleOwn:
			return fmt.Errorf("peer %s has %s; give another one, or start that cache and stop it", p.peer.Name, l.whose())
		case l.naa != d.info.NAA && l.cache != d.local().label.cache:
			return fmt.Errorf("peer %s has %s; %s", p.peer.Name, l.whose(), clearIt)
		}
	}
	return nil
}

// leaveAlone does without the peers that have, or may have, something of another cache: to join would destroy it.
func (d *Disk) leaveAlone() {
	for _, m := range d.members[1:] {
		if m.state != memberSpare {
			continue
		}
		if m.alone = d.foreign(m); m.found == labelUnread {
			m.alone = "its label cannot be read"
		}
		if m.alone != "" {
			m.state = memberLost
			d.stats.PeersLost++
		}
	}
}

// ask reads the label of a peer's flash that is offered, and again when it is to be used: another host may have taken it meanwhile.
func (m *member) ask(use bool) {
	d := m.d
	m.state = memberAsked
	d.exec.Post(func() {
		if d.closed {
			return
		}
		m.readLabel(func() {
			if m.state == memberAsked { // not lost meanwhile
				m.state, m.asked = memberSpare, use
			}
			d.leaveAlone()
			d.review()
			d.pump()
		})
	})
}

// noteGivenUp notes what a format gives up, for whoever asked for it.
func (d *Disk) noteGivenUp() {
	for _, m := range d.members {
		name := "the flash device"
		if m.peer != nil {
			name = "peer " + m.peer.Name
		}
		if had := m.had(); had != "" {
			d.recovery.GivenUp = append(d.recovery.GivenUp, name+" had "+had)
		}
	}
}
