//! `piton uninstall` restores everything.

use anyhow::{Result, ensure};
use testkit::state::{Node, State, state_of};

use super::super::scratch::Scratch;
use super::{Run, same};

/// State of the home directory at one moment, without the store and the project.
pub(super) struct Before(State);

impl Before {
    pub(super) fn note(scratch: &Scratch) -> Self {
        let mut state = state_of(&scratch.home);
        // Checkpoints are kept, and so is the directory that they are in.
        let is_kept = |path: &[u8]| path.starts_with(b".hermes/checkpoints") || path == b".hermes";
        state.retain(|path, _| !is_kept(path) && path != b"p" && !path.starts_with(b"p/"));
        Self(state)
    }

    /// Uninstalls after the agent has run. Files that the install changed are as before; a file that the agent has
    /// written since does not mention the hook.
    pub(super) fn is_back(&self, installed: &Self, scratch: &Scratch) -> Result<()> {
        let ran = Self::note(scratch);
        uninstall(scratch)?;
        let now = Self::note(scratch);
        let program = scratch.root.join("bin/piton").display().to_string().into_bytes();
        for (path, node) in &installed.0 {
            if self.0.get(path) == Some(node) {
                continue;
            }
            let name = String::from_utf8_lossy(path);
            let (want, is) = (self.0.get(path), now.0.get(path));
            if ran.0.get(path) == Some(node) {
                let state = |node: Option<&Node>| node.map(|node| (path.clone(), node.clone())).into_iter().collect();
                same(&state(is), &state(want), "after `piton uninstall`")?;
            } else if let Some(Node::File(_, bytes)) = is {
                let names_it = bytes.windows(program.len()).any(|window| window == program);
                ensure!(!names_it, "{name} still names the hook");
            }
        }
        Ok(())
    }
}

fn uninstall(scratch: &Scratch) -> Result<()> {
    scratch.piton(&["uninstall", scratch.agent.package().name])?.ok("piton uninstall").map(drop)
}

/// Install and uninstall without a run between them.
pub(super) fn at_once(run: &mut Run) -> Result<()> {
    run.check("uninstall", |scratch| {
        let before = Before::note(scratch);
        scratch.install()?;
        ensure!(Before::note(scratch).0 != before.0, "`piton install` changed nothing");
        uninstall(scratch)?;
        same(&Before::note(scratch).0, &before.0, "after `piton uninstall`")
    });
    Ok(())
}
