/*
 * What surrounds a workload: the workspace it gets before it runs, what is taken back when it has ended (reference cloop.md
 * 5.8 to 5.10), and the container it runs in. Travels inside a work_spec as bytes that only workerd opens; the workload never sees them.
 */
#ifndef EDGEWARD_PROTO_JOB_H
#define EDGEWARD_PROTO_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/container.h"
#include "proto/ipc/spec.h"

#define JOB_REPO_MAX	2048u
#define JOB_REF_MAX	255u
#define JOB_DEPTH_MAX	100000u
#define JOB_BRANCH_MAX	200u
#define JOB_MESSAGE_MAX	4096u
#define JOB_CREDENTIAL_MAX 8192u	/* user and password, each */
#define JOB_BUNDLE_MAX	(128u << 20)	/* bytes of a bundle, either way */
#define JOB_BUNDLE_DEFAULT (32u << 20)
#define JOB_SHALLOW_MAX	256u		/* commits */
#define JOB_SEED_MAX	(1u << 20)	/* bytes, compressed */
#define JOB_LABEL_MAX	128u
#define JOB_BRANCH_PREFIX "cloop/"

enum job_workspace { JOB_WORKSPACE_NONE, JOB_WORKSPACE_GIT, JOB_WORKSPACE_BUNDLE };
enum job_back { JOB_BACK_NONE, JOB_BACK_PUSH, JOB_BACK_BUNDLE };

/* Strings are views without NUL; empty = not given. */
struct work_job {
	enum job_workspace workspace;
	enum job_back back;
	bool seeded;
	uint32_t depth;			/* 0 = the whole history */
	uint64_t size_limit;		/* bytes of the work directory after the checkout, 0 = any */
	uint64_t max_bundle;		/* bytes of a result */
	uint64_t bundle_bytes;		/* of the branch that was shipped */
	int64_t expires_at;		/* of the credential, CLOCK_REALTIME ns, 0 = never */
	struct work_str repo, ref, user, password;
	struct work_str branch, message;	/* of the write-back; branch also of a shipped one */
	struct work_str head, sha256;	/* of the shipped branch */
	struct work_str shallow;	/* its boundary: commits of 40 digits, one space between two */
	struct work_str run_id;
	struct work_str seed;		/* gzip; bytes */
	bool container;			/* the payload runs in one, by an engine of the device's; see container.h */
	enum job_engine engine;
	struct work_str image, runtime, engine_network;
	struct work_str socket;		/* of the engine: filled in by workerd, whatever was sent */
};

/* True for an empty job: there is nothing to do around the workload, and it runs in no container. */
bool job_is_plain(const struct work_job *job);

/* NULL, or in a few words what is wrong: every rule of the reference, checked by connectd and by workerd. */
const char *job_problem(const struct work_job *job);

/* 0, -EINVAL (job_problem) or -ENOSPC. */
int job_encode(const struct work_job *job, void *buf, size_t size, size_t *ret_len);

/* 0 or -EBADMSG; what comes out has no problem. */
int job_decode(struct work_job *job, const void *data, size_t len);

/* The commit a write-back is counted from: the pinned ref or the shipped head. */
struct work_str job_base(const struct work_job *job);

#endif
