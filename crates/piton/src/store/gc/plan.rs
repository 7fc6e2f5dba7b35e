//! Plans which packs to rewrite, as data. Changes nothing.

use super::super::size::{BLOCK_BYTES, collection_bytes};

/// More small packs than this make every lookup slow: they are merged.
const PACKS_MAX: usize = 32;
/// Fewer small packs are not worth a process, however low the limit is.
const PACKS_MIN: usize = 8;
/// Upper bound of the size of a pack besides its entries: the rest of the last block of two files, and the cost of each
/// idx.
pub(super) const PACK_EXTRA_BYTES: u64 = 3 * BLOCK_BYTES;
/// A pack is left alone unless more than one part in this many is dead, except where all dead space is to be freed.
const DEAD_PART_MIN: u64 = 4;
/// A large pack is worth copying only if its dead bytes are more than one part in this many of the live ones.
const LARGE_DEAD_PART_MIN: u64 = 100;

/// Live and dead bytes of one pack, and how it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PackState {
    /// Bytes of needed objects that are in no earlier pack.
    pub(super) live_bytes: u64,
    pub(super) dead_bytes: u64,
    /// Of the live bytes, those that only local files need.
    pub(super) local_bytes: u64,
    /// True if some of it was compressed at the fast level, without a search for deltas.
    pub(super) is_hasty: bool,
    /// True if stock git was told to leave it alone.
    pub(super) is_kept: bool,
}

impl PackState {
    /// Returns true if everything in it that is needed are local files.
    fn is_local(&self) -> bool {
        self.live_bytes > 0 && self.local_bytes == self.live_bytes
    }

    /// Returns true if it holds both local files and something else: another program made it.
    fn is_mixed(&self) -> bool {
        self.local_bytes > 0 && !self.is_local()
    }
}

/// Limits on the size of packs and on the number of small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Most bytes of entries in a merged pack.
    pub(super) pack_bytes: u64,
    packs: usize,
}

impl Bounds {
    /// Returns the bounds for a store with this limit: merging a pack, or freeing the space of one, must fit in the
    /// part of the limit that is reserved for garbage collection; and little space may be lost to small packs.
    pub(super) fn new(bytes_max: u64) -> Self {
        let part = collection_bytes(bytes_max);
        let packs = usize::try_from(part / (8 * BLOCK_BYTES)).unwrap_or(usize::MAX).clamp(PACKS_MIN, PACKS_MAX);
        Self { pack_bytes: part.saturating_sub(PACK_EXTRA_BYTES), packs }
    }

    pub(super) fn is_small(self, bytes: u64) -> bool {
        bytes < self.pack_bytes / 4 * 3
    }

    /// Returns true if small packs are due to be merged.
    pub(super) fn has_many(self, small: usize) -> bool {
        small > self.packs
    }

    /// Returns true if small packs must be merged even by a take: no background process has done so.
    pub(super) fn has_too_many(self, small: usize) -> bool {
        small > 2 * self.packs
    }
}

/// Goal of a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GcGoal {
    /// Free this many bytes, with the least work.
    Free(u64),
    /// Free the space that is lost to small packs, with little work.
    Merge,
    /// Keep the number of packs and the dead part of each within bounds.
    Due,
    /// Free all space that is worth the work, and make the rest as small as possible.
    All,
    /// Like `All`, but remove every byte of unreachable objects.
    Every,
}

/// Packs to be merged into one, or removed if nothing in them is live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) packs: Vec<usize>,
    /// True to search for deltas and compress at the slow level.
    pub(super) compress_well: bool,
}

/// Returns the groups to rewrite, in this order. Packs without live bytes come first: removing them needs no copying.
pub(super) fn plan(states: &[PackState], goal: GcGoal, bounds: Bounds) -> Vec<Group> {
    let may_go = |at: &usize| goal == GcGoal::Every || !states[*at].is_kept;
    let (dead, mut rest): (Vec<_>, Vec<_>) =
        (0..states.len()).filter(may_go).partition(|at| states[*at].live_bytes == 0);
    let freed: u64 = dead.iter().map(|at| states[*at].dead_bytes).sum();
    let mut groups = Vec::new();
    if !dead.is_empty() {
        groups.push(Group { packs: dead, compress_well: false });
    }
    rest.sort_by_key(|at| (states[*at].live_bytes, *at));
    if let GcGoal::Free(bytes) = goal {
        groups.extend(cheapest(states, &rest, bytes.saturating_sub(freed)));
        return groups;
    }
    // Z2: packs of local files are merged with each other only.
    let (locals, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|at| states[*at].is_local());
    for rest in [rest, locals] {
        groups.extend(match goal {
            GcGoal::Free(_) => Vec::new(),
            GcGoal::Merge => smallest(states, &rest, bounds),
            GcGoal::Due => due(states, &rest, bounds),
            GcGoal::All => all(states, &rest, bounds, LARGE_DEAD_PART_MIN),
            GcGoal::Every => all(states, &rest, bounds, u64::MAX),
        });
    }
    groups
}

