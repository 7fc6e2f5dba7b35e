# Reads and forks conversations in Hermes' database. Run by piton with the interpreter of Hermes; one request as JSON on stdin,
# one answer on stdout. A session that exists is only read.
import hashlib
import json
import sqlite3
import sys
import urllib.parse

SCHEMA = 22
SESSIONS = (
    "id source user_id session_key chat_id chat_type thread_id display_name origin_json expiry_finalized model model_config "
    "system_prompt parent_session_id started_at ended_at end_reason message_count tool_call_count input_tokens output_tokens "
    "cache_read_tokens cache_write_tokens reasoning_tokens cwd git_branch git_repo_root billing_provider billing_base_url "
    "billing_mode estimated_cost_usd actual_cost_usd cost_status cost_source pricing_version title api_call_count handoff_state "
    "handoff_platform handoff_error compression_failure_cooldown_until compression_failure_error compression_fallback_streak "
    "profile_name rewind_count archived"
).split()
MESSAGES = (
    "id session_id role content tool_call_id tool_calls tool_name effect_disposition timestamp token_count finish_reason "
    "reasoning reasoning_content reasoning_details codex_reasoning_items codex_message_items platform_message_id observed active "
    "compacted api_content"
).split()
# Of a fork, these begin at their defaults.
FRESH = (
    "ended_at end_reason tool_call_count input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens "
    "estimated_cost_usd actual_cost_usd api_call_count handoff_state handoff_platform handoff_error "
    "compression_failure_cooldown_until compression_failure_error compression_fallback_streak rewind_count archived "
    "session_key chat_id chat_type thread_id expiry_finalized"
).split()
# A prompt is stored shortly after its hook was called.
SECONDS_MAX = 120
# Start of the message that replaces others, and the longest time between two messages of one compaction, in seconds.
SUMMARY = "[CONTEXT COMPACTION"
MOMENT = 0.001


class WhyNot(Exception):
    pass


