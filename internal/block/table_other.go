//go:build !linux

package block

import "unsafe"

func adviseHuge(unsafe.Pointer, uintptr) {}
