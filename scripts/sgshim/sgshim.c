/*
 * sgshim: lets unmodified sg3_utils talk to an iSCSI logical unit without a
 * kernel initiator. It is preloaded, makes some paths look like SCSI generic
 * (or block) devices, and carries their SG_IO requests over libiscsi.
 *
 *   ARRAYSIM_SG="/dev/sg0=iscsi://127.0.0.1:3260/iqn.x/0;/dev/sg1=iscsi://..." \
 *   LD_PRELOAD=sgshim.so sg_xcopy if=/dev/sg0 of=/dev/sg1 ...
 *
 * A path that begins with iscsi:// is a device too. A mapped name that begins
 * with /dev/sd looks like a block device (for blk_sgio=1), all others like
 * /dev/sgN. CHAP goes into the URL (user%password@). Further environment:
 *
 *   ARRAYSIM_INITIATOR  initiator name
 *   ARRAYSIM_ISID       number that makes the initiator port the same in every
 *                       process (persistent reservations); random without it
 *   ARRAYSIM_DIGEST     header digest: none (default), crc32c, offer
 *   ARRAYSIM_TIMEOUT    seconds until a command fails (default 60)
 *
 * CDBs of up to 16 bytes travel as libiscsi sends them. Longer ones need an
 * Additional Header Segment (RFC 7143 11.2.2.3), which libiscsi cannot make:
 * the hook of send() puts it behind the basic header on its way out.
 *
 * One thread, a few devices: what sg3_utils does. Needs glibc 2.33 or later,
 * where stat is a symbol of its own.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <scsi/scsi_ioctl.h>
#include <scsi/sg.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

#define MAX_DEVICES 16
#define BHS_LEN 48
#define SG_MAJOR 21
#define SD_MAJOR 8

/* In the kernel's <scsi/scsi.h>, which user space does not have. */
#ifndef SCSI_IOCTL_GET_IDLUN
#define SCSI_IOCTL_GET_IDLUN 0x5382
#define SCSI_IOCTL_GET_BUS_NUMBER 0x5386
#endif

struct device {
	int fd; /* a descriptor of /dev/null that stands for the device */
	int block, index;
	struct iscsi_context *ctx;
	struct iscsi_url *url;
};

/* Free: ctx is NULL. The index is part of the ISID: sessions of one process differ,
   and one that is opened again is the same initiator port. */
static struct device devices[MAX_DEVICES];

/* The part of a long CDB behind byte 15, while its command is being sent. */
static struct {
	int fd, len;
	unsigned char bytes[64];
} tail = { .fd = -1 };

#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static const char *env(const char *name, const char *otherwise)
{
	const char *v = getenv(name);
	return v && *v ? v : otherwise;
}

/* find_url copies the URL that path stands for; 0 when it stands for none. */
static int find_url(const char *path, char *url, size_t size, int *index)
{
	const char *p = env("ARRAYSIM_SG", "");
	*index = 0;
	if (!path) return 0;
	if (!strncmp(path, "iscsi://", 8)) {
		snprintf(url, size, "%s", path);
		return 1;
	}
	for (size_t n = strlen(path); *p; ++*index) {
		size_t len = strcspn(p, ";");
		if (len > n && !strncmp(p, path, n) && p[n] == '=') {
			snprintf(url, size, "%.*s", (int)(len - n - 1), p + n + 1);
			return 1;
		}
		p += len + (p[len] == ';');
	}
	return 0;
}

static struct device *by_fd(int fd)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		if (devices[i].ctx && devices[i].fd == fd) return &devices[i];
	return NULL;
}

static void fill_stat(struct stat *st, int block, int index)
{
	memset(st, 0, sizeof *st);
	st->st_mode = (block ? S_IFBLK : S_IFCHR) | 0660;
	st->st_rdev = makedev(block ? SD_MAJOR : SG_MAJOR, block ? 16 * index : index);
	st->st_nlink = 1;
	st->st_blksize = 4096;
}

