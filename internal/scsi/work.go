package scsi

// BlockSize returns the logical block length in bytes of the unit that an
// enabled task is for.
func (t *Task) BlockSize() uint64 { return t.state.u.blockSize() }
