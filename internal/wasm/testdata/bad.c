// Policies that do what they may not, one for each BAD:
//
//   for b in wrong trap hang exit; do
//     zig cc -target wasm32-freestanding -nostdlib -Oz -s -Wl,--no-entry -Dbad_$b -o $b.wasm bad.c; done
#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("wasi_snapshot_preview1"), import_name("proc_exit"))) void leave(int code);

EXPORT("insert") void insert(int slot, long long block) {}
EXPORT("hit") void hit(int slot) {}
EXPORT("remove") void drop(int slot) {}

EXPORT("victim") int victim(void) {
#if defined(bad_wrong)
	return 1 << 20;
#elif defined(bad_trap)
	__builtin_trap();
#elif defined(bad_hang)
	for (volatile int i = 0;; i++)
		;
#elif defined(bad_exit)
	leave(3);
#endif
	return 0;
}
