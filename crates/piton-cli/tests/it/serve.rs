//! `piton serve`: every method against its contract, and against the command of the same name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Sandbox, files_in};

use crate::kit::{command, in_dir, piton, run};
use crate::schema;
use crate::serve_kit::{Client, LockHolder};

/// Returns the contract.
fn contract() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/rpc.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the contract")).expect("JSON")
}

fn refs(sandbox: &Sandbox) -> Vec<u8> {
    sandbox.store_git(&["for-each-ref"])
}

fn methods() -> Vec<Value> {
    contract()["methods"].as_array().expect("a list").clone()
}

/// Returns a project with two checkpoints, the end of a turn and a change since.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    piton(&sandbox, ["take", "-m", "first"]).done();
    sandbox.write("a.txt", "one\ntwo\n");
    sandbox.write("gone.txt", "gone\n");
    piton(&sandbox, ["take", "-m", "second"]).done();
    fs::remove_file(sandbox.project().join("gone.txt")).expect("a file");
    sandbox
}

/// Returns valid parameters for a method, by which it succeeds in [`sandbox`], in this order.
const SAMPLES: [(&str, &str); 33] = [
    ("initialize", r#"{"protocol": 1}"#),
    ("rpc.discover", "{}"),
    ("event", r#"{"payload": {"event": "prompt", "cwd": "PROJECT", "session_id": "s", "prompt": "go"}}"#),
    ("take", r#"{"reason": "third"}"#),
    ("take", r#"{"automatic": true}"#),
    ("list", r#"{"limit": 5, "steps": true}"#),
    ("show", r#"{"checkpoint": 1}"#),
    ("diff", r#"{"from": 3, "to": "2", "paths": ["a.txt"]}"#),
    ("log", r#"{"paths": ["a.txt"], "patch": true}"#),
    ("blame", r#"{"path": "a.txt"}"#),
    ("search", r#"{"text": "two", "contents": true}"#),
    ("cat", r#"{"checkpoint": 1, "path": "a.txt"}"#),
    ("turns", r#"{"limit": 3}"#),
    ("recover", r#"{"all": true}"#),
    ("recover", r#"{"paths": ["gone.txt"]}"#),
    ("export", r#"{"checkpoint": 1, "target": "../exported"}"#),
    ("mark", r#"{"checkpoint": 2, "name": "good"}"#),
    ("unmark", r#"{"name": "good"}"#),
    ("restore", r#"{"checkpoint": 2, "dry_run": true}"#),
    ("restore", r#"{"checkpoint": "2", "paths": ["a.txt"]}"#),
    ("undo", "{}"),
    ("redo", "{}"),
    ("revert", r#"{"turn": "s", "dry_run": true}"#),
    ("rewind", r#"{"list": true}"#),
    ("git.show", "{}"),
    ("status", r#"{"limit": 1}"#),
    ("prune", r#"{"dry_run": true}"#),
    ("verify", r#"{"read_data": true}"#),
    ("session.write", r#"{"id": "login", "record": {"task": "fix it"}}"#),
    ("session.update", r#"{"id": "login", "record": "state: {a: 1}"}"#),
    ("session.read", r#"{"id": "login", "resume": true}"#),
    ("session.list", "{}"),
    ("session.delete", r#"{"id": "login"}"#),
];

/// Methods that do nothing which is safe to repeat in every sandbox, or that have suites of their own.
const WITHOUT_SAMPLE: [&str; 11] = [
    "clear",
    "clear-legacy",
    "doctor",
    "fetch",
    "git.restore",
    "git.undo",
    "machines",
    "purge",
    "push",
    "repair",
    "session.gc",
];

#[test]
fn every_method_answers_as_its_contract_says() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let known = methods();
    for (name, params) in SAMPLES {
        let params = params.replace("PROJECT", &sandbox.project().to_string_lossy());
        let params: Value = serde_json::from_str(&params).expect("JSON");
        let method = known.iter().find(|method| method["name"] == name).unwrap_or_else(|| panic!("{name}"));
        for (param, value) in params.as_object().expect("an object") {
            let own = method["params"].as_array().expect("a list").iter().find(|own| own["name"] == param.as_str());
            let own = own.unwrap_or_else(|| panic!("{name} has no {param}"));
            assert!(jsonschema::is_valid(&own["schema"], value), "{name}: {param} is not {}", own["schema"]);
        }
        // There is no turn of that name: the answer is an error of the command.
        if name == "revert" {
            assert_eq!(client.error(name, &params)["data"]["kind"], "invalid");
            continue;
        }
        let result = client.result(name, &params);
        match method["result"]["schema"]["$ref"].as_str() {
            Some(file) => schema::check_value(file.trim_end_matches(".json"), &result),
            None => assert!(jsonschema::is_valid(&method["result"]["schema"], &result), "{name}: {result}"),
        }
    }
    let named: BTreeSet<_> = SAMPLES.iter().map(|(name, _)| *name).chain(WITHOUT_SAMPLE).collect();
    let known: BTreeSet<_> = known.iter().filter_map(|method| method["name"].as_str()).collect();
    assert_eq!(named, known, "every method has a sample, or is known to have none");
    assert!(client.end().success());
}

/// Generated from the contract: for each method and each of its parameters, values that do not fit.
#[test]
fn parameters_that_do_not_fit_the_contract_are_refused() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let before = files_in(&sandbox.project());
    let mut tried = 0;
    for method in methods() {
        let name = method["name"].as_str().expect("a name");
        let params = method["params"].as_array().expect("a list");
        let refused = |client: &mut Client, params: Value| {
            let error = client.error(name, &params);
            assert_eq!(error["code"], -32602, "{name} {params}: {error}");
            assert_eq!(error["data"]["kind"], "usage", "{name} {params}: {error}");
            assert_eq!(error["message"], error["data"]["message"]);
            if !["initialize", "event", "rpc.discover"].contains(&name) {
                assert!(error["data"]["hint"].to_string().contains("`rpc.discover`"), "{name} {params}: {error}");
            }
        };
        refused(&mut client, json!({"no_such_parameter": 1}));
        for param in params {
            if let Some(default) = param["schema"].get("default") {
                assert!(jsonschema::is_valid(&param["schema"], default), "{name}: {param}");
            }
            let values = [
                json!(0),
                json!(7),
                json!(-1),
                json!(0.5),
                json!("x"),
                json!(true),
                json!([]),
                json!([[1]]),
                json!({"a": 1}),
            ];
            for value in values.iter().filter(|value| !jsonschema::is_valid(&param["schema"], value)) {
                // A single value counts as a list of one, and an empty list as none.
                let is_one = jsonschema::is_valid(&param["schema"], &json!([value]));
                if !is_one {
                    refused(&mut client, json!({param["name"].as_str().expect("a name"): value}));
                    tried += 1;
                }
            }
        }
        if params.iter().any(|param| param["required"] == true) {
            refused(&mut client, json!({}));
        }
    }
    assert!(tried > 300, "{tried}");
    assert_eq!(files_in(&sandbox.project()), before, "no file was touched");
    assert!(client.end().success());
}

#[test]
fn a_result_is_what_the_command_prints() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    for (method, params, args) in [
        ("list", json!({}), &["rollback"][..]),
        ("show", json!({"checkpoint": 2}), &["show", "2"]),
        ("diff", json!({"from": 1}), &["diff", "1"]),
        ("log", json!({}), &["log"]),
        ("blame", json!({"path": "a.txt"}), &["blame", "a.txt"]),
        ("cat", json!({"checkpoint": 2, "path": "a.txt"}), &["cat", "2", "a.txt"]),
        ("restore", json!({"checkpoint": 2, "dry_run": true}), &["restore", "2", "--dry-run"]),
        ("search", json!({"text": "no such text"}), &["search", "no such text"]),
    ] {
        let printed = run(command(&sandbox).arg("--json").args(args)).json();
        assert_eq!(client.result(method, &params), printed, "{method}");
    }
    for (method, params, args) in [
        ("show", json!({"checkpoint": 99}), &["show", "99"][..]),
        ("diff", json!({"paths": ["../out"]}), &["diff", "--", "../out"]),
        ("unmark", json!({"name": "none"}), &["unmark", "none"]),
        ("prune", json!({"forget": "/no/such"}), &["prune", "--forget", "/no/such"]),
    ] {
        let printed = run(command(&sandbox).arg("--json").args(args)).json();
        let error = client.error(method, &params);
        assert_eq!((&error["code"], &error["data"]), (&json!(-32000), &printed["error"]), "{method}");
    }
}

/// Q1: each request is answered once, by its id, in whatever order; several projects are worked on at the same time.
#[test]
fn requests_in_several_projects_at_a_time_are_each_answered_once() {
    let sandbox = Sandbox::new();
    let dirs: Vec<_> = (0..6).map(|at| sandbox.root().join(format!("project-{at}"))).collect();
    for dir in &dirs {
        fs::create_dir_all(dir.join(".git")).expect("a directory");
    }
    let mut clients = [Client::start(&sandbox), Client::start(&sandbox)];
    for round in 0..5 {
        for (at, dir) in dirs.iter().enumerate() {
            fs::write(dir.join("file"), format!("{round} {at}")).expect("a file");
        }
        for client in &mut clients {
            let sent: BTreeSet<u64> = dirs
                .iter()
                .map(|dir| client.request("take", &json!({"directory": dir, "reason": round.to_string()})))
                .collect();
            let answered: BTreeSet<u64> = dirs
                .iter()
                .map(|_| {
                    let answer = client.answer();
                    let outcome = answer["result"]["outcome"].as_str().unwrap_or_else(|| panic!("{answer}"));
                    assert!(["taken", "unchanged"].contains(&outcome), "{answer}");
                    answer["id"].as_u64().expect("an id")
                })
                .collect();
            assert_eq!(answered, sent);
        }
    }
    for dir in &dirs {
        let list = clients[0].result("list", &json!({"directory": dir}));
        assert_eq!(list.as_array().expect("a list").len(), 5, "{list}");
    }
    for client in clients {
        assert!(client.end().success());
    }
    sandbox.assert_store_is_whole();
}

/// Q2: neither lines that are not messages nor lines that are too long end the process.
#[test]
fn lines_that_are_no_messages_are_refused_one_by_one() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let long = [b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"".as_slice(), &vec![b'x'; 17 << 20], b"\"}"].concat();
    for (line, code) in [
        (b"{".as_slice(), -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"take\"}", -32600),
        (&long, -32600),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"no such\"}", -32601),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"install\"}", -32601),
        (b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"initialize\", \"params\": {\"protocol\": 2}}", -32602),
    ] {
        client.line(line);
        assert_eq!(client.answer()["error"]["code"], code, "{}", String::from_utf8_lossy(&line[..line.len().min(80)]));
    }
    client.line(b"");
    client.send(&json!({"jsonrpc": "2.0", "method": "of a later version"}));
    client.send(&json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 77}}));
    client.send(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "not JSON"}}));
    assert_eq!(client.result("take", &Value::Null)["outcome"], "taken");
    assert!(client.end().success());
}

/// `readline` of Node ends a line at them. The client asserts that there is none in any message.
#[test]
fn line_separators_of_unicode_are_escaped() {
    let sandbox = sandbox();
    let text = "a\u{2028}b\u{2029}\u{2028}\n";
    sandbox.write("a.txt", text);
    let mut client = Client::start(&sandbox);
    let diff = client.result("diff", &json!({"paths": ["a.txt"]}));
    assert!(diff["diff"].as_str().expect("a text").contains(text), "{diff}");
    assert!(client.end().success());
}

/// Q3: what was sent before the end of stdin is answered, then the process ends.
#[test]
fn a_script_gets_every_answer_before_the_end() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    for _ in 0..40 {
        client.request("list", &json!({}));
    }
    client.close();
    let answers: BTreeSet<u64> = (0..40).map(|_| client.answer()["id"].as_u64().expect("an id")).collect();
    assert_eq!(answers.len(), 40);
    assert!(client.end().success());
}

/// Q3: a client that is gone leaves no process behind, even while its request waits for another process.
#[test]
fn a_server_whose_client_is_gone_cancels_and_ends() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    client.result("list", &json!({}));
    let holder = LockHolder::start(&sandbox);
    client.request("take", &json!({}));
    let status = client.vanish();
    assert_eq!(status.code(), Some(1), "the take was cancelled, and did not wait until its own deadline");
    drop(holder);
    assert_eq!(piton(&sandbox, ["take", "--json"]).done().json()["outcome"], "taken");
}

#[test]
fn a_client_that_asks_for_progress_is_told_while_its_request_runs() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    client.result("list", &json!({}));
    let holder = LockHolder::start(&sandbox);
    let id = client.request("take", &json!({"progress": true}));
    let told = client.next().expect("a notification");
    assert_eq!((&told["method"], &told["params"]["id"]), (&json!("progress"), &json!(id)), "{told}");
    drop(holder);
    assert_eq!(client.answer()["result"]["outcome"], "taken");
    assert!(client.end().success());
}

#[test]
fn a_request_is_cancelled_before_anything_is_written() {
    let sandbox = Sandbox::new();
    for at in 0..400 {
        sandbox.write(format!("{at}.txt"), format!("{at}\n").repeat(500));
    }
    let mut client = Client::start(&sandbox);
    client.result("list", &json!({}));
    piton(&sandbox, ["take"]).done();
    let holder = LockHolder::start(&sandbox);
    let before = refs(&sandbox);
    let id = client.request("take", &json!({"progress": true}));
    client.send(&json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}}));
    let answer = client.answer();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32800)), "{answer}");
    assert_eq!(answer["error"]["data"]["kind"], "stopped", "{answer}");
    assert_eq!(refs(&sandbox), before);
    drop(holder);
    assert_eq!(client.result("take", &json!({}))["outcome"], "unchanged");
}

#[test]
fn names_that_are_not_utf_8_are_given_and_returned_as_bytes() {
    let sandbox = Sandbox::new();
    let dir = sandbox.project().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir_all(dir.join(".git")).expect("a directory");
    let name = OsStr::from_bytes(b"a \xfe");
    fs::write(dir.join(name), "one\n").expect("a file");
    let mut client = Client::start(&sandbox);
    let at = |more: Value| {
        let mut params = json!({"directory_bytes": format!("{}/d%ff", sandbox.project().display())});
        params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        params
    };
    assert_eq!(client.result("take", &at(json!({})))["outcome"], "taken");
    let shown = client.result("show", &at(json!({"checkpoint": 1})));
    let bytes = shown["paths_bytes"][0].clone();
    assert_eq!(bytes, "a%20%fe");
    fs::write(dir.join(name), "two\n").expect("a file");
    let cat = client.result("cat", &at(json!({"checkpoint": 1, "path_bytes": bytes})));
    assert_eq!((&cat["contents"], &cat["path_bytes"]), (&json!("one\n"), &bytes));
    let done = client.result("restore", &at(json!({"checkpoint": 1, "paths": ["a \u{fffd}"], "paths_bytes": [bytes]})));
    assert_eq!(done["written_paths_bytes"], json!(["a%20%fe"]), "{done}");
    assert_eq!(fs::read(dir.join(name)).expect("a file"), b"one\n");
}

/// Contents out of scope are for a terminal only.
#[test]
fn blame_does_not_show_a_file_that_is_out_of_scope() {
    let sandbox = sandbox();
    sandbox.write(".gitignore", "private/\n");
    sandbox.write(".env", "KEY=s3cret\n");
    sandbox.write("private/key", "s3cret\n");
    piton(&sandbox, ["take"]).done();
    let mut client = Client::start(&sandbox);
    for path in [".env", "private/key"] {
        let error = client.error("blame", &json!({"path": path}));
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32000), &json!("invalid")), "{error}");
        assert!(
            error["message"].to_string().contains("leave it out") && !error.to_string().contains("s3cret"),
            "{error}"
        );
    }
    assert_eq!(client.result("blame", &json!({"path": "a.txt"}))["lines"][0]["text"], "one");
}

#[test]
fn a_path_with_a_nul_byte_is_refused_for_that_reason() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    for params in [json!({"path": "a\u{0}b"}), json!({"path_bytes": "a%00b"})] {
        let message = client.error("blame", &params)["message"].to_string();
        assert!(message.contains("NUL") && !message.contains(".git"), "{message}");
    }
}

/// The store of a server does not depend on the directories that its clients name.
#[test]
fn a_relative_base_and_configuration_are_those_of_the_directory_of_the_server() {
    let server = |with: &dyn Fn(&mut Command)| {
        let sandbox = sandbox();
        fs::write(sandbox.root().join("piton.yaml"), "checkpoints: {max_files: 1}\n").expect("a file");
        let mut command = in_dir(&sandbox, &sandbox.root());
        with(&mut command);
        (Client::of(command.arg("serve")), sandbox)
    };
    let by_option = |command: &mut Command| {
        command.args(["--base", "own-base"]);
    };
    let by_variable = |command: &mut Command| {
        command.env("PITON_BASE", "own-base");
    };
    for with in [&by_option as &dyn Fn(&mut Command), &by_variable] {
        let (mut client, sandbox) = server(with);
        assert_eq!(client.result("take", &json!({"directory": sandbox.project()}))["outcome"], "taken");
        let payload = json!({"event": "prompt", "cwd": sandbox.project(), "session_id": "s", "prompt": "go"});
        assert_eq!(client.result("event", &json!({"payload": payload}))["protected"], true);
        assert!(!sandbox.project().join("own-base").exists(), "no store inside the project");
        assert!(sandbox.root().join("own-base").is_dir());
    }
    let (mut client, sandbox) = server(&|command| {
        command.args(["--config", "piton.yaml"]);
    });
    sandbox.write("b.txt", "1");
    sandbox.write("c.txt", "1");
    let taken = client.call("take", &json!({"directory": sandbox.project()}));
    assert!(taken.to_string().contains("too_many_files"), "the configuration applies: {taken}");
}

/// Q1: a notification is a request whose answer is not wanted.
#[test]
fn a_notification_is_carried_out_and_never_answered() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let notify = |client: &mut Client, method: &str, params: Value| {
        client.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    };
    notify(&mut client, "take", json!({"reason": "notified", "progress": true}));
    notify(&mut client, "take", json!({"no_such_parameter": 1}));
    notify(&mut client, "take", json!([1]));
    notify(&mut client, "take", json!(7));
    notify(&mut client, "show", json!({"checkpoint": 99}));
    notify(&mut client, "event", json!({"payload": 7}));
    notify(&mut client, "initialize", json!({"protocol": 7}));
    notify(&mut client, "rpc.discover", json!({}));
    notify(&mut client, "install", json!({}));
    assert!(client.end().success(), "and nothing was written");
    let list = piton(&sandbox, ["rollback", "--json"]).done().json();
    assert_eq!(list[0]["reason"], "notified", "{list}");
}

/// A verdict on half of the store is none. The moment of the cancellation varies.
#[test]
fn a_verify_that_is_cancelled_has_no_result() {
    let sandbox = Sandbox::new();
    for at in 0..300_u64 {
        let words: String = (0..2000).map(|line| format!("{}\n", (at + 7) * 0x9e37_79b9 * (line + 1))).collect();
        sandbox.write(format!("{at}.txt"), words);
    }
    piton(&sandbox, ["take"]).done();
    let mut client = Client::start(&sandbox);
    for moment in 0..40 {
        let id = client.request("verify", &json!({"read_data": true}));
        // The server refuses these before it reads the cancellation.
        for _ in 0..moment * 20 {
            client.line(b"{\"jsonrpc\": \"2.0\", \"id\": \"other\", \"method\": \"no such\"}");
        }
        client.send(&json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}}));
        let answers: Vec<Value> = (0..=moment * 20).map(|_| client.answer()).collect();
        let answer = answers.iter().find(|answer| answer["id"] == id).expect("an answer");
        let is_cancelled = answer["error"]["code"] == -32800;
        assert!(is_cancelled || answer["result"]["whole"] == true, "{answer}");
    }
}

