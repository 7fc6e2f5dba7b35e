//! The keys of the picker, as its help lists them.

/// All keys and their meanings, shown for `?`.
pub(super) const HELP: &[(&str, &str)] = &[
    ("j k, arrows", "up and down: checkpoints, or files in the right pane"),
    ("g G, Home End", "first and last"),
    ("Tab", "the other pane"),
    ("PgUp PgDn, J K", "scroll what changed; Left Right: sideways"),
    ("n N", "next and previous file"),
    ("Enter r", "restore everything to this checkpoint"),
    ("w", "rewind: restore, and continue the conversation from there in a fork"),
    ("o", "restore only the selected file"),
    ("t", "what this turn did, or what changed since"),
    ("v", "revert this turn: take back what it did, and keep the rest"),
    ("V h", "revert it in the selected file; only the selected hunk"),
    ("[ ]", "previous and next hunk"),
    ("p", "the plan: what a restore would do"),
    ("u", "undo the last restore; twice is redo"),
    ("/", "only reasons with this text, or ids that begin with it"),
    ("f", "only checkpoints that have to do with this file"),
    ("s", "only this session, the next one, all"),
    ("R", "read everything again"),
    ("Esc", "close this, drop the filters, leave"),
    ("q", "leave"),
    ("mouse", "click selects, wheel scrolls"),
];
