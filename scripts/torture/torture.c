/*
 * torture: random writes and offloads on a few LUNs of one target or of some,
 * with a model of what every sector must hold. When a connection breaks it logs in
 * again, for as long as --patience says, and reads everything back.
 *
 *   torture --url iscsi://127.0.0.1:3260/iqn.x/0 --luns 3 --url iscsi://127.0.0.1:3260/iqn.y/0 --seed 7
 *
 * The contract that it checks: after a reconnect, a sector whose last change was
 * acknowledged holds that change; one that a command in flight was changing holds
 * the old or the new contents, and from then on the one that was read. Commands
 * in flight never touch the same sectors, so these are all the possibilities.
 *
 * Contents are a function of a 64-bit stamp (LUN, sector, number of the
 * operation); stamp 0 is zeros. Copies move stamps. So a wrong sector tells where
 * its contents came from.
 *
 * It prints one JSON line for each login ("verified") and at the end ("done"),
 * which comes with SIGTERM or after --seconds, after everything in flight has
 * ended and everything was verified once more. Exit code 1 and a line "wrong" for
 * each (of at most 20) wrong sector; 2 for an unexpected status, no target, or
 * nobody who reads what it prints: whoever started it was killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include "contents.h"

#define MAX_SESSIONS 4
#define MAX_LUNS 8
#define DEPTH 16
#define MAX_WRITE 256 /* sectors a WRITE carries */
#define MAX_RANGES 8
#define VERIFY 512 /* sectors a verifying READ carries */

enum kind { READ_CHECK, WRITE_PLAIN, WRITE_FUA, CAW, ZERO, PATTERN, UNMAP, XCOPY, SYNC, NKINDS };
static const char *names[NKINDS] = { "read", "write", "write_fua", "caw", "zero", "pattern", "unmap", "xcopy", "sync" };
static const int weights[NKINDS] = { 15, 34, 5, 6, 12, 3, 8, 14, 3 };

struct range { int lun, changes; uint64_t start, count; };

struct slot {
	int busy, verifying, miscompare, nranges;
	enum kind kind;
	uint32_t seq;
	struct range ranges[MAX_RANGES]; /* XCOPY: source, destination, source, ... */
	struct scsi_iovec iov;
	unsigned char buf[2 * VERIFY * SECTOR];
};

struct lun {
	uint64_t sectors, *model, *other; /* other: what a command that was cut off would have made of it */
	unsigned char *unsure, naa[16];
	unsigned char *by; /* kind of the last change, for messages */
	uint32_t block;    /* sectors a logical block */
	int on, number;    /* its session, and what it is called there */
	int thin;          /* LBPME: the unit has UNMAP */
};

/* A session with one target; an array with several I/O groups has a target for each. */
static struct session {
	const char *text;
	int luns;
	struct iscsi_context *ctx;
	struct iscsi_url *url;
	/* What is waited for. It outlives the wait: a context that is destroyed still tells what was under way of its end. */
	int finished, status;
	struct scsi_task *task;
} sessions[MAX_SESSIONS];

static const char *initiator = "iqn.2026-01.io.arraysim:torture";
static struct lun luns[MAX_LUNS];
static struct slot slots[DEPTH];
static int nsessions, nluns, busy, lost, wrong, patience = 60;
static uint32_t seq;
static uint64_t seed = 1, span, counts[NKINDS], unsure_total, became_new;
static volatile sig_atomic_t stop;

static uint64_t rnd(uint64_t n)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (seed * 0x2545f4914f6cdd1dull >> 11) % n;
}

static void die(const char *what)
{
	fprintf(stderr, "torture: %s:", what);
	for (int i = 0; i < nsessions; i++) fprintf(stderr, " %s", sessions[i].ctx ? iscsi_get_error(sessions[i].ctx) : "");
	fprintf(stderr, "\n");
	exit(2);
}

static void put(unsigned char *p, uint64_t v, int n)
{
	for (; n--; v >>= 8) p[n] = v;
}

