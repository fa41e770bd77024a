//! What commands may ask of what keeps scripts and functions, and of what runs them.

use crate::command::error::CommandError;

/// Appends a change of libraries to the log, before anybody can see it; the position behind it, or none where nothing
/// is logged.
pub type LogChange<'a> = &'a mut dyn FnMut() -> Option<u64>;

/// Whether the bound of all texts of scripts and libraries holds for what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextBound {
    /// What exceeds it is refused.
    Holds,
    /// A file or a primary has it already, so that it is taken.
    Lifted,
}

/// What the server keeps of scripts and functions, as far as commands manage it.
pub trait Scripts: Send + Sync {
    /// Compiles a script and keeps it until SCRIPT FLUSH; its SHA-1 in hexadecimal.
    fn load(&self, body: &[u8], bound: TextBound) -> Result<[u8; 40], CommandError>;
    /// Whether a script of this name can be called.
    fn exists(&self, sha1: &[u8]) -> bool;
    /// The text of a script.
    fn body(&self, sha1: &[u8]) -> Option<Vec<u8>>;
    /// Forgets all scripts.
    fn flush(&self);
    /// Ends all scripts (or all functions) that run for long and have changed nothing.
    fn kill(&self, what: Kind) -> Result<(), CommandError>;
    /// Creates a library; its name.
    fn load_library(
        &self,
        code: &[u8],
        may_replace: bool,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError>;
    /// Deletes a library.
    fn delete_library(&self, name: &[u8], log: LogChange<'_>) -> Result<(), CommandError>;
    /// Deletes all of them.
    fn flush_libraries(&self, log: LogChange<'_>);
    /// The position in the log behind all changes of libraries that could be seen until now.
    fn libraries_position(&self) -> u64;
    /// All libraries whose names match.
    fn libraries(&self, pattern: Option<&[u8]>) -> Vec<LibraryView>;
    /// All libraries as one payload.
    fn dump_libraries(&self) -> Vec<u8>;
    /// Creates the libraries of a payload.
    fn restore_libraries(
        &self,
        payload: &[u8],
        policy: Restore,
        bound: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError>;
    /// How many libraries and functions there are.
    fn library_counts(&self) -> (usize, usize);
    /// The scripts that needed more shards or more time than they said; or one of them, by its name.
    fn statistics(&self, name: Option<&[u8]>) -> Vec<ScriptStatistics>;
    /// The function that has run for longest, of those that run now.
    fn running_function(&self) -> Option<FunctionRun>;
    /// All that runs for long now: scripts, functions and transactions.
    fn running(&self) -> Vec<RunView>;
}

/// What runs on shards for long. The first two are what a kill can be aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What EVAL runs.
    Script,
    /// What FCALL runs.
    Function,
    /// What EXEC runs, beside its scripts.
    Transaction,
}

impl Kind {
    /// The word that SCRIPT STATS and the log have for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Script => "script",
            Kind::Function => "function",
            Kind::Transaction => "transaction",
        }
    }
}

/// What becomes of the libraries that there are when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// The libraries stay, and none may be there twice.
    Append,
    /// The libraries go first.
    Flush,
    /// The libraries stay unless one of their name is restored.
    Replace,
}

/// A library, for FUNCTION LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryView {
    /// Name of the library.
    pub name: String,
    /// Source of the library.
    pub code: Vec<u8>,
    /// Functions of the library.
    pub functions: Vec<FunctionView>,
}

/// A function, for FUNCTION LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionView {
    /// Name of the function.
    pub name: String,
    /// What it says of itself.
    pub description: Option<Vec<u8>>,
    /// The names of its flags.
    pub flags: Vec<&'static str>,
}

/// A function that runs now, for FUNCTION STATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRun {
    /// The function's name.
    pub name: String,
    /// The command with its arguments.
    pub command: Vec<Vec<u8>>,
    /// For how long it has run.
    pub duration_ms: u64,
}

/// What runs now, for SCRIPT STATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunView {
    /// What it is.
    pub kind: Kind,
    /// The script's SHA-1, the function's name, or `exec`.
    pub name: Vec<u8>,
    /// The id of its client.
    pub client: u64,
    /// For how long it has run.
    pub duration_ms: u64,
    /// The shards that it holds, ascending.
    pub shards: Vec<u16>,
    /// Whether a kill ends it.
    pub standing: Standing,
}

/// Whether a kill ends what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A kill would end it.
    Killable,
    /// A kill was sent, and the script is about to notice.
    Killed,
    /// A kill is refused: data may have been changed, or it is a transaction.
    Wrote,
}

impl Standing {
    /// The word that SCRIPT STATS has for it.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Killable => "killable",
            Standing::Killed => "killed",
            Standing::Wrote => "wrote",
        }
    }
}

/// How a script ran that needed more shards or more time than it said, for SCRIPT STATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptStatistics {
    /// SHA-1 of the script, or the name of the function.
    pub name: Vec<u8>,
    /// Runs since it is known for this.
    pub runs: u64,
    /// Shards that it got on the way.
    pub extended: u64,
    /// Times that it was undone and run again.
    pub reruns: u64,
    /// Reruns because the script took long.
    pub slow: u64,
    /// Runs with all shards.
    pub wide: u64,
    /// Ways to make its undeclared keys that are known.
    pub learned_keys: u64,
}

/// Keeps nothing: for tests that have no interpreter.
#[cfg(any(test, feature = "testing"))]
pub struct NoScripts;

#[cfg(any(test, feature = "testing"))]
impl Scripts for NoScripts {
    fn load(&self, _: &[u8], _: TextBound) -> Result<[u8; 40], CommandError> {
        Ok([b'0'; 40])
    }
    fn exists(&self, _: &[u8]) -> bool {
        false
    }
    fn body(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
    fn flush(&self) {}
    fn kill(&self, _: Kind) -> Result<(), CommandError> {
        Ok(())
    }
    fn load_library(
        &self,
        _: &[u8],
        _: bool,
        _: TextBound,
        log: LogChange<'_>,
    ) -> Result<String, CommandError> {
        log();
        Ok("lib".to_owned())
    }
    fn delete_library(&self, _: &[u8], _: LogChange<'_>) -> Result<(), CommandError> {
        Err("ERR Library not found".into())
    }
    fn flush_libraries(&self, log: LogChange<'_>) {
        log();
    }
    fn libraries_position(&self) -> u64 {
        0
    }
    fn libraries(&self, _: Option<&[u8]>) -> Vec<LibraryView> {
        vec![LibraryView {
            name: "lib".to_owned(),
            code: b"code".to_vec(),
            functions: vec![FunctionView {
                name: "f".to_owned(),
                description: None,
                flags: vec!["no-writes"],
            }],
        }]
    }
    fn dump_libraries(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore_libraries(
        &self,
        _: &[u8],
        _: Restore,
        _: TextBound,
        log: LogChange<'_>,
    ) -> Result<(), CommandError> {
        log();
        Ok(())
    }
    fn library_counts(&self) -> (usize, usize) {
        (1, 1)
    }
    fn statistics(&self, _: Option<&[u8]>) -> Vec<ScriptStatistics> {
        Vec::new()
    }
    fn running_function(&self) -> Option<FunctionRun> {
        None
    }
    fn running(&self) -> Vec<RunView> {
        Vec::new()
    }
}
