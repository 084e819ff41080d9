// What tcmu-runner sees of the plugin: handler_init and a table of functions.
//
// There is no package with tcmu-runner's headers, so what is needed of its plugin interface is declared here: the
// layout of version 1.5.4 (Debian 12), which all versions from 1.5.0 to 1.6.2 share. The functions that a plugin
// calls are looked up when it is loaded; another version that lacks one refuses the plugin and goes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

struct device; // tcmu-runner's own

// A command as libtcmu has it. What follows is not ours.
struct command {
	uint16_t id;
	uint8_t *cdb;
	struct iovec *data;
	size_t pieces;
	uint8_t sense[96];
};

// A command as tcmu-runner has it begins with the other one.
struct runner_command {
	struct command *command;
};

// A change of a device's configuration.
struct change {
	int kind; // 0 configuration string, 1 size in bytes, 2 write cache
	union {
		uint64_t size;
		char *config;
		bool cache;
	} to;
};

struct handler {
	const char *name, *subtype, *help;
	void *opaque;
	bool (*check)(const char *config, char **reason);
	int (*reconfigure)(struct device *, struct change *);
	int (*open)(struct device *, bool again);
	void (*close)(struct device *);
	int threads;
	int (*command)(struct device *, struct runner_command *);
	void *unused[11]; // read, write, flush, unmap, writesame, caw, report_event, lock, unlock, get_lock_tag, get_lock_state
	bool by_dbus;
	bool (*log_folder)(void);
	int (*init)(void);
	void (*destroy)(void);
};

_Static_assert(sizeof(void *) == 8, "the layout is that of 64-bit machines");
_Static_assert(offsetof(struct command, sense) == 32 && offsetof(struct handler, threads) == 64 &&
		       offsetof(struct handler, command) == 72 && offsetof(struct handler, by_dbus) == 168 &&
		       sizeof(struct handler) == 200,
	       "not tcmu-runner's layout");

// Commands of a device that are under way at a time: each has a thread that waits for its end.
enum { THREADS = 16 };

static int (*register_handler)(struct handler *);
static char *(*config_of)(struct device *);
static const char *(*uio_of)(struct device *);
static uint64_t (*blocks_of)(struct device *);
static uint32_t (*block_size_of)(struct device *);
static void (*set_private)(struct device *, void *);
static void *(*get_private)(struct device *);
static int (*cdb_length)(uint8_t *);

static bool look_up(void *to, const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);
	if (!found)
		fprintf(stderr, "handler_arraysim: tcmu-runner has no %s: the plugin needs version 1.5\n", name);
	memcpy(to, &found, sizeof(found));
	return found != NULL;
}

static bool check_config(const char *config, char **reason)
{
	char *why = arraysimCheck((char *)config);
	if (why)
		*reason = why;
	return !why;
}

static int open_device(struct device *dev, bool again)
{
	(void)again;
	uintptr_t handle = arraysimOpen(config_of(dev), (char *)uio_of(dev), blocks_of(dev), block_size_of(dev));
	if (!handle)
		return -ENODEV;
	set_private(dev, (void *)handle);
	return 0;
}

static void close_device(struct device *dev)
{
	arraysimClose((uintptr_t)get_private(dev));
}

// The size must follow the LUN's. The write cache is the array's: it cannot be switched off here.
static int reconfigure(struct device *dev, struct change *c)
{
	switch (c->kind) {
	case 1:
		return arraysimResize((uintptr_t)get_private(dev), c->to.size, block_size_of(dev)) ? -EINVAL : 0;
	case 2:
		return 0;
	}
	return -EOPNOTSUPP;
}

// Called by one of THREADS threads of the device, which are cancelled as it goes: never in Go.
static int run_command(struct device *dev, struct runner_command *c)
{
	int state;
	struct command *x = c->command;
	int n = cdb_length(x->cdb);
	if (n <= 0)
		return -1; // not handled: INVALID COMMAND OPERATION CODE
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	int status = arraysimDo((uintptr_t)get_private(dev), x->cdb, n, x->data, x->pieces, x->sense);
	pthread_setcancelstate(state, &state);
	return status;
}

static struct handler handler = {
	.name = "Logical units of a running arraysim serve",
	.subtype = "arraysim",
	.check = check_config,
	.reconfigure = reconfigure,
	.open = open_device,
	.close = close_device,
	.threads = THREADS,
	.command = run_command,
};

int handler_init(void)
{
	if (!look_up(&register_handler, "tcmur_register_handler") || !look_up(&config_of, "tcmu_dev_get_cfgstring") ||
	    !look_up(&uio_of, "tcmu_dev_get_uio_name") || !look_up(&blocks_of, "tcmu_dev_get_num_lbas") ||
	    !look_up(&block_size_of, "tcmu_dev_get_block_size") || !look_up(&set_private, "tcmur_dev_set_private") ||
	    !look_up(&get_private, "tcmur_dev_get_private") || !look_up(&cdb_length, "tcmu_cdb_get_length"))
		return -1;
	handler.help = arraysimHelp();
	return register_handler(&handler);
}
