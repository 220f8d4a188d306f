/* JSON as a hub sends it: parse, walk, write again, parse again. */
#include <stdint.h>
#include <stdlib.h>

#include "proto/hub/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
copy(struct json_w *w, const struct json *n)
{
	switch (n->type) {
	case JSON_NULL:
	case JSON_REAL:
		json_w_null(w, n->key);
		return;
	case JSON_BOOL:
		json_w_bool(w, n->key, n->i != 0);
		return;
	case JSON_INT:
		json_w_int(w, n->key, n->i);
		return;
	case JSON_STRING:
		json_w_strn(w, n->key, n->str, n->len);
		return;
	case JSON_ARRAY:
		json_w_arr(w, n->key);
		for (const struct json *c = n->child; c != NULL; c = c->next)
			copy(w, c);
		json_w_end_arr(w);
		return;
	case JSON_OBJECT:
		json_w_obj(w, n->key);
		for (const struct json *c = n->child; c != NULL; c = c->next)
			copy(w, c);
		json_w_end_obj(w);
		return;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char out[1 << 20];
	struct json_doc *doc, *again;
	struct json_w w;
	size_t len;

	if (json_parse(data, size, &doc) < 0)
		return 0;
	json_w_init(&w, out, sizeof(out));
	copy(&w, json_root(doc));
	if (json_w_done(&w, &len) == 0) {
		if (json_parse(out, len, &again) < 0)
			abort();
		json_doc_free(again);
	}
	json_doc_free(doc);
	return 0;
}
