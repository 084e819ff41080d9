//go:build noparquet

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// profileFit says that it cannot fit: a first `make run` compiles what it needs to serve.
func (a *app) profileFit() *cobra.Command {
	return &cobra.Command{Use: "fit SOURCE...", Short: "Fit the parameters of a profile to measurements", Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("this arraysim was built without profile fit, to be ready sooner: run `make build`")
		}}
}
