//! `piton mcp`: the tools that a client gets, and who is asked before files change. Also with a real client from PyPI.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, files_in};

use crate::hook_kit::{event, hook};
use crate::kit::{PITON, command, ids, in_dir, piton, run};
use crate::serve_kit::{Client, LockHolder};

const ALWAYS: [&str; 7] = ["take", "list", "diff", "log", "blame", "search", "restore_plan"];

/// Starts a server and shakes hands, with a client that can ask a person or cannot.
fn client(sandbox: &Sandbox, can_ask: bool) -> Client {
    let mut client = Client::of(command(sandbox).arg("mcp"));
    let capabilities = if can_ask { json!({"elicitation": {}}) } else { json!({}) };
    let info = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info});
    let result = client.result("initialize", &hello);
    assert_eq!((&result["protocolVersion"], &result["serverInfo"]["name"]), (&json!("2025-06-18"), &json!("piton")));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

fn tools(client: &mut Client) -> BTreeSet<String> {
    let list = client.result("tools/list", &json!({}));
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    list["tools"].as_array().expect("a list").iter().map(name).collect()
}

fn call(client: &mut Client, tool: &str, arguments: &Value) -> Value {
    client.result("tools/call", &json!({"name": tool, "arguments": arguments}))
}

/// Returns a project with one checkpoint and a change since.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    piton(&sandbox, ["take", "-m", "first"]).done();
    sandbox.write("a.txt", "two\n");
    sandbox.write("new.txt", "new\n");
    sandbox
}

#[test]
fn a_client_gets_the_tools_that_read_and_the_plan() {
    let sandbox = sandbox();
    // Its client asserts that they are escaped: some clients end a line there.
    sandbox.write("separators.txt", "a\u{2028}b\u{2029}\n");
    let mut client = client(&sandbox, false);
    assert_eq!(tools(&mut client), ALWAYS.map(str::to_owned).into());
    let separated = call(&mut client, "diff", &json!({"paths": ["separators.txt"]}));
    assert!(separated.to_string().contains("a\u{2028}b\u{2029}"), "{separated}");
    let list = call(&mut client, "list", &json!({}));
    assert_eq!(list["structuredContent"]["items"][0]["reason"], "first", "{list}");
    let diff = call(&mut client, "diff", &json!({"paths": ["a.txt"]}));
    assert_eq!(diff["structuredContent"]["files_changed"], 1, "{diff}");
    let found = call(&mut client, "search", &json!({"text": "no such text"}));
    assert_eq!((&found["structuredContent"]["items"], &found["isError"]), (&json!([]), &json!(false)));
    assert_eq!(call(&mut client, "log", &json!({}))["isError"], false);
    assert_eq!(call(&mut client, "blame", &json!({"path": "a.txt"}))["isError"], false);
    assert_eq!(call(&mut client, "take", &json!({"reason": "by a model"}))["structuredContent"]["outcome"], "taken");
    let missing = call(&mut client, "diff", &json!({"from": "99"}));
    assert!(missing["isError"] == true && missing["content"][0]["text"].to_string().contains("hint:"), "{missing}");
    let unfit = call(&mut client, "search", &json!({"text": 5}));
    assert_eq!(unfit["content"][0]["text"], "cannot run `search`: `text` must be a text", "no advice about methods");
    assert_eq!(client.result("ping", &json!({})), json!({}));
    assert_eq!(client.error("resources/list", &json!({}))["code"], -32601);
    assert_eq!(client.error("tools/call", &json!({"name": "purge"}))["code"], -32602);
    assert!(client.end().success());
}

#[test]
fn a_client_that_gives_a_token_is_told_of_progress() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, false);
    let holder = LockHolder::start(&sandbox);
    let params = json!({"name": "take", "arguments": {}, "_meta": {"progressToken": "t"}});
    client.request("tools/call", &params);
    let told = client.next().expect("a notification");
    assert_eq!(told["method"], "notifications/progress", "{told}");
    assert_eq!((&told["params"]["progressToken"], &told["params"]["progress"]), (&json!("t"), &json!(1)), "{told}");
    assert!(told["params"]["message"].is_string(), "{told}");
    drop(holder);
    assert_eq!(client.answer()["result"]["structuredContent"]["outcome"], "taken");
    let numbers: Vec<_> = client.notifications.iter().map(|told| told["params"]["progress"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(client.end().success());
}

/// Y1: without elicitation, a call of `restore` changes nothing, and names the command for the user.
#[test]
fn a_client_that_cannot_ask_gets_the_plan_and_the_command() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, false);
    let before = files_in(&sandbox.project());
    for tool in ["restore_plan", "restore"] {
        let answer =
            call(&mut client, tool, &json!({"directory": sandbox.project(), "checkpoint": 1, "paths": ["a.txt"]}));
        let id: String = ids(&sandbox)[0].chars().take(12).collect();
        let command = format!("piton -C {} restore {id} -- a.txt", sandbox.project().display());
        assert_eq!(answer["structuredContent"]["command"], command, "{answer}");
        assert_eq!(answer["structuredContent"]["plan"]["write"], json!(["a.txt"]), "{answer}");
    }
    assert_eq!(files_in(&sandbox.project()), before);
    assert_eq!(ids(&sandbox).len(), 1, "no safety checkpoint either");
}

