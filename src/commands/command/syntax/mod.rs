//! Parses a row's syntax line into the tree of arguments that COMMAND DOCS returns.
//!
//! The notation is the reference manual's: `[…]` is optional, `<a | b>` is a choice, upper-case words are literal,
//! lower-case words are placeholders, and `x [x ...]` repeats `x`. A placeholder's type follows from its name; where
//! it does not, the line gives it: `value:integer`. A placeholder's key specification follows from its position;
//! where that cannot be expressed, the line gives it: `pattern@1`. Brackets also group arguments into a block where
//! nothing else shows that they form one: `[TO <host port [FORCE]>]`. This module knows nothing of replies.

use super::declaration::{BeginSearch, Command, FindKeys, KeyFlags, KeySpec};

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Redis's own")]
pub enum ArgumentType {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgumentType {
    const ALL: [(ArgumentType, &'static str); 9] = [
        (ArgumentType::String, "string"),
        (ArgumentType::Integer, "integer"),
        (ArgumentType::Double, "double"),
        (ArgumentType::Key, "key"),
        (ArgumentType::Pattern, "pattern"),
        (ArgumentType::UnixTime, "unix-time"),
        (ArgumentType::PureToken, "pure-token"),
        (ArgumentType::OneOf, "oneof"),
        (ArgumentType::Block, "block"),
    ];

    /// Returns the name in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn named(text: &str) -> Option<ArgumentType> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(kind, _)| *kind)
    }

    /// Returns the type of placeholders of this name, unless the line gives another one.
    fn of_placeholder(name: &str) -> ArgumentType {
        match name {
            "pattern" => ArgumentType::Pattern,
            "unix-time-seconds" | "unix-time-milliseconds" => ArgumentType::UnixTime,
            "height" | "latitude" | "longitude" | "max" | "min" | "radius" | "score"
            | "timeout" | "width" => ArgumentType::Double,
            "bit" | "bits" | "client-id" | "count" | "cursor" | "db" | "decrement"
            | "destination-db" | "end" | "end-slot" | "entries-added" | "entries-read"
            | "frequency" | "increment" | "index" | "index1" | "index2" | "len" | "limit"
            | "maxage" | "milliseconds" | "min-match-len" | "ms" | "num-matches" | "numkeys"
            | "numlocal" | "numreplicas" | "offset" | "port" | "protover" | "rank" | "seconds"
            | "slot" | "start" | "start-slot" | "stop" | "ttl" | "version" | "weight" => {
                ArgumentType::Integer
            }
            _ => ArgumentType::String,
        }
    }
}

/// One argument, with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Name of the placeholder; for choices and blocks, their topic.
    pub name: String,
    /// Type of the argument.
    pub kind: ArgumentType,
    /// The literal word before the argument, or the literal word that is the argument.
    pub token: Option<&'static str>,
    /// Index of the key specification that finds the argument.
    pub key_spec: Option<usize>,
    /// Whether the argument may be left out.
    pub optional: bool,
    /// Whether the argument may be repeated.
    pub multiple: bool,
    /// Whether the word is repeated with each repetition of the argument.
    pub multiple_token: bool,
    /// The choices, or the members of a block.
    pub parts: Vec<Argument>,
}

impl Argument {
    fn new(name: impl Into<String>, kind: ArgumentType) -> Argument {
        Argument {
            name: name.into(),
            kind,
            token: None,
            key_spec: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            parts: Vec::new(),
        }
    }

    fn with_token(mut self, token: &'static str) -> Argument {
        if !self.parts.is_empty() {
            self.name = token.to_ascii_lowercase();
        }
        self.token = Some(token);
        self
    }

    fn pure_token(word: &'static str) -> Argument {
        let name = match word {
            "*" => "auto-id".into(),
            "$" => "new-id".into(),
            "=" => "equal".into(),
            "~" => "approximately".into(),
            "\"\"" => "empty-string".into(),
            _ => word.to_ascii_lowercase(),
        };
        let mut argument = Argument::new(name, ArgumentType::PureToken);
        argument.token = Some(word);
        argument
    }

    fn placeholder(word: &'static str) -> Argument {
        let (word, key_spec) = match word.split_once('@') {
            Some((word, index)) => (word, index.parse().ok()),
            None => (word, None),
        };
        let typed = word
            .rsplit_once(':')
            .and_then(|(name, kind)| Some((name, ArgumentType::named(kind)?)));
        let (name, kind) = typed.unwrap_or((word, ArgumentType::of_placeholder(word)));
        let mut argument = Argument::new(name, kind);
        argument.key_spec = key_spec;
        argument
    }