/// Selects the packs that free the most bytes for each byte copied, until `bytes` are freed.
fn cheapest(states: &[PackState], rest: &[usize], bytes: u64) -> Vec<Group> {
    let mut order: Vec<_> = rest.iter().copied().filter(|at| states[*at].dead_bytes > 0).collect();
    let cost = |at: usize| (u128::from(states[at].live_bytes) << 32) / u128::from(states[at].dead_bytes);
    order.sort_by_key(|at| cost(*at));
    let mut freed = 0;
    let enough = order.iter().take_while(|at| {
        let goes_on = freed < bytes;
        freed += states[**at].dead_bytes;
        goes_on
    });
    enough.map(|at| Group { packs: vec![*at], compress_well: false }).collect()
}

/// Returns the number of small packs. `rest` is sorted by size, the smallest first.
fn count_small(states: &[PackState], rest: &[usize], bounds: Bounds) -> usize {
    rest.iter().take_while(|at| bounds.is_small(states[**at].live_bytes)).count()
}

/// Merges as many of the smallest packs as make a full one.
fn smallest(states: &[PackState], rest: &[usize], bounds: Bounds) -> Vec<Group> {
    let groups = fill(states, &rest[..count_small(states, rest, bounds)], bounds);
    groups
        .into_iter()
        .take(1)
        .filter(|group| group.packs.len() > 1)
        .map(|group| Group { compress_well: false, ..group })
        .collect()
}

/// Merges small packs so that each one that stays is at least twice as large as all smaller ones together, and rewrites
/// packs of which more than a quarter is dead.
fn due(states: &[PackState], rest: &[usize], bounds: Bounds) -> Vec<Group> {
    let mut merged = 0;
    let small = count_small(states, rest, bounds);
    if bounds.has_many(small) {
        let mut sum = 0;
        for (place, at) in rest[..small].iter().enumerate() {
            if states[*at].live_bytes < 2 * sum {
                merged = place + 1;
            }
            sum += states[*at].live_bytes;
        }
    }
    let (small, large) = rest.split_at(merged);
    let is_dead = |state: &PackState| state.dead_bytes * DEAD_PART_MIN > state.live_bytes + state.dead_bytes;
    let mut groups = fill(states, small, bounds);
    groups.retain(|group| group.packs.len() > 1 || is_dead(&states[group.packs[0]]));
    let hollow = large.iter().filter(|at| is_dead(&states[**at]));
    groups.extend(hollow.map(|at| Group { packs: vec![*at], compress_well: false }));
    groups
}

fn all(states: &[PackState], rest: &[usize], bounds: Bounds, dead_part_min: u64) -> Vec<Group> {
    let (small, large) = rest.split_at(count_small(states, rest, bounds));
    let needs_work = |group: &Group| {
        let mut packs = group.packs.iter().map(|at| states[*at]);
        group.packs.len() > 1 || packs.any(|state| state.is_hasty || state.is_mixed() || state.dead_bytes > 0)
    };
    let is_worth_it = |at: &&usize| {
        let state = states[**at];
        state.is_hasty || state.is_mixed() || state.dead_bytes.saturating_mul(dead_part_min) > state.live_bytes
    };
    let mut groups = fill(states, small, bounds);
    groups.retain(needs_work);
    groups.extend(
        large.iter().filter(is_worth_it).map(|at| Group { packs: vec![*at], compress_well: states[*at].is_hasty }),
    );
    groups
}

