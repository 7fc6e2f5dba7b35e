//! Source-like text from a fixed seed: the same bytes on every machine, no two files alike, compressible like real
//! code.

/// SplitMix64. Trees are generated from its numbers: with another generator, new figures could not be compared with old
/// ones.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize fits in 64 bits");
        usize::try_from(self.next() % end).expect("it is below a usize")
    }

    pub(crate) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }
}

const SYLLABLES: [&str; 32] = [
    "re", "get", "set", "buf", "dev", "init", "page", "net", "lock", "queue", "map", "ctl", "sk", "tx", "rx", "irq",
    "node", "list", "mem", "file", "ino", "reg", "clk", "pci", "bus", "err", "len", "off", "key", "tab", "cnt", "vec",
];

/// Templates: `@` is replaced by a word, `$` by a number.
const LINES: [&str; 16] = [
    "static int @_@(struct @ *@, unsigned int @)\n{\n",
    "\tstruct @ *@ = @_@(@->@);\n",
    "\tif (!@->@ || @ > 0x$)\n\t\treturn -EINVAL;\n",
    "\t@->@[$] = @_@(@, @->@);\n",
    "\tfor (@ = 0; @ < $; @++)\n\t\t@_@(&@->@, @);\n",
    "\t\t@ = @->@.@ & ~0x$;\n",
    "\tmutex_lock(&@->@);\n",
    "\tmutex_unlock(&@->@);\n",
    "\treturn @_@(@, $);\n}\n\n",
    "\t/* the @ of a @ is @ before its @ can be @ */\n",
    "#define @_@ 0x$\n",
    "\tdev_err(@->@, \"@ failed on @ $: %d\\n\", @);\n",
    "\tcase $:\n\t\t@ = @_@;\n\t\tbreak;\n",
    "}\n\n",
    "EXPORT_SYMBOL(@_@_@);\n",
    "\tgoto err_@;\n",
];

/// Words of one tree. A file takes most of its words from a part of them, as the files of one module do.
pub(crate) struct Words(Vec<String>);

impl Words {
    pub(crate) fn new(random: &mut Random, count: usize) -> Self {
        let word = |random: &mut Random| {
            let syllables = random.between(1, 3);
            let parts: Vec<&str> = (0..syllables).map(|_| SYLLABLES[random.below(SYLLABLES.len())]).collect();
            parts.join("_")
        };
        Self((0..count).map(|_| word(random)).collect())
    }

    pub(crate) fn pick(&self, random: &mut Random) -> &str {
        &self.0[random.below(self.0.len())]
    }

    /// Returns the text of a file of `size` bytes.
    pub(crate) fn file(&self, random: &mut Random, size: usize) -> Vec<u8> {
        let local: Vec<&str> = (0..24).map(|_| self.pick(random)).collect();
        let mut out = Vec::with_capacity(size + 256);
        while out.len() < size {
            for byte in LINES[random.below(LINES.len())].bytes() {
                let piece: &str = match byte {
                    b'@' if random.below(4) == 0 => self.pick(random),
                    b'@' => local[random.below(local.len())],
                    b'$' => &random.below(4096).to_string(),
                    _ => {
                        out.push(byte);
                        continue;
                    }
                };
                out.extend_from_slice(piece.as_bytes());
            }
        }
        out.truncate(size.max(1) - 1);
        out.push(b'\n');
        out
    }
}
