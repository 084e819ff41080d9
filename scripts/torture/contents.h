/*
 * What a sector holds, as a function of a 64-bit stamp: the LUN and sector that
 * it was first written to and the number of the operation. Stamp 0 is zeros.
 * The stamp itself comes first, so that wrong contents tell where they are from.
 */
#ifndef TORTURE_CONTENTS_H
#define TORTURE_CONTENTS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SECTOR 512

static uint64_t stamp(int lun, uint64_t sector, uint32_t s) { return (uint64_t)lun << 60 | sector << 32 | s; }

static void fill(unsigned char *p, uint64_t id)
{
	uint64_t v = id;
	for (int i = 0; i < SECTOR; i += 8) {
		memcpy(p + i, &v, 8);
		if (id) v = (v ^ v >> 29) * 0xbf58476d1ce4e5b9ull + i;
	}
}

static int holds(const unsigned char *p, uint64_t id)
{
	unsigned char want[SECTOR];
	if (memcmp(p, &id, 8)) return 0;
	fill(want, id);
	return !memcmp(p, want, SECTOR);
}

static void describe(char *out, size_t n, uint64_t id)
{
	if (id) snprintf(out, n, "lun %d sector %lu op %u", (int)(id >> 60), (unsigned long)(id >> 32 & 0xfffffff), (uint32_t)id);
	else snprintf(out, n, "zeros");
}

#endif
