#include "proto/release/machine.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define PHDRS_MAX	64
#define OWN_ORDER	(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

/* The path in a PT_INTERP segment: NUL-terminated, and inside what we have. */
static bool
read_interp(const uint8_t *data, size_t len, const Elf64_Phdr *ph, char interp[MACHINE_INTERP_SIZE])
{
	if (ph->p_filesz < 2 || ph->p_filesz > MACHINE_INTERP_SIZE || ph->p_offset > len || len - ph->p_offset < ph->p_filesz)
		return false;
	memcpy(interp, data + ph->p_offset, ph->p_filesz);
	return strnlen(interp, ph->p_filesz) == ph->p_filesz - 1;
}

int
machine_of(const void *data, size_t len, struct machine *ret_kind)
{
	struct machine kind = { 0 };
	bool loads = false;
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (len < sizeof(eh))
		return -EBADMSG;
	memcpy(&eh, data, sizeof(eh));
	if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_ident[EI_DATA] != OWN_ORDER ||
	    (eh.e_type != ET_EXEC && eh.e_type != ET_DYN) || eh.e_phentsize != sizeof(ph) || eh.e_phnum > PHDRS_MAX)
		return -EBADMSG;
	kind = (struct machine){ .class = eh.e_ident[EI_CLASS], .data = eh.e_ident[EI_DATA], .machine = eh.e_machine };
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		if (eh.e_phoff > len || len - eh.e_phoff < (i + 1) * sizeof(ph))
			return -EBADMSG;
		memcpy(&ph, (const uint8_t *)data + eh.e_phoff + i * sizeof(ph), sizeof(ph));
		loads = loads || ph.p_type == PT_LOAD;
		if (ph.p_type == PT_INTERP && (kind.interp[0] != '\0' || !read_interp(data, len, &ph, kind.interp)))
			return -EBADMSG;
	}
	if (!loads)
		return -EBADMSG;
	*ret_kind = kind;
	return 0;
}

const char *
machine_arch(const struct machine *kind)
{
	return kind->machine == EM_X86_64 ? "x86_64" : kind->machine == EM_AARCH64 ? "aarch64" : "unknown";
}
