//! Azurite, Microsoft's emulator of Azure Blob Storage, from npm.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::server::{BUCKET, Processes, Server, Work, free_port};
use crate::measure;

/// Account and key that are built into the emulator.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const CREDENTIALS: [(&str, &str); 2] = [("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT), ("AZURE_STORAGE_ACCOUNT_KEY", KEY)];

/// Creates the container.
const CREATE: &str = "const { BlobServiceClient, StorageSharedKeyCredential } = require('@azure/storage-blob');
const [endpoint, account, key, container] = process.argv.slice(1);
const service = new BlobServiceClient(endpoint, new StorageSharedKeyCredential(account, key));
service.getContainerClient(container).create();";

/// Installs the emulator, and starts it.
pub(super) fn start(work: &Work, scratch: &Path) -> Result<Server> {
    let packages = work.root.join("azurite");
    let program = packages.join("node_modules/.bin/azurite-blob");
    if !program.exists() {
        println!("installing azurite");
        fs::create_dir_all(&packages)?;
        let install = ["install", "--silent", "--no-fund", "--no-audit", "azurite@3", "@azure/storage-blob@12"];
        measure::run(Command::new("npm").args(install).current_dir(&packages))?;
    }
    let version = measure::text(Command::new(&program).arg("--version"))?;
    let port = free_port()?;
    let mut processes = Processes::default();
    let mut command = measure::isolated(&program, scratch);
    command.args(["--silent", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
    processes.spawn(command.arg("--location").arg(scratch.join("data")), &scratch.join("azurite.log"))?;
    processes.wait_for(port)?;
    let endpoint = format!("http://127.0.0.1:{port}/{ACCOUNT}");
    let mut create = Command::new("node");
    measure::run(create.args(["-e", CREATE, &endpoint, ACCOUNT, KEY, BUCKET]).current_dir(&packages))?;
    let version = format!("Azurite {version}");
    Ok(Server { endpoint, version, scheme: "az", credentials: &CREDENTIALS, _processes: processes })
}
