"""What a frame from an agent may look like, by dialect (protocol reference, section 3.3, and edgeward.1 section 5)."""
import re

INT, STR, BOOL, OBJ, LIST = int, str, bool, dict, list
TIME = "time"
TIME_RE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$")

# type: (required, optional on both, optional on edgeward.1 only)
PAYLOADS = {
    "hello": ({"protocol_version": INT, "agent_id": STR, "capabilities": OBJ},
              {"name": STR, "agent_version": STR, "resume": LIST}, {}),
    "heartbeat": ({"seq": INT}, {"active_handles": LIST, "load_percent": INT}, {"health": LIST, "audit_head": STR}),
    "started": ({"handle_id": STR, "started_at": TIME}, {"pid": INT, "error": STR, "disk_limit": OBJ},
                {"log_channel": INT, "code": STR}),
    "log_chunk": ({"stream": STR, "offset": INT, "text": STR, "time": TIME}, {}, {}),
    "status": ({"status": OBJ}, {"final_offset": INT}, {"log_xxh3": STR}),
    "error": ({"code": STR, "message": STR}, {}, {}),
    "result_chunk": ({"offset": INT, "data": STR}, {}, {}),
    "result": ({"result": OBJ}, {}, {}),
    "project_result": ({}, {"data": STR, "error": STR}, {}),
    "inventory": ({"capabilities": OBJ}, {}, {}),
    "harness_installed": ({"installed": BOOL}, {"harness": STR, "already_present": BOOL, "path": STR, "version": STR, "reason": STR}, {}),
    "revoked": ({"lease_id": STR, "known": BOOL},
                {"grant_id": STR, "action": STR, "env_scrubbed": LIST, "files_removed": INT, "egress_dropped": BOOL,
                 "killed": LIST, "error": STR}, {}),
    "secret_refreshed": ({"lease_id": STR, "known": BOOL},
                         {"files_rewritten": INT, "handles": LIST, "error": STR}, {}),
    "attach_opened": ({"session_id": STR, "tty": BOOL}, {}, {}),
    "attach_data": ({"session_id": STR, "data": STR}, {}, {}),
    "attach_close": ({"session_id": STR}, {"reason": STR, "exit_code": INT}, {"channel": INT}),
    "bye": ({"reconnect": BOOL}, {"reason": STR}, {}),
    "log_open": ({"handle": STR, "channel": INT}, {}, {}),
    "stream_open": ({"channel": INT, "kind": STR, "handle": STR, "size": INT, "sha256": STR}, {}, {}),
    "stream_opened": ({"channel": INT}, {"offset": INT, "window": INT}, {}),
    "device_opened": ({"device_id": STR, "kind": STR, "channel": INT, "bus": INT, "dev": INT, "speed": INT, "vendor_id": STR, "product_id": STR, "port": INT, "nodes": LIST}, {}, {}),
    "device_close": ({"device_id": STR, "reason": STR}, {}, {}),
    "upgrading": ({"accepted": BOOL}, {"reason": STR, "already_current": BOOL, "from_version": STR, "target_version": STR}, {}),
    "upgrade_result": ({"from_version": STR, "to_version": STR, "outcome": STR, "reason": STR}, {}, {}),
}
STATUS = ({"handle_id": STR, "executor_id": STR, "state": STR, "exit_code": INT, "started_at": TIME,
           "finished_at": TIME}, {"pid": INT, "error": STR, "outcome": STR, "disk_limit": OBJ},
          {"limit": STR, "usage": OBJ, "signal": INT})
MEASURED = ({"used_bytes": INT, "limit_mb": INT, "measured_at": TIME}, {"source": STR, "path": STR}, {})
OFFER = ({"handle_id": STR, "started_at": TIME, "log_offset": INT}, {}, {"log_channel": INT, "channel": INT})
CAPS = ({"os": STR, "arch": STR},
        {"cpus": INT, "memory_mb": INT, "workdir_root": STR, "max_concurrent": INT, "labels": OBJ,
         "container_runtimes": LIST, "harnesses": LIST, "workspace_provisioning": BOOL, "write_back": BOOL,
         "virtualization": BOOL, "usb_devices": LIST, "packet_filter": BOOL, "packet_filter_issue": STR, "oci_runtimes": LIST,
         "branch_bundles": BOOL, "update_channel": STR, "remote_upgrade": BOOL, "remote_upgrade_issue": STR,
         "build_sequence": INT},
        {"sandbox": OBJ, "devices": OBJ, "inventory": OBJ})
USB = ({"port": STR, "bus": INT, "dev": INT, "vendor_id": STR, "product_id": STR, "class": STR},
       {"manufacturer": STR, "product": STR, "serial": STR, "speed": STR, "node": STR, "nodes": LIST, "mode": STR, "uid": INT,
        "gid": INT, "group": STR}, {})
