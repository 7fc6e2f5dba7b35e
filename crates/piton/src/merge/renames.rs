//! Rename detection, with the rules of git's `diffcore-rename`.
//!
//! Files of equal contents come first, then files of equal names that are unique and similar by three quarters, then
//! all other pairs, most similar first. Empty files are never paired. Similarity is the share of the larger file's bytes
//! in lines (or in pieces of 64 bytes) that both files contain.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::entry::{Entry, EntryKind};
use crate::diff::has_nul;
use crate::error::Result;
use crate::id::ObjectId;
use crate::relpath;

/// Scale of similarity: 60,000 is equality.
const SCORE_MAX: u64 = 60_000;
/// Least similarity of a rename.
const SCORE_MIN: u64 = SCORE_MAX / 2;
/// Least similarity of two files whose name is unique on both sides.
const SAME_NAME_SCORE_MIN: u64 = SCORE_MAX / 4 * 3;
/// Number of sources that are remembered per target.
const CANDIDATES: usize = 4;
/// Limit for the number of pairs to compare. Above it, only files of equal contents or equal names are paired.
const PAIRS_MAX: usize = 1_000_000;
/// Number of values of the hash of a piece.
const PIECE_HASHES: u32 = 107_927;
/// Length limit of a piece in bytes.
const PIECE_BYTES_MAX: u32 = 64;

/// Files that one side deleted or added, in the order of their paths.
#[derive(Default)]
pub(crate) struct Candidates<'a> {
    pub(crate) deleted: Vec<(&'a [u8], Entry)>,
    pub(crate) added: Vec<(&'a [u8], Entry)>,
    /// Deleted paths whose rename matters, because the other side changed them too.
    pub(crate) relevant: HashSet<&'a [u8]>,
}

/// Reads the contents of an entry. Returns `None` if they are too large to be compared.
pub(crate) type Read<'r> = dyn FnMut(ObjectId) -> Result<Option<Vec<u8>>> + 'r;

/// Relevant renames.
#[derive(Default)]
pub(crate) struct Renames<'a> {
    /// New path by old path.
    pub(crate) pairs: BTreeMap<&'a [u8], &'a [u8]>,
    /// For each old path with more than one possible new path, all paths that may belong together.
    pub(crate) ambiguous: BTreeMap<&'a [u8], Vec<&'a [u8]>>,
}

/// Finds the relevant renames.
pub(crate) fn find<'a>(candidates: &Candidates<'a>, read: &mut Read<'_>) -> Result<Renames<'a>> {
    let Candidates { deleted, added, relevant } = candidates;
    if relevant.is_empty() || added.is_empty() {
        return Ok(Renames::default());
    }
    let mut search = RenameSearch {
        deleted,
        added,
        old_of: vec![None; added.len()],
        new_of: vec![None; deleted.len()],
        groups: Vec::new(),
        group_of: vec![None; added.len()],
        ambiguous: BTreeMap::new(),
    };
    search.pair_equal_contents(read)?;
    if (0..deleted.len()).any(|old| search.new_of[old].is_none() && relevant.contains(deleted[old].0)) {
        let mut pieces = PiecesCache { read, known: HashMap::new() };
        search.pair_equal_names(relevant, &mut pieces)?;
        search.pair_similar(relevant, &mut pieces)?;
    }
    let pairs = (0..deleted.len()).filter_map(|old| Some((deleted[old].0, added[search.new_of[old]?].0)));
    let pairs = pairs.filter(|(old, _)| relevant.contains(old)).collect();
    let RenameSearch { mut ambiguous, groups, .. } = search;
    ambiguous.retain(|old, _| relevant.contains(old));
    Ok(Renames { pairs, ambiguous: ambiguous.into_iter().map(|(old, group)| (old, groups[group].clone())).collect() })
}

struct RenameSearch<'s, 'a> {
    deleted: &'s [(&'a [u8], Entry)],
    added: &'s [(&'a [u8], Entry)],
    /// Index in `deleted` for each added file.
    old_of: Vec<Option<usize>>,
    /// Index in `added` for each deleted file.
    new_of: Vec<Option<usize>>,
    /// Paths of files that cannot be told apart.
    groups: Vec<Vec<&'a [u8]>>,
    /// Group of each added file, if it has one.
    group_of: Vec<Option<usize>>,
    /// Group of each deleted file that is paired with one of a group.
    ambiguous: BTreeMap<&'a [u8], usize>,
}

impl RenameSearch<'_, '_> {
    fn pair(&mut self, old: usize, new: usize) {
        (self.old_of[new], self.new_of[old]) = (Some(old), Some(new));
        if let Some(group) = self.group_of[new] {
            self.ambiguous.insert(self.deleted[old].0, group);
            self.groups[group].push(self.deleted[old].0);
        }
    }

