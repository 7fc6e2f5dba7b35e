//! Closed list of programs that change no files, with the options that make an exception.

use super::scripts;
use super::word::Word;

/// Harmless with any arguments.
const ALWAYS: &[&str] = &[
    // Show files and text.
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "cut",
    "tr",
    "nl",
    "tac",
    "rev",
    "fold",
    "fmt",
    "pr",
    "column",
    "paste",
    "join",
    "expand",
    "unexpand",
    "od",
    "hexdump",
    "hd",
    "strings",
    "zcat",
    "bzcat",
    "xzcat",
    "zgrep",
    "zipinfo",
    "lsd",
    "eza",
    "exa",
    "vdir",
    "dir",
    "look",
    "tsort",
    "numfmt",
    "jq",
    // Search and compare.
    "grep",
    "egrep",
    "fgrep",
    "diff",
    "colordiff",
    "cmp",
    "comm",
    "locate",
    "which",
    "whereis",
    "type",
    "whatis",
    "apropos",
    // Information about files.
    "stat",
    "du",
    "df",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "md5sum",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "b2sum",
    "b3sum",
    "cksum",
    "sum",
    "md5",
    "shasum",
    "nm",
    "readelf",
    "size",
    "lsattr",
    "getfacl",
    "shellcheck",
    "tokei",
    // Information about the machine.
    "ps",
    "pgrep",
    "pidof",
    "free",
    "uptime",
    "w",
    "who",
    "whoami",
    "id",
    "groups",
    "logname",
    "uname",
    "arch",
    "nproc",
    "lscpu",
    "lsblk",
    "lsusb",
    "lspci",
    "printenv",
    "locale",
    "getconf",
    "getent",
    "tty",
    "cal",
    "vmstat",
    "lsb_release",
    "sw_vers",
    "netstat",
    "last",
    // Network, read-only.
    "ping",
    "dig",
    "nslookup",
    "host",
    "traceroute",
    "whois",
    // Text without files, and commands that do nothing.
    "echo",
    "printf",
    "true",
    "false",
    ":",
    "test",
    "[",
    "sleep",
    "seq",
    "expr",
    "bc",
    "pwd",
    "yes",
    "clear",
    "tput",
    "factor",
    // Shell builtins. `source` and `.` run a file and are not included; `cd`, `export`, `alias`, `trap` and the like
    // are handled elsewhere.
    "set",
    "unalias",
    "shopt",
    "umask",
    "ulimit",
    "jobs",
    "fg",
    "bg",
    "wait",
    "kill",
    "disown",
    "dirs",
    "times",
    "help",
    "let",
    "read",
    "shift",
    "return",
    "break",
    "continue",
    "getopts",
    "caller",
    "suspend",
    "logout",
];

/// Builtins that expand the subscript of an array in their arguments: `test -v 'a[$(rm x)]'` runs the `rm`.
const SUBSCRIPTS: &[&str] = &[
    "printf", "test", "[", "let", "read", "unset", "declare", "typeset", "local", "export", "readonly", "getopts",
    "wait", "expr",
];

/// Returns true if a builtin would run code in a subscript.
pub(super) fn expands_code(name: &str, args: &[Word]) -> bool {
    SUBSCRIPTS.contains(&name) && args.iter().any(Word::hides_code)
}

/// Program that is harmless without certain options.
struct Unless {
    name: &'static str,
    /// Short options that change files or run something, and those that take an argument.
    bad: &'static str,
    takes: &'static str,
    /// Long options that do so, also when abbreviated.
    bad_long: &'static [&'static str],
    operands_max: usize,
}

const ANY: usize = usize::MAX;

const fn unless(
    name: &'static str,
    bad: &'static str,
    takes: &'static str,
    bad_long: &'static [&'static str],
) -> Unless {
    Unless { name, bad, takes, bad_long, operands_max: ANY }
}

