/*
 * xstate: lets Linux 6.1 as a process run on processors with more registers than it knows.
 *
 * User Mode Linux keeps the floating-point and vector registers of a guest's process in 2,696
 * bytes: those up to AVX-512 and PKRU. It sets them by PTRACE_SETREGSET (NT_X86_XSTATE), and a host
 * takes nothing but the whole area that its processor has. With AMX that has 11,008 bytes: the host
 * answers EFAULT, and the guest's kernel ends when it starts init. Kernels from 6.13 on ask for the
 * size.
 *
 * This library is preloaded and sets the whole area: what the kernel keeps, and behind that zeros.
 * The head says which registers the area has (XSTATE_BV), and has none of those behind unless the
 * process has used them. For AMX it would have to ask first (ARCH_REQ_XCOMP_PERM), and a guest's
 * kernel knows no such call.
 *
 * One area is enough: the kernel has one thread that runs processes, and sets registers nowhere
 * else. It is static, because a kernel stack has no room for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static char area[1 << 16];

/* The bytes that the host wants, 0 until the first call asks. */
static size_t whole;

static long (*next)(int, ...);

__attribute__((constructor)) static void find(void)
{
	next = dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	int pid = va_arg(args, int);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if (request != PTRACE_SETREGSET || (size_t)addr != NT_X86_XSTATE)
		return next(request, pid, addr, data);
	struct iovec all = {area, whole};
	const struct iovec *given = data;
	if (whole == 0) {
		all.iov_len = sizeof area;
		if (next(PTRACE_GETREGSET, pid, addr, &all) < 0)
			return -1;
		whole = all.iov_len;
		memset(area, 0, whole);
	}
	if (given->iov_len >= whole)
		return next(request, pid, addr, data);
	memcpy(area, given->iov_base, given->iov_len);
	return next(request, pid, addr, &all);
}