    /// Marks files that cannot be told apart.
    fn add_group(&mut self, olds: &[usize], news: &[usize]) {
        let names = olds.iter().map(|old| self.deleted[*old].0).chain(news.iter().map(|new| self.added[*new].0));
        self.groups.push(names.collect());
        let group = self.groups.len() - 1;
        news.iter().for_each(|new| self.group_of[*new] = Some(group));
        self.ambiguous.extend(olds.iter().map(|old| (self.deleted[*old].0, group)));
    }

    /// Pairs files of equal contents, those of equal names first.
    fn pair_equal_contents(&mut self, read: &mut Read<'_>) -> Result<()> {
        let mut by_id: HashMap<(ObjectId, bool), (Vec<usize>, Vec<usize>)> = HashMap::new();
        for (at, (_, entry)) in self.deleted.iter().enumerate() {
            by_id.entry((entry.id, entry.kind.is_link())).or_default().0.push(at);
        }
        for (at, (_, entry)) in self.added.iter().enumerate() {
            by_id.entry((entry.id, entry.kind.is_link())).or_default().1.push(at);
        }
        for ((id, _), (olds, news)) in by_id {
            if olds.is_empty() || news.is_empty() || read(id)?.is_some_and(|bytes| bytes.is_empty()) {
                continue;
            }
            self.pair_group(&olds, &news);
        }
        Ok(())
    }

    /// Pairs files that all have the same contents. If their names do not tell which became which, all of them are
    /// paired in order, and are ambiguous.
    fn pair_group(&mut self, olds: &[usize], news: &[usize]) {
        let mut by_name: HashMap<&[u8], Option<usize>> = HashMap::new();
        for old in olds {
            by_name.entry(name(self.deleted[*old].0)).and_modify(|place| *place = None).or_insert(Some(*old));
        }
        // A name is given once, so that no two new files get the same old one.
        let take = |new: &usize| Some((by_name.remove(name(self.added[*new].0))??, *new));
        let distinct: Option<Vec<(usize, usize)>> = news.iter().map(take).collect();
        let is_clear = distinct.is_some() || (olds.len() == 1 && news.len() == 1);
        if !is_clear {
            self.add_group(olds, news);
        }
        for (old, new) in distinct.unwrap_or_else(|| olds.iter().copied().zip(news.iter().copied()).collect()) {
            self.pair(old, new);
        }
    }

    /// Pairs files whose name is unique among the files that are left.
    fn pair_equal_names(&mut self, relevant: &HashSet<&[u8]>, pieces: &mut PiecesCache<'_, '_>) -> Result<()> {
        let (olds, news) = (unique_names(self.deleted, &self.new_of), unique_names(self.added, &self.old_of));
        for (old, (path, _)) in self.deleted.iter().enumerate() {
            let is_candidate = relevant.contains(path) && olds.get(name(path)) == Some(&Some(old));
            let Some(new) = news.get(name(path)).copied().flatten().filter(|_| is_candidate) else {
                continue;
            };
            if pieces.similarity(self.deleted[old].1, self.added[new].1)? >= SAME_NAME_SCORE_MIN {
                self.pair(old, new);
            }
        }
        Ok(())
    }

    /// Pairs all other files, most similar first, and of equally similar ones those with equal names first.
    fn pair_similar(&mut self, relevant: &HashSet<&[u8]>, pieces: &mut PiecesCache<'_, '_>) -> Result<()> {
        let is_left = |old: &usize| self.new_of[*old].is_none() && relevant.contains(self.deleted[*old].0);
        let olds: Vec<usize> = (0..self.deleted.len()).filter(is_left).collect();
        let news: Vec<usize> = (0..self.added.len()).filter(|new| self.old_of[*new].is_none()).collect();
        if olds.len().saturating_mul(news.len()) > PAIRS_MAX {
            return Ok(());
        }
        let mut pairs = Vec::new();
        for &new in &news {
            let mut best = Vec::new();
            for &old in &olds {
                let score = pieces.similarity(self.deleted[old].1, self.added[new].1)?;
                if score >= SCORE_MIN {
                    let has_same_name = name(self.deleted[old].0) == name(self.added[new].0);
                    best.push((std::cmp::Reverse((score, has_same_name)), old, new));
                }
            }
            best.sort_by_key(|(rank, ..)| *rank);
            best.truncate(CANDIDATES);
            pairs.extend(best);
        }
        pairs.sort_by_key(|(rank, ..)| *rank);
        for equal in pairs.chunk_by(|a, b| a.0 == b.0) {
            let is_free =
                |(_, old, new): &&(_, usize, usize)| self.new_of[*old].is_none() && self.old_of[*new].is_none();
            let free: Vec<(usize, usize)> = equal.iter().filter(is_free).map(|(_, old, new)| (*old, *new)).collect();
            // The choice between equally similar files would depend on the order in which they are looked at.
            let distinct = |places: &mut dyn Iterator<Item = usize>| places.collect::<HashSet<_>>().len();
            let olds: Vec<usize> = free.iter().map(|(old, _)| *old).collect();
            let news: Vec<usize> = free.iter().map(|(_, new)| *new).collect();
            if distinct(&mut olds.iter().copied()) < free.len() || distinct(&mut news.iter().copied()) < free.len() {
                self.add_group(&olds, &news);
            }
            for (old, new) in free {
                if self.new_of[old].is_none() && self.old_of[new].is_none() {
                    self.pair(old, new);
                }
            }
        }
        Ok(())
    }
}

