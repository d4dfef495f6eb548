//! Runs the texts of the scripts, each compiled once.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use mlua::{Function, Lua, Table, Value, Variadic};

use crate::fake::{Answer, Reply, Server, Store, Text};

/// A script and its inputs. `full`, `denied`, `forbidden` and `heard` are the server's, not the
/// caller's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) script: &'static str,
    pub(crate) keys: Rc<[Text]>,
    pub(crate) args: Vec<Text>,
    pub(crate) now: i64,
    pub(crate) full: bool,
    pub(crate) denied: bool,
    pub(crate) forbidden: &'static str,
    pub(crate) heard: Vec<Text>,
}

/// The effects of a script: the store, the answer, and the messages (channel, message).
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) store: Rc<Store>,
    pub(crate) answer: Answer,
    pub(crate) published: Vec<(Text, Text)>,
}

pub(crate) struct Scripts {
    lua: Lua,
    compiled: HashMap<&'static str, Function>,
    server: Rc<RefCell<Server>>,
}

impl Scripts {
    /// Each source is a name and a text.
    pub(crate) fn new(sources: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let lua = Lua::new();
        let server = Rc::new(RefCell::new(Server::default()));
        let compiled = sources.into_iter().map(|(name, text)| {
            let function = lua.load(text).set_name(name).into_function();
            (name, function.unwrap_or_else(|error| panic!("{name} doesn't compile: {error}")))
        });
        let compiled = compiled.collect();
        connect(&lua, &server).expect("the globals are set");
        Self { lua, compiled, server }
    }

    pub(crate) fn run(&self, store: &Store, run: &Run) -> Outcome {
        let before = Server {
            store: store.clone(),
            now: run.now,
            full: run.full,
            dirty: false,
            denied: run.denied,
            forbidden: run.forbidden,
            heard: run.heard.clone(),
            published: Vec::new(),
        };
        *self.server.borrow_mut() = before;
        let answer = self.call(run);
        let Server { store, published, .. } = self.server.take();
        Outcome { store: Rc::new(store), answer, published }
    }

    fn call(&self, run: &Run) -> Answer {
        let globals = self.lua.globals();
        let list = |items: &[Text]| self.lua.create_sequence_from(items.iter().map(|item| &**item));
        let keys = list(&run.keys).expect("a table");
        let args = list(&run.args).expect("a table");
        globals.raw_set("KEYS", keys).and_then(|()| globals.raw_set("ARGV", args)).expect("set");
        match self.compiled[run.script].call::<Value>(()) {
            Ok(value) => Ok(from_lua(value)),
            Err(error) => {
                // The caller gets the error of a refused command. Any other error is a fault of the
                // script.
                let error = error.to_string();
                let refused =
                    ["NOPERM", "OOM", "WRONGTYPE"].iter().any(|word| error.contains(word));
                assert!(refused, "{}: {error}", run.script);
                Err(error)
            }
        }
    }
}

fn connect(lua: &Lua, server: &Rc<RefCell<Server>>) -> mlua::Result<()> {
    let redis = lua.create_table()?;
    let ours = server.clone();
    redis.set(
        "call",
        lua.create_function(move |lua, words: Variadic<Value>| {
            let answer = ours.borrow_mut().run(&command(&words)?);
            to_lua(lua, &answer.map_err(mlua::Error::runtime)?)
        })?,
    )?;
    let ours = server.clone();
    redis.set(
        "pcall",
        lua.create_function(move |lua, words: Variadic<Value>| {
            let answer = ours.borrow_mut().run(&command(&words)?);
            match answer {
                Ok(reply) => to_lua(lua, &reply),
                Err(error) => table(lua, "err", &error),
            }
        })?,
    )?;
    lua.globals().set("redis", redis)?;
    // As in Redis, a script can't leave a global behind.
    let guard =
        lua.load("setmetatable(_G, {__newindex = function(_, name) error('global ' .. name) end})");
    guard.exec()
}

fn command(words: &[Value]) -> mlua::Result<Vec<Text>> {
    let word = |word: &Value| match word {
        Value::String(text) => Ok(Text::from(text.to_str()?.as_ref())),
        Value::Integer(number) => Ok(number.to_string().into()),
        // Redis prints 17 digits, so an integer below 10^17 has no point.
        Value::Number(number) => Ok(format!("{number}").into()),
        other => Err(mlua::Error::runtime(format!("not a command's argument: {other:?}"))),
    };
    words.iter().map(word).collect()
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        Reply::Ok => table(lua, "ok", "OK")?,
        #[expect(clippy::as_conversions, reason = "below 2^53")]
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Text(text) => Value::String(lua.create_string(&**text)?),
        Reply::List(items) => {
            let items: Vec<_> =
                items.iter().map(|item| to_lua(lua, item)).collect::<mlua::Result<_>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
    })
}

fn table(lua: &Lua, key: &str, value: &str) -> mlua::Result<Value> {
    let table: Table = lua.create_table()?;
    table.raw_set(key, value)?;
    Ok(Value::Table(table))
}

fn from_lua(value: Value) -> Reply {
    match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        #[expect(
            clippy::as_conversions,
            reason = "below 2^53; Redis cuts the fraction off as well"
        )]
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::Text(text.to_str().expect("UTF-8").as_ref().into()),
        Value::Table(items) => {
            // As in Redis, a list ends at its first nil.
            Reply::List(
                items
                    .sequence_values::<Value>()
                    .map(|item| from_lua(item.expect("a value")))
                    .collect(),
            )
        }
        other => panic!("a script answered {other:?}"),
    }
}