/* check compares what was read with the model and settles what was unsure. */
static void check(int lun, uint64_t start, uint64_t count, const unsigned char *p)
{
	struct lun *l = &luns[lun];
	for (uint64_t s = start; s < start + count; s++, p += SECTOR) {
		if (l->unsure[s]) {
			l->unsure[s] = 0;
			if (l->other[s] != l->model[s] && holds(p, l->other[s])) {
				l->model[s] = l->other[s];
				became_new++;
				continue;
			}
		}
		if (holds(p, l->model[s])) continue;
		char want[64], have[64];
		uint64_t id;
		memcpy(&id, p, 8);
		describe(want, sizeof want, l->model[s]);
		describe(have, sizeof have, id);
		if (wrong++ < 20)
			printf("{\"event\": \"wrong\", \"lun\": %d, \"sector\": %lu, \"last_change\": \"%s\", \"want\": \"%s\", "
			       "\"found\": \"%s\", \"torn\": %s}\n", lun, s, names[l->by[s]], want, have, holds(p, id) ? "false" : "true");
	}
}

/* made_of tells what the slot's command makes of a sector of its range r. */
static uint64_t made_of(const struct slot *k, int r, uint64_t sector)
{
	const struct range *g = &k->ranges[r];
	switch (k->kind) {
	case PATTERN: return stamp(g->lun, g->start + (sector - g->start) % luns[g->lun].block, k->seq);
	case ZERO: case UNMAP: return 0;
	case XCOPY: return luns[g[-1].lun].model[g[-1].start + sector - g->start];
	default: return k->miscompare ? luns[g->lun].model[sector] : stamp(g->lun, sector, k->seq);
	}
}

/* settle writes the changes of an acknowledged command into the model; those of
   one that was cut off become possibilities. */
static void settle(struct slot *k, int acknowledged)
{
	for (int r = 0; r < k->nranges; r++) {
		struct range *g = &k->ranges[r];
		struct lun *l = &luns[g->lun];
		if (!g->changes) continue;
		for (uint64_t s = g->start; s < g->start + g->count; s++) {
			uint64_t id = made_of(k, r, s);
			l->by[s] = k->kind;
			if (acknowledged) l->model[s] = id;
			else l->other[s] = id, l->unsure[s] = 1, unsure_total++;
		}
	}
	k->busy = 0;
	busy--;
}

static void complete(struct iscsi_context *c, int status, void *data, void *private)
{
	struct slot *k = private;
	struct scsi_task *t = data;
	int key = t->sense.key;
	(void)c;
	if (status > 0xff) {
		lost = 1; /* the slot stays busy: its outcome is unknown */
	} else if (status == SCSI_STATUS_BUSY || status == 0x28 || (status == SCSI_STATUS_CHECK_CONDITION && key == 6)) {
		k->busy = 0; /* not carried out */
		busy--;
		if (k->verifying) lost = 1;
	} else if (k->miscompare ? key != SCSI_SENSE_MISCOMPARE : status != SCSI_STATUS_GOOD) {
		fprintf(stderr, "torture: %s (op %u) ended with status 0x%x, sense %x/%04x\n", names[k->kind], k->seq, status, key, t->sense.ascq);
		exit(2);
	} else {
		if (k->kind == READ_CHECK) check(k->ranges[0].lun, k->ranges[0].start, k->ranges[0].count, k->buf);
		counts[k->kind]++;
		settle(k, 1);
	}
	scsi_free_scsi_task(t);
}

static void submit(struct slot *k, int lun, unsigned char *cdb, int size, int dir, size_t len)
{
	struct scsi_task *t = scsi_create_task(size, cdb, dir, len);
	k->iov.iov_base = k->buf;
	k->iov.iov_len = len;
	if (dir == SCSI_XFER_WRITE) scsi_task_set_iov_out(t, &k->iov, 1);
	if (dir == SCSI_XFER_READ) scsi_task_set_iov_in(t, &k->iov, 1);
	k->busy = 1;
	busy++;
	if (iscsi_scsi_command_async(sessions[luns[lun].on].ctx, luns[lun].number, t, complete, NULL, k)) {
		lost = 1;
		scsi_free_scsi_task(t);
	}
}

