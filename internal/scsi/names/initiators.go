// Initiators by name, however many ports and sessions they have. An initiator may call itself
// anything, so there is a bound; those beyond it are one.

package names

const (
	maxInitiators   = 1024
	otherInitiators = "(others)"
)

// Initiator is an initiator with the number that a target gave to it, from 1 on in the order in which
// it heard of them.
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
