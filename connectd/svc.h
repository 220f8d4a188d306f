/* Between the files of an http stream: svcstream.c (the channel), svcanswer.c (requests, and what is answered here), svcrelay.c (bodies), svclist.c. */
#ifndef EDGEWARD_CONNECTD_SVC_H
#define EDGEWARD_CONNECTD_SVC_H

#include "connectd/outq.h"
#include "connectd/svcconn.h"
#include "connectd/svcstream.h"
#include "proto/hub/chunked.h"
#include "proto/hub/svchead.h"
#include "proto/hub/svcroute.h"

#define SVC_IN	16384u		/* read of an answer at a time, where it is looked at */

enum svc_state {
	SVC_AT_HEAD,		/* a request is awaited, or coming */
	SVC_AT_DIAL,		/* its service is being dialled */
	SVC_AT_LIST,		/* the list of services is being made */
	SVC_AT_ANSWER,		/* the head of the service's answer is awaited */
	SVC_AT_BODY,		/* its body passes */
	SVC_AT_SENT,		/* all that remains of the answer is in out */
	SVC_AT_PIPE,		/* no HTTP any more: bytes both ways */
	SVC_AT_CLOSE,		/* out, then the end */
};

struct svc_list;

struct svc_stream {
	struct svc_stream *next;
	struct session *s;
	struct mux_chan chan;
	enum svc_purpose purpose;
	enum svc_state state;
	char actor[64];			/* for whom, as the hub says */
	char told[SERVICE_AUTHORITY_SIZE + 16];	/* the event that was recorded last */
	monotime_t piped;		/* since when there is no HTTP any more; NEVER */
	struct loop_timer soon;		/* the next request, or the end with why */
	struct loop_timer deadline;
	monotime_t progress;		/* last time something moved */
	char why[200];			/* "" = no end is due */
	struct outq out;		/* to the hub */
	/* the request */
	struct http_head req;
	struct svc_route route;
	enum svc_body req_body;
	uint64_t req_left;
	struct chunked req_chunked;
	bool req_done, req_void;	/* void: the service takes no more of it */
	bool peer_ended, close_after, warned;
	bool served;			/* a request, and waits for another one */
	/* the service and its answer */
	struct svcconn *up;		/* also between two requests, if it may serve another one */
	bool keep;			/* ... as it will when this answer has passed */
	bool again, redialled;		/* it has served before; it ended instead of answering, and was dialled anew */
	struct loop_timer kept;		/* between two requests: its end */
	struct svc_list *list;
	struct http_head ans;
	unsigned interim;		/* answers 1xx so far */
	enum svc_body ans_body;
	uint64_t ans_left;
	struct chunked ans_chunked;
	bool ans_coded;			/* the body is chunked towards the hub */
	size_t in_off, in_len;
	uint8_t in[SVC_IN];
};

/* svcstream.c. After svc_finish() and svc_reset_soon() nothing more is to be done with the stream by its caller. */
void svc_set_state(struct svc_stream *st, enum svc_state state);
void svc_finish(struct svc_stream *st);
void svc_reset_soon(struct svc_stream *st, const char *why);
void svc_moved(struct svc_stream *st);
void svc_drop_service(struct svc_stream *st);

/* svcanswer.c */
void svc_request(struct svc_stream *st);	/* st->req is complete */
/* A kept connection has ended without a byte of an answer: the same request, which changes nothing at the service, on a new one. */
void svc_redial(struct svc_stream *st);
void svc_bad_request(struct svc_stream *st, int err);
void svc_timed_out(struct svc_stream *st);
void svc_ended(struct svc_stream *st);	/* for the record */
void svc_answer_text(struct svc_stream *st, unsigned status, const char *text);
/* headers: lines with CRLF, or "". */
void svc_answer(struct svc_stream *st, unsigned status, const char *type, const char *headers, const char *body, size_t len);

/* svcrelay.c */
void svc_relay_begin(struct svc_stream *st);
ssize_t svc_relay_take(struct svc_stream *st, const uint8_t *data, size_t len);
ssize_t svc_relay_fill(struct svc_stream *st, uint8_t *buf, size_t max);

/* svclist.c: the answer comes by itself. svc_list_free(NULL) is fine. */
void svc_list_begin(struct svc_stream *st);
void svc_list_free(struct svc_list *list);
/* The target of a declared service. False: there is none of this name. */
bool svc_list_find(const struct conf *conf, const char *name, struct service_target *ret_target);

#endif