static int fail(struct device *d, const char *what)
{
	fprintf(stderr, "sgshim: %s: %s\n", what, iscsi_get_error(d->ctx));
	if (d->url) iscsi_destroy_url(d->url);
	iscsi_destroy_context(d->ctx);
	memset(d, 0, sizeof *d);
	errno = ENXIO;
	return -1;
}

/* open_device logs in to url and returns the descriptor that stands for it. */
static int open_device(const char *path, const char *url, int index)
{
	struct device *d = devices;
	const char *digest = env("ARRAYSIM_DIGEST", "none"), *isid = getenv("ARRAYSIM_ISID");
	while (d < devices + MAX_DEVICES && d->ctx) d++;
	if (d == devices + MAX_DEVICES) {
		errno = EMFILE;
		return -1;
	}
	d->block = !strncmp(path, "/dev/sd", 7);
	d->index = index;
	d->ctx = iscsi_create_context(env("ARRAYSIM_INITIATOR", "iqn.2026-01.io.arraysim:sgshim"));
	if (!d->ctx || !(d->url = iscsi_parse_full_url(d->ctx, url))) return fail(d, url);
	iscsi_set_targetname(d->ctx, d->url->target);
	iscsi_set_session_type(d->ctx, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(d->ctx, !strcmp(digest, "crc32c") ? ISCSI_HEADER_DIGEST_CRC32C :
		!strcmp(digest, "offer") ? ISCSI_HEADER_DIGEST_NONE_CRC32C : ISCSI_HEADER_DIGEST_NONE);
	if (isid) iscsi_set_isid_random(d->ctx, strtoul(isid, NULL, 0), d - devices);
	iscsi_set_noautoreconnect(d->ctx, 1);
	iscsi_set_timeout(d->ctx, atoi(env("ARRAYSIM_TIMEOUT", "60")));
	if (*d->url->user)
		iscsi_set_initiator_username_pwd(d->ctx, d->url->user, d->url->passwd);
	if (iscsi_full_connect_sync(d->ctx, d->url->portal, d->url->lun)) return fail(d, url);
	REAL(open64);
	d->fd = real("/dev/null", O_RDWR | O_CLOEXEC);
	return d->fd;
}

/* Opening and closing. The mode argument exists with O_CREAT only. */

static int hook_open(int (*real)(const char *, int, ...), const char *path, int flags, int mode)
{
	char url[1024];
	int index;
	if (find_url(path, url, sizeof url, &index)) return open_device(path, url, index);
	return real(path, flags, mode);
}

#define MODE_ARG(flags, mode) \
	int mode = 0; \
	if ((flags) & (O_CREAT | O_TMPFILE)) { \
		va_list ap; \
		va_start(ap, flags); \
		mode = va_arg(ap, int); \
		va_end(ap); \
	}

int open(const char *path, int flags, ...)
{
	MODE_ARG(flags, mode);
	REAL(open);
	return hook_open(real, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE_ARG(flags, mode);
	REAL(open64);
	return hook_open(real, path, flags, mode);
}

int __open64_2(const char *path, int flags)
{
	REAL(open64);
	return hook_open(real, path, flags, 0);
}

int openat(int dir, const char *path, int flags, ...)
{
	char url[1024];
	int index;
	MODE_ARG(flags, mode);
	REAL(openat);
	if (find_url(path, url, sizeof url, &index)) return open_device(path, url, index);
	return real(dir, path, flags, mode);
}

int close(int fd)
{
	struct device *d = by_fd(fd);
	REAL(close);
	if (d) {
		iscsi_logout_sync(d->ctx);
		iscsi_destroy_url(d->url);
		iscsi_destroy_context(d->ctx);
		memset(d, 0, sizeof *d);
	}
	return real(fd);
}

/* The stat family: struct stat and struct stat64 are one on 64-bit machines. */

#define HOOK_STAT(name, type) \
	int name(const char *path, struct type *st) \
	{ \
		char url[1024]; \
		int index; \
		REAL(name); \
		if (!find_url(path, url, sizeof url, &index)) return real(path, st); \
		fill_stat((struct stat *)st, !strncmp(path, "/dev/sd", 7), index); \
		return 0; \
	}
#define HOOK_FSTAT(name, type) \
	int name(int fd, struct type *st) \
	{ \
		struct device *d = by_fd(fd); \
		REAL(name); \
		if (!d) return real(fd, st); \
		fill_stat((struct stat *)st, d->block, d->index); \
		return 0; \
	}
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "a 64-bit machine is needed");
HOOK_STAT(stat, stat)
HOOK_STAT(stat64, stat64)
HOOK_STAT(lstat, stat)
HOOK_STAT(lstat64, stat64)
HOOK_FSTAT(fstat, stat)
HOOK_FSTAT(fstat64, stat64)

/* send inserts the Extended CDB segment behind the header of a long command. */
ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	const unsigned char *bhs = buf;
	REAL(send);
	if (fd != tail.fd || len < BHS_LEN || (bhs[0] & 0x3f) != 0x01) return real(fd, buf, len, flags);
	unsigned char out[BHS_LEN + 4 + sizeof tail.bytes] = { 0 };
	int padded = (tail.len + 3) & ~3, total = BHS_LEN + 4 + padded;
	memcpy(out, bhs, BHS_LEN);
	out[4] = (4 + padded) / 4;     /* TotalAHSLength, in words */
	out[BHS_LEN + 1] = tail.len + 1; /* AHSLength: CDB length - 15 */
	out[BHS_LEN + 2] = 1;          /* AHSType: Extended CDB */
	memcpy(out + BHS_LEN + 4, tail.bytes, tail.len);
	tail.fd = -1;
	for (int sent = 0; sent < total;) {
		ssize_t n = real(fd, out + sent, total - sent, flags);
		if (n > 0) sent += n;
		else if (errno != EAGAIN && errno != EINTR) return -1;
	}
	return BHS_LEN; /* a rest, if any, is asked for again */
}