    /// Combines several arguments into a block.
    fn block(mut members: Vec<Argument>) -> Argument {
        if members.len() == 1 {
            return members.remove(0);
        }
        let mut argument = Argument::new("data", ArgumentType::Block);
        argument.parts = members;
        argument
    }

    fn one_of(choices: Vec<Argument>) -> Argument {
        let name = match choices.first().and_then(|choice| choice.token) {
            Some("NX") => "condition",
            Some("EX") => "expiration",
            Some("ASYNC") => "flush-type",
            Some("BYTE" | "M") => "unit",
            Some("ASC") => "order",
            Some("LEFT" | "MIN" | "BEFORE") => "where",
            Some("AND") => "operation",
            Some("MAXLEN") => "strategy",
            Some("=") => "operator",
            _ => "choice",
        };
        let mut argument = Argument::new(name, ArgumentType::OneOf);
        argument.parts = choices;
        argument
    }

    /// Returns the number of words that the argument takes: the minimum, and the maximum if there is one.
    pub fn arity_range(&self) -> (usize, Option<usize>) {
        let token = usize::from(self.token.is_some());
        let (mut least, mut most) = match self.kind {
            ArgumentType::PureToken => (1, Some(1)),
            ArgumentType::OneOf => {
                let ranges = || self.parts.iter().map(Argument::arity_range);
                let least = ranges().map(|range| range.0).min().unwrap_or(0);
                let most = ranges()
                    .map(|range| range.1)
                    .try_fold(0, |most, range| Some(range?.max(most)));
                (token + least, most.map(|most| token + most))
            }
            ArgumentType::Block => {
                let (least, most) = arity_range(&self.parts);
                (token + least, most.map(|most| token + most))
            }
            _ => (token + 1, Some(token + 1)),
        };
        if self.multiple {
            most = None;
        }
        if self.optional {
            least = 0;
        }
        (least, most)
    }
}

/// Returns the number of words that a list of arguments takes: the minimum, and the maximum if there is one.
pub fn arity_range(arguments: &[Argument]) -> (usize, Option<usize>) {
    arguments
        .iter()
        .map(Argument::arity_range)
        .fold((0, Some(0)), |all, one| {
            (all.0 + one.0, all.1.zip(one.1).map(|(all, one)| all + one))
        })
}

/// Returns the arguments of a command, with their key specifications.
pub fn arguments(command: &Command) -> Result<Vec<Argument>, String> {
    let mut arguments = parse(command.syntax)?;
    let first = command.full_name.split('|').count();
    for (index, spec) in command.keys.iter().enumerate() {
        assign(&mut arguments, index, spec, first);
    }
    Ok(arguments)
}

/// Parses the arguments of a syntax line.
pub fn parse(syntax: &'static str) -> Result<Vec<Argument>, String> {
    let mut reader = SyntaxParser { rest: syntax };
    let (mut choices, end) = reader.choices()?;
    match (end, choices.len()) {
        (None, 1) => sequence(&choices.remove(0)),
        (None, _) => Err(format!("a choice without brackets: {syntax}")),
        (Some(end), _) => Err(format!("'{end}' without its beginning: {syntax}")),
    }
}

/// A node of the notation as written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SyntaxNode {
    Word(&'static str),
    /// Brackets, and the alternatives between the bars in them.
    Group {
        optional: bool,
        repeated: bool,
        choices: Vec<Vec<SyntaxNode>>,
    },
    Dots,
}

struct SyntaxParser {
    rest: &'static str,
}

impl SyntaxParser {
    /// Returns the next bracket, bar or word.
    fn next(&mut self) -> Option<&'static str> {
        const MARKS: [char; 5] = ['[', ']', '<', '>', '|'];
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next()?;
        let end = if MARKS.contains(&first) {
            1
        } else {
            let ends = |letter: char| letter.is_whitespace() || MARKS.contains(&letter);
            self.rest.find(ends).unwrap_or(self.rest.len())
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }

    /// Returns the alternatives between the bars, up to the closing bracket or the end.
    fn choices(&mut self) -> Result<(Vec<Vec<SyntaxNode>>, Option<&'static str>), String> {
        let mut choices = vec![Vec::new()];
        while let Some(word) = self.next() {
            let node = match word {
                "]" | ">" => return Ok((choices, Some(word))),
                "|" => {
                    choices.push(Vec::new());
                    continue;
                }
                "[" | "<" => {
                    let (inner, end) = self.choices()?;
                    let wanted = if word == "[" { "]" } else { ">" };
                    if end != Some(wanted) {
                        return Err(format!("'{word}' without '{wanted}'"));
                    }
                    group(word == "[", inner)
                }
                "..." => SyntaxNode::Dots,
                _ => SyntaxNode::Word(word),
            };
            choices.last_mut().expect("begins with one").push(node);
        }
        Ok((choices, None))
    }
}

