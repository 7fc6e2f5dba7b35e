//! Git's delta format: a target as copies from a base and inserted bytes.
//!
//! The base is cut into blocks whose hashes are indexed. Where a block of the base occurs in the target, the match is
//! extended in both directions as far as the two agree.

/// Length limit of a delta chain: a longer one has a loop.
pub(super) const CHAIN_MAX: usize = 10_000;

const BLOCK: usize = 16;
/// Number of blocks with the same hash that are tried. A base of all zeros has the same block in a million places.
const PLACES_MAX: usize = 16;
/// Length limit of a copy; longer ones are split.
const COPY_MAX: usize = 0x1_0000;
const INSERT_MAX: usize = 0x7f;
/// Marks the absence of a block.
const NONE: u32 = u32::MAX;
/// Number of places at which a target is sampled before it is compared as a whole.
const SAMPLES: usize = 8;

/// A base, indexed for comparison with many targets.
pub(super) struct DeltaBase {
    bytes: Vec<u8>,
    /// Last block for each hash.
    heads: Vec<u32>,
    /// For each block, the previous one with the same hash.
    before: Vec<u32>,
    shift: u32,
}

impl DeltaBase {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let blocks = bytes.len() / BLOCK;
        let bits = usize::BITS - blocks.max(16).leading_zeros();
        let mut base = Self { heads: vec![NONE; 1 << bits], before: vec![NONE; blocks], shift: 64 - bits, bytes };
        for block in 0..blocks {
            let at = base.slot(&base.bytes[block * BLOCK..]);
            let block = u32::try_from(block).expect("a base is smaller than 4 GiB");
            base.before[block as usize] = std::mem::replace(&mut base.heads[at], block);
        }
        base
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the slot in `heads` for the block at the start of `bytes`.
    fn slot(&self, bytes: &[u8]) -> usize {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let mixed = word(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word(8).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        usize::try_from(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift).expect("as many bits as the table has")
    }

    /// Returns offset and length of the longest piece of the base that matches the target at `at`.
    fn longest_at(&self, target: &[u8], at: usize) -> Option<(usize, usize)> {
        let mut block = self.heads[self.slot(&target[at..])];
        let mut best = None;
        for _ in 0..PLACES_MAX {
            if block == NONE {
                break;
            }
            let start = block as usize * BLOCK;
            let length = self.bytes[start..].iter().zip(&target[at..]).take_while(|(one, other)| one == other).count();
            if length >= BLOCK && best.is_none_or(|(_, longest)| length > longest) {
                best = Some((start, length));
            }
            block = self.before[block as usize];
        }
        best
    }

    /// Returns false if the target very likely shares too little with the base for a delta, judging by a few samples.
    /// Most files have nothing in common with their neighbours, and finding that out by a full search takes longer than
    /// the rest of a garbage collection.
    pub(super) fn may_share(&self, target: &[u8]) -> bool {
        if target.len() < SAMPLES * 4 * BLOCK {
            return true;
        }
        // A match of two blocks contains a whole block of the base at one of `BLOCK` consecutive offsets.
        let last = target.len() - 2 * BLOCK;
        let mut starts = (0..SAMPLES).map(|sample| last * sample / (SAMPLES - 1));
        starts.any(|start| (start..start + BLOCK).any(|at| self.longest_at(target, at).is_some()))
    }

    /// Returns the delta from the base to the target; `None` if it would be longer than `bytes_max`.
    pub(super) fn delta_to(&self, target: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        put_size(&mut out, self.bytes.len());
        put_size(&mut out, target.len());
        let (mut at, mut unsaid) = (0, 0);
        while at + BLOCK <= target.len() {
            if out.len() + (at - unsaid) > bytes_max {
                return None;
            }
            let Some((mut start, mut length)) = self.longest_at(target, at) else {
                at += 1;
                continue;
            };
            while start > 0 && at > unsaid && self.bytes[start - 1] == target[at - 1] {
                (start, at, length) = (start - 1, at - 1, length + 1);
            }
            put_inserts(&mut out, &target[unsaid..at]);
            put_copies(&mut out, start, length);
            at += length;
            unsaid = at;
        }
        put_inserts(&mut out, &target[unsaid..]);
        (out.len() <= bytes_max).then_some(out)
    }
}

/// Writes a size, seven bits per byte, the lowest first.
fn put_size(out: &mut Vec<u8>, mut size: usize) {
    loop {
        let low = u8::try_from(size & 0x7f).expect("masked to seven bits");
        size >>= 7;
        out.push(if size > 0 { low | 0x80 } else { low });
        if size == 0 {
            return;
        }
    }
}

fn put_inserts(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(INSERT_MAX) {
        out.push(u8::try_from(piece.len()).expect("cut to seven bits"));
        out.extend_from_slice(piece);
    }
}

fn put_copies(out: &mut Vec<u8>, mut start: usize, mut length: usize) {
    while length > 0 {
        let now = length.min(COPY_MAX);
        let place = out.len();
        out.push(0x80);
        // Zero bytes are omitted, and so is a length of exactly 64 KiB.
        for (bit, byte) in u32::try_from(start).expect("smaller than 4 GiB").to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                out[place] |= 1 << bit;
                out.push(byte);
            }
        }
        let size = if now == COPY_MAX { 0 } else { u32::try_from(now).expect("at most 64 KiB") };
        for (bit, byte) in size.to_le_bytes().into_iter().take(2).enumerate() {
            if byte != 0 {
                out[place] |= 0x10 << bit;
                out.push(byte);
            }
        }
        start += now;
        length -= now;
    }
}

