package handlers

import (
	"fmt"
	"log/slog"
	"strconv"
)

// HostCache is the subtype "hostcache": the LUN that a host's cache serves, as a
// device of the kernel. Its configuration string is the LUN's number; size and
// block size are those of the LUN below, which is never made or resized.
type HostCache struct{ *Array }

// describeCache is what targetcli shows as help.
const describeCache = `LUN: the number of a LUN that this host's cache serves, 0. Size and block size must match those of the LUN below.
Example: 0`

// NewHostCache makes the subtype. log may be nil.
func NewHostCache(h host, log *slog.Logger) *HostCache {
	a := NewArray(h, log)
	a.parse = parseCached
	return &HostCache{a}
}

// Name implements tcmu.Subtype.
func (*HostCache) Name() string { return "hostcache" }

// Describe implements tcmu.Subtype.
func (*HostCache) Describe() string { return describeCache }

// parseCached reads a configuration string: the LUN's number is the volume's name.
func parseCached(config string) (VolumeSpec, error) {
	n, err := strconv.ParseUint(config, 10, 14)
	if err != nil {
		return VolumeSpec{}, fmt.Errorf("%q is not a LUN number; write 0", config)
	}
	return VolumeSpec{Pool: "cache", Volume: strconv.FormatUint(n, 10), MustExist: true, Domain: "cache"}, nil
}
