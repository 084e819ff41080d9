package sim

import (
	"errors"
	"fmt"
)

// What the numbers of a scenario may be. Above, a run would need memory without end, would never end, or would send something
// else than it says, since fields of commands have no room for it.
const (
	maxAtOnce  = 1 << 20 // commands, users, processors
	maxObjects = 1 << 16 // volumes, pools or mdisks of one entry
	maxRanges  = 4095    // of an UNMAP, whose list has a length of 16 bits
	maxPiece   = 16 << 20
	pieceStep  = 4096 // of what a host moves: whole blocks of any volume
	minFactor  = 0.001
	maxFactor  = 1e6
	// Weights are bounded, and a larger deviation is as if it were this one.
	maxDeviation = 100
)

// fraction tells whether x goes from 0 to 1, which what is no number does not.
func fraction(x float64) bool { return x >= 0 && x <= 1 }

// checkCounts looks at how many objects an array has.
func (a *ArraySpec) checkCounts() error {
	count := func(what, name string, n int) error {
		if n < 0 || n > maxObjects {
			return fmt.Errorf("%s %s has a count of %d; give up to %d", what, name, n, maxObjects)
		}
		return nil
	}
	var all []error
	for i := range a.Pools {
		p := &a.Pools[i]
		all = append(all, count("pool", p.Name, p.Count), p.checkMdisks())
	}
	for i := range a.Volumes {
		all = append(all, count("volume", a.Volumes[i].Name, a.Volumes[i].Count))
	}
	for _, err := range all { // the first is a line
		if err != nil {
			return fmt.Errorf("array %s: %w", a.Name, err)
		}
	}
	return nil
}

// checkMdisks looks at a pool's mdisks.
func (p *PoolSpec) checkMdisks() error {
	if len(p.Mdisks) == 0 {
		return fmt.Errorf("pool %s has no mdisks; add some", p.Name)
	}
	for _, m := range p.Mdisks {
		if m.Count < 0 || m.Count > maxObjects {
			return fmt.Errorf("pool %s has a count of %d mdisks; give up to %d", p.Name, m.Count, maxObjects)
		}
	}
	return nil
}

// checkMover looks at what a host moves at a time.
func (h *HostSpec) checkMover() error {
	switch m := &h.Mover; {
	case m.Size%pieceStep != 0 || m.Size > maxPiece:
		return fmt.Errorf("mover.size is %s; give a multiple of 4096 up to 16 MiB", m.Size)
	case m.Outstanding < 1 || m.Outstanding > maxAtOnce:
		return fmt.Errorf("mover.outstanding is %d; give 1 to %d", m.Outstanding, maxAtOnce)
	case h.VAAI.MaxTransfer%pieceStep != 0:
		return fmt.Errorf("MaxHWTransferSize is %s; give a multiple of 4096", h.VAAI.MaxTransfer)
	case h.VAAI.Largest%pieceStep != 0:
		return fmt.Errorf("max_transfer_size is %s; give a multiple of 4096", h.VAAI.Largest)
	}
	return nil
}

// checkNumbers looks at those of a job of any kind.
func (j *JobSpec) checkNumbers() error {
	switch {
	case j.Outstanding < 0:
		return fmt.Errorf("outstanding is %d; give 1 or more", j.Outstanding)
	case j.Outstanding > maxAtOnce:
		return fmt.Errorf("outstanding is %d; give up to %d", j.Outstanding, maxAtOnce)
	case j.Ranges < 0 || j.Ranges > maxRanges:
		return fmt.Errorf("ranges is %d; an UNMAP has up to %d", j.Ranges, maxRanges)
	case j.Laps < 0 || j.Laps > maxAtOnce:
		return fmt.Errorf("laps is %d; give up to %d", j.Laps, maxAtOnce)
	case j.Kind == "unmap" && (j.IO%512 != 0 || j.IO > 1<<40):
		return fmt.Errorf("io, which is one range of the unmap, is %s; give a multiple of 512 up to 1 TiB", j.IO)
	case j.Trace.Depth < 0 || j.Trace.Depth > maxAtOnce:
		return fmt.Errorf("trace.depth is %d; give up to %d", j.Trace.Depth, maxAtOnce)
	case !(j.Trace.Speed == 0 || j.Trace.Speed >= minFactor && j.Trace.Speed <= maxFactor):
		return fmt.Errorf("trace.speed is %g; give 0, or %g to %g", j.Trace.Speed, minFactor, float64(maxFactor))
	}
	return nil
}

// checkWork looks at what a job zeroes, copies or unmaps: whole blocks of its volume.
func (j *JobSpec) checkWork(v *volume) error {
	bs := Size(v.info.BlockSize)
	for _, x := range []struct {
		name string
		size Size
	}{{"size", j.Size}, {"skew", j.Skew}, {"io", j.IO}} {
		if x.size%bs != 0 {
			return fmt.Errorf("%s is %s, and the blocks of volume %s are of %d bytes; give a multiple of that", x.name, x.size, v.name, bs)
		}
	}
	return nil
}

// checkSpread refuses settings of a load's rates and addresses that would have no effect.
func (s *Load) checkSpread() error {
	switch {
	case s.RateMax != 0 && s.RateMax < s.Rate:
		return fmt.Errorf("rate_max is %g, below the rate of %g; give more, or leave it out", s.RateMax, s.Rate)
	case !(s.LogNormal >= 0 && s.LogNormal <= maxDeviation):
		return fmt.Errorf("lognormal is %g; give 0 to %d", s.LogNormal, maxDeviation)
	case s.LogNormal > 0 && !s.Total:
		return errors.New("lognormal divides the rate of a group; add total: true, or leave it out")
	case s.Hot != nil && s.Pattern == "sequential":
		return errors.New("a sequential load has no hot span; leave hot out, or make it random")
	}
	return nil
}

// checkUsers looks at who runs transactions, and on what.
func (t *Transactions) checkUsers() error {
	switch {
	case t.Users < 1 || len(t.Steps) == 0 || t.CPUs < 0:
		return errors.New("transactions need users and steps")
	case t.Users > maxAtOnce:
		return fmt.Errorf("users is %d; give 1 to %d", t.Users, maxAtOnce)
	case t.CPUs > maxAtOnce:
		return fmt.Errorf("cpus is %d; give up to %d", t.CPUs, maxAtOnce)
	}
	return nil
}
