package handlers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/tcmu"
)

// Reservations are the kernel's, which holds them against the commands of a unit's
// own initiators. An EXTENDED COPY reaches other units inside the array, past that.
// So their reservations are looked up in configfs before it. The ring does not say who
// sent the copy; but where the unit that got it is reserved too, it was one of its holders.

// name is a designator of a unit, as Device Identification shows it (SPC-5 7.7.6) and
// as CSCD descriptors repeat it. kind includes the association.
type name struct {
	codeSet, kind byte
	id            []byte
}

// conflictSense is COPY ABORTED, THIRD PARTY DEVICE FAILURE in fixed format.
var conflictSense = [18]byte{0: 0x70, 2: 0x0A, 7: 10, 12: 0x0D, 13: 0x01}

const (
	opExtendedCopy = 0x83
	maxCSCDs       = 64
	maxCopyList    = 48 + maxCSCDs*32 + 257*32 // what the unit takes, and a little more
)

// conflicts tells whether c is an EXTENDED COPY that a reservation of another unit
// forbids. (ODX reads and writes the unit that gets the command, where the kernel
// looks at it.)
func (u *unit) conflicts(c *tcmu.Command) bool {
	if c.CDB[0] != opExtendedCopy || c.CDB[1]&0x1F > 1 {
		return false
	}
	list := make([]byte, 0, maxCopyList)
	if u.dev.Guard(func() {
		for _, s := range c.Data {
			list = append(list, s[:min(len(s), maxCopyList-len(list))]...)
		}
	}) != nil {
		return true // nobody knows what it names
	}
	roles := copyRoles(list, c.CDB[1]&0x1F == 1)
	if len(roles) == 0 {
		return false
	}
	for i := range roles {
		o := u.named(roles[i].id)
		if o == nil || o == u {
			continue // the SCSI layer says what is wrong, the kernel has looked
		}
		if excluded(u.dev, o.dev, roles[i].written) {
			u.array.log.Warn("a copy meets a reservation of another unit", "device", u.dev.String(), "other", o.dev.String())
			return true
		}
	}
	return false
}

// named finds the unit of a name in the copy domain of u, or nil. The domain is one of each target, those of other I/O
// groups, too, because a copy reaches all of them. No executor is held.
func (u *unit) named(n name) *unit {
	for _, m := range u.array.domainsOf(u.spec.Domain) {
		var found *unit
		enter(m.target.Exec(), func() {
			i := slices.IndexFunc(m.units, func(o *unit) bool { return o != nil && o.isCalled(n) })
			if i >= 0 {
				found = m.units[i]
			}
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// isCalled reports whether a copy may call the unit by this name.
func (u *unit) isCalled(n name) bool {
	for _, d := range u.su.Names() {
		if d.CodeSet == n.codeSet && d.Type == n.kind && bytes.Equal(d.ID, n.id) {
			return true
		}
	}
	return false
}

// copyRole is what a parameter list wants of a unit.
type copyRole struct {
	id      name
	written bool
}

// copyRoles reads from a parameter list of EXTENDED COPY(LID1) (SPC-4 6.4.3) or (LID4)
// (6.4.4) which units its segments name. What is wrong with the list is for the SCSI
// layer to say.
func copyRoles(b []byte, lid4 bool) []copyRole {
	const cscdLen = 32
	be := binary.BigEndian
	head := 16
	if lid4 {
		head = 48
	}
	if len(b) < head {
		return nil
	}
	cscds := b[head:]
	n, k := int(be.Uint16(b[2:])), uint64(be.Uint32(b[8:]))
	if lid4 {
		n, k = int(be.Uint16(b[42:])), uint64(be.Uint16(b[44:]))
	}
	if n > len(cscds) {
		return nil
	}
	segments := cscds[n:]
	cscds = cscds[:n]
	if k < uint64(len(segments)) {
		segments = segments[:k]
	}
	var written [maxCSCDs]bool
	var used [maxCSCDs]bool
	for len(segments) >= 8 {
		if i := be.Uint16(segments[4:]); i < maxCSCDs {
			used[i] = true
		}
		if i := be.Uint16(segments[6:]); i < maxCSCDs {
			used[i], written[i] = true, true
		}
		segments = segments[min(len(segments), 4+int(be.Uint16(segments[2:]))):]
	}
	var roles []copyRole
	for i := 0; i < maxCSCDs && (i+1)*cscdLen <= len(cscds); i++ {
		d := cscds[i*cscdLen : (i+1)*cscdLen]
		if used[i] && d[0] == 0xE4 && d[7] <= 20 {
			roles = append(roles, copyRole{name{d[4] & 0x0F, d[5] & 0x3F, d[8 : 8+d[7]]}, written[i]})
		}
	}
	return roles
}

// lock is a reservation as configfs shows it.
type lock struct {
	// unknown: there may be one, and more parties than these.
	unknown bool
	// writesOnly: others may read.
	writesOnly bool
	// parties may do everything, as the kernel writes them: fabric, initiator, ISID.
	parties []string
}

// longestRegistrant bounds a line of the list of registrants: the kernel prints it into so many bytes.
const longestRegistrant = 384

// lockOf reads the reservation of a device, nil if it has none. Kernels without reservations for such
// devices have no such file. The kernel lists registrants in one page, and leaves those out, without a
// word, from the first on that has no room: a list that the next one might not have fitted into is not
// taken for whole.
func lockOf(d *tcmu.Device) *lock {
	holder, err := d.Attribute("pr/res_holder")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &lock{unknown: true}
	}
	_, party, ok := strings.Cut(holder, "Reservation: ")
	if !ok {
		return nil
	}
	kind, err := d.Attribute("pr/res_pr_type")
	l := &lock{unknown: err != nil, writesOnly: strings.Contains(kind, "Write Exclusive"), parties: []string{initiatorOf(party, " Initiator: ")}}
	if strings.Contains(kind, "Registrants") { // Registrants Only, All Registrants
		list, err := d.Attribute("pr/res_pr_registered_i_pts")
		l.unknown = err != nil || len(list) > os.Getpagesize()-1-longestRegistrant
		l.parties = l.parties[:0]
		for line := range strings.Lines(list) {
			if line, _, ok := strings.Cut(line, " Key: "); ok {
				l.parties = append(l.parties, initiatorOf(line, " Node: "))
			}
		}
	}
	return l
}

// initiatorOf makes the same of "iSCSI Initiator: iqn..." and "iSCSI Node: iqn...".
func initiatorOf(text, between string) string {
	fabric, name, _ := strings.Cut(strings.TrimSpace(text), between)
	return fabric + " " + name
}

// excluded tells whether a copy that the kernel let through to u must not touch another unit, o.
// Where u is reserved, one of those who hold that reservation has sent the copy.
func excluded(u, o *tcmu.Device, write bool) bool {
	l := lockOf(o)
	if l == nil || l.writesOnly && !write {
		return false
	}
	own := lockOf(u)
	if own == nil || own.unknown || len(own.parties) == 0 {
		return true // anybody may have sent it
	}
	return slices.ContainsFunc(own.parties, func(p string) bool { return !slices.Contains(l.parties, p) })
}
