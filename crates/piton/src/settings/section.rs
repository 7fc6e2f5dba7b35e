//! The section `checkpoints` of a configuration file that is not valid YAML as a whole.
//!
//! The file belongs to other programs, too. A mistake elsewhere in it must not change what piton does,
//! and one in the section must cost no more than the lines that it is in.

/// The section as a text of its own, and the number of lines before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) text: String,
    pub(crate) lines_before: u64,
}

/// Cuts the section out: from the line that begins with `checkpoints:` to the next one that is not indented. Returns `None`
/// if there is no such line, as in a file in flow style.
pub(crate) fn cut_out(text: &str) -> Option<Section> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !is_start(line));
    let (at, first) = lines.next()?;
    let belongs = |line: &str| line.trim().is_empty() || line.starts_with([' ', '\t', '#']);
    let rest = lines.map(|(_, line)| line).take_while(|line| belongs(line));
    let text = [first].into_iter().chain(rest).map(|line| format!("{line}\n")).collect();
    Some(Section { text, lines_before: at as u64 })
}

fn is_start(line: &str) -> bool {
    ["checkpoints:", "\"checkpoints\":", "'checkpoints':"].iter().any(|start| line.starts_with(start))
}

impl Section {
    /// The keys one by one, each as a section that holds nothing else, with the number of lines before it. Where one has a
    /// mistake in it, the others can still be read.
    pub(crate) fn keys(&self) -> Vec<Self> {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let body = || self.text.lines().enumerate().skip(1);
        let Some(depth) = body().map(|(_, line)| line).find(is_content).map(indent) else { return Vec::new() };
        let mut keys: Vec<Self> = Vec::new();
        for (at, line) in body() {
            let is_key = is_content(&line) && indent(line) <= depth && !line.trim_start().starts_with('-');
            match keys.last_mut() {
                Some(last) if !is_key => last.text.push_str(&format!("{line}\n")),
                None if !is_key => {}
                _ => keys.push(Self {
                    text: format!("checkpoints:\n  {}\n", line.trim_start()),
                    // The line of the key is the second line of the text.
                    lines_before: self.lines_before + at as u64 - 1,
                }),
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_found_among_lines_that_are_not_yaml() {
        let text = "a: [\n\tb\ncheckpoints:\n  enabled: true\n\n  # words\n  exclude:\n    - x\nother: }\n";
        let section = cut_out(text).expect("a section");
        assert_eq!(section.text, "checkpoints:\n  enabled: true\n\n  # words\n  exclude:\n    - x\n");
        assert_eq!(section.lines_before, 2);
        let keys = section.keys();
        assert_eq!(keys.len(), 2);
        assert_eq!((keys[0].text.as_str(), keys[0].lines_before), ("checkpoints:\n  enabled: true\n\n  # words\n", 2));
        assert_eq!(keys[1].lines_before, 5);
        assert_eq!(cut_out("{checkpoints: {enabled: true}"), None);
        assert_eq!(cut_out("checkpoints: true").map(|section| section.keys().len()), Some(0));
    }
}
