//! Writes all mutants of a file into it at once. Each is chosen at run time by its number.
//!
//! The idea is mutant schemata (Untch, Offutt and Harrold, ISSTA 1993): `a < b` becomes
//! `(if mutant::on(7) { a <= b } else { a < b })`, so that one build serves for all mutants. Comments
//! mark what belongs to which mutant, and so tell which one the compiler refuses.

use crate::list::{Genre, Mutant, Position};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A source file and its mutants by number.
pub struct Source<'a> {
    /// Text as it is in the repository.
    pub text: &'a str,
    /// Mutants that are left in it.
    pub mutants: BTreeMap<u32, &'a Mutant>,
}

/// A place where mutants apply.
#[derive(Debug)]
struct Site {
    range: Range<usize>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    /// Mutants with the expressions that replace the range.
    Choices(Vec<(u32, String)>),
    /// Mutants with what the function returns early.
    Returns(Vec<(u32, String)>),
    /// The function's iterator is empty.
    Empty(u32),
    /// The arm, whose pattern ends here, does not match.
    NoMatch(u32),
}

impl Source<'_> {
    /// The text with all mutants, and the numbers of those that it has no place for.
    pub fn instrumented(&self) -> Result<(String, BTreeSet<u32>), String> {
        let file = syn::parse_file(self.text).map_err(|e| e.to_string())?;
        let mut finder = Finder {
            source: self,
            sites: Vec::new(),
            base: None,
        };
        finder.visit_file(&file);
        let mut sites = finder.sites;
        // stable: of two sites with one range the first found is the outer one
        sites.sort_by_key(|s| (s.range.start, std::cmp::Reverse(s.range.end)));
        let placed: BTreeSet<u32> = sites.iter().flat_map(|s| s.change.numbers()).collect();
        let lost = self.mutants.keys().filter(|n| !placed.contains(n));
        let mut text = String::new();
        self.render(&mut text, 0..self.text.len(), &sites);
        Ok((text, lost.copied().collect()))
    }

    fn render(&self, out: &mut String, range: Range<usize>, mut sites: &[Site]) {
        let mut at = range.start;
        while let [site, rest @ ..] = sites {
            let inner = rest.partition_point(|s| s.range.start < site.range.end);
            let inside = rest[..inner]
                .iter()
                .take_while(|s| s.range.end <= site.range.end)
                .count();
            out.push_str(&self.text[at..site.range.start]);
            self.site(out, site, &rest[..inside]);
            at = site.range.end;
            sites = &rest[inside..];
        }
        out.push_str(&self.text[at..range.end]);
    }

    fn site(&self, out: &mut String, site: &Site, inner: &[Site]) {
        let first = site.change.numbers()[0];
        let add = |out: &mut String, text: &str| out.push_str(text);
        let _ = writeln!(out, " //<s{first}");
        match &site.change {
            Change::Choices(choices) => {
                add(out, "(");
                for (n, text) in choices {
                    let _ = write!(
                        out,
                        "if crate::mutant::on({n}) {{ //<{n}\n{text}\n//>{n}\n}} else "
                    );
                }
                add(out, "{\n");
                self.render(out, site.range.clone(), inner);
                add(out, "\n})");
            }
            Change::Returns(values) => {
                for (n, text) in values {
                    let _ = write!(
                        out,
                        "if crate::mutant::on({n}) {{ //<{n}\nreturn {text};\n//>{n}\n}}\n"
                    );
                }
                self.render(out, site.range.clone(), inner);
            }
            Change::Empty(n) => {
                add(out, "({\n");
                self.render(out, site.range.clone(), inner);
                let _ = write!(out, "\n}}).filter(|_| !crate::mutant::on({n}))");
            }
            Change::NoMatch(n) => {
                let guarded = !site.range.is_empty();
                let _ = write!(
                    out,
                    "{} !crate::mutant::on({n})",
                    if guarded { "" } else { " if" }
                );
                if guarded {
                    add(out, " && (");
                    self.render(out, site.range.clone(), inner);
                    add(out, ")");
                }
            }
        }
        let _ = writeln!(out, " //>s{first}");
    }

    fn at(&self, genre: Genre, start: Position) -> Vec<(u32, &Mutant)> {
        let here = |m: &Mutant| m.genre == genre && m.span.start == start;
        let found = self.mutants.iter().filter(|(_, m)| here(m));
        found.map(|(n, m)| (*n, *m)).collect()
    }
}

