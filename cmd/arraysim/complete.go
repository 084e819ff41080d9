package main

import (
	"github.com/spf13/cobra"
)

func (a *app) completeVolumes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		vols, _ := a.client().Volumes(cmd.Context())
		for _, v := range vols {
			names = append(names, v.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completePools(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	pools, _ := a.client().Pools(cmd.Context())
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completePoolArg(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completePools(cmd, args, s)
}
