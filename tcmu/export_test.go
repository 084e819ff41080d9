package tcmu

import "testing"

// OnProcessors has devices that are served during the test believe that there are so many.
func OnProcessors(t *testing.T, n int) {
	before := processors
	processors = func() int { return n }
	t.Cleanup(func() { processors = before })
}
