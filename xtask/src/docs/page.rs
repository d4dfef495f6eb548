//! What a Markdown file consists of, as far as the rules ask for it.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::anchor::Anchors;

/// A file, read once for all rules.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) headings: Vec<Heading>,
    pub(super) links: Vec<Spot>,
    /// Code inside of lines.
    pub(super) codes: Vec<Spot>,
    pub(super) blocks: Vec<Block>,
    pub(super) tables: Vec<Table>,
    /// What a link can lead to besides headings: `<a id="…">`.
    pub(super) marks: Vec<String>,
}

/// Where something stands, and its text.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) line: usize,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Heading {
    pub(super) level: HeadingLevel,
    pub(super) anchor: String,
}

/// Code between fences.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: usize,
    /// Those below the head.
    pub(super) rows: Vec<Row>,
}

/// A row of a table, and which of the page's links and codes are in it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) links: Range<usize>,
    pub(super) codes: Range<usize>,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut anchors = Anchors::default();
        let mut heading: Option<String> = None;
        let mut is_fenced = false;
        let line_of = |offset: usize| text.get(..offset).unwrap_or(text).matches('\n').count() + 1;
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            let line = line_of(range.start);
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(level)) => {
                    let anchor = anchors.next(&heading.take().unwrap_or_default());
                    page.headings.push(Heading { level, anchor });
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Spot { line, text: dest_url.into_string() });
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    is_fenced = true;
                    page.blocks.push(Block {
                        line,
                        language: language.into_string(),
                        text: String::new(),
                    });
                }
                Event::End(TagEnd::CodeBlock) => is_fenced = false,
                Event::Start(Tag::Table(columns)) => {
                    page.tables.push(Table { columns: columns.len(), rows: Vec::new() });
                }
                Event::Start(Tag::TableRow) => {
                    let links = page.links.len();
                    let codes = page.codes.len();
                    let text = text.get(range).unwrap_or_default().to_owned();
                    let row = Row { line, text, links: links..links, codes: codes..codes };
                    if let Some(table) = page.tables.last_mut() {
                        table.rows.push(row);
                    }
                }
                Event::End(TagEnd::TableRow) => {
                    let links = page.links.len();
                    let codes = page.codes.len();
                    if let Some(row) =
                        page.tables.last_mut().and_then(|table| table.rows.last_mut())
                    {
                        (row.links.end, row.codes.end) = (links, codes);
                    }
                }
                Event::Text(words) if is_fenced => {
                    if let Some(block) = page.blocks.last_mut() {
                        block.text.push_str(&words);
                    }
                }
                Event::Text(words) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&words))
                }
                Event::Code(code) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&code));
                    page.codes.push(Spot { line, text: code.into_string() });
                }
                Event::Html(html) | Event::InlineHtml(html) => page.marks.extend(marks(&html)),
                _ => {}
            }
        }
        page
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| heading.anchor == anchor)
            || self.marks.iter().any(|mark| mark == anchor)
    }
}

/// The ids that HTML sets.
fn marks(html: &str) -> impl Iterator<Item = String> {
    let starts = [" id=\"", " name=\""].into_iter().flat_map(|start| html.split(start).skip(1));
    starts.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}
