// Four policies in one WebAssembly module: those of ../admission, ../throttle, ../destage and ../placement, in C.
//
//   zig cc -target wasm32-freestanding -nostdlib -Oz -s -Wl,--no-entry -o policies.wasm policies.c
//
// clang with wasm-ld does it, too (--target=wasm32 in place of -target).
typedef long long i64;
typedef unsigned long long u64;
#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("arraysim"), import_name("dirty"))) i64 dirty_of(int volume);

static u64 *missed; // what was missed, by a hash
static u64 places;
extern unsigned char __heap_base;

// A policy that belongs to no cache gets 0 blocks.
EXPORT("init") void init(int blocks, int block_bytes, i64 seed) {
	missed = (u64 *)(((unsigned long)&__heap_base + 7) & ~7ul);
	places = 4 * (u64)blocks;
	i64 have = (i64)__builtin_wasm_memory_size(0) * 65536 - (i64)(unsigned long)missed, need = places * sizeof *missed;
	if (have < need && __builtin_wasm_memory_grow(0, (need - have + 65535) / 65536) == -1)
		__builtin_trap();
}

// Admission: a block gets in when it is missed for the second time.
EXPORT("admit") int admit(u64 block, int write) {
	u64 *seen = &missed[(block * 0x9E3779B97F4A7C15 >> 32) % places];
	int again = *seen == block + 1;
	*seen = block + 1;
	return again;
}

// Throttle: in proportion to the dirty data above the threshold, up to ten destages' time.
EXPORT("delay") i64 delay(i64 now, u64 dirty, u64 size, u64 threshold, i64 destage) {
	if (dirty <= threshold)
		return 0;
	return 10 * destage * (i64)((dirty - threshold) >> 10) / (i64)((size - threshold) >> 10);
}

// Destage: above three quarters of the partition, and the volume with the most dirty data first.
EXPORT("rate") i64 rate(i64 now, i64 used, i64 limit, i64 cache_used, i64 cache_limit, int waiting) {
	return waiting || used > limit * 3 / 4 ? -1 : 0;
}

EXPORT("next") int next(int volumes) {
	int most = 0;
	for (int i = 1; i < volumes; i++)
		if (dirty_of(i) > dirty_of(most))
			most = i;
	return most;
}

// Placement: a copy shares data while the write cache is more than half full.
EXPORT("place") int place(i64 now, int to, i64 bytes, int moves, i64 used, i64 limit) {
	return used > limit / 2 ? 0 : 1;
}