static void read_range(struct slot *k, int lun, uint64_t start, uint64_t count)
{
	unsigned char cdb[16] = { 0x88 };
	k->kind = READ_CHECK;
	k->miscompare = 0;
	k->nranges = 1;
	k->ranges[0] = (struct range){ lun, 0, start, count };
	put(cdb + 2, start / luns[lun].block, 8);
	put(cdb + 10, count / luns[lun].block, 4);
	submit(k, lun, cdb, 16, SCSI_XFER_READ, count * SECTOR);
}

static void pump(void)
{
	struct pollfd p[MAX_SESSIONS];
	for (int i = 0; i < nsessions; i++) {
		struct iscsi_context *c = sessions[i].ctx;
		p[i] = (struct pollfd){ .fd = iscsi_get_fd(c), .events = iscsi_which_events(c) };
		if (p[i].fd < 0) lost = 1;
	}
	if (poll(p, nsessions, 100) <= 0) return;
	for (int i = 0; i < nsessions; i++)
		if (p[i].revents && iscsi_service(sessions[i].ctx, p[i].revents) < 0) lost = 1;
}

/* verify reads every sector back; 0 when the connection broke meanwhile. */
static int verify(void)
{
	int lun = 0;
	uint64_t at = 0;
	while (!lost && (lun < nluns || busy)) {
		for (int i = 0; i < 8 && lun < nluns && !lost; i++) {
			if (slots[i].busy) continue;
			uint64_t n = luns[lun].sectors - at < VERIFY ? luns[lun].sectors - at : VERIFY;
			slots[i].verifying = 1;
			read_range(&slots[i], lun, at, n);
			if ((at += n) == luns[lun].sectors) lun++, at = 0;
		}
		if (!lost) pump();
	}
	return !lost;
}

/* Random operations. */

static int taken(struct range g)
{
	for (int i = 0; i < DEPTH; i++)
		for (int r = 0; slots[i].busy && r < slots[i].nranges; r++) {
			struct range *o = &slots[i].ranges[r];
			if (o->lun == g.lun && o->start < g.start + g.count && g.start < o->start + o->count) return 1;
		}
	return 0;
}

/* claim adds a random free range of at most max sectors to the slot. */
static int claim(struct slot *k, int lun, uint64_t max, int exact, int changes)
{
	uint32_t b = luns[lun].block;
	for (int tries = 0; tries < 50; tries++) {
		uint64_t n = exact ? max : (1 + rnd(rnd(2) ? max / b : 8)) * b;
		uint64_t align = rnd(2) ? 8 : b, start = rnd(luns[lun].sectors - n + 1) / align * align;
		struct range g = { lun, changes, start, n };
		int own = 0;
		if (n > max) continue;
		for (int r = 0; r < k->nranges; r++)
			own |= k->ranges[r].lun == lun && k->ranges[r].start < start + n && start < k->ranges[r].start + k->ranges[r].count;
		if (own || taken(g)) continue;
		k->ranges[k->nranges++] = g;
		return 1;
	}
	return 0;
}

static void xcopy(struct slot *k, int src, int dst)
{
	unsigned char cdb[16] = { 0x83 }, *p = k->buf + 16;
	int which[2] = { src, dst }, segments = k->nranges / 2;
	memset(k->buf, 0, 16 + 2 * 32 + segments * 28);
	k->buf[1] = 0x18; /* list id usage 11b: the list identifier is not used */
	put(k->buf + 2, 64, 2);
	put(k->buf + 8, segments * 28, 4);
	for (int i = 0; i < 2; i++, p += 32) {
		p[0] = 0xe4;
		p[4] = 1; /* binary */
		p[5] = 3; /* NAA */
		p[7] = 16;
		memcpy(p + 8, luns[which[i]].naa, 16);
		put(p + 29, luns[which[i]].block * SECTOR, 3);
	}
	for (int i = 0; i < segments; i++, p += 28) {
		struct range *g = &k->ranges[2 * i];
		p[0] = 0x02;
		put(p + 2, 0x18, 2);
		put(p + 6, 1, 2);
		put(p + 10, g[0].count / luns[src].block, 2);
		put(p + 12, g[0].start / luns[src].block, 8);
		put(p + 20, g[1].start / luns[src].block, 8);
	}
	put(cdb + 10, p - k->buf, 4);
	submit(k, dst, cdb, 16, SCSI_XFER_WRITE, p - k->buf);
}