def open_db(path, mode):
    db = sqlite3.connect("file:" + urllib.parse.quote(path) + "?mode=" + mode, uri=True, timeout=10, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    for table, wanted in (("sessions", SESSIONS), ("messages", MESSAGES)):
        found = [row[1] for row in db.execute("PRAGMA table_info(" + table + ")")]
        if found != wanted:
            raise WhyNot("it is in a format that piton does not know: other columns in " + table)
    version = [row[0] for row in db.execute("SELECT version FROM schema_version")]
    if version != [SCHEMA]:
        raise WhyNot("it is in a format that piton does not know: schema " + str(version))
    return db


def session(db, name):
    return db.execute("SELECT " + ", ".join(SESSIONS) + " FROM sessions WHERE id = ?", (name,)).fetchone()


def messages(db, name):
    rows = db.execute("SELECT " + ", ".join(MESSAGES) + " FROM messages WHERE session_id = ? ORDER BY id", (name,))
    return [dict(zip(MESSAGES, row)) for row in rows]


def size(db, name):
    texts = "content tool_calls reasoning reasoning_content reasoning_details codex_reasoning_items codex_message_items api_content"
    total = " + ".join("total(length(" + key + "))" for key in texts.split())
    return db.execute("SELECT " + total + " FROM messages WHERE session_id = ?", (name,)).fetchone()[0]


def digest(db, name):
    row = session(db, name)
    if row is None:
        return None
    everything = json.dumps([row, messages(db, name)], default=repr)
    return hashlib.sha256(everything.encode("utf-8", "surrogateescape")).hexdigest()


def before(db, ask):
    row = session(db, ask["session"])
    if row is None:
        raise WhyNot("there is no session " + ask["session"])
    stored = messages(db, ask["session"])
    # A compaction leaves the messages that it replaces, and stores a summary and copies of some of them.
    full = [message for message in stored[: compacted_from(stored)] if message["active"] or message["compacted"]]
    active = [message for message in stored if message["active"]]
    for kept, earliest in ((full, -1), (active, -SECONDS_MAX)):
        at = place_of_prompt(kept, ask, earliest)
        if at is not None and not is_copy(stored, kept[at]):
            return dict(zip(SESSIONS, row)), [{**message, "active": 1, "compacted": 0} for message in kept[:at]]
    if sum(message["role"] == "user" for message in active) < ask["ordinal"]:
        raise WhyNot("the prompt is not in it")
    raise WhyNot("it was changed since the prompt: prompts were taken back, or it was compacted more than once")


def place_of_prompt(kept, ask, earliest):
    users = [at for at, message in enumerate(kept) if message["role"] == "user"]
    if ask["ordinal"] < 1 or ask["ordinal"] > len(users):
        return None
    at = users[ask["ordinal"] - 1]
    return at if earliest <= kept[at]["timestamp"] - ask["time"] <= SECONDS_MAX else None


def is_summary(message):
    return (message["content"] or "").startswith(SUMMARY)


def compacted_from(stored):
    """Returns the place of the first message that a compaction stored: all of them within a moment."""
    at = next((at for at, message in enumerate(stored) if is_summary(message)), len(stored))
    while 0 < at < len(stored) and stored[at]["timestamp"] - stored[at - 1]["timestamp"] < MOMENT:
        at -= 1
    return at


def is_copy(stored, message):
    """Returns true if a compaction stored the message: then it is not the prompt, but a copy of one."""
    summaries = [one["timestamp"] for one in stored if is_summary(one)]
    return any(abs(message["timestamp"] - time) < MOMENT * len(stored) for time in summaries)


def plan(ask):
    db = open_db(ask["db"], "ro")
    if size(db, ask["session"]) > ask["bytes_max"]:
        return {"is_too_large": True}
    row, kept = before(db, ask)
    shown = [[m["role"], (m["content"] or "")[:2000]] for m in kept if m["role"] in ("user", "assistant") and m["content"]]
    return {"cwd": row["cwd"], "messages": shown[-40:], "is_empty": not kept}


def free_title(db, title):
    for number in range(1, 1000):
        wanted = title if number == 1 else title + " (" + str(number) + ")"
        if not db.execute("SELECT 1 FROM sessions WHERE title = ?", (wanted,)).fetchone():
            return wanted
    return None


def fork(ask):
    db = open_db(ask["db"], "rw")
    db.execute("BEGIN IMMEDIATE")
    try:
        row, kept = before(db, ask)
        if session(db, ask["new"]) is not None:
            raise WhyNot("the new session exists")
        config = json.loads(row["model_config"] or "{}")
        config["_branched_from"] = ask["session"]
        row = {key: value for key, value in row.items() if key not in FRESH}
        row.update(
            id=ask["new"],
            parent_session_id=ask["session"],
            model_config=json.dumps(config),
            title=free_title(db, ask["title"]),
            started_at=ask["now"],
            message_count=len(kept),
        )
        put(db, "sessions", row)
        for message in kept:
            put(db, "messages", {**{k: v for k, v in message.items() if k != "id"}, "session_id": ask["new"]})
        if any(m["role"] == "user" for m in messages(db, ask["new"])[len(kept):]):
            raise WhyNot("the fork is not what it should be")
        state = digest(db, ask["new"])
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return {"state": state}


def put(db, table, row):
    keys = list(row)
    marks = ", ".join("?" for _ in keys)
    db.execute("INSERT INTO " + table + " (" + ", ".join(keys) + ") VALUES (" + marks + ")", [row[key] for key in keys])


def state(ask):
    return {"state": digest(open_db(ask["db"], "ro"), ask["session"])}


def remove(ask):
    db = open_db(ask["db"], "rw")
    db.execute("BEGIN IMMEDIATE")
    try:
        is_same = digest(db, ask["session"]) == ask["state"]
        child = db.execute("SELECT 1 FROM sessions WHERE parent_session_id = ?", (ask["session"],)).fetchone()
        if is_same and not child:
            db.execute("DELETE FROM messages WHERE session_id = ?", (ask["session"],))
            db.execute("DELETE FROM sessions WHERE id = ?", (ask["session"],))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return {"removed": bool(is_same and not child)}


try:
    request = json.load(sys.stdin)
    answer = {"plan": plan, "fork": fork, "state": state, "remove": remove}[request["do"]](request)
except WhyNot as why:
    answer = {"why_not": str(why)}
except Exception as error:
    answer = {"why_not": "its database cannot be read: " + str(error)}
json.dump(answer, sys.stdout)
