//! Extracting the section `checkpoints` from a configuration file that is not valid YAML as a whole.
//!
//! Other programs use the file, too. A mistake elsewhere in it must not change piton's behaviour, and a mistake in the
//! section must affect only the lines that it is in.

/// Text of the section, and the number of lines before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) text: String,
    pub(crate) lines_before: u64,
}

/// Extracts the section: from the line that begins with `checkpoints:` to the next one that is not indented. Returns
/// `None` if there is no such line, as in a file in flow style.
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
    /// Returns the keys one by one, each as a section of its own, with the number of lines before it. If one is
    /// invalid, the others can still be parsed.
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
