//! What is said of a command line that can't be understood.

use std::env;

use crate::exit::Exit;

/// Help goes its usual way. What was typed wrong is repeated without the URLs in it, which may hold passwords.
pub(crate) fn told(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return if error.print().is_ok() { Exit::Done } else { Exit::Failed };
    }
    let words: Vec<_> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    eprint!("{}", without_urls(error.render().to_string(), &words));
    Exit::Failed
}

/// The text without the words that hold a URL, and without what they give an option.
fn without_urls(text: String, words: &[String]) -> String {
    let values = words.iter().flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        [Some(word.as_str()), value].into_iter().flatten()
    });
    let mut hidden: Vec<_> = values.filter(|value| value.contains("://")).collect();
    // One may be a part of another.
    hidden.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    hidden.into_iter().fold(text, |text, value| text.replace(value, "(a URL)"))
}