impl Change {
    fn numbers(&self) -> Vec<u32> {
        match self {
            Change::Choices(all) | Change::Returns(all) => all.iter().map(|(n, _)| *n).collect(),
            Change::Empty(n) | Change::NoMatch(n) => vec![*n],
        }
    }
}

struct Finder<'a> {
    source: &'a Source<'a>,
    sites: Vec<Site>,
    /// The base of the struct expression around a field.
    base: Option<Range<usize>>,
}

impl Finder<'_> {
    fn text(&self, node: &impl Spanned) -> &str {
        &self.source.text[node.span().byte_range()]
    }

    fn add(&mut self, range: Range<usize>, change: Change) {
        if !change.numbers().is_empty() {
            self.sites.push(Site { range, change });
        }
    }

    fn body(&mut self, block: &syn::Block) {
        let [first, ..] = block.stmts.as_slice() else {
            return;
        };
        let last = block.stmts.last().unwrap_or(first);
        let range = first.span().byte_range().start..last.span().byte_range().end;
        let mut values = Vec::new();
        for (n, m) in self.source.at(Genre::FnValue, start(first)) {
            let returned = m.function.as_ref().map_or("", |f| &f.return_type);
            // Another iterator has another type than that of the function.
            let is_other = returned.contains("impl ") && m.replacement.contains("::std::iter::");
            if !returned.starts_with("-> impl ") && !is_other {
                values.push((n, m.replacement.clone()));
            } else if m.replacement == "::std::iter::empty()" {
                self.add(range.clone(), Change::Empty(n));
            }
        }
        self.add(range, Change::Returns(values));
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.body(&f.block);
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.body(&f.block);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, f);
    }

    fn visit_expr_binary(&mut self, e: &'ast syn::ExprBinary) {
        // `a && let Some(b) = c` cannot stand in parentheses
        if !has_let(&e.left) && !has_let(&e.right) {
            let mutants = self.source.at(Genre::BinaryOperator, start(&e.op));
            let (left, right) = (self.text(&e.left), self.text(&e.right));
            let choice =
                |(n, m): (u32, &Mutant)| (n, format!("{left}\n{}\n{right}", m.replacement));
            let choices = mutants.into_iter().map(choice).collect();
            self.add(e.span().byte_range(), Change::Choices(choices));
        }
        visit::visit_expr_binary(self, e);
    }

    fn visit_expr_unary(&mut self, e: &'ast syn::ExprUnary) {
        let mutants = self.source.at(Genre::UnaryOperator, start(&e.op));
        let text = self.text(&e.expr).to_string();
        let choices = mutants.into_iter().map(|(n, _)| (n, text.clone()));
        let choices = choices.collect();
        self.add(e.span().byte_range(), Change::Choices(choices));
        visit::visit_expr_unary(self, e);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let guard = arm.guard.as_ref().map(|(_, guard)| guard);
        let end = arm.pat.span().byte_range().end;
        let range = guard.map_or(end..end, |g| g.span().byte_range());
        for (n, _) in self.source.at(Genre::MatchArm, start(arm)) {
            self.add(range.clone(), Change::NoMatch(n));
        }
        if let Some(guard) = guard {
            let mutants = self.source.at(Genre::MatchArmGuard, start(guard));
            let choices = mutants.into_iter().map(|(n, m)| (n, m.replacement.clone()));
            let choices = choices.collect();
            self.add(range, Change::Choices(choices));
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, e: &'ast syn::ExprStruct) {
        let base = e.rest.as_ref().map(|rest| rest.span().byte_range());
        let outer = std::mem::replace(&mut self.base, base);
        visit::visit_expr_struct(self, e);
        self.base = outer;
    }

    fn visit_field_value(&mut self, f: &'ast syn::FieldValue) {
        let mutants = self.source.at(Genre::StructField, start(f));
        if let (Some(base), Some(_)) = (self.base.clone(), f.colon_token) {
            let value = format!("({}).{}", &self.source.text[base], self.text(&f.member));
            let choices = mutants.into_iter().map(|(n, _)| (n, value.clone()));
            let choices = choices.collect();
            self.add(f.expr.span().byte_range(), Change::Choices(choices));
        }
        visit::visit_field_value(self, f);
    }
}