/// Groups packs so that each group fits in a full pack.
fn fill(states: &[PackState], packs: &[usize], bounds: Bounds) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut room = 0;
    for at in packs {
        let bytes = states[*at].live_bytes;
        match groups.last_mut().filter(|_| bytes <= room) {
            Some(group) => group.packs.push(*at),
            None => {
                groups.push(Group { packs: vec![*at], compress_well: true });
                room = bounds.pack_bytes;
            }
        }
        room = room.saturating_sub(bytes);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::super::pack::PACK_BYTES_MAX;
    use super::*;

    fn state(live_bytes: u64, dead_bytes: u64) -> PackState {
        PackState { live_bytes, dead_bytes, ..PackState::default() }
    }

    /// Bounds of a store without a limit.
    const BOUNDS: Bounds = Bounds { pack_bytes: PACK_BYTES_MAX, packs: PACKS_MAX };

    fn plan(states: &[PackState], goal: GcGoal) -> Vec<Group> {
        super::plan(states, goal, BOUNDS)
    }

    fn packs_of(groups: &[Group]) -> Vec<Vec<usize>> {
        groups.iter().map(|group| group.packs.clone()).collect()
    }

    #[test]
    fn unreachable_packs_are_removed_first_and_alone_if_that_suffices() {
        let states = [state(100, 50), state(0, 60), state(10, 40)];
        assert_eq!(packs_of(&plan(&states, GcGoal::Free(60))), [vec![1]]);
        assert_eq!(packs_of(&plan(&states, GcGoal::Free(61))), [vec![1], vec![2]]);
        assert_eq!(packs_of(&plan(&states, GcGoal::Free(1000))), [vec![1], vec![2], vec![0]]);
    }

    #[test]
    fn the_packs_that_free_most_per_copied_byte_are_rewritten() {
        let states = [state(1000, 10), state(30, 1), state(100, 50), state(5, 0)];
        for (bytes, expected) in [(1, 1), (50, 1), (51, 2), (52, 3), (1000, 3)] {
            let order = [vec![2], vec![1], vec![0]];
            assert_eq!(packs_of(&plan(&states, GcGoal::Free(bytes))), order[..expected], "{bytes}");
        }
    }

    #[test]
    fn a_pack_that_stock_git_keeps_is_left_alone() {
        let states = [PackState { is_kept: true, ..state(0, 60) }, state(5, 0)];
        assert_eq!(plan(&states, GcGoal::All), []);
    }

    #[test]
    fn packs_merge_geometrically_above_the_limit() {
        let mut states = vec![state(1 << 20, 0)];
        states.extend(vec![state(1000, 0); PACKS_MAX - 1]);
        assert_eq!(plan(&states, GcGoal::Due), [], "not above it yet");
        states.push(state(1000, 0));
        let groups = plan(&states, GcGoal::Due);
        assert_eq!(packs_of(&groups), [(1..=PACKS_MAX).collect::<Vec<_>>()], "the large one stays as it is");
        assert!(groups[0].compress_well);
    }

    #[test]
    fn a_pack_that_is_twice_as_large_as_all_smaller_ones_is_not_merged_with_them() {
        for (large, merged) in [(61, 32), (62, 31)] {
            let mut states = vec![state(1, 0); 31];
            states.extend([state(large, 0), state(1 << 20, 0)]);
            assert_eq!(packs_of(&plan(&states, GcGoal::Due)), [(0..merged).collect::<Vec<_>>()], "{large}");
        }
        for (live_bytes, is_merged) in [(PACK_BYTES_MAX / 4 * 3, false), (PACK_BYTES_MAX / 2, true)] {
            let states = vec![state(live_bytes, 0); PACKS_MAX + 1];
            assert_eq!(!plan(&states, GcGoal::Due).is_empty(), is_merged, "{live_bytes}");
        }
    }

    #[test]
    fn a_pack_is_due_when_more_than_a_quarter_of_it_is_dead() {
        assert_eq!(plan(&[state(75, 25)], GcGoal::Due), []);
        assert_eq!(plan(&[state(74, 26)], GcGoal::Due), [Group { packs: vec![0], compress_well: false }]);
    }

    #[test]
    fn small_packs_are_merged_if_there_are_several_or_space_is_gained() {
        let hasty = PackState { is_hasty: true, ..state(5, 0) };
        for (states, is_done) in [
            (&[state(5, 0)][..], false),
            (&[state(5, 1)], true),
            (&[hasty], true),
            (&[state(5, 0), state(6, 0)], true),
            (&[state(PACK_BYTES_MAX / 4, 0); 4], true),
        ] {
            let all = Group { packs: (0..states.len()).collect(), compress_well: true };
            assert_eq!(plan(states, GcGoal::All), if is_done { vec![all] } else { vec![] }, "{states:?}");
        }
        let states =
            [state(5, 0), state(PACK_BYTES_MAX / 3, 0), state(PACK_BYTES_MAX / 3, 0), state(PACK_BYTES_MAX / 3, 0)];
        assert_eq!(packs_of(&plan(&states, GcGoal::Every)), [vec![0, 1, 2]], "the last alone has no need of it");
    }

    #[test]
    fn a_large_pack_is_copied_to_free_one_percent_or_for_a_purge() {
        let live_bytes = PACK_BYTES_MAX / 100 * 100;
        for (state, goal, compress_well) in [
            (state(live_bytes, live_bytes / 100), GcGoal::All, None),
            (state(live_bytes, live_bytes / 100 + 1), GcGoal::All, Some(false)),
            (PackState { is_hasty: true, ..state(live_bytes, 0) }, GcGoal::All, Some(true)),
            (state(live_bytes, 1), GcGoal::Every, Some(false)),
            (state(live_bytes, 0), GcGoal::Every, None),
            (PackState { is_kept: true, ..state(live_bytes, 1) }, GcGoal::Every, Some(false)),
        ] {
            let expected: Vec<_> =
                compress_well.map(|compress_well| Group { packs: vec![0], compress_well }).into_iter().collect();
            assert_eq!(plan(&[state], goal), expected, "{state:?} {goal:?}");
        }
    }

    /// Z2.
    #[test]
    fn packs_of_local_files_are_merged_with_each_other_only() {
        let local = |bytes| PackState { local_bytes: bytes, ..state(bytes, 0) };
        let states = [state(5, 0), local(6), state(7, 0), local(8)];
        assert_eq!(packs_of(&plan(&states, GcGoal::All)), [vec![0, 2], vec![1, 3]]);
        assert_eq!(plan(&[state(5, 0), local(6)], GcGoal::All), [], "in order");
        let mixed = PackState { local_bytes: 2, ..state(5, 0) };
        assert_eq!(packs_of(&plan(&[mixed, local(6)], GcGoal::All)), [vec![0]], "to be taken apart");
        let mut states = vec![state(1000, 0); PACKS_MAX];
        states.push(local(1000));
        assert_eq!(plan(&states, GcGoal::Due), []);
    }

    /// G4.
    #[test]
    fn no_group_is_larger_than_a_full_pack() {
        let states = vec![state(PACK_BYTES_MAX / 3, 1); 7];
        for group in plan(&states, GcGoal::All) {
            let bytes: u64 = group.packs.iter().map(|at| states[*at].live_bytes).sum();
            assert!(bytes <= PACK_BYTES_MAX, "{group:?}");
        }
    }

    #[test]
    fn making_room_merges_the_smallest_packs_by_copying() {
        let bounds = Bounds { pack_bytes: 100, packs: 2 };
        let states = [state(90, 0), state(40, 0), state(30, 0), state(25, 1), state(0, 9)];
        let groups = super::plan(&states, GcGoal::Merge, bounds);
        assert_eq!(packs_of(&groups), [vec![4], vec![3, 2, 1]]);
        assert!(groups.iter().all(|group| !group.compress_well));
        assert_eq!(super::plan(&[state(90, 0), state(40, 0)], GcGoal::Merge, bounds), []);
    }

    /// G4.
    #[test]
    fn under_a_limit_merged_packs_fit_in_the_reserved_part() {
        for megabytes in [1, 4, 20, 500, 100_000] {
            let bytes_max = megabytes << 20;
            let bounds = Bounds::new(bytes_max);
            assert!(bounds.pack_bytes + PACK_EXTRA_BYTES <= bytes_max / 32, "{bounds:?}");
            assert!(bounds.pack_bytes <= PACK_BYTES_MAX && bounds.packs <= PACKS_MAX, "{bounds:?}");
            let states = vec![state(bounds.pack_bytes / 3, 1); PACKS_MAX + 1];
            let groups = super::plan(&states, GcGoal::Due, bounds);
            assert!(groups.iter().all(|group| group.packs.len() == 3), "{groups:?}");
        }
    }

    #[test]
    fn a_store_that_is_in_order_is_left_alone() {
        assert_eq!(plan(&[state(1000, 0), state(PACK_BYTES_MAX, 1)], GcGoal::All), []);
    }
}