/// Makes a group node; `[x [x ...]]` becomes a group that repeats.
fn group(optional: bool, mut choices: Vec<Vec<SyntaxNode>>) -> SyntaxNode {
    let repetition = choices
        .last()
        .and_then(|choice| choice.last())
        .and_then(repeats);
    let repeated = repetition.is_some_and(|repetition| {
        let mut once = choices.clone();
        once.last_mut()
            .expect("the last choice ends with the repetition")
            .pop();
        flat_choices(&once) == repetition
    });
    if repeated {
        choices
            .last_mut()
            .expect("the last choice ends with the repetition")
            .pop();
    }
    SyntaxNode::Group {
        optional,
        repeated,
        choices,
    }
}

/// Returns the x of `[x ...]` as a text; None for other nodes.
fn repeats(node: &SyntaxNode) -> Option<String> {
    let SyntaxNode::Group {
        optional: true,
        choices,
        ..
    } = node
    else {
        return None;
    };
    let mut once = choices.clone();
    let dots = once.last_mut()?.pop()?;
    (dots == SyntaxNode::Dots).then(|| flat_choices(&once))
}

/// Returns a canonical text of the notation; brackets that only group are left out.
fn flat(nodes: &[SyntaxNode]) -> String {
    let one = |node: &SyntaxNode| match node {
        SyntaxNode::Word(word) => (*word).to_owned(),
        SyntaxNode::Dots => "...".to_owned(),
        SyntaxNode::Group {
            optional,
            repeated,
            choices,
        } => {
            let inner = flat_choices(choices);
            let again = if *repeated { " again" } else { "" };
            match (optional, choices.len()) {
                (true, _) => format!("[{inner}{again}]"),
                (false, 1) => format!("{inner}{again}"),
                (false, _) => format!("<{inner}{again}>"),
            }
        }
    };
    nodes.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn flat_choices(choices: &[Vec<SyntaxNode>]) -> String {
    let choices: Vec<String> = choices.iter().map(|choice| flat(choice)).collect();
    choices.join(" | ")
}

/// Whether a word is literal.
fn is_token(word: &str) -> bool {
    !word.contains(|letter: char| letter.is_ascii_lowercase())
}

/// Converts a sequence of nodes to arguments.
fn sequence(nodes: &[SyntaxNode]) -> Result<Vec<Argument>, String> {
    // Each argument with the position of its first node.
    let mut done: Vec<(usize, Argument)> = Vec::new();
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        if let Some(body) = repeats(node) {
            repeat(&mut done, nodes, at, &body)?;
            at += 1;
            continue;
        }
        let (argument, taken) = match node {
            SyntaxNode::Dots => return Err("dots repeat nothing".into()),
            SyntaxNode::Group {
                optional,
                repeated,
                choices,
            } => (bracketed(*optional, *repeated, choices)?, 1),
            SyntaxNode::Word(word) if is_token(word) => token_argument(word, &nodes[at + 1..])?,
            SyntaxNode::Word(word) => (Argument::placeholder(word), 1),
        };
        done.push((at, argument));
        at += taken;
    }
    Ok(done.into_iter().map(|(_, argument)| argument).collect())
}

/// Returns a token with the arguments that it introduces, and the number of nodes that they take.
fn token_argument(token: &'static str, after: &[SyntaxNode]) -> Result<(Argument, usize), String> {
    match after.first() {
        Some(SyntaxNode::Group {
            optional: false,
            repeated,
            choices,
        }) => {
            let argument = bracketed(false, *repeated, choices)?;
            return Ok((argument.with_token(token), 2));
        }
        Some(SyntaxNode::Word(word)) if !is_token(word) => {}
        _ => return Ok((Argument::pure_token(token), 1)),
    }
    let is_word = |node: &SyntaxNode| matches!(node, SyntaxNode::Word(word) if !is_token(word));
    let mut words = after.iter().take_while(|node| is_word(node)).count();
    // `BYBOX width height <M | …>`: the members differ too much for the token to introduce them all.
    if matches!(
        after.get(words),
        Some(SyntaxNode::Group {
            optional: false,
            ..
        })
    ) {
        words = 1;
    }
    let mut end = words;
    if words > 1 {
        // `STREAMS key [key ...] id [id ...]`: repetitions of single members belong to the block.
        let is_member = |node: &SyntaxNode| {
            is_word(node) || repeats(node).is_some_and(|body| !body.starts_with(token))
        };
        end = after.iter().take_while(|node| is_member(node)).count();
    } else if let Some(SyntaxNode::Word(word)) = after.first()
        && after.get(1).and_then(repeats).as_deref() == Some(word)
    {
        let members = after[2..].iter().take_while(|node| is_word(node)).count();
        end = if members > 0 {
            let is_member = |node: &SyntaxNode| is_word(node) || repeats(node).is_some();
            after.iter().take_while(|node| is_member(node)).count()
        } else {
            1
        };
    }
    let members = sequence(&after[..end])?;
    Ok((Argument::block(members).with_token(token), end + 1))
}