static void start(struct slot *k)
{
	int lun = rnd(nluns), pick = rnd(100), peer;
	struct lun *l = &luns[lun];
	struct range *g = k->ranges;
	unsigned char cdb[16] = { 0 }, *p = k->buf;
	size_t len = 0;

	for (k->kind = 0; pick >= weights[k->kind]; k->kind++) pick -= weights[k->kind];
	if (k->kind == UNMAP && !l->thin) k->kind = ZERO;
	k->nranges = k->verifying = k->miscompare = 0;
	k->seq = ++seq;
	switch (k->kind) {
	case READ_CHECK:
		if (claim(k, lun, MAX_WRITE, 0, 0)) read_range(k, lun, g->start, g->count);
		return;
	case WRITE_PLAIN: case WRITE_FUA: case CAW:
		if (!claim(k, lun, k->kind == CAW ? l->block : MAX_WRITE, k->kind == CAW, 1)) return;
		cdb[0] = k->kind == CAW ? 0x89 : 0x8a;
		cdb[1] = k->kind == WRITE_FUA ? 0x08 : 0;
		put(cdb + 2, g->start / l->block, 8);
		put(cdb + 10, g->count / l->block, 4);
		if (k->kind == CAW) {
			for (uint64_t i = 0; i < g->count; i++, p += SECTOR) fill(p, l->model[g->start + i]);
			if ((k->miscompare = !rnd(4))) k->buf[rnd(g->count * SECTOR)] ^= 0xff;
		}
		for (uint64_t i = 0; i < g->count; i++, p += SECTOR) fill(p, stamp(lun, g->start + i, k->seq));
		submit(k, lun, cdb, 16, SCSI_XFER_WRITE, p - k->buf);
		return;
	case ZERO: case PATTERN:
		if (!claim(k, lun, k->kind == ZERO ? l->sectors / 4 / l->block * l->block : 512, 0, 1)) return;
		cdb[0] = 0x93;
		if (k->kind == ZERO) cdb[1] = (rnd(2) && l->thin ? 0x08 : 0) | (rnd(2) ? 0x01 : 0); /* UNMAP, NDOB */
		put(cdb + 2, g->start / l->block, 8);
		put(cdb + 10, g->count / l->block, 4);
		for (uint32_t i = 0; i < l->block; i++) fill(k->buf + i * SECTOR, k->kind == ZERO ? 0 : stamp(lun, g->start + i, k->seq));
		len = cdb[1] & 0x01 ? 0 : l->block * SECTOR;
		submit(k, lun, cdb, 16, len ? SCSI_XFER_WRITE : SCSI_XFER_NONE, len);
		return;
	case UNMAP:
		for (int n = 1 + rnd(4); n--;)
			if (!claim(k, lun, 4096, 0, 1)) return;
		len = 8 + 16 * k->nranges;
		memset(p, 0, len);
		put(p, len - 2, 2);
		put(p + 2, len - 8, 2);
		for (int r = 0; r < k->nranges; r++) {
			put(p + 8 + 16 * r, g[r].start / l->block, 8);
			put(p + 16 + 16 * r, g[r].count / l->block, 4);
		}
		cdb[0] = 0x42;
		put(cdb + 7, len, 2);
		submit(k, lun, cdb, 10, SCSI_XFER_WRITE, len);
		return;
	case XCOPY:
		if (luns[peer = rnd(nluns)].block != l->block) return;
		for (int n = 1 + rnd(MAX_RANGES / 2); n--;)
			if (!claim(k, peer, 4096, 0, 0) || !claim(k, lun, g[k->nranges - 1].count, 1, 1)) return;
		xcopy(k, peer, lun);
		return;
	default:
		cdb[0] = 0x91;
		submit(k, lun, cdb, 16, SCSI_XFER_NONE, 0);
	}
}

