//! Interpreters, package managers and build tools: changing, except for a few queries.

use super::word::Word;

/// Programs that answer `--version` and the like without doing anything else.
const ANSWER: &[&str] = &[
    // Interpreters and compilers.
    "python",
    "python3",
    "python2",
    "perl",
    "ruby",
    "node",
    "deno",
    "bun",
    "php",
    "lua",
    "java",
    "javac",
    "rustc",
    "gcc",
    "g++",
    "clang",
    "clang++",
    "cc",
    "tsc",
    "ghc",
    "swift",
    "dotnet",
    "elixir",
    "erl",
    "julia",
    "Rscript",
    // Package managers and builds.
    "cargo",
    "rustup",
    "npm",
    "npx",
    "yarn",
    "pnpm",
    "pip",
    "pip3",
    "uv",
    "poetry",
    "pipenv",
    "conda",
    "go",
    "mvn",
    "gradle",
    "bundle",
    "gem",
    "composer",
    "apt",
    "apt-get",
    "brew",
    "docker",
    "podman",
    "make",
    "cmake",
    "ninja",
    "bazel",
    "terraform",
    "kubectl",
    "helm",
    "gh",
    "dpkg",
    "rpm",
    "tar",
    "rsync",
    "patch",
    "sqlite3",
    "psql",
    "vim",
    "nvim",
    "tmux",
    "jj",
    "hg",
    "svn",
];

const VERSIONS: &[&str] = &["--version", "-V", "--help", "-version", "-v", "-h", "version", "help"];

/// Programs for which `-v`, `version` or `help` could mean something else.
const ONLY_LONG: &[&str] = &[
    "make", "python", "python3", "python2", "perl", "ruby", "php", "tar", "rsync", "patch", "sqlite3", "psql", "vim",
    "nvim", "ninja", "lua", "gcc", "g++", "clang", "clang++", "cc", "tmux", "javac", "npx", "java", "node", "ghc",
    "swift", "bun", "julia", "tsc", "elixir", "erl", "Rscript", "yarn", "dpkg", "rpm", "mvn", "gradle", "bazel",
];

/// First words after the program that only query. A space separates two words.
const ASK: &[(&str, &[&str])] = &[
    // `cargo tree` and `cargo metadata` may write the lock file and are not included.
    ("cargo", &["search", "locate-project", "--list", "info"]),
    ("rustup", &["show", "toolchain list", "target list", "component list", "which"]),
    (
        "npm",
        &[
            "ls",
            "list",
            "view",
            "info",
            "show",
            "outdated",
            "root",
            "prefix",
            "bin",
            "whoami",
            "search",
            "explain",
            "config get",
            "config list",
        ],
    ),
    ("yarn", &["list", "info", "why", "--version"]),
    ("pnpm", &["list", "ls", "why", "outdated", "root", "bin"]),
    ("pip", &["list", "show", "freeze", "check", "index versions"]),
    ("pip3", &["list", "show", "freeze", "check", "index versions"]),
    ("uv", &["pip list", "pip show", "pip freeze", "pip check", "python list", "cache dir"]),
    ("go", &["doc", "env"]),
    ("bundle", &["list", "show", "info"]),
    ("gem", &["list", "search", "environment"]),
    ("composer", &["show"]),
    ("apt", &["list", "show", "search", "policy"]),
    ("apt-cache", &["show", "search", "policy", "depends", "rdepends", "madison", "showpkg"]),
    ("dpkg", &["-l", "-L", "-s", "-S", "--list", "--status", "--search"]),
    ("dpkg-query", &["-l", "-L", "-s", "-S", "-W"]),
    ("rpm", &["-q", "-qa", "-ql", "-qi", "-qf"]),
    ("brew", &["list", "info", "search", "deps", "--prefix", "config"]),
    (
        "docker",
        &[
            "ps",
            "images",
            "logs",
            "inspect",
            "info",
            "stats",
            "top",
            "port",
            "container ls",
            "image ls",
            "volume ls",
            "network ls",
            "compose ps",
            "compose logs",
            "container inspect",
            "image inspect",
        ],
    ),
    ("podman", &["ps", "images", "logs", "inspect", "info", "stats", "top", "port"]),
    ("kubectl", &["get", "describe", "logs", "explain", "top", "api-resources", "config view", "cluster-info"]),
    ("systemctl", &["status", "is-active", "is-enabled", "list-units", "list-unit-files", "show", "cat"]),
    (
        "gh",
        &[
            "pr list",
            "pr view",
            "pr diff",
            "pr checks",
            "pr status",
            "issue list",
            "issue view",
            "issue status",
            "run list",
            "run view",
            "repo view",
            "repo list",
            "release list",
            "release view",
            "workflow list",
            "workflow view",
            "auth status",
            "api",
            "search issues",
            "search prs",
            "search code",
            "search repos",
        ],
    ),
    ("ip", &["addr", "a", "addr show", "route", "link show", "-br addr"]),
];

/// Options after those words that still write a file or change a setting.
const BUT: &[&str] = &["-w", "-u", "-o", "--output", "--log", "--fix", "--output-directory", "--cache", "--web"];

/// Returns true if `name` with these arguments only answers a query.
pub(super) fn only_reads(name: &str, args: &[Word]) -> bool {
    let Some(first) = args.first().and_then(Word::known) else { return false };
    if args.len() == 1 && ANSWER.contains(&name) && VERSIONS.contains(&first) {
        return first.starts_with("--") || first == "-version" || !ONLY_LONG.contains(&name) || is_version(name, first);
    }
    if matches!((name, first), ("cargo", "fmt")) {
        return args.iter().any(|word| word.known() == Some("--check")) && args.len() <= 4;
    }
    let two = args.get(1).and_then(Word::known).map(|second| format!("{first} {second}"));
    let Some((_, asks)) = ASK.iter().find(|(program, _)| *program == name) else { return false };
    let asked = asks.iter().any(|ask| *ask == first || two.as_deref() == Some(*ask));
    // `ip route add` and `ip addr del` are words, too.
    let short_enough = name != "ip" || args.len() <= 2;
    // There `-o` is a format, not a file.
    let formats = name == "kubectl";
    let plain = args.iter().all(|word| {
        let text = word.text.as_str();
        !word.splits && (formats || !BUT.iter().any(|but| text == *but || text.starts_with(&format!("{but}="))))
    });
    asked && short_enough && plain && !(name == "ip" && two.as_deref().is_some_and(|two| !asks.contains(&two)))
}

/// Returns true if the short option prints the version.
fn is_version(name: &str, option: &str) -> bool {
    match option {
        "-V" => matches!(name, "python" | "python3" | "tmux" | "rsync" | "psql"),
        "-v" => matches!(name, "node" | "ruby" | "php" | "perl" | "yarn" | "tsc" | "gradle" | "mvn" | "lua"),
        _ => false,
    }
}
