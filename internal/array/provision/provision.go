// Package provision makes, changes and removes pools and volumes while an array serves. A change is
// checked, prepared so that nobody sees it, made durable by the directory, and only then carried
// out; on an error it is taken back, and all is as it was.
//
// # Concurrency
//
// Everything runs with the executor held. Calls return at once, and say later how they have ended.
package provision

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/array/directory"
	"github.com/arraysim/arraysim/internal/array/media"
	"github.com/arraysim/arraysim/internal/array/nvlog"
	"github.com/arraysim/arraysim/internal/array/pool"
	"github.com/arraysim/arraysim/internal/array/request"
)

// Manager is what changes of pools and volumes work with. It has no state of its own: what is under
// way is marked at the pool or the volume.
type Manager struct {
	Set     *pool.Set
	Engine  *request.Engine
	Objects *directory.Directory
	Media   *media.Maker // of mdisks
	Log     *nvlog.Log
	Flusher *nvlog.Flusher
	// CapPercent is the cap of a partition, in percent of the cache, by the number of pools, the
	// last for more.
	CapPercent []int
}

// refused says why the array takes no change that acts before it is durable, nil if it does. Of a
// broken one nobody knows what the next start finds, and what it may find needs its files. Other
// changes go on: each carries all objects, and settles the doubt when it is durable.
func (m *Manager) refused() error {
	if why := m.Engine.Broken(); why != "" {
		return fmt.Errorf("changes are refused: %s", why)
	}
	return nil
}
