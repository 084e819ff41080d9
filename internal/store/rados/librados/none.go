//go:build !rados || !linux

package librados

import (
	"fmt"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// Available reports why nothing can be connected to.
func Available() error {
	return fmt.Errorf("%w in this program: use arraysim-rados, which  make build-rados  builds", ErrMissing)
}

// Connect fails.
func Connect(Config) (rados.Cluster, error) { return nil, Available() }