/// Y1: with elicitation, the person decides. Only a clear yes restores.
#[test]
fn a_person_is_asked_before_files_change() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, true);
    assert!(tools(&mut client).contains("restore"));
    let before = files_in(&sandbox.project());
    let answers = [
        json!({"result": {"action": "decline"}}),
        json!({"result": {"action": "cancel"}}),
        json!({"result": {"action": "accept", "content": {"restore": false}}}),
        json!({"result": {"action": "accept", "content": {}}}),
        json!({"result": {"action": "accept", "content": {"restore": "true"}}}),
        json!({"error": {"code": -32601, "message": "no"}}),
        json!({"result": {"action": "accept", "content": {"restore": true}}, "error": {"code": -32601, "message": "no"}}),
        json!({"result": {"action": "accept", "content": {"restore": true}}}),
    ];
    for (at, answer) in answers.iter().enumerate() {
        let id = client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1}}));
        let question = client.next().expect("a question");
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let message = question["params"]["message"].as_str().expect("text");
        assert!(message.contains("write a.txt") && message.contains("remove new.txt"), "{message}");
        assert_eq!(files_in(&sandbox.project()), before, "asked first");
        let mut reply = json!({"jsonrpc": "2.0", "id": question["id"]});
        reply.as_object_mut().expect("an object").extend(answer.as_object().expect("an object").clone());
        client.send(&reply);
        let done = client.answer();
        assert_eq!(done["id"], id);
        if at + 1 == answers.len() {
            assert_eq!(done["result"]["structuredContent"]["outcome"], "restored", "{done}");
        } else {
            assert_eq!(done["result"]["content"][0]["text"], "The user did not agree. Nothing was changed.", "{done}");
            assert_eq!(files_in(&sandbox.project()), before);
        }
    }
    assert_eq!(fs::read_to_string(sandbox.project().join("a.txt")).expect("a file"), "one\n");
    assert!(!sandbox.project().join("new.txt").exists());
    piton(&sandbox, ["undo"]).done();
    assert_eq!(files_in(&sandbox.project()), before);
}

/// The question of a call that the client has cancelled is withdrawn: a yes would have no effect.
#[test]
fn the_question_of_a_cancelled_call_is_withdrawn() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, true);
    let before = files_in(&sandbox.project());
    let id = client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1}}));
    let question = client.next().expect("a question");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    let withdrawn = client.next().expect("a notification");
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], question["id"], "{withdrawn}");
    let yes = json!({"action": "accept", "content": {"restore": true}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": yes}));
    assert!(client.end().success());
    assert_eq!(files_in(&sandbox.project()), before);
}

/// Y1: the end of the input while a person thinks is a no, and no process stays.
#[test]
fn a_client_that_ends_with_an_open_question_changes_nothing() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, true);
    let before = files_in(&sandbox.project());
    client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1}}));
    assert_eq!(client.next().expect("a question")["method"], "elicitation/create");
    client.close();
    assert!(client.answer()["result"]["content"][0]["text"].to_string().contains("did not agree"));
    assert!(client.end().success());
    assert_eq!(files_in(&sandbox.project()), before);
}

