// Package threshold has the thin provisioning soft threshold: how full the pool of a unit is, in
// threshold sets, and whether it has just become fuller than that.
package threshold

// Soft is the part of the pool, in percent, that the thin provisioning soft threshold allows to be
// used.
const Soft = 80

// exponentOfSectors is log2 of the sectors of a threshold set: 4 MiB.
const exponentOfSectors = 13

// provisioner is a device that knows how full the pool is that it is allocated
// from, in sectors.
type provisioner interface {
	Provisioning() (used, available uint64)
}

// Pool is what is known of the pool of a device. The zero value knows nothing.
type Pool struct {
	of   provisioner
	over bool // its use is above the soft threshold
}

// Of returns the pool of a device, if that knows it.
func Of(device any) Pool {
	of, _ := device.(provisioner)
	return Pool{of: of}
}

// Exponent makes the threshold set of a unit 4 MiB, which has blocks of 1<<shift sectors: the unit of
// the counts in the logical block provisioning pages (SBC-4 6.6.7). 0 is a unit without thresholds.
func (p *Pool) Exponent(shift uint8) byte {
	if p.of == nil {
		return 0
	}
	return exponentOfSectors - shift
}

// Sets returns used and available threshold sets of the pool.
func (p *Pool) Sets() (used, available uint32, ok bool) {
	if p.of == nil {
		return 0, 0, false
	}
	a, b := p.of.Provisioning()
	return uint32(min(a>>exponentOfSectors, 1<<32-1)), uint32(min(b>>exponentOfSectors, 1<<32-1)), true
}

// Crossed looks how full the pool is, and reports whether it has become fuller than the soft
// threshold: once, until it falls below again.
func (p *Pool) Crossed() bool {
	if p.of == nil {
		return false
	}
	used, available := p.of.Provisioning()
	was := p.over
	p.over = used*100 >= (used+available)*Soft
	return p.over && !was
}
