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
    active = [message for message in messages(db, ask["session"]) if message["active"]]
    users = [at for at, message in enumerate(active) if message["role"] == "user"]
    if ask["ordinal"] < 1 or ask["ordinal"] > len(users):
        raise WhyNot("the prompt is not in it")
    at = users[ask["ordinal"] - 1]
    if abs(active[at]["timestamp"] - ask["time"]) > SECONDS_MAX:
        raise WhyNot("it was changed since the prompt: prompts were taken back, or it was compacted")
    return dict(zip(SESSIONS, row)), active[:at]


def plan(ask):
    db = open_db(ask["db"], "ro")
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