fn name(path: &[u8]) -> &[u8] {
    relpath::split(path).1
}

/// Returns the unpaired files by name; `None` for a name that occurs more than once.
fn unique_names<'a>(files: &[(&'a [u8], Entry)], pairs: &[Option<usize>]) -> HashMap<&'a [u8], Option<usize>> {
    let mut names = HashMap::new();
    for (at, (path, _)) in files.iter().enumerate().filter(|(at, _)| pairs[*at].is_none()) {
        names.entry(name(path)).and_modify(|place| *place = None).or_insert(Some(at));
    }
    names
}

/// Pieces of a file: number of bytes per hash, sorted by hash.
struct Pieces {
    size: u64,
    counts: Vec<(u32, u64)>,
}

/// Pieces of the files that were read; `None` for those that cannot be compared.
struct PiecesCache<'c, 'r> {
    read: &'c mut Read<'r>,
    known: HashMap<ObjectId, Option<Pieces>>,
}

impl PiecesCache<'_, '_> {
    /// Returns the similarity of two files; zero if they are too different in size, or not both regular files.
    fn similarity(&mut self, old: Entry, new: Entry) -> Result<u64> {
        if old.kind.is_link() || new.kind.is_link() {
            return Ok(0);
        }
        for id in [old.id, new.id] {
            if !self.known.contains_key(&id) {
                let pieces = (self.read)(id)?.map(|bytes| Pieces::of(&bytes));
                self.known.insert(id, pieces);
            }
        }
        let known = |id| self.known.get(&id).and_then(Option::as_ref);
        Ok(known(old.id).zip(known(new.id)).map_or(0, |(old, new)| old.similarity(new)))
    }
}

impl Pieces {
    /// Splits a file into lines, and longer lines into pieces. CR before LF does not count in a text.
    fn of(bytes: &[u8]) -> Self {
        let is_binary = has_nul(bytes);
        let mut counts: HashMap<u32, u64> = HashMap::new();
        let (mut one, mut two, mut length) = (0_u32, 0_u32, 0_u32);
        for (at, byte) in bytes.iter().enumerate() {
            if !is_binary && *byte == b'\r' && bytes.get(at + 1) == Some(&b'\n') {
                continue;
            }
            (one, two) = ((one << 7) ^ (two >> 25), (two << 7) ^ (one >> 25));
            one = one.wrapping_add(u32::from(*byte));
            length += 1;
            if length == PIECE_BYTES_MAX || *byte == b'\n' {
                *counts.entry(piece_hash(one, two)).or_default() += u64::from(length);
                (one, two, length) = (0, 0, 0);
            }
        }
        if length > 0 {
            *counts.entry(piece_hash(one, two)).or_default() += u64::from(length);
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        Self { size: bytes.len() as u64, counts }
    }

    fn similarity(&self, new: &Self) -> u64 {
        let (small, large) = (self.size.min(new.size), self.size.max(new.size));
        if small == 0 || large * (SCORE_MAX - SCORE_MIN) < (large - small) * SCORE_MAX {
            return 0;
        }
        let mut others = new.counts.iter().peekable();
        let mut common = 0;
        for (hash, count) in &self.counts {
            while others.next_if(|(other, _)| other < hash).is_some() {}
            if let Some((_, other)) = others.next_if(|(other, _)| other == hash) {
                common += count.min(other);
            }
        }
        common * SCORE_MAX / large
    }
}

fn piece_hash(one: u32, two: u32) -> u32 {
    one.wrapping_add(two.wrapping_mul(0x61)) % PIECE_HASHES
}

impl EntryKind {
    pub(crate) fn is_link(self) -> bool {
        self == Self::Link
    }
}