/* The synchronous calls of libiscsi keep their state on the stack. If the connection breaks they return, and the context
   writes there when it is destroyed. So these wait by themselves. */

static void *begin(struct session *s)
{
	s->finished = 0;
	s->task = NULL;
	return s;
}

static void finished(struct iscsi_context *c, int status, void *data, void *private)
{
	struct session *s = private;
	(void)c;
	(void)data;
	s->status = status;
	s->finished = 1;
}

static void answered(struct iscsi_context *c, int status, void *data, void *private)
{
	struct session *s = private;
	s->task = data;
	if (s->task) s->task->status = status;
	finished(c, status, data, private);
}

/* await serves a session until what was begun has finished; 0 when the connection broke. */
static int await(struct session *s)
{
	while (!s->finished) {
		struct pollfd p = { .fd = iscsi_get_fd(s->ctx), .events = iscsi_which_events(s->ctx) };
		int n = p.fd < 0 ? -1 : poll(&p, 1, 1000);
		if (p.fd >= 0 && n < 0 && errno == EINTR) continue;
		if (n < 0 || iscsi_service(s->ctx, n ? p.revents : 0) < 0) return 0;
	}
	return 1;
}

/* answer waits for a command that was sent by begin's session; NULL if there is none. */
static struct scsi_task *answer(struct session *s, struct scsi_task *sent)
{
	return sent && await(s) ? s->task : NULL;
}

/* describe_lun learns size, block size and name of a logical unit. */
static int describe_lun(int i)
{
	struct scsi_task *t = NULL;
	struct lun *l = &luns[i];
	struct session *s = &sessions[l->on];
	struct iscsi_context *ctx = s->ctx;
	for (int tries = 0; tries < 10 && (!t || t->status); tries++) {
		if (t) scsi_free_scsi_task(t);
		t = answer(s, iscsi_testunitready_task(ctx, l->number, answered, begin(s))); /* eats unit attentions */
	}
	if (!t || t->status) return 0;
	scsi_free_scsi_task(t);
	if (l->sectors) return 1;
	t = answer(s, iscsi_readcapacity16_task(ctx, l->number, answered, begin(s)));
	struct scsi_readcapacity16 *rc = t && !t->status ? scsi_datain_unmarshall(t) : NULL;
	if (!rc) return 0;
	l->block = rc->block_length / SECTOR;
	l->thin = rc->lbpme;
	l->sectors = (rc->returned_lba + 1) * l->block;
	if (span && l->sectors > span / SECTOR) l->sectors = span / SECTOR;
	scsi_free_scsi_task(t);
	t = answer(s, iscsi_inquiry_task(ctx, l->number, 1, 0x83, 255, answered, begin(s)));
	if (!t || t->status) return 0;
	for (int at = 4; at + 4 < t->datain.size; at += 4 + t->datain.data[at + 3]) {
		unsigned char *d = t->datain.data + at;
		if ((d[1] & 0x3f) == 3 && d[3] == 16) memcpy(l->naa, d + 4, 16);
	}
	scsi_free_scsi_task(t);
	if (!l->naa[0]) die("no NAA-6 designator of the logical unit");
	l->model = calloc(l->sectors, 8);
	l->other = calloc(l->sectors, 8);
	l->unsure = calloc(l->sectors, 1);
	l->by = calloc(l->sectors, 1);
	return 1;
}

