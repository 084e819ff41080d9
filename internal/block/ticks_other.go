//go:build !amd64

package block

func ticks() uint64 { return 0 }

func ticksSteady() bool { return false }
