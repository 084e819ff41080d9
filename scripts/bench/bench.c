/*
 * bench: drives one iSCSI logical unit with a fixed queue depth and prints one
 * JSON line a row. CDBs are built by hand and go through libiscsi's
 * asynchronous API from one poll loop, so that the client costs little beside
 * the target that it measures.
 *
 *   bench --url iscsi://127.0.0.1:3260/iqn.x/0 --row fill --row randread-4k-qd32
 *
 * In a row that is batched what libiscsi sends and receives goes through two buffers, a system call for
 * many PDUs: by itself it makes three calls for a command without data in, and takes longer than arraysim.
 *
 * A row ends after --seconds (default 5) or, if --bytes is given, as soon as
 * that many bytes were done, whichever is later. "fill" writes the whole span
 * once with random data, whatever the options say.
 *
 * Output: row, ops, errors, seconds, iops, mib_s, p50_us, p99_us, max_us.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

enum op { READ, WRITE, WRITE_SAME };

struct row {
	const char *name;
	enum op op;
	uint32_t size, depth;
	int sequential, once; /* once: end after one pass over the span */
	int batched;
};

static const struct row rows[] = {
	{ "fill", WRITE, 256 << 10, 8, 1, 1, 0 },
	{ "randread-4k-qd32", READ, 4 << 10, 32, 0, 0, 0 },
	{ "randwrite-4k-qd32", WRITE, 4 << 10, 32, 0, 0, 0 },
	{ "randread-4k-qd1", READ, 4 << 10, 1, 0, 0, 0 },
	{ "randwrite-4k-qd1", WRITE, 4 << 10, 1, 0, 0, 0 },
	{ "seqread-256k-qd8", READ, 256 << 10, 8, 1, 0, 0 },
	{ "seqwrite-256k-qd8", WRITE, 256 << 10, 8, 1, 0, 0 },
	{ "seqread-256k-qd32", READ, 256 << 10, 32, 1, 0, 0 },
	{ "seqwrite-256k-qd32", WRITE, 256 << 10, 32, 1, 0, 0 },
	{ "writesame-1m-qd32", WRITE_SAME, 1 << 20, 32, 0, 0, 0 },
	{ "writesame-1m-qd32-batched", WRITE_SAME, 1 << 20, 32, 0, 0, 1 },
};
#define NROWS (sizeof rows / sizeof *rows)
#define MAX_DEPTH 64
#define NOISE (4u << 20) /* random bytes that write data is cut from */

/* slot is one command of the queue; its buffers live as long as the program. */
struct slot {
	struct scsi_iovec iov;
	unsigned char *in;
	uint64_t start; /* ns */
};

static struct iscsi_context *ctx;
static struct iscsi_url *url;
static struct slot slots[MAX_DEPTH];
static unsigned char *noise, zeros[4096];
static uint32_t block_size;
static uint64_t span, seed = 1, next_offset;

/* The row in progress. */
static const struct row *row;
static uint64_t deadline, want_bytes, done_ops, errors, inflight;
static int stopping;
static uint32_t *lat; /* 0.1 us a unit */
static size_t nlat, cap_lat;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* xorshift64*: the same seed gives the same addresses. */
static uint64_t rnd(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * 0x2545f4914f6cdd1dull;
}

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, ctx ? iscsi_get_error(ctx) : strerror(errno));
	exit(1);
}

static void put(unsigned char *p, uint64_t v, int n)
{
	while (n--) {
		p[n] = v;
		v >>= 8;
	}
}

/*
 * Rows that are batched: libiscsi's calls for its socket end here, for the program's symbols come before
 * those of the C library. These are all that libiscsi makes.
 */
static int socket_fd = -1; /* -1: every call is what it was */
static unsigned char out[1 << 20], in[256 << 10];
static size_t out_at, out_end, in_at, in_end;