/// Converts the contents of brackets to one argument.
fn bracketed(
    optional: bool,
    repeated: bool,
    choices: &[Vec<SyntaxNode>],
) -> Result<Argument, String> {
    let mut all = choices
        .iter()
        .map(|choice| Ok(Argument::block(sequence(choice)?)))
        .collect::<Result<Vec<Argument>, String>>()?;
    let mut argument = match all.len() {
        1 => all.remove(0),
        _ => Argument::one_of(all),
    };
    argument.optional |= optional;
    argument.multiple |= repeated;
    argument.multiple_token |= repeated && argument.token.is_some();
    Ok(argument)
}

/// Marks as repeated the arguments that `[body ...]` at a node repeats: the argument before the node, or several as a
/// block.
fn repeat(
    done: &mut Vec<(usize, Argument)>,
    nodes: &[SyntaxNode],
    at: usize,
    body: &str,
) -> Result<(), String> {
    for first in (0..done.len()).rev() {
        let node = done[first].0;
        let before = flat(&nodes[node..at]);
        let is_whole = before == body || before == format!("<{body}>");
        let is_value = first + 1 == done.len()
            && done[first].1.token.is_some()
            && flat(&nodes[node + 1..at]) == body;
        if is_whole || is_value {
            let members = done.drain(first..).map(|(_, argument)| argument).collect();
            let mut argument = Argument::block(members);
            argument.multiple = true;
            argument.multiple_token = is_whole && argument.token.is_some();
            done.push((node, argument));
            return Ok(());
        }
    }
    Err(format!(
        "'[{body} ...]' repeats nothing that stands before it"
    ))
}

/// Links the placeholders of a key specification to its number, and sets their type to key; a name that is routed like
/// a key but is not a key (a shard channel) keeps its own type.
fn assign(arguments: &mut [Argument], index: usize, spec: &KeySpec, first: usize) {
    if spec.flags.has(KeyFlags::NOT_KEY) {
        return;
    }
    walk(
        arguments,
        &mut Some(first),
        None,
        &mut |argument, at, token| {
            let found = match (spec.begin, spec.find) {
                (BeginSearch::Unknown, _) | (_, FindKeys::Unknown) => {
                    argument.key_spec == Some(index)
                }
                (BeginSearch::Keyword(word, _), _) => token == Some(word),
                (BeginSearch::Index(begin), FindKeys::KeyNum { first, .. }) => {
                    at == Some((begin + first) as usize)
                }
                (BeginSearch::Index(begin), FindKeys::Range { last, step, .. }) => {
                    let begin = begin as usize;
                    at.is_some_and(|at| {
                        at >= begin
                            && at <= begin + last.max(0) as usize
                            && (at - begin).is_multiple_of(step.max(1) as usize)
                    })
                }
            };
            if found {
                argument.key_spec = Some(index);
                if argument.kind == ArgumentType::String {
                    argument.kind = ArgumentType::Key;
                }
            }
        },
    );
}

/// Visits every placeholder with its position, where that is fixed, and the token directly before it.
fn walk(
    arguments: &mut [Argument],
    at: &mut Option<usize>,
    mut before: Option<&'static str>,
    visit: &mut impl FnMut(&mut Argument, Option<usize>, Option<&'static str>),
) {
    for argument in arguments {
        let start = *at;
        if argument.token.is_some() {
            before = argument.token;
            *at = at.map(|at| at + 1);
        }
        match argument.kind {
            ArgumentType::PureToken => {}
            ArgumentType::OneOf => {
                let inner = *at;
                for choice in &mut argument.parts {
                    let one = std::slice::from_mut(choice);
                    walk(one, &mut inner.clone(), before, visit);
                }
            }
            ArgumentType::Block => walk(&mut argument.parts, &mut at.clone(), before, visit),
            _ => visit(argument, *at, before),
        }
        if argument.kind != ArgumentType::PureToken {
            before = None;
        }
        // The position of later arguments is fixed only if the argument always takes the same number of words.
        *at = match argument.arity_range() {
            (least, Some(most)) if least == most => start.map(|start| start + least),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests;
