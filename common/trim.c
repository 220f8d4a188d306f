/*
 * A handshake runs through 4 MiB of libcrypto once; a link that idles needs a tenth of it. Segments that may not be
 * written hold nothing of ours: relocations lie in those that may, which are left alone.
 */
#include "common/trim.h"

#include <link.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static int
drop_segments(struct dl_phdr_info *info, size_t size, void *ctx)
{
	const uintptr_t page = *(const uintptr_t *)ctx;

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t begin = ((uintptr_t)info->dlpi_addr + ph->p_vaddr) & ~(page - 1);
		uintptr_t end = (uintptr_t)info->dlpi_addr + ph->p_vaddr + ph->p_filesz;

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_W) == 0 && begin < end)
			madvise((void *)begin, end - begin, MADV_DONTNEED);
	}
	return 0;
}

void
trim_memory(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	malloc_trim(0);
	dl_iterate_phdr(drop_segments, &page);
}