/* flush sends what there is, as far as the socket takes it. */
static int flush(void)
{
	while (out_at < out_end) {
		ssize_t n = syscall(SYS_sendto, socket_fd, out + out_at, out_end - out_at, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
		if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
		out_at += n;
	}
	out_at = out_end = 0;
	return 0;
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	size_t all = 0;
	if (fd != socket_fd) return syscall(SYS_writev, fd, v, n);
	for (int i = 0; i < n; i++) all += v[i].iov_len;
	if (all > sizeof out - out_end) {
		errno = EAGAIN;
		return -1;
	}
	for (int i = 0; i < n; i++) {
		memcpy(out + out_end, v[i].iov_base, v[i].iov_len);
		out_end += v[i].iov_len;
	}
	return all;
}

ssize_t send(int fd, const void *b, size_t n, int flags)
{
	struct iovec v = { (void *)b, n };
	if (fd != socket_fd) return syscall(SYS_sendto, fd, b, n, flags, NULL, 0);
	return writev(fd, &v, 1);
}

ssize_t readv(int fd, const struct iovec *v, int n)
{
	size_t all = 0;
	if (fd != socket_fd) return syscall(SYS_readv, fd, v, n);
	if (in_at == in_end) {
		ssize_t got = syscall(SYS_recvfrom, fd, in, sizeof in, MSG_DONTWAIT, NULL, NULL);
		if (got <= 0) return got;
		in_at = 0;
		in_end = got;
	}
	for (int i = 0; i < n && in_at < in_end; i++) {
		size_t k = v[i].iov_len < in_end - in_at ? v[i].iov_len : in_end - in_at;
		memcpy(v[i].iov_base, in + in_at, k);
		in_at += k;
		all += k;
	}
	return all;
}

ssize_t recv(int fd, void *b, size_t n, int flags)
{
	struct iovec v = { b, n };
	if (fd != socket_fd) return syscall(SYS_recvfrom, fd, b, n, flags, NULL, NULL);
	return readv(fd, &v, 1);
}

static void issue(struct slot *s);

static void complete(struct iscsi_context *c, int status, void *data, void *private)
{
	struct slot *s = private;
	uint64_t t = now(), d = (t - s->start) / 100;
	(void)c;
	inflight--;
	done_ops++;
	if (nlat < cap_lat) lat[nlat++] = d > UINT32_MAX ? UINT32_MAX : d;
	if (status != SCSI_STATUS_GOOD && !errors++) {
		struct scsi_task *k = data;
		fprintf(stderr, "bench: %s: status 0x%x, sense %x/%04x: %s\n", row->name, status,
			k ? k->sense.key : 0, k ? k->sense.ascq : 0, iscsi_get_error(ctx));
	}
	scsi_free_scsi_task(data);
	if (errors > 100) die("too many errors");
	if (row->once ? next_offset >= span : t >= deadline && done_ops * row->size >= want_bytes) stopping = 1;
	if (!stopping) issue(s);
}

static void issue(struct slot *s)
{
	static const unsigned char opcodes[] = { [READ] = 0x88, [WRITE] = 0x8a, [WRITE_SAME] = 0x93 };
	unsigned char cdb[16] = { opcodes[row->op] };
	uint64_t units = span / row->size, offset;
	uint32_t len = row->op == WRITE_SAME ? block_size : row->size;

	if (row->sequential) {
		offset = row->once ? next_offset : next_offset % (units * row->size);
		next_offset += row->size;
	} else {
		offset = rnd() % units * row->size;
	}
	put(cdb + 2, offset / block_size, 8);
	put(cdb + 10, row->size / block_size, 4);
	struct scsi_task *t = scsi_create_task(16, cdb, row->op == READ ? SCSI_XFER_READ : SCSI_XFER_WRITE, len);
	s->iov.iov_len = len;
	if (row->op == READ) {
		s->iov.iov_base = s->in;
		scsi_task_set_iov_in(t, &s->iov, 1);
	} else {
		s->iov.iov_base = row->op == WRITE_SAME ? zeros : noise + rnd() % ((NOISE - len) / 512) * 512;
		scsi_task_set_iov_out(t, &s->iov, 1);
	}
	s->start = now();
	inflight++;
	if (iscsi_scsi_command_async(ctx, url->lun, t, complete, NULL, s)) die("queueing a command");
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static double at(double quantile) { return nlat ? lat[(size_t)(quantile * (nlat - 1))] / 10.0 : 0; }

static void run(const struct row *r, double seconds, uint64_t bytes)
{
	uint64_t start = now();
	row = r;
	stopping = 0;
	done_ops = errors = nlat = next_offset = 0;
	deadline = start + (uint64_t)(seconds * 1e9);
	want_bytes = bytes;
	if (span < r->size) die("the span is smaller than one command");
	if (r->batched) socket_fd = iscsi_get_fd(ctx);
	for (uint32_t i = 0; i < r->depth && (!r->once || next_offset < span); i++) issue(&slots[i]);
	while (inflight || in_at < in_end) {
		/* Replies make new commands: send those before the next poll. */
		if (iscsi_which_events(ctx) & POLLOUT && iscsi_service(ctx, POLLOUT)) die("connection");
		if (flush()) die("sending");
		struct pollfd p = { .fd = iscsi_get_fd(ctx), .events = iscsi_which_events(ctx) };
		int n = 1;
		if (out_at < out_end) p.events |= POLLOUT;
		if (in_at < in_end)
			p.revents = POLLIN;
		else
			n = poll(&p, 1, 30000);
		if (n == 0) die("no answer for 30 s");
		if (n > 0 && iscsi_service(ctx, p.revents)) die("connection");
	}
	socket_fd = -1;
	double s = (now() - start) / 1e9;
	qsort(lat, nlat, sizeof *lat, by_value);
	printf("{\"row\": \"%s\", \"ops\": %lu, \"errors\": %lu, \"seconds\": %.3f, \"iops\": %.1f, \"mib_s\": %.1f, "
	       "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
	       r->name, done_ops, errors, s, done_ops / s, done_ops * (double)r->size / s / (1 << 20), at(.5), at(.99), at(1));
	fflush(stdout);
	if (errors) exit(1);
}

static void login(const char *u, const char *initiator)
{
	ctx = iscsi_create_context(initiator);
	if (!ctx || !(url = iscsi_parse_full_url(ctx, u))) die(u);
	iscsi_set_targetname(ctx, url->target);
	iscsi_set_session_type(ctx, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(ctx, ISCSI_HEADER_DIGEST_NONE);
	iscsi_set_noautoreconnect(ctx, 1);
	if (*url->user) iscsi_set_initiator_username_pwd(ctx, url->user, url->passwd);
	if (iscsi_full_connect_sync(ctx, url->portal, url->lun)) die(u);

	struct scsi_task *t = iscsi_readcapacity16_sync(ctx, url->lun);
	struct scsi_readcapacity16 *rc = t && !t->status ? scsi_datain_unmarshall(t) : NULL;
	if (!rc) die("READ CAPACITY(16)");
	block_size = rc->block_length;
	uint64_t size = (rc->returned_lba + 1) * block_size;
	if (!span || span > size) span = size;
	span -= span % (256 << 10);
	scsi_free_scsi_task(t);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "url", 1, 0, 'u' }, { "row", 1, 0, 'r' }, { "seconds", 1, 0, 's' }, { "bytes", 1, 0, 'b' },
		{ "seed", 1, 0, 'e' }, { "span", 1, 0, 'p' }, { "initiator", 1, 0, 'i' }, { 0 },
	};
	const char *u = NULL, *initiator = "iqn.2026-01.io.arraysim:bench";
	const struct row *todo[64];
	int c, ntodo = 0;
	double seconds = 5;
	uint64_t bytes = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		size_t i = 0;
		switch (c) {
		case 'u': u = optarg; break;
		case 'i': initiator = optarg; break;
		case 's': seconds = atof(optarg); break;
		case 'b': bytes = strtoull(optarg, NULL, 0); break;
		case 'e': seed = strtoull(optarg, NULL, 0) * 2 + 1; break; /* never 0 */
		case 'p': span = strtoull(optarg, NULL, 0); break;
		case 'r':
			while (i < NROWS && strcmp(rows[i].name, optarg)) i++;
			if (i < NROWS && ntodo < 64) {
				todo[ntodo++] = &rows[i];
				break;
			}
			fprintf(stderr, "bench: no row %s; there are", optarg);
			for (i = 0; i < NROWS; i++) fprintf(stderr, " %s", rows[i].name);
			fprintf(stderr, "\n");
			return 2;
		default: return 2;
		}
	}
	if (!u || !ntodo) {
		fprintf(stderr, "usage: bench --url URL --row NAME... [--seconds N] [--bytes N] [--seed N] [--span BYTES]\n");
		return 2;
	}
	login(u, initiator);
	cap_lat = 16 << 20;
	lat = malloc(cap_lat * sizeof *lat);
	noise = malloc(NOISE);
	if (!lat || !noise) die("memory");
	for (size_t i = 0; i < NOISE; i += 8) {
		uint64_t v = rnd();
		memcpy(noise + i, &v, 8);
	}
	for (int i = 0; i < MAX_DEPTH; i++) slots[i].in = malloc(256 << 10);
	for (int i = 0; i < ntodo; i++) run(todo[i], seconds, bytes);
	iscsi_logout_sync(ctx);
	return 0;
}
