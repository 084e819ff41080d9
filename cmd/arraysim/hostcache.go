package main

import (
	"github.com/spf13/cobra"
)

func (a *app) hostcache() *cobra.Command {
	c := group("hostcache", "The caching layer of a host", "  arraysim hostcache advise vm.vscsi")
	c.AddCommand(a.advise(), a.hostcacheServe(), a.cachePolicy(), a.cacheStats(), a.cacheHisto(), a.cacheMap())
	return c
}
