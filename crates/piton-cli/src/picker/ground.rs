//! The project that the picker is opened for.

use piton::{Project, Settings, Store};

/// Data shared by all workers.
pub(super) struct Ground {
    pub(super) store: Store,
    pub(super) project: Project,
    pub(super) settings: Settings,
}
