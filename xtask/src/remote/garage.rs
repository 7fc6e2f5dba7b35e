//! Garage on one machine. It answers conditional writes as if there were no condition.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::server::{BUCKET, KEY, Processes, SECRET, Server, Work, free_port};
use crate::measure;

const VERSION: &str = "^2";

pub(super) fn start(work: &Work, scratch: &Path) -> Result<Server> {
    let program = build(work)?;
    let (rpc, api) = (free_port()?, free_port()?);
    let configuration = scratch.join("garage.toml");
    let dir = scratch.display();
    let text = format!(
        "metadata_dir = \"{dir}/meta\"
data_dir = \"{dir}/data\"
db_engine = \"sqlite\"
replication_factor = 1
rpc_bind_addr = \"127.0.0.1:{rpc}\"
rpc_public_addr = \"127.0.0.1:{rpc}\"
rpc_secret = \"{SECRET}\"

[s3_api]
s3_region = \"us-east-1\"
api_bind_addr = \"127.0.0.1:{api}\"
"
    );
    fs::write(&configuration, text)?;
    let garage = |arguments: &[&str]| {
        let mut command = measure::isolated(&program, scratch);
        command.arg("-c").arg(&configuration).args(arguments);
        command
    };
    let mut processes = Processes::default();
    processes.spawn(&mut garage(&["server"]), &scratch.join("garage.log"))?;
    processes.wait_for(rpc)?;
    processes.wait_for(api)?;
    let node = measure::text(&mut garage(&["node", "id", "-q"]))?;
    let node = node.split('@').next().context("garage names no node")?;
    let key = ["key", "import", "--yes", "-n", "piton", KEY, SECRET];
    let commands: [&[&str]; 5] = [
        &["layout", "assign", "-z", "here", "-c", "10G", node],
        &["layout", "apply", "--version", "1"],
        &key,
        &["bucket", "create", BUCKET],
        &["bucket", "allow", "--read", "--write", "--owner", BUCKET, "--key", "piton"],
    ];
    for arguments in commands {
        measure::run(&mut garage(arguments))?;
    }
    let version = measure::text(Command::new(&program).arg("--version"))?;
    Ok(Server::s3(format!("http://127.0.0.1:{api}"), version, processes))
}

/// Builds Garage below the work directory, without optimisations: many minutes.
fn build(work: &Work) -> Result<PathBuf> {
    let root = work.root.join("garage");
    let program = root.join("bin/garage");
    if !program.exists() {
        println!("building garage: this takes many minutes");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "garage", "--locked", "--debug", "--version", VERSION, "--root"]).arg(&root);
        let built = cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").status().context("cargo does not run")?;
        ensure!(built.success(), "garage does not build");
    }
    Ok(program)
}
