package sim

import "math/bits"

// Rand is a seeded source of random numbers (splitmix64). Everything that it makes is
// integer arithmetic, so that a seed gives the same run on every machine.
type Rand struct{ state uint64 }

// newRand returns a stream of its own for a name.
func newRand(seed uint64, name string) Rand {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	r := Rand{seed ^ h}
	r.Uint64()
	return r
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.state += 0x9E3779B97F4A7C15
	z := r.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// N returns a number below n, which is not 0.
func (r *Rand) N(n uint64) uint64 {
	hi, _ := bits.Mul64(r.Uint64(), n)
	return hi
}

// Chance tells whether an event of so many millionths happens.
func (r *Rand) Chance(ppm uint64) bool { return r.N(1e6) < ppm }

// Exp returns an exponentially distributed number with this mean. It is von Neumann's
// method, which only compares uniform numbers.
func (r *Rand) Exp(mean int64) int64 {
	const one = 1 << 32
	for k := uint64(0); ; k++ {
		first := r.Uint64() >> 32
		last, n := first, 0
		for {
			u := r.Uint64() >> 32
			n++
			if u >= last {
				break
			}
			last = u
		}
		if n%2 == 1 {
			hi, lo := bits.Mul64(uint64(mean), k*one+first)
			return int64(hi<<32 | lo>>32)
		}
	}
}

// normal returns a number of the normal distribution with mean 0 and deviation 1, times
// 2^16: the sum of twelve uniform ones.
func (r *Rand) normal() int64 {
	sum := int64(0)
	for range 12 {
		sum += int64(r.Uint64() >> 48)
	}
	return sum - 6<<16
}

// logNormal returns a weight, times 2^16, whose logarithm is normal with mean 0 and a
// deviation of so many thousandths.
func (r *Rand) logNormal(sigma int64) uint64 {
	x := r.normal() * sigma / 1000
	return expFixed(max(-6<<16, min(x, 6<<16)))
}

// expFixed returns e^x in 2^16ths, for |x| up to 6 x 2^16.
func expFixed(x int64) uint64 {
	neg := x < 0
	if neg {
		x = -x
	}
	const one = uint64(1) << 32
	sum, term := one, one
	for k := uint64(1); k < 40 && term > 0; k++ {
		hi, lo := bits.Mul64(term, uint64(x))
		term = (hi<<48 | lo>>16) / k
		sum += term
	}
	if neg {
		q, _ := bits.Div64(1<<16, 0, sum) // 2^80 / sum: the inverse in 2^48ths
		return max(1, q>>32)
	}
	return sum >> 16
}
