//! Ceph on one machine: a monitor, an OSD that keeps everything in memory, and the S3 gateway. Without authentication
//! between them, which is why all of them listen on the loopback address.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::server::{KEY, Processes, SECRET, Server, create_bucket, free_port};
use crate::measure;

/// Room in the OSD.
const MEMORY_BYTES: u64 = 12 << 30;

pub(super) fn start(scratch: &Path) -> Result<Server> {
    for program in ["ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"] {
        let is_there = Command::new(program).arg("--version").output().is_ok();
        ensure!(is_there, "there is no {program}: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw");
    }
    let (monitor, gateway) = (free_port()?, free_port()?);
    let (cluster, osd) = (uuid()?, uuid()?);
    for name in ["mon", "osd", "rgw"] {
        fs::create_dir_all(scratch.join(name))?;
    }
    let configuration = scratch.join("ceph.conf");
    fs::write(&configuration, configured(scratch, &cluster, monitor))?;
    let ceph = |program: &str| {
        let mut command = measure::isolated(program, scratch);
        command.arg("-c").arg(&configuration);
        command
    };
    let mut processes = Processes::default();

    let map = scratch.join("monmap");
    let address = format!("[v2:127.0.0.1:{monitor}]");
    let mut make = measure::isolated("monmaptool", scratch);
    make.args(["--create", "--fsid", &cluster, "--addv", "a", &address]).arg(&map);
    measure::run(&mut make)?;
    measure::run(ceph("ceph-mon").args(["--mkfs", "-i", "a", "--monmap"]).arg(&map))?;
    processes.spawn(ceph("ceph-mon").args(["-f", "-i", "a"]), &scratch.join("mon.out"))?;
    processes.wait_for(monitor)?;

    measure::run(ceph("ceph").args(["osd", "new", &osd]))?;
    measure::run(ceph("ceph-osd").args(["-i", "0", "--mkfs", "--osd-uuid", &osd]))?;
    processes.spawn(ceph("ceph-osd").args(["-f", "-i", "0"]), &scratch.join("osd.out"))?;

    // Waits for the OSD, and makes the first pools.
    let mut user = ceph("radosgw-admin");
    user.args(["user", "create", "--uid=piton", "--display-name=piton", "--access-key", KEY, "--secret-key", SECRET]);
    measure::run(&mut user)?;
    let mut serve = ceph("radosgw");
    serve.args(["-f", "-n", "client.rgw"]).arg(format!("--rgw-frontends=beast endpoint=127.0.0.1:{gateway}"));
    processes.spawn(&mut serve, &scratch.join("rgw.out"))?;
    processes.wait_for(gateway)?;
    let endpoint = format!("http://127.0.0.1:{gateway}");
    create_bucket(&endpoint)?;
    let version = measure::text(Command::new("radosgw").arg("--version"))?;
    Ok(Server::s3(endpoint, version, processes))
}

fn uuid() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid").context("there is no /proc")?;
    Ok(text.trim().to_owned())
}

/// One OSD: one copy of each object, and few placement groups. Without `cephx` the gateway cannot encrypt its connection
/// to the monitor, which is its default.
fn configured(scratch: &Path, cluster: &str, monitor: u16) -> String {
    let dir = scratch.display();
    format!(
        "[global]
fsid = {cluster}
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms bind msgr1 = false
mon host = v2:127.0.0.1:{monitor}
public network = 127.0.0.0/8
mon allow pool size one = true
mon data avail crit = 1
mon max pg per osd = 1000
osd crush chooseleaf type = 0
osd objectstore = memstore
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
memstore device bytes = {MEMORY_BYTES}
mon data = {dir}/mon
osd data = {dir}/osd
rgw data = {dir}/rgw
run dir = {dir}
crash dir = {dir}
pid file =
admin socket = {dir}/$name.$pid.asok
log file = {dir}/$name.log
"
    )
}
