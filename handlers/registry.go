// Package handlers has the kinds of device that arraysim gives the kernel through
// TCMU: what stands before the first slash of a configuration string, and what
// serves the commands.
package handlers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/tcmu"
)

// Registry is a set of subtypes. It is filled before it is used.
type Registry struct{ list []tcmu.Subtype }

// tcmuRunner are the subtypes of tcmu-runner, which takes every name that begins a
// configuration string of one of its own for it.
var tcmuRunner = []string{"fbo", "file", "glfs", "qcow", "rbd", "zbc"}

// Add adds a subtype. It fails when its name is taken, by another one or by tcmu-runner.
func (r *Registry) Add(st tcmu.Subtype) error {
	name := st.Name()
	for _, theirs := range tcmuRunner {
		if strings.HasPrefix(theirs, name) || strings.HasPrefix(name, theirs) {
			return fmt.Errorf("subtype %q is too similar to tcmu-runner's %q", name, theirs)
		}
	}
	for _, other := range r.list {
		if other.Name() == name {
			return fmt.Errorf("subtype %q already exists", name)
		}
	}
	r.list = append(r.list, st)
	return nil
}

// Subtypes returns what was added, in order.
func (r *Registry) Subtypes() []tcmu.Subtype { return slices.Clone(r.list) }
