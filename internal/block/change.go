package block

// Change is an extent that a host has changed.
type Change struct {
	Range
	Generation uint64 // of the device, when it was changed last
	Host       uint32 // who did; 0 is several hosts, or none
}
