/* Pins from any text: what is taken matches itself and is written in a form that is taken. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/pin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), err[PIN_ERR_SIZE] = "", form[PIN_TEXT_SIZE];
	struct pinset pins, again;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (pin_parse(text, &pins, err) == 0) {
		if (pins.n > PINS_MAX || (pins.n == 0 && text[0] != '\0'))
			abort();
		for (unsigned i = 0; i < pins.n; i++)
			if (!pin_match(&pins, pins.digest[i]) || pin_parse(pin_format(pins.digest[i], form), &again, err) < 0 ||
			    memcmp(again.digest[0], pins.digest[i], PIN_DIGEST) != 0)
				abort();
	} else if (err[0] == '\0') {
		abort();
	}
	free(text);
	return 0;
}
