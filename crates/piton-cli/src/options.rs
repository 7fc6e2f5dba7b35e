//! Options that all commands have.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::request::Request;
use crate::surface::Surface;

/// Shown below every help text.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 error or declined, 2 usage or could not,
            3 partly done, 4 not found, 5 busy, 130 stopped by Ctrl-C";

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The directory that holds the store [default: $PITON_BASE, $HERMES_HOME/checkpoints or ~/.hermes/checkpoints]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) base: Option<PathBuf>,
    /// The configuration file [default: $HERMES_HOME/config.yaml or ~/.hermes/config.yaml]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print errors and warnings only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more: everything that was left out, what a checkpoint holds, what each project takes
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Print without colours
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Turn automatic checkpoints on for this command
    #[arg(long, global = true)]
    pub(crate) checkpoints: bool,
    /// The place where the answer is read: commands are named as they work there
    #[arg(long, global = true, hide = true, value_enum, default_value_t)]
    pub(crate) surface: Surface,
    /// The request of a program that this command answers; `None` for a command of its own.
    #[arg(skip)]
    pub(crate) request: Option<Arc<Request>>,
}
