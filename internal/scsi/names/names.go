// Package names has the names and addresses of SCSI devices and ports: designators of units, SCSI
// name strings, names of iSCSI initiator ports with their TransportIDs, numbers of initiators, and
// LUNs. Copies find units by them
// and registrations find ports, so each name has one canonical form, and two that a standard calls
// equal are equal as bytes.
package names

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Designator is one designation descriptor (SPC-5 7.7.6.1).
type Designator struct {
	CodeSet     byte // 1 binary, 2 ASCII, 3 UTF-8
	association byte // 0 logical unit, 1 target port, 2 target device
	Type        byte
	ID          []byte
}

// Designator types.
const (
	designT10      = 1
	designEUI64    = 2
	designNAA      = 3
	designPort     = 4 // relative target port identifier
	designGroup    = 5 // target port group
	designName     = 8 // SCSI name string
	protocolISCSI  = 5
	t10IdentBytes  = 12 // so that vendor and identifier fit a CSCD descriptor
	designatorPIV  = 0x80
	associatePort  = 1
	associateWhole = 2
)

// AppendTo adds the descriptor; iscsi says that what is no name of the unit is one of an iSCSI port
// or device.
func (d *Designator) AppendTo(b []byte, iscsi bool) []byte {
	first, second := d.CodeSet, d.association<<4|d.Type
	if d.association != 0 && iscsi {
		first |= protocolISCSI << 4
		second |= designatorPIV
	}
	return append(append(b, first, second, 0, byte(len(d.ID))), d.ID...)
}

// UnitDesignators returns the names of a unit by its NAA-6 name, its serial number and its vendor.
// EXTENDED COPY finds a unit by each of them. The EUI-64 and NAA-3 names are derived from the NAA-6
// name.
func UnitDesignators(naa [16]byte, serial, vendor string) []Designator {
	h := fnv.New64a()
	h.Write(naa[:])
	sum := h.Sum64()
	eui := binary.BigEndian.AppendUint64(nil, sum)
	oui := binary.BigEndian.Uint32(naa[:]) << 4 >> 8 // NAA-6: 4 bits of type, then the OUI
	eui[0], eui[1], eui[2] = byte(oui>>16), byte(oui>>8), byte(oui)
	naa3 := binary.BigEndian.AppendUint64(nil, 3<<60|sum>>4)
	ident := serial
	if len(ident) > t10IdentBytes || ident == "" {
		ident = fmt.Sprintf("%012x", sum>>16)
	}
	return []Designator{
		{1, 0, designNAA, append([]byte(nil), naa[:]...)},
		{2, 0, designT10, append(Pad(vendor, 8), ident...)},
		{1, 0, designEUI64, eui},
		{1, 0, designNAA, naa3},
	}
}

// PortDesignators returns the names of a target port, its group and its device. iscsi adds those
// that are names of iSCSI.
func PortDesignators(device string, port, group uint16, iscsi bool) []Designator {
	be := binary.BigEndian
	list := []Designator{
		{1, associatePort, designPort, be.AppendUint16([]byte{0, 0}, port)},
		{1, associatePort, designGroup, be.AppendUint16([]byte{0, 0}, group)},
	}
	if !iscsi {
		return list
	}
	return append(list,
		Designator{3, associatePort, designName, nameString(fmt.Sprintf("%s,t,0x%04x", device, port))},
		Designator{3, associateWhole, designName, nameString(device)})
}

// nameString ends a SCSI name string with a NUL and fills it to a multiple of 4
// (SPC-5 7.7.6.12).
func nameString(s string) []byte {
	b := append([]byte(s), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// Pad returns s in n characters, filled with spaces (SPC-5 4.3.1).
func Pad(s string, n int) []byte {
	b := make([]byte, 0, max(n, len(s)))
	for i := range s {
		if n == 0 {
			s = s[:i]
			break
		}
		n--
	}
	b = append(b, s...)
	for ; n > 0; n-- {
		b = append(b, ' ')
	}
	return b
}

// isidMark parts the initiator's name from the ISID in the name of an iSCSI initiator port (RFC
// 7143 4.2.7.3).
const (
	isidMark   = ",i,0x"
	isidDigits = 12
)

// CanonicalPort returns the form in which names of initiator ports are compared: the ISID is a
// number, so it has twelve digits whatever the initiator wrote. ok is false for what is no name of
// an iSCSI port.
func CanonicalPort(port string) (name string, ok bool) {
	at := len(port) - len(isidMark)
	for ; at > 0 && !strings.EqualFold(port[at:at+len(isidMark)], isidMark); at-- {
	}
	if at <= 0 {
		return port, false
	}
	isid, err := strconv.ParseUint(port[at+len(isidMark):], 16, 48)
	if err != nil {
		return port, false
	}
	return fmt.Sprintf("%s%s%0*x", port[:at], isidMark, isidDigits, isid), true
}

// TransportID is the iSCSI TransportID of an initiator port (SPC-5 7.6.4.6).
func TransportID(port string) []byte {
	const minName = 20
	name := nameString(port)
	for len(name) < minName {
		name = append(name, 0, 0, 0, 0)
	}
	b := binary.BigEndian.AppendUint16([]byte{1<<6 | protocolISCSI, 0}, uint16(len(name)))
	return append(b, name...)
}

// ParseTransportID reads an iSCSI TransportID (SPC-5 7.6.4.6) at the beginning of b
// and returns the name of the port, and how long it is. One that names a device
// and no port (format 00b) is not taken: registrations are of ports. Nor is one whose initiator
// cannot log in by its name: what is registered is saved, so peers must not choose how long it is.
func ParseTransportID(b []byte) (port string, size int, ok bool) {
	const portFormat = 1
	if len(b) < 4 || b[0]&0x0F != protocolISCSI || b[0]>>6 != portFormat {
		return "", 0, false
	}
	size = 4 + int(binary.BigEndian.Uint16(b[2:]))
	if size > len(b) || size%4 != 0 {
		return "", 0, false
	}
	name, _, _ := strings.Cut(string(b[4:size]), "\x00")
	port, ok = CanonicalPort(name)
	if !ok || CheckISCSI(port[:len(port)-len(isidMark)-isidDigits]) != nil {
		return "", 0, false
	}
	return strings.ToLower(port), size, true
}

// Initiators may call themselves anything, so there is a bound; those beyond it are one.
const (
	maxInitiators   = 1024
	otherInitiators = "(others)"
)

// Initiator is an initiator by name, however many ports and sessions it has, with the number that a
// target gave to it, from 1 on in the order in which it heard of them.
type Initiator struct {
	ID   uint32
	Name string
}

// Initiators are those that a target has heard of.
type Initiators struct {
	known int
	by    map[string]*Initiator
}

// Named returns the initiator of a name, which gets its number now if it is new.
func (all *Initiators) Named(name string) *Initiator {
	i := all.by[name]
	if i == nil && all.known >= maxInitiators {
		name = otherInitiators
		i = all.by[name]
	}
	if i == nil {
		if all.by == nil {
			all.by = make(map[string]*Initiator)
		}
		all.known++
		i = &Initiator{ID: uint32(all.known), Name: name}
		all.by[name] = i
	}
	return i
}
