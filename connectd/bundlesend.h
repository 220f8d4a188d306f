/*
 * The bundle of a result on its way to the hub as a stream of kind bundle (edgeward.md section 3), in place of result_chunk.
 *
 * stream_open {channel, kind, handle, size, sha256} -> stream_opened {channel, offset}: the hub has so much of these very bytes, from an
 * earlier session, and wants the rest. DATA, END; the END of the hub says that all of it is kept and has this digest. Then comes the
 * frame result. What fails resets the channel: REFUSED for bytes that were no good.
 *
 * Nothing is kept here: the link pulls from the file. A hub that has no such stream answers error `protocol`, or nothing; then the
 * chunks of cloop are sent, for the rest of the session.
 */
#ifndef EDGEWARD_CONNECTD_BUNDLESEND_H
#define EDGEWARD_CONNECTD_BUNDLESEND_H

#include <openssl/evp.h>

#include "connectd/session.h"
#include "proto/ipc/file.h"

#define BUNDLE_ANSWER_MS	(30 * 1000)	/* a hub that says nothing knows none */
#define BUNDLE_LATER_MS		(5 * 1000)	/* busy: asked again after this */

enum bundle_stage {
	BUNDLE_IDLE,
	BUNDLE_HASHING,		/* its digest is being made, a piece a turn */
	BUNDLE_LATER,		/* the hub, or we, have too many streams */
	BUNDLE_ASKED,
	BUNDLE_FLOW,		/* up to the END of the hub */
	BUNDLE_SENT,
	BUNDLE_FAILED,		/* why says it */
};

struct bundlesend {
	struct session *s;		/* NULL = at rest */
	struct mirror_entry *e;
	enum bundle_stage stage;
	int fd;				/* the owner's */
	uint64_t size;
	bool hashed;			/* sha256 is that of the file: over sessions */
	char sha256[FILE_SHA_HEX];
	EVP_MD_CTX *md;
	uint64_t at;			/* hashed, then sent */
	struct mux_chan chan;
	char id[24];			/* of stream_open */
	bool resumed;			/* this time not from its first byte */
	bool again;			/* a rest of it was refused: not a second time */
	struct loop_timer timer;
	char why[STREAM_REASON_MAX + 1];
};

/* Goes on with it: the stage, which is SENT or FAILED at the end; before that report_try() is called when there is news. */
enum bundle_stage bundlesend_go(struct bundlesend *b, struct session *s, struct mirror_entry *e, int fd, uint64_t size);

/* At rest, whatever it was; a session that is up has its channel reset. The digest is kept. */
void bundlesend_stop(struct bundlesend *b);

/* From the hub: the frames stream_opened and error. False: that id is not one of ours. */
bool bundlesend_opened(struct session *s, const struct cloop_frame *f);
bool bundlesend_refused(struct session *s, const struct cloop_frame *f);

#endif
