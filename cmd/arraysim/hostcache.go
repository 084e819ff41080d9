package main

import (
	"github.com/spf13/cobra"
)

func (a *app) hostcache() *cobra.Command {
	c := group("hostcache", "Cache a LUN on a host's flash, and choose the size of such caches", "  arraysim hostcache advise vm.vscsi")
	c.AddCommand(a.advise(), a.hostcacheServe(), a.cachePolicy(), a.cacheStats(), a.cacheDrop(), a.cacheMigrate(), a.cacheHisto(), a.cacheMap())
	return c
}
