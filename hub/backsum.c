#include "hub/backsum.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void
backsum_drop(struct backsum *b)
{
	EVP_MD_CTX_free(b->md);
	*b = (struct backsum){ .md = NULL };
}

int
backsum_begin(struct backsum *b)
{
	backsum_drop(b);
	b->md = EVP_MD_CTX_new();
	if (b->md != NULL && EVP_DigestInit_ex(b->md, EVP_sha256(), NULL) == 1)
		return 0;
	backsum_drop(b);
	return -ENOMEM;
}

int
backsum_add(struct backsum *b, const void *data, size_t len)
{
	if (EVP_DigestUpdate(b->md, data, len) != 1)
		return -ENOMEM;
	b->size += len;
	return 0;
}

void
backsum_whole(struct backsum *b, uint64_t size, const char *sha256)
{
	backsum_drop(b);
	b->size = size;
	snprintf(b->sha256, sizeof(b->sha256), "%s", sha256);
}

/* A copy: pieces may follow. */
static bool
sum_up(const EVP_MD_CTX *md, char hex[FILE_SHA_HEX])
{
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	uint8_t sha[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	bool ok = copy != NULL && EVP_MD_CTX_copy_ex(copy, md) == 1 && EVP_DigestFinal_ex(copy, sha, &n) == 1 && n == 32;

	EVP_MD_CTX_free(copy);
	if (ok)
		file_sha_put(sha, hex);
	return ok;
}

bool
backsum_is(struct backsum *b, uint64_t size, const char *sha256)
{
	char hex[FILE_SHA_HEX];

	if (b->md != NULL && !sum_up(b->md, hex))
		return false;
	return b->size == size && size > 0 && sha256 != NULL && strcmp(b->md != NULL ? hex : b->sha256, sha256) == 0;
}
