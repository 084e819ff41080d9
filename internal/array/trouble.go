// What is changed of a running array from outside of its data path: its policy, and whether the
// write cache has its mirror. Each change ends a step, so that whoever may go on under the new
// rules does.

package array

// Changes of the hardware and of the policy while the array runs.

// SetPolicy changes the policy; what is dirty or waits comes under the new one.
func (a *Array) SetPolicy(pol Policy) error {
	pol.fill()
	if err := pol.Validate(); err != nil {
		return err
	}
	a.opt.Policy = pol
	a.engine.SetCopyLimits(pol.copies())
	a.engine.GaveAll()
	a.set.Placement = pol.placement()
	a.cache.SetPolicy(pol.cache(a.set.NameOf))
	a.engine.EndStep()
	return nil
}

// Policy returns the policy in force.
func (a *Array) Policy() Policy { return a.opt.Policy }

// SetMirrored reports whether the write cache has its mirror: whether both nodes of the
// I/O group are there. Without it what is dirty is destaged as fast as the mdisks take it, and
// new writes go through to the back end before they are acknowledged.
func (a *Array) SetMirrored(ok bool) {
	a.cache.SetMirrored(ok)
	a.engine.GaveAll()
	a.set.TellHealth()
	a.engine.EndStep()
}

// Mirrored reports whether the write cache has its mirror.
func (a *Array) Mirrored() bool { return a.cache.Mirrored() }
