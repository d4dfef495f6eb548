//! Reads the parts of a Markdown file that the rules check.

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
    /// The text of paragraphs, items and headings.
    pub(super) prose: Vec<Spot>,
    /// The text of the cells of tables.
    pub(super) cells: Vec<Spot>,
    /// Other targets of links than headings: `<a id="…">`.
    pub(super) marks: Vec<String>,
}

/// The line of a piece of text, and the text.
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
    /// The text of its first row.
    pub(super) head: String,
    /// The rows below the head.
    pub(super) rows: Vec<Row>,
}

/// A row of a table, and the positions of its links and codes in the page's lists.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) links: Range<usize>,
    pub(super) codes: Range<usize>,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Reader::default();
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            let before = text.get(..range.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            match event {
                Event::Start(tag) => reader.start(tag, line, text.get(range).unwrap_or_default()),
                Event::End(tag) => reader.end(tag),
                Event::Text(words) => reader.text(&words),
                Event::SoftBreak | Event::HardBreak => reader.text(" "),
                Event::Code(code) => reader.code(&code, line),
                Event::Html(html) | Event::InlineHtml(html) => {
                    reader.page.marks.extend(marks(&html));
                }
                _ => {}
            }
        }
        reader.page
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| heading.anchor == anchor)
            || self.marks.iter().any(|mark| mark == anchor)
    }
}

/// The reader of a page.
#[derive(Debug, Default)]
struct Reader {
    page: Page,
    anchors: Anchors,
    heading: Option<String>,
    is_fenced: bool,
    in_cell: bool,
}

impl Reader {
    fn start(&mut self, tag: Tag<'_>, line: usize, text: &str) {
        let page = &mut self.page;
        match tag {
            Tag::Heading { .. } => {
                self.heading = Some(String::new());
                page.prose.push(Spot { line, text: String::new() });
            }
            Tag::Paragraph | Tag::Item => page.prose.push(Spot { line, text: String::new() }),
            Tag::TableCell => {
                self.in_cell = true;
                page.cells.push(Spot { line, text: String::new() });
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                page.links.push(Spot { line, text: dest_url.into_string() });
            }
            Tag::CodeBlock(kind) => {
                self.is_fenced = true;
                if let CodeBlockKind::Fenced(language) = kind {
                    let language = language.into_string();
                    page.blocks.push(Block { line, language, text: String::new() });
                }
            }
            Tag::Table(columns) => {
                let columns = columns.len();
                page.tables.push(Table { columns, head: String::new(), rows: Vec::new() });
            }
            Tag::TableHead => {
                if let Some(table) = page.tables.last_mut() {
                    text.clone_into(&mut table.head);
                }
            }
            Tag::TableRow => {
                let links = page.links.len();
                let codes = page.codes.len();
                let text = text.to_owned();
                if let Some(table) = page.tables.last_mut() {
                    table.rows.push(Row { line, text, links: links..links, codes: codes..codes });
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        let page = &mut self.page;
        match tag {
            TagEnd::Heading(level) => {
                let anchor = self.anchors.next(&self.heading.take().unwrap_or_default());
                page.headings.push(Heading { level, anchor });
            }
            TagEnd::CodeBlock => self.is_fenced = false,
            TagEnd::TableCell => self.in_cell = false,
            TagEnd::TableRow => {
                let links = page.links.len();
                let codes = page.codes.len();
                if let Some(row) = page.tables.last_mut().and_then(|table| table.rows.last_mut()) {
                    row.links.end = links;
                    row.codes.end = codes;
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, words: &str) {
        if self.is_fenced {
            if let Some(block) = self.page.blocks.last_mut() {
                block.text.push_str(words);
            }
            return;
        }
        if let Some(heading) = &mut self.heading {
            heading.push_str(words);
        }
        self.say(words);
    }

    fn code(&mut self, code: &str, line: usize) {
        if let Some(heading) = &mut self.heading {
            heading.push_str(code);
        }
        self.page.codes.push(Spot { line, text: code.to_owned() });
        self.say("code");
    }

    /// Adds to the prose. A piece of code counts as one word.
    fn say(&mut self, words: &str) {
        let spots = if self.in_cell { &mut self.page.cells } else { &mut self.page.prose };
        if let Some(spot) = spots.last_mut() {
            spot.text.push_str(words);
        }
    }
}

/// The ids that HTML sets.
fn marks(html: &str) -> impl Iterator<Item = String> {
    let starts = [" id=\"", " name=\""].into_iter().flat_map(|start| html.split(start).skip(1));
    starts.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}
