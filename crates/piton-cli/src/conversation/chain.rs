//! Conversations whose records name their parent, so that they form a tree: an interrupted or rewound prompt stays in the
//! file as a branch of its own.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::WhyNot;

/// A record of such a conversation, as far as the tree needs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChainNode {
    /// Place of its line.
    pub(crate) range: Range<usize>,
    /// Its id; `None` for a record that is not part of the tree.
    pub(crate) id: Option<String>,
    pub(crate) parent: Option<String>,
    /// True if it is a prompt of the user.
    pub(crate) is_prompt: bool,
    /// True if a fork does not need it.
    pub(crate) is_dropped: bool,
}

/// Returns the records before the node at `prompt` that belong to its past: its ancestors, and everything that belongs to
/// a prompt among them. Records of other branches are left out. Fails if an ancestor is missing.
///
/// Not only the ancestors: of several tool calls in parallel, all results but one are leaves.
pub(crate) fn before(nodes: &[ChainNode], prompt: usize) -> Result<Vec<&ChainNode>, WhyNot> {
    past(nodes, &nodes[..prompt], nodes[prompt].parent.as_deref())
}

/// Like [`before`], for the records in `kept` and the record of that id as the last one.
pub(crate) fn past<'a>(
    nodes: &[ChainNode],
    kept: &'a [ChainNode],
    leaf: Option<&str>,
) -> Result<Vec<&'a ChainNode>, WhyNot> {
    let places: HashMap<&str, usize> =
        nodes.iter().enumerate().filter_map(|(at, node)| Some((node.id.as_deref()?, at))).collect();
    let mut ancestors = HashSet::new();
    let mut next = leaf;
    while let Some(id) = next {
        let Some(&at) = places.get(id) else {
            return Err(WhyNot::new(format!("its record {id} is missing")));
        };
        if !ancestors.insert(at) {
            return Err(WhyNot::format("its records form a circle"));
        }
        next = nodes[at].parent.as_deref();
    }
    // Prompt to which each record belongs: the nearest one above it.
    let mut owners: Vec<Option<usize>> = vec![None; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let parent = node.parent.as_deref().and_then(|parent| places.get(parent)).filter(|parent| **parent < at);
        owners[at] = if node.is_prompt { Some(at) } else { parent.and_then(|parent| owners[*parent]) };
    }
    let is_kept = |(at, node): &(usize, &ChainNode)| {
        let belongs = owners[*at].is_none_or(|owner| ancestors.contains(&owner));
        !node.is_dropped && (node.id.is_none() || belongs || ancestors.contains(at))
    };
    let kept: Vec<_> = kept.iter().enumerate().filter(is_kept).map(|(_, node)| node).collect();
    let ids: HashSet<&str> = kept.iter().filter_map(|node| node.id.as_deref()).collect();
    match kept.iter().filter_map(|node| node.parent.as_deref()).find(|parent| !ids.contains(parent)) {
        Some(missing) => Err(WhyNot::new(format!("its record {missing} is missing"))),
        None => Ok(kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, parent: &str, is_prompt: bool) -> ChainNode {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        ChainNode { id: some(id), parent: some(parent), is_prompt, ..ChainNode::default() }
    }

    fn kept(nodes: &[ChainNode], prompt: usize) -> String {
        let kept = before(nodes, prompt).expect("whole");
        kept.iter().map(|node| node.id.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn branches_that_were_left_are_dropped_and_parallel_results_stay() {
        let nodes = [
            node("p1", "", true),
            node("a1", "p1", false),
            node("r1", "a1", false),
            node("r2", "a1", false),
            node("a2", "r2", false),
            node("x1", "a2", true),
            node("x2", "x1", false),
            node("", "", false),
            node("p2", "a2", true),
            node("a3", "p2", false),
            node("p3", "a3", true),
        ];
        assert_eq!(kept(&nodes, 10), "p1 a1 r1 r2 a2 - p2 a3");
        assert_eq!(kept(&nodes, 8), "p1 a1 r1 r2 a2 -");
        assert_eq!(kept(&nodes, 5), "p1 a1 r1 r2 a2", "also before a prompt that was left");
        assert_eq!(kept(&nodes, 0), "");
    }

    #[test]
    fn a_missing_record_and_a_circle_are_refused() {
        let gone = [node("p1", "", true), node("a1", "gone", false), node("p2", "a1", true)];
        assert!(before(&gone, 2).is_err());
        let circle = [node("p1", "a1", true), node("a1", "p1", false), node("p2", "a1", true)];
        assert!(before(&circle, 2).is_err());
        let beside = [node("p1", "", true), node("a1", "gone", false), node("p2", "p1", true)];
        assert!(before(&beside, 2).is_err(), "a record without its parent");
    }
}