NEED_HANDLE = {"attach_opened", "attach_data", "attach_close", "started", "log_chunk", "status", "log_open", "result_chunk", "result", "project_result"}
EDGEWARD_ONLY = {"log_open", "stream_open", "stream_opened", "device_opened", "device_close", "upgrade_result"}
CLOOP_ONLY = {"log_chunk", "attach_opened", "attach_data"}
FIRST = {"attach_opened": 7, "attach_data": 7, "attach_close": 7, "upgrading": 11, "harness_installed": 12, "project_result": 13, "inventory": 14,
         "secret_refreshed": 17, "revoked": 2, "result": 4, "result_chunk": 4}      # of cloop with this frame
STATES = {"pending", "running", "exited", "failed", "killed", "unknown"}
TERMINAL = {"exited", "failed", "killed"}


def _fields(what, obj, spec, edgeward):
    if not isinstance(obj, dict):
        return [f"{what} is no object"]
    required, optional, extra = spec
    allowed = {**required, **optional, **(extra if edgeward else {})}
    wrong = [f"{what} lacks {k}" for k in required if k not in obj]
    for key, value in obj.items():
        kind = allowed.get(key)
        if kind is None:
            wrong.append(f"{what} has the unknown key {key}")
        elif kind == TIME:
            if not isinstance(value, str) or not TIME_RE.match(value):
                wrong.append(f"{what}.{key} is no UTC time: {value!r}")
        elif type(value) is not kind:
            wrong.append(f"{what}.{key} is {type(value).__name__}")
    return wrong


def _caps(caps, edgeward):
    wrong = _fields("capabilities", caps, CAPS, edgeward)
    for usb in caps.get("usb_devices", []):
        wrong += _fields("usb device", usb, USB, edgeward)
        wrong += [f"usb device: {k} {v!r} is not printable or longer than 128" for k, v in usb.items()
                  if isinstance(v, str) and (len(v) > 128 or not v.isprintable())]
        if "node" in usb and usb["node"] != f"/dev/bus/usb/{usb['bus']:03}/{usb['dev']:03}":
            wrong.append(f"usb device: node {usb['node']}")
    return wrong


def check(frame, edgeward, version):
    """A list of sentences; empty = a good frame. version: the one the session negotiated, None before the welcome."""
    wrong = []
    if not isinstance(frame, dict):
        return ["not an object"]
    kind = frame.get("type")
    unknown = set(frame) - {"v", "type", "id", "handle", "payload"}
    if unknown:
        wrong.append(f"envelope has {sorted(unknown)}")
    if frame.get("v") != (1 if version is None or kind == "hello" else version):
        wrong.append(f"{kind} stamped v {frame.get('v')!r}")
    if kind not in PAYLOADS:
        return wrong + [f"type {kind!r}"]
    if kind in EDGEWARD_ONLY and not edgeward or kind in CLOOP_ONLY and edgeward:
        wrong.append(f"{kind} on the wrong dialect")
    if kind in NEED_HANDLE and not frame.get("handle"):
        wrong.append(f"{kind} without handle")
    if not edgeward and version is not None and version < FIRST.get(kind, 1):
        wrong.append(f"{kind} in a session of version {version}")
    payload = frame.get("payload")
    wrong += _fields(kind, payload, PAYLOADS[kind], edgeward)
    if wrong:
        return wrong
    for where in (payload, payload.get("status", {})) if kind in ("started", "status") else ():
        if "disk_limit" in where:
            wrong += _fields("disk_limit", where["disk_limit"], MEASURED, edgeward)
            if version < 20 or where is payload and "error" not in payload:
                wrong.append("disk_limit before version 20, or beside no error")
        if not edgeward and where.get("outcome", "disk_limit") != "disk_limit":
            wrong.append(f"cloop has no outcome {where['outcome']}")
    if kind == "hello":
        # The hello is written before the dialect's extras could be agreed on; they are allowed where it was offered.
        wrong += _caps(payload["capabilities"], edgeward)
        for offer in payload.get("resume", []):
            wrong += _fields("offer", offer, OFFER, edgeward)
    elif kind == "inventory":
        wrong += _caps(payload["capabilities"], edgeward)
    elif kind == "status":
        status = payload["status"]
        wrong += _fields("status", status, STATUS, edgeward)
        if status.get("state") not in STATES:
            wrong.append(f"state {status.get('state')!r}")
        if status.get("state") in TERMINAL and "id" not in frame and "final_offset" not in payload:
            wrong.append("terminal status without final_offset")
        if status.get("handle_id") != frame.get("handle"):
            wrong.append("status names another handle than its envelope")
    elif kind == "log_chunk":
        if len(payload["text"].encode("utf-8", "surrogatepass")) > 32768:
            wrong.append("log_chunk over 32768 bytes")
        if payload["offset"] < 0 or "id" in frame:
            wrong.append("log_chunk with a negative offset or an id")
    return wrong
