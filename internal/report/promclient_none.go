//go:build noparquet

package report

import (
	"context"
	"errors"
)

// fromPrometheus says that there is no client: a first `make run` compiles what it needs to serve.
func fromPrometheus(context.Context, string, Options) (*Data, error) {
	return nil, errors.New("this arraysim was built without a client for Prometheus, to be ready sooner: run `make build`, or give a file of its answers")
}