/* sg_io carries out one SG_IO request (version 3 interface). */
static int sg_io(struct device *d, sg_io_hdr_t *h)
{
	unsigned char cdb[16] = { 0 };
	int out = h->dxfer_direction == SG_DXFER_TO_DEV, len = h->dxfer_len;
	int dir = !len || h->dxfer_direction == SG_DXFER_NONE ? SCSI_XFER_NONE : out ? SCSI_XFER_WRITE : SCSI_XFER_READ;
	struct scsi_iovec one = { h->dxferp, len }; /* laid out like sg_iovec_t */

	if (h->interface_id != 'S' || h->cmd_len < 6 || h->cmd_len > sizeof cdb + sizeof tail.bytes ||
	    (h->cmd_len > 16 && strcmp(env("ARRAYSIM_DIGEST", "none"), "none"))) {
		errno = EINVAL;
		return -1;
	}
	memcpy(cdb, h->cmdp, h->cmd_len < 16 ? h->cmd_len : 16);
	if (h->cmd_len > 16) {
		tail.fd = iscsi_get_fd(d->ctx);
		tail.len = h->cmd_len - 16;
		memcpy(tail.bytes, h->cmdp + 16, tail.len);
	}
	struct scsi_task *t = scsi_create_task(h->cmd_len < 16 ? h->cmd_len : 16, cdb, dir, dir == SCSI_XFER_NONE ? 0 : len);
	struct scsi_iovec *iov = h->iovec_count ? h->dxferp : &one;
	int niov = h->iovec_count ? h->iovec_count : 1;
	if (dir == SCSI_XFER_WRITE) scsi_task_set_iov_out(t, iov, niov);
	if (dir == SCSI_XFER_READ) scsi_task_set_iov_in(t, iov, niov);

	h->status = h->masked_status = h->host_status = h->driver_status = 0;
	h->sb_len_wr = h->resid = h->info = h->duration = 0;
	if (!iscsi_scsi_command_sync(d->ctx, d->url->lun, t, NULL) || t->status > 0xff) {
		fprintf(stderr, "sgshim: command %02x: %s\n", cdb[0], iscsi_get_error(d->ctx));
		h->host_status = t->status == SCSI_STATUS_TIMEOUT ? 3 : 7; /* DID_TIME_OUT, DID_ERROR */
		h->info = SG_INFO_CHECK;
		scsi_free_scsi_task(t);
		return 0;
	}
	h->status = t->status;
	h->masked_status = (t->status >> 1) & 0x1f;
	h->info = t->status ? SG_INFO_CHECK : SG_INFO_OK;
	if (t->residual_status == SCSI_RESIDUAL_UNDERFLOW) h->resid = t->residual;
	/* Sense data stands behind its own length in the reply's data segment. */
	if (t->status == SCSI_STATUS_CHECK_CONDITION && t->datain.size > 2) {
		int n = t->datain.data[0] << 8 | t->datain.data[1];
		if (n > t->datain.size - 2) n = t->datain.size - 2;
		if (n > h->mx_sb_len) n = h->mx_sb_len;
		memcpy(h->sbp, t->datain.data + 2, n);
		h->sb_len_wr = n;
		h->driver_status = 8; /* DRIVER_SENSE */
	}
	scsi_free_scsi_task(t);
	return 0;
}