fn start(node: &impl Spanned) -> Position {
    let start = node.span().start();
    Position {
        line: start.line,
        column: start.column + 1,
    }
}

fn has_let(e: &syn::Expr) -> bool {
    match e {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(b) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

/// The mutants that an error in this line (from 1) of instrumented text belongs to: the one whose text
/// it is in, or else all of the innermost place around it.
pub fn blamed(text: &str, line: usize) -> Vec<u32> {
    let mut open: Vec<&str> = Vec::new();
    for line in text.lines().take(line) {
        if let Some((_, mark)) = line.rsplit_once("//<") {
            open.push(mark);
        } else if line.contains("//>") {
            open.pop();
        }
    }
    let Some(mark) = open.last() else {
        return Vec::new();
    };
    match mark.strip_prefix('s') {
        None => mark.parse().into_iter().collect(),
        Some(_) => site_numbers(text, mark),
    }
}

/// The mutants between the marks of a place, without those of places inside it.
fn site_numbers(text: &str, site: &str) -> Vec<u32> {
    let (mut depth, mut found) = (0, Vec::new());
    let mut lines = text
        .lines()
        .skip_while(|l| !l.ends_with(&format!("//<{site}")));
    lines.next();
    if let Ok(n) = site[1..].parse() {
        found.push(n);
    }
    for line in lines {
        match line.rsplit_once("//<") {
            Some((_, mark)) if mark.starts_with('s') => depth += 1,
            Some((_, mark)) if depth == 0 => found.extend(mark.parse::<u32>()),
            Some(_) => {}
            None if line.contains("//>s") && depth == 0 => break,
            None if line.contains("//>s") => depth -= 1,
            None => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(genre: Genre, line: usize, column: usize, replacement: &str) -> Mutant {
        let at = Position { line, column };
        Mutant {
            file: String::new(),
            name: String::new(),
            function: None,
            genre,
            replacement: replacement.into(),
            span: crate::list::Span { start: at, end: at },
        }
    }

    fn squeezed(text: &str) -> String {
        let code = text.lines().map(|l| l.split("//").next().unwrap_or(l));
        let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
        words.join(" ")
    }

    #[test]
    fn every_kind_of_mutant_has_its_place() {
        let text = "\
fn f(a: u8) -> bool {
    match a {
        0 => true,
        n if n > 3 => !g(n),
        _ => false,
    }
}
";
        let all = [
            mutant(Genre::FnValue, 2, 5, "true"),
            mutant(Genre::MatchArm, 3, 9, ""),
            mutant(Genre::MatchArmGuard, 4, 14, "false"),
            mutant(Genre::BinaryOperator, 4, 16, ">="),
            mutant(Genre::UnaryOperator, 4, 23, ""),
        ];
        let source = Source {
            text,
            mutants: (1..).zip(&all).collect(),
        };
        let (out, lost) = source.instrumented().expect("valid");
        assert_eq!(lost, BTreeSet::new());
        assert_eq!(
            squeezed(&out),
            "fn f(a: u8) -> bool { if crate::mutant::on(1) { return true; } match a { \
             0 if !crate::mutant::on(2) => true, \
             n if (if crate::mutant::on(3) { false } else { \
             (if crate::mutant::on(4) { n >= 3 } else { n > 3 }) }) \
             => (if crate::mutant::on(5) { g(n) } else { !g(n) }) , _ => false, } }"
        );
        let line = |of: &str| 1 + out.lines().position(|l| l == of).expect("a line");
        assert_eq!(blamed(&out, line("return true;")), [1]);
        assert_eq!(blamed(&out, line("g(n)")), [5]);
        assert_eq!(blamed(&out, line("n > 3")), [4]);
        assert!(blamed(&out, 1).is_empty());
    }
}
