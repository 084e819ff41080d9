// What calls a policy from inside: a call from outside costs a microsecond or more, because it can be ended when it hangs,
// and one from module to module a few nanoseconds. So what has no answer is gathered here, and goes with the next
// question. driver.wasm is made of this, by
//
//   zig cc -target wasm32-freestanding -nostdlib -O2 -s -Wl,--no-entry -o driver.wasm driver.c
#define IMPORT(name) __attribute__((import_module("policy"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("insert") void insert(int slot, long long block);
IMPORT("hit") void hit(int slot);
IMPORT("remove") void drop(int slot);
IMPORT("victim") int victim(void);

enum { HIT, INSERT, REMOVE };
static struct event {
	int kind, slot;
	long long block;
} events[4096];

EXPORT("events") struct event *place(void) { return events; }

EXPORT("run") void run(int n) {
	for (struct event *e = events; e < events + n; e++) {
		if (e->kind == HIT)
			hit(e->slot);
		else if (e->kind == INSERT)
			insert(e->slot, e->block);
		else
			drop(e->slot);
	}
}

EXPORT("ask") int ask(int n) {
	run(n);
	return victim();
}
