"""The other reader and writer of session records, for session_pyyaml.rs.

make DIR   writes records as PyYAML writes them, and texts as people write them, into DIR/NAME.yaml; and for each what
           PyYAML finds in it into DIR/NAME.then.
check DIR  reads DIR/NAME.yaml again. Each must hold what it held then, with what the update of the test added.
given DIR  writes values as JSON into DIR/NAME.json; what they are goes into DIR/NAME.then.
"""
import datetime
import json
import math
import pathlib
import random
import sys

import yaml

UTC2 = datetime.timezone(datetime.timedelta(hours=2))
TEXTS = [
    "yes", "no", "on", "off", "y", "n", "True", "null", "~", "1e3", "0o7", "0x1f", "0b1", "0b_", "1_000", "12:30:45", "1.",
    ".5", "-.5", "+.inf", ".nan", "0777", "09", "2026-11-15", "2026-11-15T10:00:00+02:00", "2026-13-45", "<<", "=", "a: b",
    "a #b", "#", " lead", "trail ", "\tt", "t\t", "a\tb", "a\nb", "a\nb\n", "a\n\n\nb", "\n", "a\n\n", "\nlead", "  x\ny",
    "x\n  y\n", "a \n b", "a\n \nb", "\x85", "a\x85b", "a\u2028b", "a\u2028\nb", "a\n\u2029 b", "\u2028", "\ufeffx", "a\r\nb",
    "a\r", "\x01\x1b\x7f\x9f", "x" * 3000, "word " * 300, "", " ", "-", "- a", "? a", "a:", ":a", "!x", "&a", "*a", "%a", "@a",
    "`a", "{a", "[a", "a, b", '"q"', "it's", "\\", "---", "...", "--- a", "a\n---\nb", "|", ">", "null\n", "\u0663", "caf\xe9",
    "\u65e5\u672c\u8a9e", "\U0001f600", "key: |\n  x",
]
OTHERS = [
    0, -5, 2**63, 2**64, 10**30, True, False, None, 0.1, 1e300, -1.5, 1e16, 1e-7, math.inf, -math.inf, math.nan, [], {},
    datetime.date(2026, 11, 15), datetime.datetime(2026, 11, 15, 10), datetime.datetime(2026, 11, 15, 10, 0, 0, 5000, UTC2),
    b"bin\x00\xff" * 20, {"set": {"a", "b"}},
]
KEYS = [1, 1.5, True, None, datetime.date(2026, 1, 2), 10**20, "k", "long" * 300]
# As people write them: what the values are is for PyYAML to say.
WRITTEN = [
    "x: {plain}".format(plain=plain)
    for plain in [
        "yes", "NO", "On", "null", "~", "", "1e3", "1.0e+3", "0o7", "0x1f", "0b101", "017", "1_000", "12:30:45", "1:2.5",
        "2026-11-15", "2026-11-15T10:00:00+02:00", "2026-1-5 1:02:03.5 -5", "2026-11-15t10:00:00Z", ".inf", "-.INF", ".NaN",
        "123456789012345678901234567890", "-0", "0.1", "a:b", "a#b", "http://x/y?z#q", "'='", "'<<'", "! 4", "!!str 4",
        "!!float 1", "!!int '3'", "!!binary aGk=", "!!set {a, b}", "!!omap [a: 1, b: 2]", "[a, {b: c}, [d]]", "plain\n  folded\n\n  text",
        "|\n  a\n   b\n\n", "|+\n  a\n\n", "|-\n  a", ">\n  a\n  b\n\n  c\n", "|2\n   a\n", '"a\\\n  b\\x41\\u2028\\N"', "# only a comment",
    ]
] + [
    "b: &b {p: 1, q: [2]}\nx: *b\ny: {<<: *b, q: 3}\nz:\n  <<: [*b, {r: 1}]",
    "1: a\ntrue: b\nnull: c\n2026-01-01: d\n? long\n: e\n1.5: f",
    "x: a # comment\n# another\ny:\n    - deep\n    -   - deeper\n",
    "x: 1\nx: 2",
    "%s" % "\n".join("  " * depth + "k%d:" % depth for depth in range(20)) + " end",
    "x: [%s]" % ", ".join(["{a: 'b'}"] * 50),
    "{task: flow, progress: [], 'x': \"y\"}",
    "--- # a document\ntask: t\n...",
    "\"task\": t\r\nx:\r\n- a\r\n- |\r\n  b\r\n  c\r\n",
]


