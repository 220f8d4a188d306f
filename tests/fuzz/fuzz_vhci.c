/* vhci_parse: the kernel's status files, from which privhelper takes a port to attach to or to detach. */
#include <stdlib.h>
#include <string.h>

#include "common/vhci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vhci_port ports[40];
	char text[4097];
	size_t n = 0;

	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (vhci_parse(text, 0, ports, 40, &n) == 0 && n > 40)
		abort();
	for (size_t i = 0; i < n; i++)
		if ((ports[i].state == VHCI_USED && (ports[i].bus == 0 || ports[i].place == 0)) || ports[i].port > 4096)
			abort();
	return 0;
}