const UNLESS: &[Unless] = &[
    // Options for an output file.
    unless("sort", "o", "ktST", &["output", "compress-program"]),
    unless("shuf", "o", "inr", &["output"]),
    unless("iconv", "o", "ft", &["output"]),
    unless("base64", "o", "w", &["output"]),
    unless("base32", "o", "w", &["output"]),
    unless("tree", "oR", "LPI", &["output"]),
    unless("xmllint", "o", "", &["output", "shell"]),
    unless("file", "C", "mFeP", &["compile"]),
    unless("ss", "DK", "fA", &["diag", "kill"]),
    unless("less", "oOk", "pPtTx", &["log-file", "LOG-FILE", "lesskey-file", "lesskey-src"]),
    unless("objdump", "", "", &["dwarf-check"]),
    Unless { operands_max: 1, ..unless("uniq", "", "fsw", &[]) },
    Unless { operands_max: 1, ..unless("xxd", "r", "lscgon", &["revert"]) },
    // Options to edit in place, or to split into files.
    unless("yq", "is", "", &["inplace", "in-place", "split-exp"]),
    // Options that run something.
    unless("rg", "", "efgtTrABCmj", &["pre", "hostname-bin"]),
    unless("ag", "", "ABCGmp", &["pager"]),
    unless("ack", "", "ABCm", &["pager", "ackrc"]),
    unless("fd", "xX", "edtESc", &["exec", "exec-batch"]),
    unless("fdfind", "xX", "edtESc", &["exec", "exec-batch"]),
    unless("bat", "", "lrmH", &["pager"]),
    unless("batcat", "", "lrmH", &["pager"]),
    unless("man", "PH", "sSmM", &["pager", "html", "preprocessor"]),
    unless("more", "", "n", &[]),
    unless("mapfile", "C", "dnOsuc", &[]),
    unless("readarray", "C", "dnOsuc", &[]),
    // Options that set something.
    unless("hash", "p", "", &[]),
    unless("date", "s", "dfrIvj", &["set"]),
    Unless { operands_max: 0, ..unless("hostname", "Fby", "", &["file", "boot"]) },
    unless("history", "wacdnrsp", "", &[]),
    unless("dmesg", "CcDEn", "Flfs", &["clear", "read-clear", "console-on", "console-off", "console-level"]),
    unless(
        "journalctl",
        "",
        "unSUopbDgt",
        &[
            "vacuum-size",
            "vacuum-time",
            "vacuum-files",
            "rotate",
            "flush",
            "sync",
            "setup-keys",
            "update-catalog",
            "relinquish-var",
            "smart-relinquish-var",
            "cursor-file",
        ],
    ),
];

/// Programs that change files, unless their only argument is `--help` or `--version`.
const PROGRAMS_WITH_HELP: &[&str] = &[
    "cp", "mv", "rm", "ln", "mkdir", "rmdir", "touch", "chmod", "chown", "chgrp", "install", "dd", "tee", "truncate",
    "shred", "split", "csplit", "mktemp", "mkfifo", "rsync", "patch",
];

/// Returns true if `name` with these arguments changes no file.
pub(super) fn is_harmless(name: &str, args: &[Word]) -> bool {
    if ALWAYS.contains(&name) {
        return !expands_code(name, args);
    }
    if let Some(rule) = UNLESS.iter().find(|rule| rule.name == name) {
        return rule.allows(args) && !(name == "less" && args.iter().any(|word| word.text.starts_with('+')));
    }
    if PROGRAMS_WITH_HELP.contains(&name) {
        return matches!(args, [only] if matches!(only.known(), Some("--help" | "--version")));
    }
    match name {
        "curl" => curl(args),
        "wget" => wget(args),
        "ssh" => ssh(args),
        "sed" | "gsed" => scripts::sed_only_prints(args),
        "awk" | "gawk" | "mawk" | "nawk" => scripts::awk_only_prints(args),
        "tar" | "bsdtar" => tar_lists(args),
        "unzip" => flags_among(args, "lvtpZqC", &["l", "v", "t", "p", "Z"]),
        "gzip" | "gunzip" | "bzip2" | "bunzip2" | "xz" | "unxz" => {
            flags_among(args, "cdltkvqf123456789", &["c", "l", "t"])
        }
        _ => false,
    }
}

impl Unless {
    fn allows(&self, args: &[Word]) -> bool {
        options_avoid(args, self.bad, self.takes, self.bad_long, self.operands_max)
    }
}

/// Returns true if no argument is, or may turn out to be, one of the bad options, and there are at most `operands_max`
/// operands.
pub(super) fn options_avoid(args: &[Word], bad: &str, takes: &str, bad_long: &[&str], operands_max: usize) -> bool {
    let mut operands = 0;
    let mut argument_next = false;
    for word in args {
        let text = word.text.as_str();
        if std::mem::take(&mut argument_next) && !word.splits {
            continue;
        }
        if word.splits || (word.open && text.starts_with('-') && !text.contains('=') && text.len() < 3) {
            return false;
        }
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            if !name.is_empty() && bad_long.iter().any(|bad| bad.starts_with(name)) {
                return false;
            }
        } else if let Some(cluster) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            // Words such as `-foo` in the style of find and curl count as clusters: at worst this is too careful.
            let until = cluster.find(|letter| takes.contains(letter)).unwrap_or(cluster.len());
            if cluster[..until].contains(|letter| bad.contains(letter)) {
                return false;
            }
            argument_next = until + 1 == cluster.len();
        } else {
            operands += 1;
        }
    }
    operands <= operands_max
}

