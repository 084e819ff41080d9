package handlers

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
)

// host is the array, as the daemon that runs it shows it to this door. Its methods
// are called from any goroutine that does not hold an executor of the array.
type host interface {
	// CheckVolume says what OpenVolume would say, without size and block size.
	CheckVolume(VolumeSpec) error
	// OpenVolume finds or makes a volume, and keeps other doors from it until release
	// is called. Its errors are sentences.
	OpenVolume(VolumeSpec) (u *scsi.Unit, info block.Info, release func(), err error)
	// ResizeVolume refuses to make a volume smaller.
	ResizeVolume(volume string, bytes uint64) error
}

// Array is the subtype "array": volumes of an arraysim array as devices of the
// kernel. A device that is removed leaves its volume, with its data, in the array.
//
// The kernel does not say which initiator sent a command. So all of them are one, "the
// fabric", for each copy domain; reservations and unit attentions that concern
// single initiators are the kernel's.
type Array struct {
	host  host
	log   *slog.Logger
	parse func(config string) (VolumeSpec, error)

	mu sync.Mutex // guards the maps; it may be locked with an executor held
	// What is in a domain is guarded by the executor of its target.
	domains map[domainKey]*domain
	served  map[string]bool // volumes that have had a device in this process
}

// NewArray makes the subtype. log may be nil.
func NewArray(h host, log *slog.Logger) *Array {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Array{host: h, log: log, parse: parseVolume, domains: map[domainKey]*domain{}, served: map[string]bool{}}
}

// Name implements tcmu.Subtype.
func (*Array) Name() string { return "array" }

// Describe implements tcmu.Subtype.
func (*Array) Describe() string { return describe }

// Check implements tcmu.Subtype: the syntax, the pool, and whether the volume is free.
func (a *Array) Check(config string) error {
	spec, err := a.parse(config)
	if err != nil {
		return err
	}
	return a.host.CheckVolume(spec)
}

// Open implements tcmu.Subtype.
func (a *Array) Open(d *tcmu.Device) (tcmu.Handler, error) {
	info := d.Info()
	spec, err := a.parse(info.Config)
	if err != nil {
		return nil, err
	}
	spec.Size, spec.BlockSize, spec.Resumed, spec.Owner = info.Size, info.BlockSize, info.Resumed, d.String()
	if err := spec.checkGeometry(); err != nil {
		return nil, err
	}
	su, v, release, err := a.host.OpenVolume(spec)
	if err != nil {
		return nil, err
	}
	if err := a.compare(spec, v); err != nil {
		release()
		return nil, err
	}
	u := newUnit(a, d, su, spec, release)
	u.setWriteThrough(info.Resumed && !info.WriteCache)
	u.exec.Lock()
	err = a.join(u, su)
	u.exec.Unlock()
	if err != nil {
		u.setWriteThrough(false)
		release()
		return nil, err
	}
	if !info.Resumed {
		// What the caching mode page says is to be read in the kernel's attribute too.
		if err := d.SetAttribute("attrib/emulate_write_cache", "1"); err != nil {
			a.log.Warn("the write cache attribute cannot be set", "device", spec.Owner, "error", err)
		}
	}
	go u.finisher()
	return u, nil
}

// compare holds what the kernel says of the device against the volume.
func (a *Array) compare(spec VolumeSpec, v block.Info) error {
	// The sentence goes into the log, its error number to who writes to configfs;
	// targetcli says only that the creation failed.
	if v.BlockSize != spec.BlockSize {
		return fmt.Errorf("volume %q has blocks of %d bytes; create the backstore with control=hw_block_size=%d: %w", spec.Volume, v.BlockSize, v.BlockSize, syscall.EMEDIUMTYPE)
	}
	size := v.Sectors << block.SectorShift
	if size == spec.Size {
		return nil
	}
	if spec.Resumed {
		// It was resized from the array's side. Initiators ask the unit, not the kernel.
		a.log.Warn("the kernel's size differs from the volume's", "device", spec.Owner, "kernel", spec.Size, "volume", size)
		return nil
	}
	return fmt.Errorf("volume %q exists and has %d bytes, not %d; create the backstore with size=%d: %w", spec.Volume, size, spec.Size, size, syscall.EEXIST)
}