static int capacity(struct device *d, unsigned long req, void *arg)
{
	struct scsi_task *t = iscsi_readcapacity16_sync(d->ctx, d->url->lun);
	struct scsi_readcapacity16 *rc = t && !t->status ? scsi_datain_unmarshall(t) : NULL;
	if (rc && req == BLKSSZGET) *(int *)arg = rc->block_length;
	else if (rc) *(uint64_t *)arg = (rc->returned_lba + 1) * rc->block_length;
	else errno = EIO;
	if (t) scsi_free_scsi_task(t);
	return rc ? 0 : -1;
}

int ioctl(int fd, unsigned long req, ...)
{
	va_list ap;
	va_start(ap, req);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	struct device *d = by_fd(fd);
	REAL(ioctl);
	if (!d) return real(fd, req, arg);
	switch (req) {
	case SG_IO: return sg_io(d, arg);
	case SG_GET_VERSION_NUM: *(int *)arg = 30536; return 0; /* 3.5.36: no version 4 interface */
	case SG_GET_TIMEOUT: return 6000;
	case SG_GET_RESERVED_SIZE: *(int *)arg = 8 << 20; return 0;
	case SG_GET_SG_TABLESIZE: *(int *)arg = 2048; return 0;
	case SG_SET_TIMEOUT: case SG_SET_RESERVED_SIZE: case SG_SET_COMMAND_Q: case SG_SET_DEBUG: case BLKFLSBUF: return 0;
	case SG_GET_SCSI_ID: {
		struct sg_scsi_id *id = arg;
		memset(id, 0, sizeof *id);
		id->scsi_id = d->index;
		id->lun = d->url->lun;
		id->h_cmd_per_lun = id->d_queue_depth = 1;
		return 0;
	}
	case SCSI_IOCTL_GET_IDLUN: ((int *)arg)[0] = d->url->lun << 8 | d->index; ((int *)arg)[1] = 0; return 0;
	case SCSI_IOCTL_GET_BUS_NUMBER: *(int *)arg = 0; return 0;
	case SG_SCSI_RESET:
		if ((*(int *)arg & 0xff) == SG_SCSI_RESET_NOTHING) return 0;
		if ((*(int *)arg & 0xff) == SG_SCSI_RESET_DEVICE) return iscsi_task_mgmt_lun_reset_sync(d->ctx, d->url->lun);
		return iscsi_task_mgmt_target_warm_reset_sync(d->ctx);
	case BLKSSZGET: case BLKGETSIZE64: return capacity(d, req, arg);
	}
	errno = ENOTTY;
	return -1;
}