/// Y2: later work of another session is not taken back, whatever the person agrees to.
#[test]
fn the_work_of_other_sessions_stays() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    for (agent, turn) in [("codex", "t1"), ("claude", "p1")] {
        let more = json!({"prompt": "go", "turn_id": turn, "prompt_id": turn});
        hook(&sandbox, &[agent], event(&sandbox, agent, turn, "UserPromptSubmit", &more));
        sandbox.write(format!("{agent}.txt"), turn);
    }
    let mut client = client(&sandbox, true);
    client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 2}}));
    let question = client.next().expect("a question");
    let yes = json!({"action": "accept", "content": {"restore": true}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": yes}));
    let done = client.answer();
    assert_eq!(done["result"]["isError"], true, "{done}");
    assert_eq!(fs::read_to_string(sandbox.project().join("claude.txt")).expect("a file"), "p1");
}

/// Installs a package into an environment of its own, once. Returns its Python, or `None` if the registry does not answer.
fn python_with(package: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{package}"));
    let (python, ready) = (dir.join("bin/python"), dir.join("ready"));
    if ready.exists() {
        return Some(python);
    }
    let ran = |command: &mut std::process::Command| command.output().is_ok_and(|output| output.status.success());
    let done = ran(clean_command("python3").args(["-m", "venv"]).arg(&dir))
        && ran(std::process::Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--timeout",
            "10",
            "--retries",
            "1",
            package,
        ]))
        && fs::write(&ready, "").is_ok();
    done.then_some(python)
}

#[test]
fn a_client_from_pypi_lists_calls_and_is_asked() {
    let Some(python) = python_with("mcp==2.3.0") else {
        let _ = writeln!(std::io::stderr(), "skipped: the registry of Python packages does not answer");
        return;
    };
    let sandbox = sandbox();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mcp_client.py");
    let ran = clean_command(python).arg(script).arg(PITON).arg(sandbox.project()).env("HOME", sandbox.home()).output();
    let ran = ran.expect("python runs");
    let (said, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}\n{errors}");
    let found: Value = serde_json::from_str(said.trim()).expect("JSON");
    let names: BTreeSet<String> = serde_json::from_value(found["tools"].clone()).expect("names");
    assert!(names.contains("restore") && ALWAYS.iter().all(|name| names.contains(*name)), "{found}");
    assert_eq!((&found["declined"], &found["restored"]), (&json!("two\n"), &json!("one\n")), "{found}");
    assert_eq!(found["questions"], 2, "{found}");
}

/// Y2: a model does not read what is out of scope.
#[test]
fn blame_does_not_show_a_secret_to_a_model() {
    let sandbox = sandbox();
    sandbox.write(".env", "KEY=s3cret\n");
    piton(&sandbox, ["take"]).done();
    let mut client = client(&sandbox, false);
    let blame = call(&mut client, "blame", &json!({"path": ".env"}));
    assert_eq!(blame["isError"], true, "{blame}");
    assert!(!blame.to_string().contains("s3cret"), "{blame}");
}

/// Y1: the command restores what the plan names, and nothing else, whatever the names are.
#[test]
fn the_command_for_the_user_restores_what_the_plan_names() {
    let names: [&[u8]; 6] =
        [b"-y", b"--across-sessions", b"sp ace'$HOME", b"bad\xff7", b"line\nend\x1b[2J", b"back\\slash"];
    for name in names {
        let sandbox = Sandbox::new();
        let dir = sandbox.project().join(OsStr::from_bytes(b"d\xfe"));
        fs::create_dir_all(dir.join(".git")).expect("a directory");
        let (file, work) = (dir.join(OsStr::from_bytes(name)), dir.join("work.txt"));
        fs::write(&file, "one\n").and_then(|()| fs::write(&work, "one\n")).expect("files");
        run(in_dir(&sandbox, &dir).arg("take")).done();
        fs::write(&file, "two\n").and_then(|()| fs::write(&work, "new work\n")).expect("files");
        let mut client = client(&sandbox, false);
        let escaped: String = name.iter().map(|byte| format!("%{byte:02x}")).collect();
        let dir_bytes = format!("{}/d%fe", sandbox.project().display());
        let mut asked = vec![json!({"checkpoint": 1, "directory_bytes": dir_bytes, "paths_bytes": [escaped]})];
        if let Ok(text) = std::str::from_utf8(name) {
            // The first is that from before the restore that precedes it.
            asked.push(json!({"checkpoint": 2, "directory_bytes": dir_bytes, "paths": [text]}));
        }
        for arguments in asked {
            fs::write(&file, "two\n").expect("a file");
            let plan = call(&mut client, "restore_plan", &arguments);
            let command = plan["structuredContent"]["command"].as_str().expect("a command");
            assert!(command.chars().all(|shown| !shown.is_control()), "{command:?}");
            let typed = command.replacen("piton", PITON, 1);
            run(clean_command("bash").args(["-c", &typed]).env("HOME", sandbox.home()).current_dir(sandbox.root()))
                .done();
            assert_eq!(fs::read_to_string(&file).expect("a file"), "one\n", "{command}");
            assert_eq!(fs::read_to_string(&work).expect("a file"), "new work\n", "{command}");
        }
    }
}

