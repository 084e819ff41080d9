package rados

// HoldMetadata sets the bound of metadata that are not in their place, in bytes, and returns what sets it back.
func HoldMetadata(n int) (back func()) {
	was := metaHeld
	metaHeld = n
	return func() { metaHeld = was }
}