// domainKey tells copy domains apart: those of one name at several targets are several, since a nexus is one of one target.
type domainKey struct {
	name   string
	target *scsi.Target
}

// domain is a copy domain: a nexus that sees its units, and they each other.
type domain struct {
	domainKey
	nexus *scsi.Nexus
	units []*unit // by LUN; nil is free
}

// The initiator's name has a slash, which no iSCSI name has: no host can take it.
func (m *domain) initiator() string { return "fabric/" + m.name }

// maxLUN is the largest LUN of flat space addressing (SAM-5 4.7.7.4).
const maxLUN = 1<<14 - 1

// domain finds a domain or makes it. The target's executor is held.
func (a *Array) domain(k domainKey) *domain {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.domains[k]
	if m == nil {
		m = &domain{domainKey: k}
		m.nexus = k.target.OpenFabricNexus(m.initiator())
		a.domains[k] = m
	}
	return m
}

// domainsOf lists the domains of one name, at whatever target.
func (a *Array) domainsOf(name string) (list []*domain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, m := range a.domains {
		if k.name == name {
			list = append(list, m)
		}
	}
	return list
}

// join makes su visible in u's domain. The executor is held.
func (a *Array) join(u *unit, su *scsi.Unit) error {
	m := a.domain(domainKey{u.spec.Domain, su.Target()})
	lun := slices.Index(m.units, nil)
	if lun < 0 {
		lun = len(m.units)
	}
	if lun > maxLUN {
		return fmt.Errorf("copy domain %q is full: %w", m.name, syscall.ENOSPC)
	}
	if err := m.target.Map(m.initiator(), uint16(lun), su); err != nil {
		return err
	}
	if lun == len(m.units) {
		m.units = append(m.units, nil)
	}
	u.domain, u.lun = m, wireLUN(lun)
	m.units[lun] = u
	m.calm()
	if a.heardPowerOn(u, su) {
		scsi.ClearAttentions(m.nexus, u.lun, scsi.AttentionPowerOn)
	}
	return nil
}

// leave undoes join. The executor is held, and u has no tasks.
func (a *Array) leave(u *unit) {
	m := u.domain
	lun := slices.Index(m.units, u)
	m.units[lun] = nil
	m.target.Unmap(m.initiator(), uint16(lun))
	m.calm()
	if !slices.ContainsFunc(m.units, func(u *unit) bool { return u != nil }) {
		a.mu.Lock()
		delete(a.domains, m.domainKey)
		a.mu.Unlock()
		m.nexus.Close(func() {})
	}
}

// calm takes from every unit of the domain the unit attention condition that a
// change of the LUNs has just raised, and no other: the kernel's own initiators see
// other LUNs, of which the kernel tells them.
func (m *domain) calm() {
	for _, u := range m.units {
		if u != nil {
			scsi.ClearAttentions(m.nexus, u.lun, scsi.AttentionLUNsChanged)
		}
	}
}

// heardPowerOn reports whether the initiators of u know that its unit was powered on: those of a new
// device have not been there before, and those of a device that outlived another process are to hear of
// it if that process's array has lost what it had acknowledged. The kernel cannot tell them.
func (a *Array) heardPowerOn(u *unit, su *scsi.Unit) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.served[u.spec.Volume]
	a.served[u.spec.Volume] = true
	return !u.spec.Resumed || before || su.Target().Options().Survived
}

func wireLUN(lun int) uint64 {
	if lun < 256 {
		return uint64(lun) << 48 // peripheral device addressing
	}
	return uint64(1<<14|lun) << 48
}

// Reconfigure implements tcmu.Reconfigurer.
func (u *unit) Reconfigure(c tcmu.Change) error {
	switch {
	case c.Size != nil:
		return u.array.host.ResizeVolume(u.spec.Volume, *c.Size)
	case c.WriteCache != nil:
		u.setWriteThrough(!*c.WriteCache)
	case c.Config != nil:
		spec, err := u.array.parse(*c.Config)
		if err != nil {
			return err
		}
		if spec.Pool != u.spec.Pool || spec.Volume != u.spec.Volume || spec.Domain != u.spec.Domain || spec.WriteProtect != u.spec.WriteProtect {
			return errors.New("a backstore keeps its volume, domain and write protection; create another one")
		}
	}
	return nil
}
