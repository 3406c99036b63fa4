//! The modules of a crate and the names that each file takes from the others.
//!
//! Reads Rust source as token trees: comments and strings do not count, arguments of macros do. A
//! re-exported name (`pub use`) counts as an import from the file that defines it, so a parent that only
//! declares and re-exports its children imports nothing. Code under `#[cfg(test)]` is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::process::Outcome;

/// Names that a path may pass through before it counts as unknown; `pub use` may form circles.
const HOPS_MAX: usize = 8;

/// Words that come before the name of what a module defines.
const DEFINING: [&str; 9] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union", "mut",
];

/// The files of one crate; file 0 is its root.
#[derive(Default)]
pub struct Crate {
    /// Every source file.
    pub files: Vec<PathBuf>,
    modules: Vec<Module>,
}

#[derive(Default)]
struct Module {
    /// Index in `Crate::files`; inline modules share the file of the module around them.
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What the module defines itself, modules left out.
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Qualified names in the code.
    paths: BTreeSet<Vec<String>>,
    /// Every word of the code outside of `use`.
    words: BTreeSet<String>,
}

/// One leaf of a `use` tree.
struct Use {
    path: Vec<String>,
    /// The name that it gets here; none if it is `*`.
    name: Option<String>,
    public: bool,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Module(usize),
    /// Something that this module defines.
    ItemOf(usize),
}

impl Crate {
    /// Reads the crate whose root is the file `root`.
    pub fn load(root: &Path) -> Outcome<Self> {
        let mut all = Self::default();
        let dir = root.parent().unwrap_or(Path::new("")).to_owned();
        all.add_file(root.to_owned(), &dir, None)?;
        Ok(all)
    }

    /// For each file, the files that it imports from.
    pub fn imports(&self) -> Vec<BTreeSet<usize>> {
        let mut imports = vec![BTreeSet::new(); self.files.len()];
        for (id, module) in self.modules.iter().enumerate() {
            let used = module.uses.iter().filter_map(|one| {
                let target = self.resolve(id, &one.path, HOPS_MAX)?;
                match (&one.name, target) {
                    (None, Target::Module(m)) => (!one.public).then_some(m),
                    // only what is named below it counts
                    (Some(_), Target::Module(_)) => None,
                    (Some(name), Target::ItemOf(m)) => {
                        (!one.public || module.words.contains(name)).then_some(m)
                    }
                    (None, Target::ItemOf(m)) => Some(m),
                }
            });
            let named =
                module
                    .paths
                    .iter()
                    .filter_map(|path| match self.resolve(id, path, HOPS_MAX)? {
                        Target::ItemOf(m) => Some(m),
                        Target::Module(_) => None,
                    });
            let from = used.chain(named).map(|m| self.modules[m].file);
            imports[module.file].extend(from.filter(|file| *file != module.file));
        }
        imports
    }

    fn add_file(&mut self, path: PathBuf, dir: &Path, parent: Option<usize>) -> Outcome<usize> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|e| failed(&e))?;
        let tokens: TokenStream = text.parse().map_err(|e| failed(&e))?;
        self.files.push(path);
        self.add_module(self.files.len() - 1, tokens, dir, parent)
    }

    fn add_module(
        &mut self,
        file: usize,
        tokens: TokenStream,
        dir: &Path,
        parent: Option<usize>,
    ) -> Outcome<usize> {
        let id = self.modules.len();
        let mut scan = Scan::default();
        scan.run(tokens, true);
        self.modules.push(Module {
            file,
            parent,
            items: scan.items,
            uses: scan.uses,
            paths: scan.paths,
            words: scan.words,
            ..Module::default()
        });
        for (name, body) in scan.children {
            let inside = dir.join(&name);
            let path = match body {
                Body::Inline(tokens) => {
                    let child = self.add_module(file, tokens, &inside, Some(id))?;
                    self.modules[id].children.insert(name, child);
                    continue;
                }
                Body::FileAt(path) => self.files[file].with_file_name(path),
                Body::File => {
                    let flat = dir.join(format!("{name}.rs"));
                    let nested = inside.join("mod.rs");
                    if flat.exists() { flat } else { nested }
                }
            };
            let child = self.add_file(path, &inside, Some(id))?;
            self.modules[id].children.insert(name, child);
        }
        Ok(id)
    }

    /// Follows a path as it stands in module `from`; none if it leads out of the crate.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.member(from, name, hops)?,
        };
        while let (Target::Module(module), [name, more @ ..]) = (target, rest) {
            target = match name.as_str() {
                "super" => Target::Module(self.modules[module].parent?),
                "self" => target,
                name => self
                    .member(module, name, hops)
                    .unwrap_or(Target::ItemOf(module)),
            };
            rest = more;
        }
        Some(target)
    }

    /// What `name` is in a module: a child, an item, or imported.
    fn member(&self, module: usize, name: &str, hops: usize) -> Option<Target> {
        let hops = hops.checked_sub(1)?;
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Target::ItemOf(module));
        }
        let mut uses = here.uses.iter();
        if let Some(named) = uses.find(|u| u.name.as_deref() == Some(name)) {
            return self.resolve(module, &named.path, hops);
        }
        let globs = here.uses.iter().filter(|u| u.name.is_none() && u.public);
        let mut globs = globs.filter_map(|u| match self.resolve(module, &u.path, hops)? {
            Target::Module(below) => self.member(below, name, hops),
            Target::ItemOf(_) => None,
        });
        globs.next()
    }
}