def shown(value):
    """A text that is the same for the same value only: 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return "{" + ", ".join(shown(key) + ": " + shown(one) for key, one in value.items()) + "}"
    if isinstance(value, set):
        return "set(" + ", ".join(sorted(map(shown, value))) + ")"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return ascii(value)


def some(dice, depth):
    sort = dice.randrange(10)
    if sort < 5 or depth > 4:
        return dice.choice(TEXTS)
    if sort < 7:
        return dice.choice(OTHERS)
    if sort == 7:
        return [some(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice(TEXTS + KEYS): some(dice, depth + 1) for _ in range(dice.randrange(4))}


def records():
    everything = {"task": "t", "texts": TEXTS, "others": OTHERS, "keys": {key: 1 for key in TEXTS + KEYS}, "progress": TEXTS}
    yield everything
    for seed in range(120):
        dice = random.Random(seed)
        twice = some(dice, 0)
        yield {
            "task": "t", "x": some(dice, 0), "once": twice, "again": twice, "progress": [some(dice, 0)],
            "decisions": [some(dice, 1)], "state": {"s": some(dice, 1), dice.choice(TEXTS + KEYS): 1},
        }


def dumped(number, record):
    dice = random.Random(-number)
    styles = {"default_flow_style": dice.choice([False, False, None, True]), "allow_unicode": dice.random() < 0.7}
    if number % 3 == 1:
        styles.update(width=dice.choice([20, 100000]), indent=dice.choice([2, 4]), default_style=dice.choice([None, "'", '"']))
    return yaml.safe_dump(record, sort_keys=False, **styles)


def updated(record):
    """What the update of the test makes of a record."""
    record = dict(record)
    record.pop("updated", None)
    record["progress"] = (record.get("progress") or []) + ["new"]
    record["state"] = dict(record.get("state") or {}, fresh=1)
    return record


def put(directory, name, text):
    with open(directory / name, "w", encoding="utf-8", newline="") as out:
        out.write(text)


def make(directory):
    texts = [dumped(number, record) for number, record in enumerate(records())]
    texts += [text if "task" in text else "task: t\n" + text for text in WRITTEN]
    for number, text in enumerate(texts):
        put(directory, f"{number}.yaml", text)
        put(directory, f"{number}.then", shown(updated(yaml.safe_load(text))))
    print(len(texts))


def given(directory):
    values = [{"task": "t", "texts": TEXTS, "numbers": [0, -5, 10**30, 0.1, 1e300, 1e-7, 1.0], "keys": {key: 1 for key in TEXTS}}]
    values += [{"task": "t", "x": text, text: [text, {text: text}]} for text in TEXTS]
    for number, value in enumerate(values):
        put(directory, f"{number}.json", json.dumps(value, ensure_ascii=number % 2 == 0, indent=[None, 2, "\t"][number % 3]))
        put(directory, f"{number}.then", shown(value))
    print(len(values))


def check(directory):
    for then in sorted(directory.glob("*.then")):
        name = then.stem + ".yaml"
        text = (directory / name).read_bytes().decode("utf-8")
        try:
            record = yaml.safe_load(text)
        except Exception as error:
            sys.exit(f"{name}: {error}\n{text}")
        if not record.get("updated", "").startswith("20"):
            sys.exit(f"{name}: no time\n{text}")
        # A key that stands where it stood keeps its place; the order of all others must be the same.
        record.pop("updated")
        now, was = shown(record), then.read_text(encoding="utf-8")
        if now != was:
            sys.exit(f"{name}:\nis  {now}\nwas {was}\n{text}")


{"make": make, "given": given, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
