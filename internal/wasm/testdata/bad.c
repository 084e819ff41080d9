// Policies of every kind that do what they may not, one for each BAD:
//
//   for b in wrong trap hang exit; do
//     zig cc -target wasm32-freestanding -nostdlib -Oz -s -Wl,--no-entry -Dbad_$b -o $b.wasm bad.c; done
typedef long long i64;
#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("wasi_snapshot_preview1"), import_name("proc_exit"))) void leave(int code);

static int bad(void) {
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

EXPORT("insert") void insert(int slot, i64 block) {}
EXPORT("hit") void hit(int slot) {}
EXPORT("remove") void drop(int slot) {}
EXPORT("victim") int victim(void) { return bad(); }

EXPORT("admit") int admit(i64 block, int write) { return bad(); }
EXPORT("delay") i64 delay(i64 now, i64 dirty, i64 size, i64 threshold, i64 destage) { return bad(); }
EXPORT("rate") i64 rate(i64 now, i64 used, i64 limit, i64 cache_used, i64 cache_limit, int waiting) { return bad(); }
EXPORT("next") int next(int volumes) { return bad(); }
EXPORT("place") int place(i64 now, int to, i64 bytes, int moves, i64 used, i64 limit) { return bad(); }