/// Returns the size of the target according to the delta.
pub(super) fn target_size(mut delta: &[u8]) -> Option<u64> {
    take_size(&mut delta)?;
    take_size(&mut delta)
}

/// Returns the target; `None` if the delta is invalid or was made for another base.
pub(super) fn apply(base: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    if take_size(&mut delta)? != base.len() as u64 {
        return None;
    }
    let size = usize::try_from(take_size(&mut delta)?).ok()?;
    let mut out = Vec::new();
    while let Some((op, rest)) = delta.split_first() {
        delta = rest;
        let piece = if op & 0x80 == 0 {
            let (piece, rest) = delta.split_at_checked(usize::from(*op).max(1))?;
            delta = rest;
            // The opcode 0 is reserved.
            (*op != 0).then_some(piece)?
        } else {
            // Zero bytes are omitted.
            let mut numbers = [0_usize; 7];
            for number in numbers.iter_mut().enumerate().filter(|(bit, _)| op & 1 << bit != 0).map(|(_, it)| it) {
                let (byte, rest) = delta.split_first()?;
                (*number, delta) = (usize::from(*byte), rest);
            }
            let start = numbers[0] | numbers[1] << 8 | numbers[2] << 16 | numbers[3] << 24;
            let length = numbers[4] | numbers[5] << 8 | numbers[6] << 16;
            base.get(start..)?.get(..if length == 0 { COPY_MAX } else { length })?
        };
        if out.len() + piece.len() > size {
            return None;
        }
        out.extend_from_slice(piece);
    }
    (out.len() == size).then_some(out)
}

