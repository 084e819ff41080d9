// The roots that a start finds, until their maps take them.

package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/arraysim/arraysim/internal/array/window"
)

// Roots are the roots of maps by volume. They are made with make.
type Roots map[uint32][]byte

// Add takes an entry with RootPrefix. It copies the value.
func (r Roots) Add(key, value []byte) error {
	vol, ok := RootVolume(key, value)
	if !ok {
		return fmt.Errorf("the root of a map is damaged")
	}
	r[vol] = append([]byte(nil), value...)
	return nil
}

// ErrRoot says that the root of a map means nothing.
var ErrRoot = errors.New("the root of the map is damaged")

// Take returns the root of a volume, which is not among them any more; found is false if there is none.
func (r Roots) Take(vol uint32) (root window.Slot, levels uint8, found bool, err error) {
	b := r[vol]
	if b == nil {
		return 0, 0, false, nil
	}
	delete(r, vol)
	root, levels, ok := DecodeRoot(b)
	if !ok {
		return 0, 0, true, ErrRoot
	}
	return root, levels, true, nil
}

// Volumes returns whose roots there are, in order.
func (r Roots) Volumes() []uint32 { return slices.Sorted(maps.Keys(r)) }
