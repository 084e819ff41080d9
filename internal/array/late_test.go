package array

import "math/rand/v2"

// lateness is what a clock has of work beside the core: none in some lives, in others it takes up to 50
// microseconds to begin, and as long again until the core hears of its end.
func lateness(rnd *rand.Rand) func() int64 {
	if rnd.IntN(2) == 0 {
		return nil
	}
	return func() int64 { return rnd.Int64N(50_000) }
}