/// The least and the greatest number that the contract allows are accepted.
#[test]
fn a_number_within_the_range_of_the_contract_is_not_refused() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let doctor = methods().into_iter().find(|method| method["name"] == "doctor").expect("a method");
    let kills = doctor["params"].as_array().expect("a list").iter().find(|param| param["name"] == "kills");
    let schema = &kills.expect("a parameter")["schema"];
    assert_eq!(schema["default"], 16, "{schema}");
    for bound in [&schema["minimum"], &schema["maximum"]] {
        let error = client.error("doctor", &json!({"self_test": "/no/such/dir", "kills": bound}));
        assert_eq!(error["code"], -32000, "{bound}: {error}");
    }
}

#[test]
fn a_number_that_cannot_be_kept_exactly_is_refused() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    client.line(b"{\"jsonrpc\": \"2.0\", \"id\": 12345678901234567890123, \"method\": \"list\"}");
    let answer = client.answer();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32600)), "{answer}");
    let write = |record: &str| {
        let params =
            format!("{{\"id\": \"login\", \"record\": {{\"task\": \"fix\", \"state\": {{\"n\": {record}}}}}}}");
        format!("{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"session.write\", \"params\": {params}}}")
    };
    client.line(write("12345678901234567890123").as_bytes());
    assert_eq!(client.answer()["error"]["code"], -32602);
    for number in ["18446744073709551615", "-9223372036854775808", "0.5"] {
        client.line(write(number).as_bytes());
        assert!(client.answer().get("result").is_some(), "{number}");
        let read = client.result("session.read", &json!({"id": "login"}));
        assert!(read.to_string().contains(number), "{read}");
    }
}

#[test]
fn a_self_test_tells_its_progress_and_is_cancelled() {
    let sandbox = sandbox();
    let before = files_in(&sandbox.project());
    let mut client = Client::start(&sandbox);
    let params = json!({"self_test": sandbox.project(), "kills": 1000, "progress": true});
    let id = client.request("doctor", &params);
    let told = client.next().expect("a notification");
    assert_eq!((&told["method"], &told["params"]["id"]), (&json!("progress"), &json!(id)), "{told}");
    client.send(&json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}}));
    let answer = client.answer();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32800)), "{answer}");
    assert_eq!(files_in(&sandbox.project()), before, "its directory is removed");
}
