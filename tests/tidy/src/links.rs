//! Links in Markdown: a relative one leads to a file or folder, and `#part` to a heading.

use crate::find;
use std::fs;
use std::path::Path;

/// The dead links of all `.md` files below `root`.
pub fn dead(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in find(root, "md") {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (line, target) in targets(&text) {
            if let Some(why) = trouble(&path, &target) {
                complaints.push(format!("{}:{line}: {target}: {why}", path.display()));
            }
        }
    }
    complaints
}

/// Why `target` leads nowhere, if so. What lies outside the repository is not looked up.
fn trouble(source: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, part) = target.split_once('#').map_or((target, None), |(file, part)| (file, Some(part)));
    let path = if file.is_empty() { source.to_path_buf() } else { source.parent()?.join(file) };
    if !path.exists() {
        return Some(String::from("no such file"));
    }
    let text = part.is_some().then(|| fs::read_to_string(&path).ok()).flatten()?;
    let part = part.filter(|part| !headings(&text).iter().any(|heading| heading == part))?;
    Some(format!("no heading #{part}"))
}

/// Line number and target of each `[text](target)` and `[label]: target` outside code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, content) in prose(text) {
        if let Some((label, target)) = content.trim_start().split_once("]: ")
            && label.starts_with('[')
        {
            found.push((line, target.split_whitespace().next().unwrap_or_default().to_string()));
        }
        for (at, _) in content.match_indices("](") {
            let rest = &content[at + 2..];
            // A title may follow the target.
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((line, target.trim_matches(['<', '>']).to_string()));
        }
    }
    found
}

/// The anchors of a file's headings, as code hosts spell them.
fn headings(text: &str) -> Vec<String> {
    let lines = fenced(text).filter(|(_, _, code)| !code);
    let titles = lines
        .filter_map(|(_, line, _)| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |title: &str| {
        let kept =
            title.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
        kept.trim().replace(' ', "-")
    };
    titles.map(anchor).collect()
}

/// The lines outside fenced code, numbered from 1, with inline code blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    fenced(text).filter(|(_, _, code)| !code).map(|(number, line, _)| {
        let pieces = line.split('`').enumerate();
        (number, pieces.map(|(i, piece)| if i % 2 == 0 { piece } else { " " }).collect())
    })
}

/// Each line with its number, and whether it belongs to a fenced code block.
fn fenced(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut inside = false;
    text.lines().enumerate().map(move |(i, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (i + 1, line, inside || fence)
    })
}

mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "see [a](a.md) and ![b](<img/b.png>)\n`x[0](y)`\n```rust\nlist[1](2)\n```\n[c]: c.md \"title\"\n";
        let want = [(1, "a.md"), (1, "img/b.png"), (6, "c.md")].map(|(line, target)| (line, target.to_string()));
        assert_eq!(targets(text), want);
    }

    #[test]
    fn dead_links_are_found() {
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
        assert_eq!(trouble(&this, "docs/semantics.md"), None);
        assert_eq!(trouble(&this, "https://example.com/nothing"), None);
        assert_eq!(trouble(&this, "#birds-eye"), None);
        assert_eq!(trouble(&this, "docs/nothing.md").as_deref(), Some("no such file"));
        assert_eq!(trouble(&this, "#nothing").as_deref(), Some("no heading #nothing"));
    }
}