/// Reads a size that [`put_size`] wrote.
fn take_size(bytes: &mut &[u8]) -> Option<u64> {
    let (mut size, mut shift) = (0_u64, 0_u32);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        size |= low.checked_shl(shift).filter(|it| it >> shift == low)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dissimilar_contents_are_detected_by_samples() {
        let noise = |seed: u32| -> Vec<u8> {
            let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            std::iter::successors(Some(seed), next).map(|state| state.to_be_bytes()[0]).take(4_000).collect()
        };
        let (one, other) = (noise(1), noise(2));
        let base = DeltaBase::new(one.clone());
        assert!(!base.may_share(&other));
        // One half is the same, at either end, and shifted by a few bytes.
        let (front, back) = ([&one[..2_000], &other[..2_000]].concat(), [&other[..2_003], &one[2_000..]].concat());
        assert!(base.may_share(&front) && base.may_share(&back) && base.may_share(&one));
        // A short target is always compared.
        assert!(base.may_share(&other[..100]));
    }

    fn assert_comes_back(base: &[u8], target: &[u8]) {
        let delta = DeltaBase::new(base.to_vec()).delta_to(target, usize::MAX).expect("no limit");
        assert!(apply(base, &delta).as_deref() == Some(target), "{} bytes from {}", target.len(), base.len());
    }

    #[test]
    fn long_copies_and_edges_come_back() {
        let long: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
        let zeros = vec![0; 300_000];
        for (base, target) in [
            (&long[..], &long[..]),
            (&long, &long[3..]),
            (&long[..0x1_0000], &long[..0x1_0000]),
            (&long[..0x2_0001], &long[..0x2_0001]),
            (&zeros, &zeros[..299_999]),
            (b"", b"something"),
            (b"something", b""),
            (&long[..15], &long[..16]),
        ] {
            assert_comes_back(base, target);
        }
    }

    #[test]
    fn a_small_change_is_a_small_delta() {
        let base: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut target = base.clone();
        target.splice(40_000..40_004, *b"changed");
        let delta = DeltaBase::new(base.clone()).delta_to(&target, 100).expect("within the limit");
        assert_eq!(apply(&base, &delta), Some(target.clone()));
        assert_eq!(DeltaBase::new(base).delta_to(&target, 10), None);
    }

    /// Hand-written deltas: the two sizes, then copies (0x80 with a bit for each byte of offset and length) and
    /// inserts.
    #[test]
    fn a_delta_is_minimal() {
        let base: Vec<u8> = (0..100).collect();
        let pieces = |pieces: &[&[u8]]| pieces.concat();
        let (one, two, three) = (&[1; 16][..], &[2; 16][..], &[3; 16][..]);
        let (four, five) = (&pieces(&[&[4; 15], b"="]), &pieces(&[&[5; 15], b"="]));
        for (base, target, expected) in [
            // Blocks of the base begin at 0 and 16: a match is extended backwards to the bytes before them.
            (base.clone(), base[5..].to_vec(), vec![100, 95, 0x91, 5, 95]),
            (base.clone(), pieces(&[b"!", &base]), vec![100, 101, 1, b'!', 0x90, 100]),
            (base.clone(), pieces(&[&base[16..48], &base[16..48]]), vec![100, 64, 0x91, 16, 32, 0x91, 16, 32]),
            (base.clone(), base[16..32].to_vec(), vec![100, 16, 0x91, 16, 16]),
            (base.clone(), base[16..31].to_vec(), pieces(&[&[100, 15, 15], &base[16..31]])),
            // Of several matches the longest is taken, whether it comes first or last.
            (pieces(&[one, two, one, three]), pieces(&[one, two]), vec![64, 32, 0x90, 32]),
            (pieces(&[one, two, one, three]), pieces(&[one, three]), vec![64, 32, 0x91, 32, 32]),
            // A match is not extended back over bytes that were written already, although they agree.
            (pieces(&[four, two, five, three]), pieces(&[five, two]), vec![64, 32, 0x91, 32, 16, 0x91, 16, 16]),
        ] {
            let length = expected.len();
            let base = DeltaBase::new(base);
            assert_eq!(base.delta_to(&target, 50), Some(expected), "{target:?}");
            assert_eq!(base.delta_to(&target, length - 1), None, "{target:?}");
        }
    }

    /// Offsets and lengths whose lower bytes are zero, and those of more than one byte.
    #[test]
    fn copies_are_written_as_git_reads_them() {
        for (start, length, expected) in [
            (0, 1, &[0x90, 1][..]),
            (0x0100, 0x0100, &[0xa2, 1, 1]),
            (0x0102_0304, 0x0506, &[0xbf, 4, 3, 2, 1, 6, 5]),
            (0x0200_0000, 0xffff, &[0xb8, 2, 0xff, 0xff]),
            (0, 0x1_0000, &[0x80]),
            (7, 0x1_0001, &[0x81, 7, 0x95, 7, 1, 1]),
        ] {
            let mut out = Vec::new();
            put_copies(&mut out, start, length);
            assert_eq!(out, expected, "{length} from {start}");
        }
    }

    /// Stock git writes longer copies than piton.
    #[test]
    fn copies_of_any_length_and_place_are_read() {
        // Offsets that differ in one byte of their number have different contents.
        let byte = |at: u32| u8::try_from(at % 251).expect("less than 251");
        let base: Vec<u8> = (0..0x0102_0304 + 0x0001_0203).map(byte).collect();
        let mut delta = Vec::new();
        put_size(&mut delta, base.len());
        put_size(&mut delta, 0x0001_0203);
        delta.extend([0xff, 4, 3, 2, 1, 3, 2, 1]);
        assert!(apply(&base, &delta).as_deref() == Some(&base[0x0102_0304..]));
    }

    #[test]
    fn a_damaged_delta_is_refused_and_takes_no_more_than_it_may() {
        let base: Vec<u8> = (0..200_u8).collect();
        let target: Vec<u8> = base[50..].iter().chain(b"something else").copied().collect();
        let delta = DeltaBase::new(base.clone()).delta_to(&target, 200).expect("within the limit");
        for at in 0..delta.len() {
            assert_eq!(apply(&base, &delta[..at]), None, "cut off at {at}");
            for bit in 0..8 {
                let mut flipped = delta.clone();
                flipped[at] ^= 1 << bit;
                let longest = target_size(&flipped).unwrap_or(0);
                assert!(apply(&base, &flipped).is_none_or(|target| target.len() as u64 == longest));
            }
        }
        // Claims an endless target, and copies without end.
        let hostile = [&[0xc8, 0x01][..], &[0xff; 9], &[0x01], &[0xb0, 0xc8, 0x00].repeat(10)].concat();
        assert_eq!(apply(&base, &hostile), None);
    }

    proptest! {
        #[test]
        fn every_edit_comes_back(
            base in proptest::collection::vec(0_u8..4, 0..3000),
            cuts in proptest::collection::vec((0_usize..3000, 0_usize..300, proptest::collection::vec(any::<u8>(), 0..40)), 0..8),
        ) {
            let mut target = base.clone();
            for (at, gone, new) in cuts {
                let at = at.min(target.len());
                let end = (at + gone).min(target.len());
                target.splice(at..end, new);
            }
            assert_comes_back(&base, &target);
        }
    }
}
