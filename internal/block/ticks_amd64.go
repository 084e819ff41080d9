package block

// ticks reads the processor's time stamp counter.
func ticks() uint64

func cpuid(leaf uint32) (eax, edx uint32)

// ticksSteady reports whether the counter runs at one rate, also while the processor sleeps (AMD64
// Architecture Programmer's Manual volume 3, E.4.6: Fn8000_0007, EDX bit 8).
func ticksSteady() bool {
	const power, steady = 0x80000007, 1 << 8
	if most, _ := cpuid(0x80000000); most < power {
		return false
	}
	_, features := cpuid(power)
	return features&steady != 0
}