static int connect_to(struct session *s)
{
	s->ctx = iscsi_create_context(initiator);
	s->url = iscsi_parse_full_url(s->ctx, s->text);
	if (!s->url) die(s->text);
	iscsi_set_targetname(s->ctx, s->url->target);
	iscsi_set_session_type(s->ctx, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(s->ctx, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	iscsi_set_noautoreconnect(s->ctx, 1);
	iscsi_set_timeout(s->ctx, 30);
	return !iscsi_full_connect_async(s->ctx, s->url->portal, s->url->lun, finished, begin(s)) && await(s) && !s->status;
}

static int login(void)
{
	int n = 0;
	lost = 0;
	for (int i = 0; i < nsessions; i++) {
		if (!connect_to(&sessions[i])) return 0;
		for (int k = 0; k < sessions[i].luns; k++, n++) {
			luns[n].on = i;
			luns[n].number = sessions[i].url->lun + k;
			if (!describe_lun(n)) return 0;
		}
	}
	return 1;
}

/* logout ends broken sessions: what is still busy has an unknown outcome. */
static void logout(void)
{
	for (int i = 0; i < DEPTH; i++)
		if (slots[i].busy) settle(&slots[i], 0);
	for (struct session *s = sessions; s < sessions + nsessions; s++) {
		if (s->url) iscsi_destroy_url(s->url);
		if (s->ctx) iscsi_destroy_context(s->ctx);
		s->url = NULL;
		s->ctx = NULL;
	}
}

static void report(const char *event)
{
	printf("{\"event\": \"%s\", \"ops\": %u, \"unsure\": %lu, \"became_new\": %lu, \"wrong\": %d", event, seq, unsure_total, became_new, wrong);
	for (int i = 0; i < NKINDS; i++) printf(", \"%s\": %lu", names[i], counts[i]);
	printf("}\n");
	fflush(stdout);
	if (wrong) exit(1);
}

/* heard reports whether somebody can still read what is printed. */
static int heard(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO };
	return poll(&out, 1, 0) <= 0 || !(out.revents & POLLERR);
}

static void on_term(int s) { (void)s; stop = 1; }

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "url", 1, 0, 'u' }, { "luns", 1, 0, 'l' }, { "seed", 1, 0, 'e' }, { "span", 1, 0, 'p' },
		{ "seconds", 1, 0, 's' }, { "patience", 1, 0, 'w' }, { 0 },
	};
	int c, seconds = 1 << 30;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'u' && nsessions < MAX_SESSIONS) sessions[nsessions++] = (struct session){ .text = optarg, .luns = 1 };
		else if (c == 'l' && nsessions) sessions[nsessions - 1].luns = atoi(optarg);
		else if (c == 'e') seed = strtoull(optarg, NULL, 0) * 2 + 1;
		else if (c == 'p') span = strtoull(optarg, NULL, 0);
		else if (c == 's') seconds = atoi(optarg);
		else if (c == 'w') patience = atoi(optarg);
		else return 2;
	}
	for (int i = 0; i < nsessions; i++) nluns += sessions[i].luns;
	if (nluns < 1 || nluns > MAX_LUNS) {
		fprintf(stderr, "usage: torture --url URL-OF-FIRST-LUN [--luns N] [--url URL [--luns N]] [--seed N] [--span BYTES] [--seconds N] [--patience N]\n");
		return 2;
	}
	signal(SIGTERM, on_term);
	signal(SIGPIPE, SIG_IGN);
	time_t end = time(NULL) + seconds, waiting = time(NULL);
	for (;;) {
		if (!heard()) die("nobody reads what it prints");
		if (!login() || !verify()) {
			if (time(NULL) - waiting > patience) die("the target does not come back");
			logout();
			usleep(10000);
			continue;
		}
		report("verified");
		while (!lost && !stop && time(NULL) < end && heard()) {
			for (int i = 0; i < DEPTH && !lost; i++)
				if (!slots[i].busy) start(&slots[i]);
			if (!lost) pump();
			if (wrong) report("stopped");
		}
		while (!lost && busy) pump();
		if (!lost && heard() && verify()) break;
		logout();
		waiting = time(NULL);
	}
	report("done");
	for (int i = 0; i < nsessions; i++) if (!iscsi_logout_async(sessions[i].ctx, finished, begin(&sessions[i]))) await(&sessions[i]);
	return 0;
}