/// Y1: a person agrees to everything that the plan does, and can read it.
#[test]
fn the_question_names_every_change_and_shows_no_control_characters() {
    let sandbox = sandbox();
    let hostile = "x\n\nNothing will be changed.\n\u{1b}[2J";
    sandbox.write(hostile, "1");
    piton(&sandbox, ["take"]).done();
    let mut client = client(&sandbox, true);
    let mut asked = |paths: Value| {
        client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1, "paths": paths}}));
        let question = client.next().expect("a question");
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}));
        client.answer();
        question["params"]["message"].as_str().expect("text").to_owned()
    };
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(sandbox.project().join("a.txt"), mode).expect("a file");
    let message = asked(json!(["a.txt"]));
    assert!(message.contains("1 to get other permissions") && message.contains("set mode 644 of a.txt"), "{message}");
    sandbox.write(hostile, "2");
    let message = asked(json!([hostile]));
    assert!(message.lines().all(|line| line.chars().all(|shown| !shown.is_control())), "{message:?}");
    assert_eq!(message.lines().count(), 3, "{message:?}");
}

/// Y1: a yes is for the plan that was shown. Work since then is asked about again, once.
#[test]
fn a_plan_that_changed_after_the_question_is_asked_about_again() {
    for changes_twice in [false, true] {
        let sandbox = sandbox();
        let mut client = client(&sandbox, true);
        let id = client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1}}));
        let first = client.next().expect("a question");
        assert!(!first.to_string().contains("work.txt"), "{first}");
        sandbox.write("work.txt", "hours of work\n");
        let yes = json!({"action": "accept", "content": {"restore": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": first["id"], "result": yes}));
        let second = client.next().expect("a question");
        assert_eq!(second["method"], "elicitation/create", "{second}");
        assert!(second["params"]["message"].to_string().contains("remove work.txt"), "{second}");
        assert!(sandbox.project().join("work.txt").exists());
        if changes_twice {
            sandbox.write("more.txt", "more work\n");
        }
        let before = files_in(&sandbox.project());
        client.send(&json!({"jsonrpc": "2.0", "id": second["id"], "result": yes}));
        let done = client.answer();
        assert_eq!(done["id"], id);
        if changes_twice {
            let plan = &done["result"]["structuredContent"]["plan"];
            assert!(plan["remove"].to_string().contains("more.txt"), "{done}");
            assert_eq!(files_in(&sandbox.project()), before, "nothing was changed");
        } else {
            assert_eq!(done["result"]["structuredContent"]["outcome"], "restored", "{done}");
        }
    }
}

/// Questions that a person leaves open do not keep other calls from being answered.
#[test]
fn open_questions_do_not_block_other_calls() {
    let sandbox = sandbox();
    let mut client = client(&sandbox, true);
    let before = files_in(&sandbox.project());
    for _ in 0..20 {
        client.request("tools/call", &json!({"name": "restore", "arguments": {"checkpoint": 1}}));
    }
    let listed = client.request("tools/call", &json!({"name": "list", "arguments": {}}));
    let (mut questions, mut declined, mut list) = (Vec::new(), 0, None);
    while list.is_none() || questions.len() + declined < 20 {
        let message = client.next().expect("a message");
        match message.get("method") {
            Some(_) => questions.push(message["id"].clone()),
            None if message["id"] == listed => list = Some(message),
            None => {
                assert!(message["result"]["structuredContent"]["command"].is_string(), "{message}");
                declined += 1;
            }
        }
    }
    assert!((1..8).contains(&questions.len()), "{questions:?}");
    for id in &questions {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"action": "decline"}}));
        assert!(client.answer()["result"]["content"][0]["text"].to_string().contains("did not agree"));
    }
    assert_eq!(files_in(&sandbox.project()), before);
    assert!(client.end().success());
}

#[test]
fn a_batch_is_answered_in_the_version_that_has_batches() {
    let sandbox = sandbox();
    for (version, takes_batches) in [("2025-03-26", true), ("2025-06-18", false)] {
        let mut client = Client::of(command(&sandbox).arg("mcp"));
        let hello =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        assert_eq!(client.result("initialize", &hello)["protocolVersion"], version);
        let ping = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        client.send(&json!([ping("a"), {"jsonrpc": "2.0", "method": "notifications/initialized"}, ping("b")]));
        if takes_batches {
            let ids: BTreeSet<String> = (0..2).map(|_| client.answer()["id"].to_string()).collect();
            assert_eq!(ids, ["\"a\"", "\"b\""].map(str::to_owned).into());
        } else {
            assert_eq!(client.answer()["error"]["code"], -32600);
        }
        assert!(client.end().success());
    }
}