/// Where a declared module is.
enum Body {
    Inline(TokenStream),
    File,
    FileAt(String),
}

/// What one module's own tokens say.
#[derive(Default)]
struct Scan {
    children: Vec<(String, Body)>,
    /// The file that `#[path]` names for the module that follows.
    path_of_next: Option<String>,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    paths: BTreeSet<Vec<String>>,
    words: BTreeSet<String>,
}

impl Scan {
    fn run(&mut self, tokens: TokenStream, outermost: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = if let Some(after) = after_test_only(&tokens, at, outermost) {
                after
            } else if let Some(attribute) = attribute(&tokens, at) {
                if let Some(path) = attribute.strip_prefix("path=") {
                    self.path_of_next = Some(path.trim_matches('"').to_owned());
                }
                at + 2
            } else if let TokenTree::Group(inner) = &tokens[at] {
                self.run(inner.stream(), false);
                at + 1
            } else if let Some(word) = word(&tokens, at) {
                self.on_word(&tokens, at, &word, outermost)
            } else {
                at + 1
            };
        }
    }

    /// Handles the word at `at`; gives the index to go on from.
    fn on_word(&mut self, tokens: &[TokenTree], at: usize, text: &str, outermost: bool) -> usize {
        let next = word(tokens, at + 1);
        match (text, next) {
            ("use", _) => {
                let end = (at..tokens.len()).find(|i| punct(tokens, *i, ';'));
                let end = end.unwrap_or(tokens.len());
                let public = outermost && is_public(&tokens[..at]);
                self.use_tree(&tokens[at + 1..end], &[], public);
                end + 1
            }
            ("mod", Some(name)) => {
                let body = match (group(tokens, at + 2), self.path_of_next.take()) {
                    (Some(body), _) => Body::Inline(body.stream()),
                    (None, Some(path)) => Body::FileAt(path),
                    (None, None) => Body::File,
                };
                self.children.push((name, body));
                at + 3
            }
            (keyword, Some(name)) if outermost && DEFINING.contains(&keyword) => {
                let is_name = !DEFINING.contains(&name.as_str());
                at + 1 + usize::from(is_name && self.items.insert(name))
            }
            ("macro_rules", _) => {
                self.items.extend(word(tokens, at + 2));
                at + 3
            }
            _ => self.on_path(tokens, at, text),
        }
    }

    fn on_path(&mut self, tokens: &[TokenTree], at: usize, first: &str) -> usize {
        self.words.insert(first.to_owned());
        let mut path = vec![first.to_owned()];
        let mut end = at + 1;
        while let (true, Some(part)) = (colons(tokens, end), word(tokens, end + 2)) {
            path.push(part);
            end += 3;
        }
        let is_member = at > 0 && (punct(tokens, at - 1, '.') || at > 1 && colons(tokens, at - 2));
        if path.len() > 1 && !is_member {
            self.paths.insert(path);
        }
        end
    }

    /// Takes the leaves of a `use` tree; `path` is what stands before it.
    fn use_tree(&mut self, tokens: &[TokenTree], path: &[String], public: bool) {
        let mut path = path.to_vec();
        for token in tokens {
            match token {
                TokenTree::Ident(part) => path.push(part.to_string()),
                TokenTree::Group(inner) => {
                    let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
                    let is_comma = |t: &TokenTree| t.to_string() == ",";
                    for leaf in inner.split(is_comma).filter(|leaf| !leaf.is_empty()) {
                        self.use_tree(leaf, &path, public);
                    }
                    return;
                }
                TokenTree::Punct(star) if star.as_char() == '*' => {
                    let name = None;
                    self.uses.push(Use { path, name, public });
                    return;
                }
                _ => {}
            }
        }
        let mut name = path.last().cloned();
        if path.len() > 2 && path[path.len() - 2] == "as" {
            path.truncate(path.len() - 2);
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
            name = name.filter(|n| n != "self").or(path.last().cloned());
        }
        self.uses.push(Use { path, name, public });
    }
}

