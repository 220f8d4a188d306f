/* Numbers of the hub protocols, from protocol references of cloop (v1..v20) and edgeward.1. */
#ifndef EDGEWARD_PROTO_HUB_LIMITS_H
#define EDGEWARD_PROTO_HUB_LIMITS_H

#define HUB_MESSAGE_MAX		(1u << 20)	/* bytes of one WebSocket message, both directions */
#define HUB_PATH		"/api/executors/connect"
#define HUB_SUBPROTOCOL		"edgeward.1"
#define HUB_LOG_TEXT_MAX	32768u		/* UTF-8 bytes of log_chunk.text */
#define HUB_HEARTBEAT_MS	15000
#define HUB_SILENCE_MS		45000		/* the hub drops a device that says nothing for so long */
#define HUB_HANDSHAKE_MS	15000
#define HUB_ACK_EVERY		32768u		/* the hub acks output at least this often */
#define HUB_CLOSE_REASON_MAX	120u
#define HUB_VERDICTS_MAX	256u

#define CLOOP_VERSION		20		/* what we advertise: each promise up to it is kept, or refused by name (cloop.md part A) */

#endif
