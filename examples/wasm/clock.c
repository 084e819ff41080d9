// Second chance (CLOCK) as a WebAssembly module, without any library:
//
//   zig cc -target wasm32-freestanding -nostdlib -Oz -s -Wl,--no-entry -o clock.wasm clock.c
//
// clang with wasm-ld does it, too (--target=wasm32 in place of -target).
#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("arraysim"), import_name("pinned"))) int pinned(int slot);

enum { FREE, RESIDENT, REFERENCED };
static unsigned char *state; // one byte a slot
static int slots, hand;
extern unsigned char __heap_base;

EXPORT("init") void init(int blocks, int block_bytes, long long seed) {
	state = &__heap_base;
	slots = blocks;
	int have = __builtin_wasm_memory_size(0) * 65536 - (int)(long)state;
	if (have < blocks && __builtin_wasm_memory_grow(0, (blocks - have + 65535) / 65536) == -1)
		__builtin_trap();
}

EXPORT("insert") void insert(int slot, long long block) { state[slot] = RESIDENT; }
EXPORT("hit") void hit(int slot) { state[slot] = REFERENCED; }
EXPORT("remove") void drop(int slot) { state[slot] = FREE; }

EXPORT("victim") int victim(void) {
	for (;;) {
		hand = hand + 1 < slots ? hand + 1 : 0;
		if (state[hand] == RESIDENT && !pinned(hand))
			return hand;
		if (state[hand] == REFERENCED)
			state[hand] = RESIDENT;
	}
}
