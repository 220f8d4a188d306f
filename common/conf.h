/* edgeward.conf: its keys are a table (common/keyfile.h), read by connectd and workerd before their sandboxes close. */
#ifndef EDGEWARD_CONF_H
#define EDGEWARD_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/keyfile.h"
#include "common/log.h"

enum conf_overflow { CONF_OVERFLOW_WAIT, CONF_OVERFLOW_WAIT_FOREVER, CONF_OVERFLOW_DROP };
enum conf_sandbox { CONF_SANDBOX_REQUIRE, CONF_SANDBOX_BEST_EFFORT };
enum conf_dialect { CONF_DIALECT_AUTO, CONF_DIALECT_CLOOP };

#define CONF_STR	KEYFILE_STR

/* Where the units have it. Missing there, and only there, it is no mistake: the defaults hold, as with policy.conf (faults.md B125). */
#define CONF_FILE	"/etc/edgeward/edgeward.conf"

struct conf {
	bool missing;			/* CONF_FILE is not there */
	struct keyfile_mark mark;	/* of the file this was read from */
	/* [hub] */
	char hub_url[CONF_STR];
	char hub_pin[CONF_STR];		/* one or several, as written */
	char hub_ca_file[CONF_STR];
	char hub_token_file[CONF_STR];
	char hub_proxy[CONF_STR];	/* URL, "none" to ignore the environment, empty = environment */
	char hub_no_proxy[CONF_STR];
	bool hub_insecure;
	enum conf_dialect hub_dialect;
	/* [link], milliseconds */
	int64_t connect_timeout, handshake_timeout, write_timeout, heartbeat, dead_after;
	int64_t retry_min, retry_max_local, retry_max, stable_after;
	/* [device] */
	char device_name[CONF_STR];
	char device_labels[CONF_STR];	/* "k=v, k=v" */
	/* [work] */
	char work_root[CONF_STR];
	uint32_t work_slots;		/* 0 = number of cpus */
	uint64_t work_retain;		/* bytes of output held in memory per workload */
	uint64_t work_spool, work_spool_total;	/* bytes on disk for each workload (0 = none) and for all */
	enum conf_overflow work_overflow;
	int64_t work_overflow_wait, work_kill_grace;	/* ms */
	uint64_t work_disk_low;		/* bytes that must stay free for a start */
	enum conf_sandbox work_sandbox;
	char work_account[CONF_STR];	/* "" = edgeward-run and a pool; else one account, no pool */
	char work_show[CONF_STR];	/* directories workloads see besides the system's, separated by a space */
	/* [upgrade] */
	char upgrade_mirror[CONF_STR];	/* https URL, "" = none */
	uint64_t upgrade_rate;		/* bytes a second */
	int64_t upgrade_wait_min, upgrade_wait_max;	/* ms */
	/* [services] */
	struct keyfile_list services;	/* declared: NAME=TARGET */
	struct keyfile_list service_ports;	/* of loopback, that are looked at for a service */
	int64_t service_connect, service_answer, service_idle;	/* ms */
	uint32_t service_streams;	/* open at a time */
	/* [log] */
	enum log_level log_level;
};

#define CONF_ERR_SIZE	KEYFILE_ERR

/* Defaults, then the text. name is for the message only. -EINVAL with err filled. */
int conf_parse(struct conf *conf, const char *name, const char *text, size_t len, char err[CONF_ERR_SIZE]);

/* The same from a file of at most 64 KiB. */
int conf_load(struct conf *conf, const char *path, char err[CONF_ERR_SIZE]);

/* The same for who acts with root's power on it: -EPERM unless this user, and nobody else, can write the file. */
int conf_load_own(struct conf *conf, const char *path, char err[CONF_ERR_SIZE]);

/* Whether every key of the section has one value in both. */
bool conf_same(const struct conf *a, const struct conf *b, const char *section);

#endif