/// Returns true if all options are letters of `known`, and one of `needed` is among them.
fn flags_among(args: &[Word], known: &str, needed: &[&str]) -> bool {
    let options = args.iter().filter(|word| word.maybe_option());
    let good = options.clone().all(|word| {
        word.known().is_some_and(|text| text.len() > 1 && text[1..].chars().all(|letter| known.contains(letter)))
    });
    good && options.clone().any(|word| needed.iter().any(|letter| word.text.contains(letter)))
}

/// Returns true if `curl` writes no file.
fn curl(args: &[Word]) -> bool {
    const BAD: &[&str] = &[
        "output",
        "output-dir",
        "remote-name",
        "remote-name-all",
        "remote-header-name",
        "cookie-jar",
        "dump-header",
        "config",
        "trace",
        "trace-ascii",
        "stderr",
        "libcurl",
        "etag-save",
        "hsts",
        "alt-svc",
        "create-dirs",
        "ssl-sessions",
    ];
    const TAKES: &str = "AbCdeEFHhmPQrtTuUwxXyYz";
    let mut kept: Vec<Word> = Vec::new();
    let mut words = args.iter().peekable();
    while let Some(word) = words.next() {
        if word.text.contains("%output") {
            return false;
        }
        // `-so /dev/null` discards the body.
        let harmless = words.peek().is_some_and(|next| matches!(next.known(), Some("/dev/null" | "-")));
        let cluster = word.known().and_then(|text| text.strip_suffix('o')).filter(|rest| !rest.starts_with("--"));
        match cluster {
            Some(rest) if harmless && rest.starts_with('-') && !rest.contains(|c| TAKES.contains(c)) => {
                kept.push(Word::exact(rest));
                words.next();
            }
            _ if harmless && word.text == "--output" => {
                words.next();
            }
            _ => kept.push(word.clone()),
        }
    }
    options_avoid(&kept, "oOJDcK", TAKES, BAD, ANY)
}

/// Returns true if `wget` only checks or prints; by default it writes a file.
fn wget(args: &[Word]) -> bool {
    let mut prints = false;
    let mut words = args.iter().peekable();
    while let Some(word) = words.next() {
        if word.open && word.maybe_option() {
            return false;
        }
        let stdout = words.peek().is_some_and(|next| matches!(next.known(), Some("-" | "/dev/null")));
        match word.text.as_str() {
            "--spider" | "-O-" | "-qO-" | "-nvO-" | "--output-document=-" => prints = true,
            "-O" | "-qO" | "-nvO" | "--output-document" if stdout => {
                prints = true;
                words.next();
            }
            "-q" | "-S" | "-nv" | "--quiet" | "--server-response" | "--no-check-certificate" => {}
            text if text.starts_with("--header=") || text.starts_with("--timeout=") => {}
            text if text.starts_with("--tries=") || text.starts_with("--user-agent=") => {}
            text if text.starts_with('-') => return false,
            _ => {}
        }
    }
    prints
}

/// Returns true if `ssh` only works on the remote host. Options that log, run or share something locally make it
/// changing.
fn ssh(args: &[Word]) -> bool {
    const BAD: &[&str] = &["command", "control", "userknownhosts", "include", "pkcs11", "securitykey", "xauth"];
    // Options may also come after the host; words after the second operand run on the remote host.
    let mut until = 0;
    let mut argument = false;
    let mut host = false;
    for word in args {
        let text = word.text.as_str();
        let option = text.starts_with('-') || word.splits;
        if !option && !argument && std::mem::replace(&mut host, true) {
            break;
        }
        argument = option && text.len() == 2 && "bcDeEFIiJLlmOopQRSWw".contains(&text[1..]);
        until += 1;
    }
    let options = &args[..until];
    let risky = options.iter().any(|word| BAD.iter().any(|bad| word.text.to_lowercase().contains(bad)));
    !risky && options_avoid(options, "EMSOF", "bcDeIiJLlmopQRWw", &[], ANY)
}

/// Returns true for `tar t`, which lists and runs nothing.
fn tar_lists(args: &[Word]) -> bool {
    let lists = args.first().is_some_and(|word| {
        word.known().is_some_and(|text| {
            let cluster = text.strip_prefix('-').unwrap_or(text);
            cluster.contains('t') && cluster.bytes().all(|b| b"tvfzjJ".contains(&b))
        })
    });
    lists && args.iter().skip(1).all(|word| !word.maybe_option())
}