/// Whether what follows `before` has a visibility.
fn is_public(before: &[TokenTree]) -> bool {
    let is_pub = |token: &TokenTree| token.to_string() == "pub";
    match before {
        [.., last] if is_pub(last) => true,
        [.., last, TokenTree::Group(within)] => {
            is_pub(last) && within.delimiter() == Delimiter::Parenthesis
        }
        _ => false,
    }
}

/// The index after an item under `#[cfg(test)]` that begins at `at`.
fn after_test_only(tokens: &[TokenTree], at: usize, outermost: bool) -> Option<usize> {
    let attribute = attribute(tokens, at)?;
    if attribute != "cfg(test)" && !attribute.starts_with("cfg(all(test,") {
        return None;
    }
    let ends = |i: &usize| match &tokens[*i] {
        TokenTree::Group(body) => body.delimiter() == Delimiter::Brace,
        TokenTree::Punct(p) => p.as_char() == ';' || (p.as_char() == ',' && !outermost),
        _ => false,
    };
    let end = (at + 2..tokens.len()).find(ends);
    Some(end.map_or(tokens.len(), |end| end + 1))
}

/// The text of the attribute that begins at `at`, without spaces.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<String> {
    let inner = group(tokens, at + 1).filter(|_| punct(tokens, at, '#'))?;
    Some(inner.stream().to_string().replace(' ', ""))
}

fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn group(tokens: &[TokenTree], at: usize) -> Option<&proc_macro2::Group> {
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

fn punct(tokens: &[TokenTree], at: usize, char: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == char)
}

fn colons(tokens: &[TokenTree], at: usize) -> bool {
    punct(tokens, at, ':') && punct(tokens, at + 1, ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a crate and what they import, as `a.rs > b.rs`.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let all = Crate::load(&dir.path().join(files[0].0)).expect("a crate");
        let name = |file: usize| {
            let inside = all.files[file].strip_prefix(dir.path()).expect("below");
            inside.display().to_string()
        };
        let imports = all.imports().into_iter().enumerate();
        let mut lines: Vec<String> = imports
            .flat_map(|(from, to)| to.into_iter().map(move |to| (from, to)))
            .map(|(from, to)| format!("{} > {}", name(from), name(to)))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn every_way_to_name_something_counts() {
        let found = imports(&[
            ("lib.rs", "mod a; mod b; mod c; fn root() { c::run() }"),
            (
                "a.rs",
                "use crate::{b::{self, X as Y}, c::*}; use std::fmt;",
            ),
            ("b/mod.rs", "pub struct X; mod d; use d::Z;"),
            (
                "b/d.rs",
                "pub struct Z; fn f() { println!(\"{}\", super::super::root()); }",
            ),
            (
                "c.rs",
                "use crate::b; pub fn run(x: b::X) {} // crate::a::no\nconst S: &str = \"crate::a::no\";",
            ),
        ]);
        assert_eq!(
            found,
            [
                "a.rs > b/mod.rs",
                "a.rs > c.rs",
                "b/d.rs > lib.rs",
                "b/mod.rs > b/d.rs",
                "c.rs > b/mod.rs",
                "lib.rs > c.rs"
            ]
        );
    }

    #[test]
    fn names_passed_on_are_taken_from_where_they_are_defined() {
        let found = imports(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::A; pub(crate) use b::*;",
            ),
            ("a.rs", "pub const fn A() {} use super::B;"),
            (
                "b.rs",
                "pub struct B; use crate as all; type T = all::c::C;",
            ),
            ("c.rs", "pub type C = u8;"),
        ]);
        assert_eq!(found, ["a.rs > b.rs", "b.rs > c.rs"]);
    }

    #[test]
    fn a_name_passed_on_and_used_here_counts() {
        let found = imports(&[
            ("lib.rs", "mod a; pub use a::A; fn f() -> A { A }"),
            ("a.rs", "pub struct A;"),
        ]);
        assert_eq!(found, ["lib.rs > a.rs"]);
    }

    #[test]
    fn code_of_tests_does_not_count() {
        let found = imports(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod gone;"),
            (
                "a.rs",
                "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] use crate::b::B;",
            ),
            (
                "b.rs",
                "pub struct B; #[cfg_attr(test, derive(Debug))] struct C(crate::a::A);",
            ),
        ]);
        assert_eq!(found, ["b.rs > a.rs"]);
    }
}
